//! What a mount has done: counters, and their reading.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What a mount has done since it began. Reads that the kernel answers from its page cache do not
/// reach the mount and are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MountStatistics {
    /// Requests to read.
    pub reads: u64,
    /// Bytes that the reads returned.
    pub read_bytes: u64,
    /// Requests to read that failed.
    pub reads_failed: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes that the writes took.
    pub written_bytes: u64,
    /// Pieces of files that were read ahead.
    pub read_ahead: u64,
    /// Damaged places that reads have met; each is counted once.
    pub damaged: u64,
}

/// The counters behind [`MountStatistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) reads_failed: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) read_ahead: Counter,
    pub(crate) damaged: Counter,
}

/// A counter. It is exact in the end, but has no order with other counters.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn statistics(&self) -> MountStatistics {
        MountStatistics {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            reads_failed: self.reads_failed.get(),
            writes: self.writes.get(),
            written_bytes: self.written_bytes.get(),
            read_ahead: self.read_ahead.get(),
            damaged: self.damaged.get(),
        }
    }
}
