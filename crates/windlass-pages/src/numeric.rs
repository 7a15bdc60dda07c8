//! PostgreSQL's decimal numbers (numeric) as integers: the value without its point, and the digits
//! behind it.
//!
//!   | header: 2 bits form, 1 sign, 6 scale, 7 weight | digits to the base 10000, 16 bits each |
//!
//! Only what PostgreSQL itself would write is read: no leading and no trailing digits of zero, and
//! a short header. Everything else is text.

use crate::number::{low_u16, u16_at};

const SHORT: u16 = 0x8000;
const FORM: u16 = 0xC000;
const NEGATIVE: u16 = 0x2000;
const SCALE_SHIFT: u32 = 7;
const SCALE: u16 = 0x3F;
const WEIGHT: u16 = 0x7F;
const BASE: u64 = 10_000;
/// Most digits to the base: what 64 bits hold, with the first one less than [`FIRST_MAX`].
const DIGITS_MAX: usize = 5;
const FIRST_MAX: u64 = 1000;
/// Values are less than this, so that they fit with three zeros more.
const VALUE_MAX: u64 = 1_000_000_000_000_000;
const POWERS: [u64; 17] = powers();

const fn powers() -> [u64; 17] {
    let mut powers = [1; 17];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
}

/// The most bytes of a payload that is written.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 2 + 2 * DIGITS_WRITTEN_MAX;
/// A value of 16 digits and up to 63 behind the point: none needs more digits to the base.
const DIGITS_WRITTEN_MAX: usize = 6;

/// The value and its scale. `None` if it is not as PostgreSQL writes it, or too large.
#[inline]
pub(crate) fn read(payload: &[u8]) -> Option<(i64, i64)> {
    if payload.len() < 2 || payload.len() % 2 == 1 || payload.len() > 2 + 2 * DIGITS_MAX {
        return None;
    }
    let header = u16_at(payload, 0);
    let scale = header >> SCALE_SHIFT & SCALE;
    if header & FORM != SHORT {
        return None;
    }
    let count = payload.len() / 2 - 1;
    if count == 0 {
        let plain = header == SHORT | scale << SCALE_SHIFT;
        return plain.then_some((0, scale.into()));
    }
    let mut digits = 0;
    for at in 1..=count {
        let digit = u64::from(u16_at(payload, 2 * at));
        let edge = at == 1 || at == count;
        let too_large = at == 1 && count == DIGITS_MAX && digit >= FIRST_MAX;
        if digit >= BASE || (edge && digit == 0) || too_large {
            return None;
        }
        digits = digits * BASE + digit;
    }
    // How many decimal digits of the integer are behind the last digit to the base; less than zero
    // if some of the last digit's are behind the scale.
    let weight = i64::from((low_u16(u64::from(header & WEIGHT) << 9).cast_signed()) >> 9);
    let shift = 4 * (weight + 1 - count as i64) + i64::from(scale);
    let value = scaled(digits, shift)?;
    if value >= VALUE_MAX {
        return None;
    }
    let value = value.cast_signed();
    let signed = if header & NEGATIVE == 0 {
        value
    } else {
        -value
    };
    Some((signed, scale.into()))
}

#[inline]
fn scaled(digits: u64, shift: i64) -> Option<u64> {
    let power = *POWERS.get(usize::try_from(shift.unsigned_abs()).ok()?)?;
    // Divisions by constants are much faster, and there is no other: the last digit is not zero.
    let (rest, quotient) = match shift {
        0.. => return digits.checked_mul(power),
        -1 => (digits % 10, digits / 10),
        -2 => (digits % 100, digits / 100),
        -3 => (digits % 1000, digits / 1000),
        _ => return None,
    };
    (rest == 0).then_some(quotient)
}

/// Appends the payload of a value. `None` if nobody could have read it.
#[inline]
pub(crate) fn write(value: i64, scale: i64, into: &mut Vec<u8>) -> Option<usize> {
    let scale = u16::try_from(scale).ok().filter(|scale| *scale <= SCALE)?;
    let mut rest = value.unsigned_abs();
    if rest >= VALUE_MAX {
        return None;
    }
    let header = SHORT | scale << SCALE_SHIFT;
    if rest == 0 {
        into.extend_from_slice(&header.to_le_bytes());
        return Some(2);
    }
    let fraction = usize::from(scale).div_ceil(4);
    rest *= POWERS[4 * fraction - usize::from(scale)];
    // From the end: the digits to the base, the last one first, without zeros behind the others.
    let mut payload = [0; PAYLOAD_BYTES_MAX];
    let (mut at, mut end, mut weight) = (PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX, -1);
    weight -= fraction as i64;
    while rest > 0 {
        let digit = low_u16(rest % BASE);
        rest /= BASE;
        weight += 1;
        at -= 2;
        payload[at..at + 2].copy_from_slice(&digit.to_le_bytes());
        if digit == 0 && at + 2 == end {
            end = at;
        }
    }
    let sign = if value < 0 { NEGATIVE } else { 0 };
    let header = header | sign | (low_u16(weight.cast_unsigned()) & WEIGHT);
    at -= 2;
    payload[at..at + 2].copy_from_slice(&header.to_le_bytes());
    let payload = &payload[at..end];
    into.extend_from_slice(payload);
    Some(payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As PostgreSQL stores it, with the sign, the weight and the digits.
    fn stored(scale: u16, negative: bool, weight: i16, digits: &[u16]) -> Vec<u8> {
        let sign = if negative { NEGATIVE } else { 0 };
        let header = SHORT | sign | scale << SCALE_SHIFT | (weight.cast_unsigned() & WEIGHT);
        let words = std::iter::once(&header).chain(digits);
        words.flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn values_are_read_as_postgres_means_them() {
        assert_eq!(
            read(&stored(2, false, 1, &[3, 3078, 9400])),
            Some((3_307_894, 2))
        );
        assert_eq!(read(&stored(2, true, 0, &[17])), Some((-1700, 2)));
        assert_eq!(read(&stored(2, false, -1, &[400])), Some((4, 2)));
        assert_eq!(read(&stored(2, false, 0, &[])), Some((0, 2)));
        assert_eq!(read(&stored(0, false, 1, &[5])), Some((50_000, 0)));
        assert_eq!(read(&stored(6, false, -2, &[1200])), Some((12, 6)));
        assert_eq!(
            read(&stored(2, false, -1, &[401])),
            None,
            "digits behind the scale"
        );
        assert_eq!(
            read(&stored(2, false, 0, &[1, 0])),
            None,
            "a zero at the end"
        );
        assert_eq!(read(&stored(2, true, 0, &[])), None, "a zero with a sign");
        assert_eq!(read(&0xC000u16.to_le_bytes()), None, "not a number");
        assert_eq!(read(&[]), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            value in -999_999_999_999_999i64..1_000_000_000_000_000,
            scale in 0i64..=16,
        ) {
            let mut payload = Vec::new();
            prop_assert_eq!(write(value, scale, &mut payload), Some(payload.len()));
            prop_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
            prop_assert_eq!(read(&payload), Some((value, scale)));
        }

        #[test]
        fn what_is_read_is_written(bytes in prop::collection::vec(any::<u8>(), 0..14)) {
            let mut payload = bytes;
            if let Some(last) = payload.get_mut(1) {
                *last = *last & 0x3F | 0x80;
            }
            if let Some((value, scale)) = read(&payload) {
                let mut again = Vec::new();
                write(value, scale, &mut again);
                prop_assert_eq!(again, payload);
            }
        }

        #[test]
        fn no_value_makes_writing_panic(value in any::<i64>(), scale in any::<i64>()) {
            write(value, scale, &mut Vec::new());
            write(value % 1_000_000_000_000_000, scale & 0x3F, &mut Vec::new());
        }
    }
}
