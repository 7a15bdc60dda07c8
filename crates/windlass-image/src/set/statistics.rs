//! What an image has done for its readers: counters, and where their time went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;
use windlass_engine::media::fitted;

/// What a set's image has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImageStatistics {
    /// Reads by users of the image.
    pub reads: u64,
    /// Bytes given to them.
    pub read_bytes: u64,
    /// Frames that were wanted and were in the cache.
    pub frame_hits: u64,
    /// Frames that were wanted and had to be fetched and decoded.
    pub frame_misses: u64,
    /// Frames that were decoded before they were wanted.
    pub frames_prefetched: u64,
    /// Frames decoded: misses and prefetched ones, without failures.
    pub frames_decoded: u64,
    /// Bytes that the decoding produced.
    pub decoded_bytes: u64,
    /// Index blocks that were wanted and were in the cache.
    pub index_hits: u64,
    /// Index blocks that were wanted and had to be read.
    pub index_misses: u64,
    /// Bytes read from stripes: frames and index blocks.
    pub fetched_bytes: u64,
    /// Time that readers waited for stripes, in nanoseconds, summed over threads.
    pub fetch_nanos: u64,
    /// Time that readers spent on checking and decoding frames, in nanoseconds, summed over
    /// threads.
    pub decode_nanos: u64,
    /// Time that readers spent on reading and sorting index blocks, in nanoseconds, summed over
    /// threads.
    pub index_nanos: u64,
    /// Bytes in the frame cache now.
    pub frame_cache_bytes: u64,
    /// Bytes in the index cache now.
    pub index_cache_bytes: u64,
}

/// The counters behind [`ImageStatistics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) frame_hits: Counter,
    pub(crate) frame_misses: Counter,
    pub(crate) frames_prefetched: Counter,
    pub(crate) frames_decoded: Counter,
    pub(crate) decoded_bytes: Counter,
    pub(crate) index_hits: Counter,
    pub(crate) index_misses: Counter,
    pub(crate) fetched_bytes: Counter,
    pub(crate) fetch_nanos: Counter,
    pub(crate) decode_nanos: Counter,
    pub(crate) index_nanos: Counter,
}

/// A counter. It is exact in the end, but has no order with other counters.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Runs `work`, and adds the nanoseconds that it takes.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = work();
        self.add(fitted(begin.elapsed().as_nanos()));
        result
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The counters as they are now.
    pub(crate) fn statistics(&self, frame_cache: u64, index_cache: u64) -> ImageStatistics {
        ImageStatistics {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            frame_hits: self.frame_hits.get(),
            frame_misses: self.frame_misses.get(),
            frames_prefetched: self.frames_prefetched.get(),
            frames_decoded: self.frames_decoded.get(),
            decoded_bytes: self.decoded_bytes.get(),
            index_hits: self.index_hits.get(),
            index_misses: self.index_misses.get(),
            fetched_bytes: self.fetched_bytes.get(),
            fetch_nanos: self.fetch_nanos.get(),
            decode_nanos: self.decode_nanos.get(),
            index_nanos: self.index_nanos.get(),
            frame_cache_bytes: frame_cache,
            index_cache_bytes: index_cache,
        }
    }
}
