//! Decoded frames: fetched, checked, decoded, kept.

use std::collections::HashSet;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_engine::media::{Codec, FrameDecoder, FrameEntry, PieceEntry, SetId};
use windlass_engine::{EngineError, OpenStripe};

use super::cache::{ByteCache, Weighed};
use super::sorted::SortedBlock;
use super::spares::Spares;
use super::statistics::Counters;

/// A read of a whole frame of at least this length comes from a sequential reader. A shorter frame
/// may be a page that will be wanted again (SQLite's pages have up to 64 KiB, and seldom more than
/// 4).
const SEQUENTIAL_BYTES_MIN: usize = 64 * 1024;

/// Reading ahead into the cache is of use only if the cache can hold at least this many frames.
const PREFETCH_FRAMES_MIN: u64 = 32;

/// A frame: its set, its stripe, and its position there.
type FrameKey = (SetId, u16, u64);

/// The frames of an image.
pub(crate) struct Frames {
    cache: ByteCache<FrameKey, DecodedFrame>,
    /// Frames that are being decoded ahead of their readers. The readers wait for them.
    ahead: Mutex<HashSet<FrameKey>>,
    benches: Spares<Workbench>,
    /// Memory of frames that the cache has dropped. New memory would cost a page fault and zeros
    /// for each page.
    buffers: Arc<Spares<Vec<u8>>>,
}

/// The bytes of a frame. The checksums of all its pieces were right.
pub(crate) struct DecodedFrame {
    bytes: Vec<u8>,
    /// Where the memory goes when the frame is dropped.
    buffers: Arc<Spares<Vec<u8>>>,
}

impl Drop for DecodedFrame {
    fn drop(&mut self) {
        self.buffers.give(mem::take(&mut self.bytes));
    }
}

/// What a thread needs to decode.
struct Workbench {
    decoder: FrameDecoder,
    stored: Vec<u8>,
}

impl Weighed for DecodedFrame {
    fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

fn key(stripe: &OpenStripe, frame: &FrameEntry) -> FrameKey {
    let header = stripe.header();
    (header.set_id, header.stripe.0, frame.offset)
}

impl Frames {
    pub(crate) fn new(cache_bytes: u64, frame_bytes: u64) -> Self {
        let cache = ByteCache::new(cache_bytes, frame_bytes);
        Self {
            cache,
            ahead: Mutex::default(),
            benches: Spares::default(),
            buffers: Arc::default(),
        }
    }

    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Copies bytes of a frame to `into`, beginning at `start` of the decoded frame.
    pub(crate) fn copy(
        &self,
        stripe: &OpenStripe,
        block: &SortedBlock,
        frame: usize,
        start: usize,
        into: &mut [u8],
        counters: &Counters,
    ) -> Result<(), EngineError> {
        let entry = block.frame(frame);
        let pieces = block.pieces_of(frame);
        if entry.codec == Codec::Zero {
            // A frame of zeros is not worth a place in the cache: there is nothing to fetch or
            // decode.
            check_pieces(stripe, entry, pieces, &[])?;
            into.fill(0);
            return Ok(());
        }
        let key = key(stripe, entry);
        // A reader that takes a whole frame reads in sequence and will not come back for it. So the
        // frame is decoded in place. That saves a copy and drives nothing out of the cache.
        let whole = into.len() == entry.raw_bytes as usize && into.len() >= SEQUENTIAL_BYTES_MIN;
        if whole && !lock(&self.ahead).contains(&key) {
            if let Some(decoded) = self.cache.get(key) {
                counters.frame_hits.add(1);
                into.copy_from_slice(&decoded.bytes);
                return Ok(());
            }
            counters.frame_misses.add(1);
            return self.fetch(stripe, entry, pieces, into, counters);
        }
        let mut missed = false;
        let decoded = self.cache.get_or_make(key, || {
            missed = true;
            counters.frame_misses.add(1);
            self.decoded(stripe, entry, pieces, counters)
        })?;
        if !missed {
            counters.frame_hits.add(1);
        }
        into.copy_from_slice(&decoded.bytes[start..start + into.len()]);
        Ok(())
    }

    /// Decodes a frame into the cache, unless it is there already. Returns false when that is
    /// useless: the cache is too small to keep the frame until it is read, or the frame is damaged.
    pub(crate) fn prefetch(
        &self,
        stripe: &OpenStripe,
        block: &SortedBlock,
        frame: usize,
        counters: &Counters,
    ) -> bool {
        let entry = block.frame(frame);
        if entry.codec == Codec::Zero {
            return true;
        }
        if self.cache.capacity() < u64::from(entry.raw_bytes) * PREFETCH_FRAMES_MIN {
            return false;
        }
        let key = key(stripe, entry);
        if self.cache.get(key).is_some() || !lock(&self.ahead).insert(key) {
            return true;
        }
        let fetched = self.cache.get_or_make(key, || {
            counters.frames_prefetched.add(1);
            self.decoded(stripe, entry, block.pieces_of(frame), counters)
        });
        lock(&self.ahead).remove(&key);
        fetched.is_ok()
    }

    fn decoded(
        &self,
        stripe: &OpenStripe,
        entry: &FrameEntry,
        pieces: &[PieceEntry],
        counters: &Counters,
    ) -> Result<DecodedFrame, EngineError> {
        let length = entry.raw_bytes as usize;
        // Most frames are whole ones of the same length. A buffer of another length would waste
        // memory.
        let spare = self.buffers.take().filter(|spare| spare.len() == length);
        let mut frame = DecodedFrame {
            bytes: spare.unwrap_or_else(|| vec![0; length]),
            buffers: Arc::clone(&self.buffers),
        };
        self.fetch(stripe, entry, pieces, &mut frame.bytes, counters)?;
        Ok(frame)
    }

    /// Reads, checks and decodes a frame to `raw`, which has the frame's length.
    fn fetch(
        &self,
        stripe: &OpenStripe,
        entry: &FrameEntry,
        pieces: &[PieceEntry],
        raw: &mut [u8],
        counters: &Counters,
    ) -> Result<(), EngineError> {
        if entry.is_stored_as_it_is() {
            counters.fetch_nanos.time(|| fetch(stripe, entry, raw))?;
            let check = || check_pieces(stripe, entry, pieces, raw);
            counters.decode_nanos.time(check)?;
        } else {
            let mut bench = match self.benches.take() {
                Some(bench) => bench,
                None => Workbench::new()?,
            };
            bench.stored.resize(entry.stored_bytes as usize, 0);
            let Workbench { decoder, stored } = &mut bench;
            counters.fetch_nanos.time(|| fetch(stripe, entry, stored))?;
            counters.decode_nanos.time(|| {
                let decoded = decoder.decode_with(stripe.cipher(), (entry, pieces), stored, raw);
                decoded.map_err(|source| stripe.damage(entry.offset, source))?;
                check_pieces(stripe, entry, pieces, raw)
            })?;
            self.benches.give(bench);
        }
        counters.fetched_bytes.add(u64::from(entry.stored_bytes));
        counters.frames_decoded.add(1);
        counters.decoded_bytes.add(raw.len() as u64);
        Ok(())
    }
}

impl Workbench {
    fn new() -> Result<Self, EngineError> {
        Ok(Self {
            decoder: FrameDecoder::new()?,
            stored: Vec::new(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a frame as it is stored, and checks it.
fn fetch(stripe: &OpenStripe, entry: &FrameEntry, stored: &mut [u8]) -> Result<(), EngineError> {
    stripe.read_checked(entry.offset, stored, |bytes| entry.check_stored(bytes))
}

fn check_pieces(
    stripe: &OpenStripe,
    entry: &FrameEntry,
    pieces: &[PieceEntry],
    raw: &[u8],
) -> Result<(), EngineError> {
    let checked = entry.check_pieces(pieces, raw);
    checked.map_err(|fault| stripe.damage(entry.offset, fault))
}
