//! Settling: reads the file again, on all cores, and finds the ranges that differ from the set.
//!
//!   workers: [block 0] [block 1] ... --> hash, compare --> [changed ranges] --> sink (caller)
//!
//! Invariants
//! - A worker claims whole units and reads them block by block. Only the caller's thread calls the
//!   sink.
//! - Memory: one block for each worker, whatever the size of a unit, and a bounded queue of ranges.
//! - Reading leaves the page cache as it was, if the kernel can do that: cached pages stay, and no
//!   others are brought in.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::Sender;
use windlass_engine::{Cancel, EngineError, RateLimit, Stage, read_uncached};
use windlass_media::fitted;

use crate::error::{IoContext, SqliteError};
use crate::log_pages::LogPages;
use crate::ranges::{ByteRange, RangeHashes};
use crate::reach::Reach;

/// Bytes that a worker reads at a time: a power of two, as units are.
const BLOCK_BYTES: u64 = 1 << 20;

/// How many changed ranges may wait for the sink.
const QUEUE_RANGES: usize = 64;

/// The state of the database to compare: the file, the pages of its log, and its reach.
pub(crate) struct Compared<'a> {
    pub(crate) file: &'a File,
    pub(crate) path: &'a Path,
    pub(crate) log_pages: Option<&'a LogPages>,
    pub(crate) reach: Reach,
    /// The limit on reading the source.
    pub(crate) pace: Option<&'a RateLimit>,
    /// The time limit: somebody is waiting for the end, and must not wait longer.
    pub(crate) until: Option<Instant>,
    /// Changed ranges are multiples of this: a power of two, at least one range.
    pub(crate) unit_bytes: u64,
    /// Every block from this offset on counts as changed.
    pub(crate) changed_from: u64,
}

/// Calls `sink` with each range that differs from `hashes`. Returns the sum of their bytes.
pub(crate) fn settle(
    compared: &Compared<'_>,
    hashes: &RangeHashes,
    cancel: &Cancel,
    mut sink: impl FnMut(ByteRange) -> Result<(), SqliteError>,
) -> Result<u64, SqliteError> {
    let next = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (sender, receiver) = crossbeam_channel::bounded(QUEUE_RANGES);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|_| {
                let sender = sender.clone();
                let next = &next;
                scope.spawn(move || {
                    Worker {
                        compared,
                        hashes,
                        next,
                        sender,
                        paced: Stage::default(),
                    }
                    .run(cancel)
                })
            })
            .collect();
        drop(sender);
        let mut bytes = 0;
        let mut result = Ok(());
        for range in &receiver {
            bytes += range.bytes;
            result = sink(range);
            if result.is_err() {
                break;
            }
        }
        // Workers that still have ranges to send see the closed queue and end.
        drop(receiver);
        for handle in handles {
            let ended = handle
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(ended);
        }
        result.map(|()| bytes)
    })
}

struct Worker<'a> {
    compared: &'a Compared<'a>,
    hashes: &'a RangeHashes,
    next: &'a AtomicU64,
    sender: Sender<ByteRange>,
    /// Counts waits for the rate limit. It is not a stage of the pipeline, so no report shows it.
    paced: Stage,
}

impl Worker<'_> {
    fn run(&self, cancel: &Cancel) -> Result<(), SqliteError> {
        let claim_bytes = BLOCK_BYTES.max(self.compared.unit_bytes);
        let mut buffer = vec![0; fitted(BLOCK_BYTES)];
        loop {
            let offset = self.next.fetch_add(claim_bytes, Ordering::Relaxed);
            if offset >= self.compared.reach.bytes {
                return Ok(());
            }
            let bytes = claim_bytes.min(self.compared.reach.bytes - offset);
            for range in self.changed(offset, bytes, &mut buffer, cancel)? {
                if self.sender.send(range).is_err() {
                    return Ok(());
                }
            }
        }
    }

    fn changed(
        &self,
        offset: u64,
        bytes: u64,
        buffer: &mut [u8],
        cancel: &Cancel,
    ) -> Result<Vec<ByteRange>, SqliteError> {
        self.check(cancel)?;
        let mut comparison = self.hashes.compare(offset, bytes);
        if offset + bytes > self.compared.changed_from {
            return Ok(comparison.all_changed());
        }
        let mut at = offset;
        while at < offset + bytes {
            self.check(cancel)?;
            let length = BLOCK_BYTES.min(offset + bytes - at);
            let block = &mut buffer[..fitted(length)];
            if let Some(pace) = self.compared.pace {
                pace.pass(length, &self.paced, cancel)?;
            }
            self.read(at, block)?;
            comparison.add(at, block);
            at += length;
        }
        Ok(comparison.changed(self.compared.unit_bytes))
    }

    /// Fails if the run has been cancelled or the time is over.
    fn check(&self, cancel: &Cancel) -> Result<(), SqliteError> {
        cancel.check()?;
        match self.compared.until {
            Some(until) if Instant::now() >= until => Err(EngineError::HurryEnded.into()),
            _ => Ok(()),
        }
    }

    /// Reads a block as the set would hold it: with the pages of the log, and zeros behind the end
    /// of the file where the reach allows that.
    fn read(&self, offset: u64, block: &mut [u8]) -> Result<(), SqliteError> {
        let found =
            read_uncached(self.compared.file, offset, block).during("read", self.compared.path)?;
        if found < block.len() {
            let end_offset = offset + found as u64;
            self.compared
                .reach
                .check_read(self.compared.path, end_offset)?;
        }
        block[found..].fill(0);
        match self.compared.log_pages {
            Some(log_pages) => log_pages.apply(offset, block),
            None => Ok(()),
        }
    }
}
