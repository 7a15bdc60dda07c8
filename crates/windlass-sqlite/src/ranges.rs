//! Range hashes: the hash of each range of the file, taken when the range went into the set. They
//! tell which ranges have changed since then.
//!
//! A range is 64 KiB, and more in a file of more than 32 GiB, so that there are at most 524288
//! ranges. So the table takes 4 to 8 MiB for any such file, and in a large file the ranges are
//! coarser. A range's hash is the sum of the hashes of its parts. A part is 64 KiB, and its hash is
//! seeded with its offset. So parts may come in any order, from any thread, and in pieces that cut
//! a range in two.
//!
//! Invariants
//! - A range is known when each of its parts has been recorded exactly once. The table forgets a
//!   range before its parts are recorded again. So whoever finds that a range changed must put all
//!   of it into the set.
//! - The table never has more than `RANGES_MAX` entries. Ranges beyond that count as changed. This
//!   is correct but slow. It needs a file that grows to four times its length, and to 128 GiB,
//!   during the backup.
//!
//! XXH3-128 is not a cryptographic hash. It compares two versions of one database's pages, and
//! nobody gains anything by making the newer one look like the older.

use std::sync::{Mutex, PoisonError};

use windlass_media::fitted;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Bytes of a part, and of the smallest range. The engine gives the hook pieces that start at
/// multiples of this.
pub(crate) const PART_BYTES: u32 = 64 * 1024;

/// The most ranges of a file: when the backup begins, and after the file has grown.
const RANGES_AT_START: u64 = 1 << 19;
const RANGES_MAX: usize = 1 << 21;

/// The hash of each range, as it last went into the set.
#[derive(Debug)]
pub(crate) struct RangeHashes {
    range_bytes: u64,
    /// 0 means unknown. A range whose hash is really 0 is read twice, which does no harm.
    sums: Mutex<Vec<u128>>,
}

/// The hashes of some whole ranges, collected in order to compare them with the table.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    hashes: &'a RangeHashes,
    offset: u64,
    bytes: u64,
    sums: Vec<u128>,
}

/// A run of bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl RangeHashes {
    /// Creates the table for a file that is `bytes` long when the backup begins.
    pub(crate) fn for_file(bytes: u64) -> Self {
        let even = bytes.div_ceil(RANGES_AT_START).next_power_of_two();
        Self {
            range_bytes: even.max(u64::from(PART_BYTES)),
            sums: Mutex::new(Vec::new()),
        }
    }

    /// Bytes of a range: a power of two, at least a part.
    pub(crate) fn range_bytes(&self) -> u64 {
        self.range_bytes
    }

    /// Remembers a piece that goes into the set. `offset` must be a part boundary; the last part
    /// may be short.
    pub(crate) fn record(&self, offset: u64, bytes: &[u8]) {
        for (at, part) in parts(offset, bytes) {
            let hash = hash(at, part);
            let Some(range) = self.index(at) else { break };
            let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
            if sums.len() <= range {
                sums.resize(range + 1, 0);
            }
            sums[range] = sums[range].wrapping_add(hash);
        }
    }

    /// Begins to compare the `bytes` at `offset`. They must be whole ranges; only the file's last
    /// may be shorter.
    pub(crate) fn compare(&self, offset: u64, bytes: u64) -> Comparison<'_> {
        assert!(
            offset.is_multiple_of(self.range_bytes),
            "whole ranges are compared"
        );
        let ranges = fitted(bytes.div_ceil(self.range_bytes));
        Comparison {
            hashes: self,
            offset,
            bytes,
            sums: vec![0; ranges],
        }
    }

    /// The table entry of a byte; `None` if the byte lies beyond the table.
    fn index(&self, offset: u64) -> Option<usize> {
        let index = usize::try_from(offset / self.range_bytes).ok()?;
        (index < RANGES_MAX).then_some(index)
    }

    fn is_known(&self, offset: u64, sum: u128) -> bool {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.index(offset).and_then(|index| sums.get(index));
        known.is_some_and(|known| *known != 0 && *known == sum)
    }

    /// Forgets a range, so that it can be recorded again.
    fn forget(&self, range: ByteRange) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.index(range.offset).unwrap_or(sums.len());
        let count = fitted(range.bytes.div_ceil(self.range_bytes));
        sums.iter_mut()
            .skip(first)
            .take(count)
            .for_each(|sum| *sum = 0);
    }
}

impl Comparison<'_> {
    /// Adds bytes that were found at `offset`, a part boundary within the bytes to compare.
    pub(crate) fn add(&mut self, offset: u64, bytes: &[u8]) {
        for (at, part) in parts(offset, bytes) {
            let range = (at - self.offset) / self.hashes.range_bytes;
            let sum = &mut self.sums[fitted::<usize, _>(range)];
            *sum = sum.wrapping_add(hash(at, part));
        }
    }

    /// Returns what differs from the table, in whole units; only the last may be shorter.
    /// Neighbouring units are joined. A unit is a multiple of a range. The table forgets these
    /// ranges, so that their new content can be recorded.
    pub(crate) fn changed(self, unit_bytes: u64) -> Vec<ByteRange> {
        let mut changed: Vec<ByteRange> = Vec::new();
        let end = self.offset + self.bytes;
        let mut unit = self.offset;
        while unit < end {
            let bytes = unit_bytes.min(end - unit);
            if !self.all_known(unit, bytes) {
                match changed.last_mut() {
                    Some(last) if last.offset + last.bytes == unit => last.bytes += bytes,
                    _ => changed.push(ByteRange {
                        offset: unit,
                        bytes,
                    }),
                }
            }
            unit += bytes;
        }
        changed.iter().for_each(|range| self.hashes.forget(*range));
        changed
    }

    /// Returns all of it as changed, whatever it holds. The table forgets it too.
    pub(crate) fn all_changed(self) -> Vec<ByteRange> {
        let range = ByteRange {
            offset: self.offset,
            bytes: self.bytes,
        };
        self.hashes.forget(range);
        vec![range]
    }

    fn all_known(&self, offset: u64, bytes: u64) -> bool {
        let range_bytes = self.hashes.range_bytes;
        let ranges = bytes.div_ceil(range_bytes);
        (0..ranges).all(|range| {
            let at = offset + range * range_bytes;
            let index: usize = fitted((at - self.offset) / range_bytes);
            self.hashes.is_known(at, self.sums[index])
        })
    }
}

/// The offset is the seed, so the same bytes elsewhere have another hash. If two parts of a range
/// swap places, the hash of the range changes.
fn hash(offset: u64, part: &[u8]) -> u128 {
    xxh3_128_with_seed(part, offset)
}

fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    assert!(
        offset.is_multiple_of(u64::from(PART_BYTES)),
        "pieces start at a part's boundary"
    );
    bytes
        .chunks(PART_BYTES as usize)
        .zip((offset..).step_by(PART_BYTES as usize))
        .map(|(part, at)| (at, part))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PART: usize = PART_BYTES as usize;
    const PART_64: u64 = PART_BYTES as u64;
    const TIB: u64 = 1 << 40;

    fn bytes(offset: u64, bytes: u64) -> ByteRange {
        ByteRange { offset, bytes }
    }

    fn changed(hashes: &RangeHashes, offset: u64, content: &[u8], unit: u64) -> Vec<ByteRange> {
        let mut comparison = hashes.compare(offset, content.len() as u64);
        comparison.add(offset, content);
        comparison.changed(unit)
    }

    #[test]
    fn a_range_is_changed_until_it_is_recorded_and_again_when_one_byte_differs() {
        let hashes = RangeHashes::for_file(4 * PART_64);
        let mut content = vec![7; 3 * PART + 10];
        let all = [bytes(0, 3 * PART_64 + 10)];
        assert_eq!(changed(&hashes, 0, &content, PART_64), all);
        hashes.record(0, &content);
        assert_eq!(changed(&hashes, 0, &content, PART_64), []);
        content[PART + 5] ^= 1;
        content[3 * PART + 9] ^= 1;
        let expected = [bytes(PART_64, PART_64), bytes(3 * PART_64, 10)];
        assert_eq!(changed(&hashes, 0, &content, PART_64), expected);
        hashes.record(PART_64, &content[PART..2 * PART]);
        hashes.record(3 * PART_64, &content[3 * PART..]);
        assert_eq!(changed(&hashes, 0, &content, PART_64), []);
    }

    #[test]
    fn a_changed_range_takes_its_whole_unit_along() {
        let hashes = RangeHashes::for_file(12 * PART_64);
        let mut content = vec![7; 4 * PART];
        hashes.record(8 * PART_64, &content);
        content[3 * PART] ^= 1;
        let found = changed(&hashes, 8 * PART_64, &content, 2 * PART_64);
        assert_eq!(found, [bytes(10 * PART_64, 2 * PART_64)]);
    }

    #[test]
    fn a_last_range_that_grew_is_changed_even_if_it_grew_by_zeros() {
        let hashes = RangeHashes::for_file(2);
        hashes.record(0, &[1, 0]);
        assert_eq!(changed(&hashes, 0, &[1, 0, 0], PART_64), [bytes(0, 3)]);
    }

    #[test]
    fn the_table_is_bounded_for_any_file() {
        for tib in [0, 1, 3, 16, 281] {
            let length = tib * TIB;
            let hashes = RangeHashes::for_file(length);
            assert!(length.div_ceil(hashes.range_bytes()) <= RANGES_AT_START);
            // The file grew to many times its length: a range without an entry never counts as
            // known.
            let far = (RANGES_MAX as u64 + 7) * hashes.range_bytes();
            hashes.record(far, &[1; 100]);
            assert_eq!(changed(&hashes, far, &[1; 100], TIB), [bytes(far, 100)]);
            hashes.record(far - 8 * hashes.range_bytes(), &[1; 100]);
            let entries = hashes.sums.lock().unwrap().len();
            assert_eq!(entries, RANGES_MAX, "{tib} TiB");
        }
    }

    proptest! {
        /// Ranges anywhere in files of any length that SQLite allows, recorded in any order.
        #[test]
        fn of_a_range_in_parts_each_change_shows_and_nothing_else(
            file_bytes in (256u64 << 30)..(281 * TIB),
            place in 0.0..1.0f64,
            order in Just((0..8usize).collect::<Vec<_>>()).prop_shuffle(),
            fill: u8, touched in 0..8usize, byte in 0..PART, swap: bool,
        ) {
            let hashes = RangeHashes::for_file(file_bytes);
            let range_bytes = hashes.range_bytes();
            let ranges = file_bytes / range_bytes;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            #[allow(clippy::cast_precision_loss, reason = "any range will do")]
            let range = ((ranges as f64 * place) as u64).min(ranges - 1);
            let at = range * range_bytes;
            // Eight parts, spread over the range; the test leaves out the bytes between them.
            let step = range_bytes / 8;
            let mut content: Vec<Vec<u8>> = (0..8u8).map(|n| vec![fill ^ n; PART]).collect();
            for part in order {
                hashes.record(at + part as u64 * step, &content[part]);
            }
            let compare = |content: &[Vec<u8>]| {
                let mut comparison = hashes.compare(at, range_bytes);
                for (part, bytes) in content.iter().enumerate() {
                    comparison.add(at + part as u64 * step, bytes);
                }
                comparison.changed(range_bytes)
            };
            prop_assert_eq!(compare(&content), []);
            if swap {
                content.swap(touched, (touched + 1) % 8);
            } else {
                content[touched][byte] ^= 1;
            }
            prop_assert_eq!(compare(&content), [bytes(at, range_bytes)]);
            for (part, bytes) in content.iter().enumerate() {
                hashes.record(at + part as u64 * step, bytes);
            }
            prop_assert_eq!(compare(&content), []);
        }
    }
}
