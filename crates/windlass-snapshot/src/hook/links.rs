//! Hard links to the files of a snapshot: they keep each file when the server removes its name, and
//! the number of its inode from being used again.
//!
//! They are where the files are, because a link cannot leave its file system:
//!
//!   data directory   pg_subtrans/windlass/ID-NUMBER/     tablespace   LOCATION/windlass/ID-NUMBER/
//!
//! PostgreSQL and its tools leave out what pg_subtrans holds, and what a tablespace's directory
//! holds beside that of the server's version. So does a backup of this program.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, linkat, open, statat};
use rustix::io::Errno;
use windlass_image::layout::hook::{FileKey, FileLink, SAVED_DIRECTORY};

use super::control::key_of;
use super::error::{HookError, HookIo};

const IN_DATA: &str = SAVED_DIRECTORY;
const IN_TABLESPACE: &str = "windlass";
const TABLESPACES: &str = "pg_tblspc";

/// The links of a snapshot that is being made. They are removed unless it is kept.
pub(crate) struct Links {
    data: PathBuf,
    name: String,
    directories: Vec<Directory>,
    next: u32,
    is_kept: bool,
}

struct Directory {
    /// Where the files that go here are: the data directory, or a tablespace's link.
    base: PathBuf,
    path: PathBuf,
    handle: OwnedFd,
}

/// A file with its link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    /// Which directory of links.
    pub(crate) directory: usize,
    /// The link's name there.
    pub(crate) name: u32,
    pub(crate) key: FileKey,
    pub(crate) bytes: u64,
}

impl Linked {
    /// The link, as an index names it.
    pub(crate) fn link(&self) -> Result<FileLink, HookError> {
        let directory = u32::try_from(self.directory).map_err(|_| HookError::TooLarge)?;
        let name = self.name;
        Ok(FileLink { directory, name })
    }
}

impl Links {
    /// The links of the snapshot with this number. `data` is the data directory.
    pub(crate) fn new(data: &Path, number: u32) -> Result<Self, HookError> {
        Ok(Self {
            data: data.into(),
            name: format!("{}-{number}", identity(data)?),
            directories: Vec::new(),
            next: 0,
            is_kept: false,
        })
    }

    /// Links a file. `path` is its path below the data directory. `None` if the file is gone.
    pub(crate) fn link(&mut self, path: &[u8]) -> Result<Option<Linked>, HookError> {
        let relative = Path::new(OsStr::from_bytes(path));
        let source = self.data.join(relative);
        let directory = self.directory(relative)?;
        let handle = &self.directories[directory].handle;
        let name = self.next;
        self.next += 1;
        let link = name.to_string();
        // The kernel would link a link itself.
        match linkat(CWD, &source, handle, &link, AtFlags::SYMLINK_FOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            linked => linked.map_err(|errno| HookError::Link {
                path: source.clone(),
                source: errno.into(),
            })?,
        }
        let found = statat(handle, &link, AtFlags::SYMLINK_NOFOLLOW);
        let found = found
            .map_err(std::io::Error::from)
            .doing("examine", &source)?;
        let (key, bytes) = told(&found)?;
        Ok(Some(Linked {
            directory,
            name,
            key,
            bytes,
        }))
    }

    /// A file that is linked already, with the length that it has now. `None` if the path belongs
    /// to another file by now, or to none.
    pub(crate) fn again(
        &self,
        source: &Path,
        linked: &Linked,
    ) -> Result<Option<Linked>, HookError> {
        let found = match statat(CWD, source, AtFlags::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            found => found
                .map_err(std::io::Error::from)
                .doing("examine", source)?,
        };
        let (key, bytes) = told(&found)?;
        Ok((key == linked.key).then_some(Linked { bytes, ..*linked }))
    }

    /// The directory for the links of a file.
    fn directory(&mut self, relative: &Path) -> Result<usize, HookError> {
        let base = base_of(relative);
        let known = self.directories.iter();
        let mut known = known.map(|directory| &directory.base);
        if let Some(index) = known.position(|known| *known == base) {
            return Ok(index);
        }
        let path = place(&self.data, &base)?.join(&self.name);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&path).doing("create", &path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = open(&path, flags, Mode::empty());
        let handle = handle.map_err(std::io::Error::from).doing("open", &path)?;
        self.directories.push(Directory { base, path, handle });
        Ok(self.directories.len() - 1)
    }

    /// Their directories, in the order of their numbers.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let directories = self.directories.iter();
        directories
            .map(|directory| directory.path.clone())
            .collect()
    }

    /// Keeps the links.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        for directory in self.directories.drain(..) {
            // What cannot be removed now, the next controller removes.
            remove(&directory.path).unwrap_or_default();
        }
    }
}

/// The key of a file and its length.
fn told(found: &Stat) -> Result<(FileKey, u64), HookError> {
    let (major, minor) = (
        rustix::fs::major(found.st_dev),
        rustix::fs::minor(found.st_dev),
    );
    let bytes = u64::try_from(found.st_size).map_err(|_| HookError::TooLarge)?;
    Ok((FileKey::new(major, minor, found.st_ino), bytes))
}

/// The part of the database that a file is in: a tablespace, or empty for the data directory.
fn base_of(relative: &Path) -> PathBuf {
    let mut parts = relative.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(first)), Some(second)) if first == TABLESPACES => {
            Path::new(TABLESPACES).join(second)
        }
        _ => PathBuf::new(),
    }
}

/// The directory for all links of a part of the database.
fn place(data: &Path, base: &Path) -> Result<PathBuf, HookError> {
    let link = data.join(base);
    if base.as_os_str().is_empty() || !link.is_symlink() {
        return Ok(data.join(IN_DATA));
    }
    let location = link.canonicalize().doing("resolve", &link)?;
    Ok(location.join(IN_TABLESPACE))
}

/// Tells clusters apart that share a tablespace's directory.
fn identity(data: &Path) -> Result<String, HookError> {
    let found = std::fs::metadata(data).doing("examine", data)?;
    let name = key_of(&found).control_name();
    let name = String::from_utf8_lossy(&name).into_owned();
    Ok(name.trim_start_matches("windlass-").to_owned())
}

/// Removes a directory of links.
pub(crate) fn remove(path: &Path) -> Result<(), HookError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.doing("remove", path),
    }
}

/// Removes the links of snapshots that are no longer there.
pub(crate) fn sweep(data: &Path, numbers: &BTreeSet<u32>) -> Result<(), HookError> {
    let identity = format!("{}-", identity(data)?);
    let mut places = BTreeSet::from([data.join(IN_DATA)]);
    for space in entries(&data.join(TABLESPACES))? {
        let base = Path::new(TABLESPACES).join(space);
        // A tablespace whose directory is gone has no links.
        if data.join(&base).exists() {
            places.insert(place(data, &base)?);
        }
    }
    for place in places {
        for name in entries(&place)? {
            let text = name.to_string_lossy();
            let number = text
                .strip_prefix(&identity)
                .and_then(|rest| rest.parse().ok());
            if number.is_some_and(|number: u32| !numbers.contains(&number)) {
                remove(&place.join(&name))?;
            }
        }
    }
    Ok(())
}

/// The names in a directory; none if there is no such directory.
fn entries(path: &Path) -> Result<Vec<std::ffi::OsString>, HookError> {
    let listed = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.doing("list", path)?,
    };
    let names = listed.map(|entry| entry.map(|entry| entry.file_name()));
    names.collect::<Result<_, _>>().doing("list", path)
}
