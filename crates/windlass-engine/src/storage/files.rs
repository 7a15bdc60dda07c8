//! The files of the operating system as a storage.

use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::Advice;

use super::{Lies, PlaceFile, ReadAt, Storage};
use crate::bounded::open_regular;
use crate::error::{EngineError, read_error};

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
