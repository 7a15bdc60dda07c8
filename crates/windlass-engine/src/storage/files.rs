//! The files of the operating system as a storage.
//!
//! Locking: a reader locks each stripe's file together with other readers, and whoever removes it
//! locks it alone. The kernel ends the lock of a process that is killed, and a file server ends
//! those of a host that is gone. So no lock is ever left over, and none is taken from anybody who
//! lives.

use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Advice;

use super::{Keep, Kept, Lies, PlaceFile, ReadAt, Storage};
use crate::bounded::open_regular;
use crate::durable::{self, Locked};
use crate::error::{EngineError, read_error};

/// How often a reader asks again for a file that somebody is about to remove, or not, and how long
/// it waits in between.
const ASKED_MAX: u32 = 1500;
const ASKED_EVERY: Duration = Duration::from_millis(20);
/// The mode of small documents. They say no more than the names of stripes do.
const DOCUMENT_MODE: u32 = 0o640;

/// The files and directories of this machine. Links to files are followed when they are named, and
/// not when they lie in a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files;

impl Storage for Files {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        let metadata = location.metadata()?;
        if metadata.is_dir() {
            return Ok(Lies::Place);
        }
        if !metadata.is_file() {
            return Ok(Lies::Other);
        }
        Ok(Lies::File {
            bytes: metadata.len(),
            modified_nanos: modified_nanos(&metadata),
        })
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(FileBytes(Arc::new(open_regular(location)?))))
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        let fault = |source| read_error(place, 0, source);
        for entry in std::fs::read_dir(place).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            // A backup that ends at this moment renames its stripe. The new name may or may not be
            // listed.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file() {
                each(PlaceFile {
                    location: entry.path(),
                    bytes: metadata.len(),
                    modified_nanos: modified_nanos(&metadata),
                });
            }
        }
        Ok(())
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        if one == other {
            return true;
        }
        match (one.metadata(), other.metadata()) {
            (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
            _ => false,
        }
    }

    fn keep(&self, _location: &Path, opened: &dyn ReadAt) -> io::Result<Kept> {
        match opened.file() {
            Some(file) => shared(file),
            None => Ok(Box::new(())),
        }
    }

    fn reserve(&self, location: &Path) -> io::Result<Option<Kept>> {
        // A file server locks a file for one process alone only if that may write to it.
        let file = File::options().read(true).write(true).open(location);
        let file = file.or_else(|_| open_regular(location))?;
        match Locked::take(Arc::new(file)) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        durable::if_there(std::fs::remove_file(location))?;
        durable::sync_parent(location)
    }

    fn write(&self, location: &Path, content: &[u8]) -> io::Result<()> {
        durable::write(location, content, DOCUMENT_MODE)
    }
}

impl Keep for Locked<Arc<File>> {}

/// Locks an open file together with other readers.
fn shared(file: &Arc<File>) -> io::Result<Kept> {
    for _ in 0..ASKED_MAX {
        match Locked::share(Arc::clone(file)) {
            Ok(_) if file.metadata()?.nlink() == 0 => return Err(io::ErrorKind::NotFound.into()),
            Ok(lock) => return Ok(Box::new(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(ASKED_EVERY);
            }
            // Without locks there, nobody removes anything: `reserve` fails, too.
            Err(_) => return Ok(Box::new(())),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

fn modified_nanos(metadata: &Metadata) -> i64 {
    let seconds = metadata.mtime().saturating_mul(1_000_000_000);
    seconds.saturating_add(metadata.mtime_nsec())
}

/// An open file.
#[derive(Debug)]
pub(crate) struct FileBytes(pub(crate) Arc<File>);

impl ReadAt for FileBytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.0.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        let bytes = NonZeroU64::new(bytes);
        // Only advice: without it, reads are slower.
        rustix::fs::fadvise(&*self.0, offset, bytes, Advice::WillNeed).unwrap_or_default();
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(&self.0)
    }
}
