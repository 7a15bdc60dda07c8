//! Range hashes: what each 64 KiB of the file looked like when it went into the set, so that the
//! ranges that changed since can be told from those that did not.
//!
//! Sixteen bytes a range: 256 MiB for a terabyte, and only in rollback mode. XXH3-128 is no
//! cryptographic hash; what it compares are two versions of one database's pages, and nobody gains
//! who makes the newer one look like the older.

use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128;

/// Bytes of a range. The engine hands pieces to the hook that start at multiples of this.
pub(crate) const RANGE_BYTES: u32 = 64 * 1024;

/// The hash of each range, as last put into the set.
#[derive(Debug, Default)]
pub(crate) struct RangeHashes {
    /// 0 where nothing is known; a range that hashes to 0 is read twice, which does no harm.
    hashes: Mutex<Vec<u128>>,
}

/// A run of bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl RangeHashes {
    /// Remembers the ranges of a piece that goes into the set. `offset` is a range boundary; the
    /// last range may be short.
    pub(crate) fn record(&self, offset: u64, bytes: &[u8]) {
        for (range, part) in parts(offset, bytes) {
            let hash = xxh3_128(part);
            let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
            if hashes.len() <= range {
                hashes.resize(range + 1, 0);
            }
            hashes[range] = hash;
        }
    }

    /// What of `bytes`, found at `offset`, is not as recorded: whole units, but for the last;
    /// neighbours joined. `offset` is a unit boundary, a unit a multiple of a range.
    pub(crate) fn changed(&self, offset: u64, bytes: &[u8], unit_bytes: u32) -> Vec<ByteRange> {
        let mut changed: Vec<ByteRange> = Vec::new();
        let mut at = offset;
        for unit in bytes.chunks(unit_bytes as usize) {
            let length = unit.len() as u64;
            if !self.all_known(at, unit) {
                match changed.last_mut() {
                    Some(last) if last.offset + last.bytes == at => last.bytes += length,
                    _ => changed.push(ByteRange {
                        offset: at,
                        bytes: length,
                    }),
                }
            }
            at += length;
        }
        changed
    }

    fn all_known(&self, offset: u64, unit: &[u8]) -> bool {
        parts(offset, unit).all(|(range, part)| self.known(range) == Some(xxh3_128(part)))
    }

    fn known(&self, range: usize) -> Option<u128> {
        let hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        hashes.get(range).copied().filter(|hash| *hash != 0)
    }
}

fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let range_bytes = u64::from(RANGE_BYTES);
    assert!(
        offset.is_multiple_of(range_bytes),
        "pieces start at a range boundary"
    );
    let first = usize::try_from(offset / range_bytes).unwrap_or(usize::MAX);
    bytes
        .chunks(RANGE_BYTES as usize)
        .enumerate()
        .map(move |(index, part)| (first + index, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: usize = RANGE_BYTES as usize;

    fn bytes(offset: usize, bytes: usize) -> ByteRange {
        ByteRange {
            offset: offset as u64,
            bytes: bytes as u64,
        }
    }

    #[test]
    fn a_range_is_changed_until_it_is_recorded_and_again_when_one_byte_differs() {
        let hashes = RangeHashes::default();
        let mut content = vec![7; 3 * RANGE + 10];
        assert_eq!(
            hashes.changed(0, &content, RANGE_BYTES),
            [bytes(0, 3 * RANGE + 10)]
        );
        hashes.record(0, &content);
        assert_eq!(hashes.changed(0, &content, RANGE_BYTES), []);
        content[RANGE + 5] ^= 1;
        content[3 * RANGE + 9] ^= 1;
        let expected = [bytes(RANGE, RANGE), bytes(3 * RANGE, 10)];
        assert_eq!(hashes.changed(0, &content, RANGE_BYTES), expected);
    }

    #[test]
    fn a_changed_range_takes_its_whole_unit_along() {
        let hashes = RangeHashes::default();
        let mut content = vec![7; 4 * RANGE];
        hashes.record(8 * u64::from(RANGE_BYTES), &content);
        content[3 * RANGE] ^= 1;
        let changed = hashes.changed(8 * u64::from(RANGE_BYTES), &content, 2 * RANGE_BYTES);
        assert_eq!(changed, [bytes(10 * RANGE, 2 * RANGE)]);
    }

    #[test]
    fn a_last_range_that_grew_is_changed_even_if_it_grew_by_zeros() {
        let hashes = RangeHashes::default();
        hashes.record(0, &[1, 0]);
        assert_eq!(hashes.changed(0, &[1, 0, 0], RANGE_BYTES), [bytes(0, 3)]);
    }
}
