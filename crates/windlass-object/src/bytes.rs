//! The bytes of a stripe, or of another object, in a bucket, read in ranges.
//!
//!   head (copy) | data, by ranges, some of them ahead of the reader | tail (copy)
//!
//! A reader that goes on where it ended gets more and more bytes ahead, several requests at a time:
//! one request alone waits more than it transfers. A reader that jumps gets little more than it
//! asked for.
//!
//! Invariants
//! - At most `KEPT_BYTES_MAX` and one range are kept of one stripe.
//! - A range that could not be read is asked for again by the next reader.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use windlass_engine::ReadAt;
use windlass_engine::media::{NameObject, fitted};

use crate::client::Bucket;
use crate::error::ObjectError;

/// The least that is asked for at once: the time of a request is that of about so many bytes.
pub(crate) const RANGE_BYTES_MIN: u64 = 128 * 1024;
/// The most that is asked for at once.
pub(crate) const RANGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How far ahead of a sequential reader.
const AHEAD_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How much is kept of one stripe.
const KEPT_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// A reader that leaves out no more than this is sequential.
const GAP_BYTES_MAX: u64 = 256 * 1024;
/// How many readers of one stripe are told apart.
const READERS_MAX: usize = 8;

/// A range that was asked for.
struct Range {
    from: u64,
    to: u64,
    slot: Arc<Slot>,
}

/// Where its bytes arrive.
#[derive(Default)]
struct Slot {
    arrived: Mutex<Option<Result<Bytes, ObjectError>>>,
    changed: Condvar,
}

/// A reader: where it goes on, and how far it has read in one go.
#[derive(Clone, Copy)]
struct Reader {
    next: u64,
    run: u64,
}

#[derive(Default)]
struct Kept {
    ranges: VecDeque<Range>,
    readers: VecDeque<Reader>,
}

/// A stripe in a bucket that is open for reading.
pub(crate) struct StripeBytes {
    location: PathBuf,
    bucket: Arc<Bucket>,
    /// The key of the data in the bucket.
    key: String,
    name: Arc<NameObject>,
    kept: Mutex<Kept>,
}

impl std::fmt::Debug for StripeBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("StripeBytes").field(&self.location).finish()
    }
}

impl StripeBytes {
    pub(crate) fn new(
        location: PathBuf,
        bucket: Arc<Bucket>,
        key: String,
        name: Arc<NameObject>,
    ) -> Self {
        let kept = Mutex::default();
        Self {
            location,
            bucket,
            key,
            name,
            kept,
        }
    }

    /// An object without a name object, of which the last bytes are at hand.
    pub(crate) fn of_object(
        (location, bucket, key): (PathBuf, Arc<Bucket>, String),
        bytes: u64,
        tail: &[u8],
    ) -> Self {
        let name = NameObject {
            key: key.clone(),
            data_bytes: bytes,
            stripe_bytes: bytes,
            head: Vec::new(),
            tail: tail.to_vec(),
        };
        Self::new(location, bucket, key, Arc::new(name))
    }

    /// Where the copy of the tail begins.
    fn tail_from(&self) -> u64 {
        self.name.stripe_bytes - self.name.tail.len() as u64
    }

    /// Copies from one of the ends, if `offset` is in it.
    fn of_ends(&self, offset: u64, into: &mut [u8]) -> usize {
        let copy = |from: u64, bytes: &[u8], into: &mut [u8]| {
            let at: usize = fitted(offset - from);
            let count = into.len().min(bytes.len() - at);
            into[..count].copy_from_slice(&bytes[at..at + count]);
            count
        };
        let tail_from = self.tail_from();
        if offset < self.name.head.len() as u64 {
            copy(0, &self.name.head, into)
        } else if offset >= tail_from {
            copy(tail_from, &self.name.tail, into)
        } else {
            0
        }
    }

    /// Copies from the data: at least one byte.
    fn of_data(&self, offset: u64, into: &mut [u8]) -> Result<usize, ObjectError> {
        let end = self.name.data_bytes.min(offset + into.len() as u64);
        let (from, slot) = {
            let mut kept = self.lock();
            let ahead = kept.ahead(offset, end);
            self.ask(&mut kept, offset, end.saturating_add(ahead), ahead);
            let range = kept.ranges.iter().find(|range| range.has(offset));
            let Some(range) = range else {
                return Err(ObjectError::Cancelled);
            };
            (range.from, Arc::clone(&range.slot))
        };
        match slot.wait() {
            Some(bytes) => {
                let at: usize = fitted(offset - from);
                let count = into.len().min(bytes.len() - at);
                into[..count].copy_from_slice(&bytes[at..at + count]);
                Ok(count)
            }
            None => {
                let mut kept = self.lock();
                kept.ranges.retain(|range| !Arc::ptr_eq(&range.slot, &slot));
                Err(slot.take_error())
            }
        }
    }

    /// Asks for what is missing from `from` to `to`. The further ahead, the larger the ranges.
    fn ask(&self, kept: &mut Kept, from: u64, to: u64, ahead: u64) {
        let to = to.max(from + RANGE_BYTES_MIN).min(self.name.data_bytes);
        let most = (ahead / 4).clamp(RANGE_BYTES_MIN, RANGE_BYTES_MAX);
        let mut at = from;
        while at < to {
            if let Some(range) = kept.ranges.iter().find(|range| range.has(at)) {
                at = range.to;
                continue;
            }
            let next = kept.ranges.iter().map(|range| range.from);
            let next = next.filter(|from| *from > at).min().unwrap_or(u64::MAX);
            // A rest that is not worth a request is read by the one before it.
            let whole = (at + most.max(to.min(next) - at)).min(to).min(next);
            let end = match ahead {
                0 => whole,
                _ => (at + most).min(next).min(self.name.data_bytes),
            };
            kept.ranges.push_back(self.start(at, end));
            at = end;
        }
        kept.forget(from);
    }

    /// Sends the request for a range.
    fn start(&self, from: u64, to: u64) -> Range {
        let slot: Arc<Slot> = Arc::default();
        let (bucket, key, filled) = (Arc::clone(&self.bucket), self.key.clone(), slot.clone());
        self.bucket.runtime.spawn(async move {
            let result = bucket.get_range(&key, from, to).await;
            filled.fill(result);
        });
        Range { from, to, slot }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Range {
    fn has(&self, offset: u64) -> bool {
        (self.from..self.to).contains(&offset)
    }
}

impl Slot {
    fn fill(&self, result: Result<Bytes, ObjectError>) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived = Some(result);
        self.changed.notify_all();
    }

    /// Waits for the bytes. None if they cannot be read.
    fn wait(&self) -> Option<Bytes> {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*arrived {
                Some(Ok(bytes)) => return Some(bytes.clone()),
                Some(Err(_)) => return None,
                None => {
                    let waited = self.changed.wait(arrived);
                    arrived = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The error, for the first reader that asks. The others hear that it was told.
    fn take_error(&self) -> ObjectError {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        let told = Some(Err(ObjectError::Cancelled));
        match std::mem::replace(&mut *arrived, told) {
            Some(Err(error)) => error,
            _ => ObjectError::Cancelled,
        }
    }
}

impl Kept {
    /// How far ahead of a read to ask: as far as its reader has come in one go.
    fn ahead(&mut self, offset: u64, end: u64) -> u64 {
        let goes_on =
            |reader: &Reader| (reader.next..=reader.next + GAP_BYTES_MAX).contains(&offset);
        let run = match self.readers.iter().position(goes_on) {
            Some(place) => self.readers.remove(place).map_or(0, |reader| reader.run),
            None => 0,
        };
        self.readers.push_back(Reader {
            next: end,
            run: run + (end - offset),
        });
        if self.readers.len() > READERS_MAX {
            self.readers.pop_front();
        }
        run.min(AHEAD_BYTES_MAX)
    }

    /// Drops ranges until no more is kept than may be: those behind the reader first, then the
    /// oldest.
    fn forget(&mut self, from: u64) {
        let mut bytes: u64 = self.ranges.iter().map(|range| range.to - range.from).sum();
        while bytes > KEPT_BYTES_MAX && self.ranges.len() > 1 {
            let behind = self.ranges.iter().position(|range| range.to <= from);
            let oldest = self.ranges.iter().position(|range| !range.has(from));
            let Some(range) = behind.or(oldest).and_then(|at| self.ranges.remove(at)) else {
                return;
            };
            bytes -= range.to - range.from;
        }
    }
}

impl ReadAt for StripeBytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.name.stripe_bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            if at >= self.name.stripe_bytes {
                break;
            }
            let rest = &mut into[filled..];
            // What both have comes from the copy. A reader of the data ends where the tail begins.
            let count = self.of_ends(at, rest);
            filled += match count {
                0 => {
                    let most: usize = fitted((self.tail_from() - at).min(rest.len() as u64));
                    self.of_data(at, &mut rest[..most])?
                }
                count => count,
            };
        }
        Ok(filled)
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        let from = offset.max(self.name.head.len() as u64);
        let to = (offset.saturating_add(bytes)).min(self.tail_from());
        if from < to {
            // Who announces bytes reads in sequence.
            self.ask(&mut self.lock(), from, to, bytes);
        }
    }
}
