//! A directory as an image: a live or a restored database, for comparisons.
//!
//! The directory is listed once. A file that grows afterwards is read up to the length it had; one
//! that shrinks or goes is an error where it is read, and damage if nobody changes the files. Links
//! are entries of their own and are not followed, except where the caller names a directory that
//! stands for a path (a tablespace).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quick_cache::sync::Cache;
use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo, FileTable, fitted};

use crate::error::ImageError;
use crate::image::{FileLookup, Image, read_length};

/// How many files are kept open.
const OPEN_FILES_MAX: usize = 128;
/// What is wrong with something else in the place of a file.
const NOT_REGULAR: &str = "it is not a regular file";

/// A directory as an image.
pub struct DirectoryImage {
    files: FileTable,
    lookup: FileLookup,
    /// Where each entry of the table is.
    paths: Vec<PathBuf>,
    open: Cache<usize, Arc<File>>,
    identity: Option<[u8; 32]>,
}

impl DirectoryImage {
    /// Lists a directory.
    pub fn open(root: &Path) -> Result<Self, ImageError> {
        Self::open_with(root, &[])
    }

    /// Lists a directory. For each prefix in `mounts`, the files below it come from the directory
    /// given with it, whatever the root has there.
    pub fn open_with(root: &Path, mounts: &[(Vec<u8>, PathBuf)]) -> Result<Self, ImageError> {
        let mut listing = Listing::default();
        listing.directory(root, b"", mounts)?;
        for (prefix, place) in mounts {
            listing.directory(place, prefix, mounts)?;
        }
        Ok(Self::new(FileTable(listing.entries), listing.paths, None))
    }

    /// The files of a snapshot, each at its own path in `paths`. Nobody changes them, and
    /// `identity` distinguishes them from all others. A path counts only for a regular file that
    /// has content.
    pub fn of_files(files: FileTable, paths: Vec<PathBuf>, identity: [u8; 32]) -> Self {
        Self::new(files, paths, Some(identity))
    }

    fn new(files: FileTable, paths: Vec<PathBuf>, identity: Option<[u8; 32]>) -> Self {
        Self {
            lookup: FileLookup::new(&files),
            files,
            paths,
            open: Cache::new(OPEN_FILES_MAX),
            identity,
        }
    }

    /// Whether nobody changes the files, so that one that is gone or shorter is damaged.
    fn is_fixed(&self) -> bool {
        self.identity.is_some()
    }

    fn file(&self, index: usize) -> Result<Arc<File>, ImageError> {
        let path = &self.paths[index];
        let open = || -> io::Result<Arc<File>> {
            // What was a file at the listing may have become a link or a pipe.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let mut options = OpenOptions::new();
            let file = options.read(true).custom_flags(flags).open(path)?;
            match file.metadata()?.is_file() {
                true => Ok(Arc::new(file)),
                false => Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_REGULAR)),
            }
        };
        let opened = self.open.get_or_insert_with(&index, open);
        opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound if self.is_fixed() => ImageError::SnapshotFile {
                path: path.clone(),
                what: "it is not there".to_owned(),
            },
            _ if self.is_fixed() && is_no_file(&source) => ImageError::SnapshotFile {
                path: path.clone(),
                what: NOT_REGULAR.to_owned(),
            },
            _ => error("open", path, source),
        })
    }
}

impl Image for DirectoryImage {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let index = self.lookup.index(&self.files, file)?;
        let entry = &self.files.0[index];
        let length = read_length(entry, offset, into.len());
        if length == 0 {
            return Ok(0);
        }
        let (open, path) = (self.file(index)?, &self.paths[index]);
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            match open.read_at(&mut into[done..length], at) {
                Ok(0) => {
                    let (path, listed_bytes) = (path.clone(), entry.bytes);
                    if self.is_fixed() {
                        let what = format!("it ends after {at} of {listed_bytes} bytes");
                        return Err(ImageError::SnapshotFile { path, what });
                    }
                    return Err(ImageError::Shrunk {
                        path,
                        listed_bytes,
                        found_bytes: at,
                    });
                }
                Ok(count) => done += count,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(error("read", path, source)),
            }
        }
        Ok(length)
    }

    fn identity(&self) -> Option<[u8; 32]> {
        self.identity
    }
}

#[derive(Default)]
struct Listing {
    entries: Vec<FileEntry>,
    paths: Vec<PathBuf>,
}

impl Listing {
    /// Lists the content of a directory in the order of names, under a path of the image.
    fn directory(
        &mut self,
        place: &Path,
        prefix: &[u8],
        mounts: &[(Vec<u8>, PathBuf)],
    ) -> Result<(), ImageError> {
        let fault = |source| error("list", place, source);
        let names = fs::read_dir(place)
            .map_err(fault)?
            .map(|entry| entry.map(|e| e.file_name()));
        let mut names = names.collect::<Result<Vec<_>, _>>().map_err(fault)?;
        names.sort();
        for name in names {
            let path = place.join(&name);
            let metadata = match fs::symlink_metadata(&path) {
                // The entry was removed after the directory was read, so it is not part of the
                // image.
                Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|source| error("list", &path, source))?,
            };
            let mut own = prefix.to_vec();
            if !own.is_empty() {
                own.push(b'/');
            }
            own.extend_from_slice(name.as_bytes());
            let mounted = mounts.iter().any(|(prefix, _)| *prefix == own);
            self.entry(&path, own.clone(), &metadata)?;
            if metadata.is_dir() && !mounted {
                self.directory(&path, &own, mounts)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, own: Vec<u8>, metadata: &Metadata) -> Result<(), ImageError> {
        let kind = metadata.file_type();
        let kind = match (kind.is_file(), kind.is_dir(), kind.is_symlink()) {
            (true, _, _) => FileKind::File,
            (_, true, _) => FileKind::Directory,
            (_, _, true) => FileKind::Symlink,
            // Sockets and pipes belong to a process, not to a database.
            _ => return Ok(()),
        };
        let link_target = match kind {
            FileKind::Symlink => {
                let target = fs::read_link(path).map_err(|source| error("list", path, source))?;
                target.as_os_str().as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        self.entries.push(FileEntry {
            file: FileNo(fitted(self.entries.len())),
            kind,
            flags: FileFlags::default(),
            mode: metadata.mode() & 0o777,
            bytes: if kind == FileKind::File {
                metadata.len()
            } else {
                0
            },
            mtime_nanos: metadata.mtime().saturating_mul(1_000_000_000) + metadata.mtime_nsec(),
            crc32c: 0,
            path: own,
            link_target,
        });
        self.paths.push(path.to_owned());
        Ok(())
    }
}

/// Whether something else has the place of a file: a link, a socket, or whatever could be opened.
fn is_no_file(error: &io::Error) -> bool {
    let is_other = [libc::ELOOP, libc::ENXIO].map(Some);
    error.kind() == io::ErrorKind::InvalidInput || is_other.contains(&error.raw_os_error())
}

fn error(operation: &'static str, path: &Path, source: io::Error) -> ImageError {
    ImageError::Directory {
        operation,
        path: path.to_owned(),
        source,
    }
}
