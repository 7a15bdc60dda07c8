//! Numbers of a few bits each, one after the other without gaps, the lowest bit first.

use crate::number::u64_at;

/// Wider numbers have 64 bits: then a number never spans more than eight bytes.
pub(crate) const NARROW_MAX: u32 = 56;
const WIDE: u32 = 64;

/// The width that numbers of so many bits are stored with.
pub(crate) fn stored_width(bits: u32) -> u32 {
    if bits > NARROW_MAX { WIDE } else { bits }
}

/// How many bytes so many numbers take. `None` if nobody has so many.
pub(crate) fn packed_bytes(count: usize, width: u32) -> Option<usize> {
    Some(count.checked_mul(width as usize)?.div_ceil(8))
}

/// The lowest bits.
pub(crate) fn mask(width: u32) -> u64 {
    if width >= WIDE {
        u64::MAX
    } else {
        (1 << width) - 1
    }
}

/// Appends the lowest `width` bits of each number.
pub(crate) fn pack(numbers: &[u64], width: u32, into: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    if width > NARROW_MAX {
        for number in numbers {
            into.extend_from_slice(&number.to_le_bytes());
        }
        return;
    }
    let start = into.len();
    let bytes = (numbers.len() * width as usize).div_ceil(8);
    // Each step writes eight bytes; those that do not count yet are written again by the next.
    into.resize(start + bytes + 8, 0);
    let mut out = Out {
        bytes: &mut into[start..],
        width,
        waiting: 0,
        filled: 0,
        at: 0,
    };
    // Each step waits for the one before, so as many numbers as possible share one.
    let rest = match NARROW_MAX / width {
        8.. => out.put_groups::<8>(numbers),
        4..8 => out.put_groups::<4>(numbers),
        2..4 => out.put_groups::<2>(numbers),
        _ => numbers,
    };
    out.put_groups::<1>(rest);
    into.truncate(start + bytes);
}

/// Bits on their way to bytes.
struct Out<'a> {
    bytes: &'a mut [u8],
    width: u32,
    waiting: u64,
    filled: u32,
    at: usize,
}

impl Out<'_> {
    /// Writes so many numbers in a step, which together have at most [`NARROW_MAX`] bits. Returns
    /// those that are left.
    #[inline]
    fn put_groups<'n, const COUNT: usize>(&mut self, numbers: &'n [u64]) -> &'n [u64] {
        let (groups, rest) = numbers.as_chunks::<COUNT>();
        let (width, mask) = (self.width, mask(self.width));
        let (mut waiting, mut filled, mut at) = (self.waiting, self.filled, self.at);
        for group in groups {
            let numbers = group.iter().rev();
            let joined = numbers.fold(0, |joined, number| joined << width | (number & mask));
            waiting |= joined << filled;
            self.bytes[at..at + 8].copy_from_slice(&waiting.to_le_bytes());
            for _ in 0..COUNT {
                filled += width;
            }
            at += (filled >> 3) as usize;
            waiting >>= filled & !7;
            filled &= 7;
        }
        (self.waiting, self.filled, self.at) = (waiting, filled, at);
        rest
    }
}

/// Appends what `of` makes of every number. `bytes` has exactly as many bytes as [`packed_bytes`]
/// says.
#[inline]
pub(crate) fn unpack(
    bytes: &[u8],
    count: usize,
    width: u32,
    into: &mut Vec<i64>,
    of: impl Fn(u64) -> i64,
) {
    let (width, mask) = (width as usize, mask(width));
    if width == 0 {
        into.resize(into.len() + count, of(0));
        return;
    }
    // The numbers that can be read with eight bytes at once; the last ones are read from a copy.
    let whole = match bytes.len().checked_sub(8) {
        Some(last) => count.min(last * 8 / width + 1),
        None => 0,
    };
    into.extend((0..whole).map(|number| {
        let bit = number * width;
        of((u64_at(bytes, bit >> 3) >> (bit & 7)) & mask)
    }));
    let rest = (whole * width) / 8;
    let mut copy = [0; 32];
    let left = &bytes[rest.min(bytes.len())..];
    let left = &left[..left.len().min(16)];
    copy[..left.len()].copy_from_slice(left);
    into.extend((whole..count).map(|number| {
        let bit = number * width - rest * 8;
        of((u64_at(&copy, bit >> 3) >> (bit & 7)) & mask)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_of_every_width_come_back(
            numbers in prop::collection::vec(any::<u64>(), 0..300),
            bits in 0u32..=64,
            before in 0usize..9,
        ) {
            let width = stored_width(bits);
            let mut packed = vec![7; before];
            pack(&numbers, width, &mut packed);
            prop_assert_eq!(Some(packed.len() - before), packed_bytes(numbers.len(), width));
            let mut found = vec![7];
            unpack(&packed[before..], numbers.len(), width, &mut found, |code| code.cast_signed());
            let wanted = numbers.iter().map(|number| (number & mask(width)).cast_signed());
            let wanted: Vec<i64> = std::iter::once(7).chain(wanted).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
