//! Numbers in other types: the low bits of one, and positions in a frame.
//!
//! The functions that cut a number do it on purpose; nothing else in the crate does.

#[inline]
pub(crate) fn low_u8(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

#[inline]
pub(crate) fn low_u16(number: u64) -> u16 {
    let [a, b, ..] = number.to_le_bytes();
    u16::from_le_bytes([a, b])
}

#[inline]
pub(crate) fn low_u32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A position or a length inside of a frame, which is at most [`crate::RAW_BYTES_MAX`] long.
#[inline]
pub(crate) fn position(number: usize) -> u32 {
    debug_assert!(number <= u32::MAX as usize, "{number} is no position");
    low_u32(number as u64)
}

/// A number from outside as an index. One that fits no index becomes one that no slice has.
#[inline]
pub(crate) fn index(number: u64) -> usize {
    match usize::try_from(number) {
        Ok(index) => index,
        Err(_) => usize::MAX,
    }
}

/// Small signed numbers as small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
#[inline]
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// Undoes [`zigzag`].
#[inline]
pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Rounds up to a multiple of a power of two.
#[inline]
pub(crate) fn align_up(number: usize, alignment: usize) -> usize {
    (number + alignment - 1) & !(alignment - 1)
}

#[inline]
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let mut field = [0; 2];
    field.copy_from_slice(&bytes[at..at + 2]);
    u16::from_le_bytes(field)
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// Whether a range has only zeros. Most ranges are what aligns the next value, and one word shows
/// it.
#[inline]
pub(crate) fn is_zero_between(bytes: &[u8], from: usize, to: usize) -> bool {
    match bytes.get(from..from + 8) {
        Some(word) if to - from < 8 => u64_at(word, 0) << 8 << (56 - 8 * (to - from)) == 0,
        _ => is_zero(&bytes[from..to]),
    }
}

/// Whether all bytes are zero.
#[inline]
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    match bytes.len() {
        0 => true,
        1..8 => bytes.iter().all(|byte| *byte == 0),
        _ => is_long_zero(bytes),
    }
}

/// Many at a time: holes of pages are long.
fn is_long_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<64>();
    let word = |chunk: &[u8; 64]| chunk.iter().fold(0, |all, byte| all | byte) == 0;
    rest.iter().all(|byte| *byte == 0) && words.iter().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zigzag_comes_back_for_every_size() {
        for number in [0, -1, 1, -2, i64::MAX, i64::MIN, 1 << 40] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
    }

    #[test]
    fn one_byte_anywhere_is_not_zero() {
        let mut bytes = [0; 200];
        assert!(is_zero(&bytes) && is_zero(&[]));
        for at in 0..bytes.len() {
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "{at}");
            for from in at.saturating_sub(9)..=at {
                assert!(!is_zero_between(&bytes, from, at + 1), "{from} {at}");
                assert!(is_zero_between(&bytes, from, at), "{from} {at}");
            }
            bytes[at] = 0;
        }
    }
}
