//! Files of which each read is noted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::{EngineError, Files, Lies, PlaceFile, ReadAt, Storage};

/// A read: of which file, from where, and how long.
pub type Read = (PathBuf, u64, usize);

/// Files, with what is read from them.
#[derive(Clone, Debug, Default)]
pub struct NotedReads(Arc<Mutex<Vec<Read>>>);

#[derive(Debug)]
struct NotedBytes(Arc<dyn ReadAt>, PathBuf, NotedReads);

impl NotedReads {
    /// The reads since it was asked last.
    pub fn take(&self) -> Vec<Read> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ReadAt for NotedBytes {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let read = (self.1.clone(), offset, into.len());
        let mut reads = self.2.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.push(read);
        drop(reads);
        self.0.read_at(offset, into)
    }
}

impl Storage for NotedReads {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        Files.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        let bytes = Files.open(location)?;
        let noted = NotedBytes(bytes, location.to_owned(), self.clone());
        Ok(Arc::new(noted))
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        Files.list(place, each)
    }
}
