//! A directory tree as a storage of named objects.
//!
//! Invariants
//! - A new directory is durable before anything is stored in it.
//! - What a killed run leaves has a temporary name, and the next run in the directory removes it.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ListedObject, Listing, Naming, NewObject, Objects, Reading};
use crate::bounded::open_regular;
use crate::durable::{self, NameError};
use crate::storage::{FileBytes, Files, ReadAt, Storage};

/// Mode of an object: only its owner reads it, because log holds everything that was written.
const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Directories and files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Directory;

impl Directory {
    /// Makes the directory of a path below a place, and those above it, durably. The place itself
    /// must exist: a disk may not be mounted.
    pub fn make_parents(&self, place: &Path, path: &Path) -> io::Result<()> {
        let directory = path.parent().unwrap_or(place);
        for made in below(place, directory) {
            let mut builder = std::fs::DirBuilder::new();
            match builder.mode(DIRECTORY_MODE).create(&made) {
                Ok(()) => durable::sync_parent(&made)?,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        // What an earlier run left is in our way nowhere else.
        durable::remove_all_left(directory);
        Ok(())
    }
}

/// The directories from below the place to this one.
fn below(place: &Path, directory: &Path) -> Vec<PathBuf> {
    let parts = directory.strip_prefix(place).unwrap_or(directory);
    let mut path = place.to_owned();
    let step = |part: std::path::Component<'_>| {
        path.push(part);
        path.clone()
    };
    parts.components().map(step).collect()
}

/// The names in a directory; none if it does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().to_str().map(str::to_owned));
    }
    Ok(names)
}

impl Objects for Directory {
    fn find(&self, place: &Path) -> io::Result<()> {
        std::fs::read_dir(place).map(drop)
    }

    fn folders(&self, folder: &Path) -> io::Result<Vec<String>> {
        names(folder)
    }

    fn objects(&self, folder: &Path, listing: Listing<'_>) -> io::Result<Vec<ListedObject>> {
        let listed = |folder: &Path, name: String| ListedObject {
            location: folder.join(name),
            bytes: None,
        };
        let own = names(folder)?;
        match listing {
            Listing::Own => Ok(own.into_iter().map(|name| listed(folder, name)).collect()),
            Listing::From(first) => {
                let from = own.into_iter().filter(|name| name.as_str() >= first);
                Ok(from.map(|name| listed(folder, name)).collect())
            }
            Listing::Below => {
                let mut found = Vec::new();
                for name in own {
                    let inner = folder.join(name);
                    let names = match names(&inner) {
                        Err(error) if error.kind() == ErrorKind::NotADirectory => continue,
                        names => names?,
                    };
                    found.extend(names.into_iter().map(|name| listed(&inner, name)));
                }
                Ok(found)
            }
        }
    }

    fn open(
        &self,
        location: &Path,
        _bytes: Option<u64>,
        _reading: Reading,
    ) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(FileBytes(Arc::new(open_regular(location)?))))
    }

    fn create(&self, place: &Path, location: &Path) -> io::Result<Box<dyn NewObject>> {
        self.make_parents(place, location)?;
        let (file, temporary) = durable::create_temporary(location, MODE)?;
        let path = location.to_owned();
        Ok(Box::new(NewFile {
            file,
            temporary,
            path,
        }))
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        Files.remove(location)
    }

    fn settle(&self, place: &Path, location: &Path) -> io::Result<()> {
        let directory = location.parent().unwrap_or(place);
        let above = std::iter::once(place.to_owned()).chain(below(place, directory));
        { above }.try_for_each(|one| File::open(one)?.sync_all())
    }

    fn directory(&self) -> Option<&Directory> {
        Some(self)
    }
}

/// A file under a temporary name.
struct NewFile {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewObject for NewFile {
    fn name(self: Box<Self>, _hash_bytes: usize) -> io::Result<Naming> {
        self.file.sync_all()?;
        match durable::name_new(&self.file, &self.temporary, &self.path) {
            Ok(()) => Ok(Naming::Named),
            Err(NameError::Taken) => Ok(Naming::Taken),
            Err(error) => Err(error.into()),
        }
    }

    fn name_over(self: Box<Self>, _hash_bytes: usize) -> io::Result<()> {
        self.file.sync_all()?;
        Ok(durable::name_over(&self.file, &self.temporary, &self.path)?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // The file is ours alone. If it has its name already, nothing has this one.
        std::fs::remove_file(&self.temporary).unwrap_or_default();
    }
}
