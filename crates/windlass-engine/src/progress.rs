//! Progress of a run, for whoever shows it: counters that are cheap to read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::waits::Stage;

/// The live state of one run.
#[derive(Debug, Default)]
pub struct Progress {
    phase: Mutex<&'static str>,
    total_bytes: AtomicU64,
    /// Readers: of the source in a backup, of the stripes in a restore.
    pub reader: Stage,
    /// Compressors in a backup, decompressors in a restore.
    pub compressor: Stage,
    /// Writers: of stripes in a backup, of files in a restore.
    pub writer: Stage,
}

impl Progress {
    /// Says what the run is doing now.
    pub fn set_phase(&self, phase: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// What the run is doing now.
    pub fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how many bytes there are to do, as far as known.
    pub fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes there are to do; zero when not known.
    pub fn total(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes are done: read from the source, or taken from the stripes.
    pub fn done(&self) -> u64 {
        self.compressor.bytes()
    }
}
