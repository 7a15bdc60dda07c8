//! PostgreSQL's decimal numbers (numeric) as integers: the value without its point, and the digits
//! behind it.
//!
//!   | header: 2 bits form, 1 sign, 6 scale, 7 weight | digits to the base 10000, 16 bits each |
//!
//! Only what PostgreSQL itself would write is read: no leading and no trailing digits of zero, and
//! a short header. Everything else is text.

use crate::number::{low_u16, u16_at, u64_at};
use crate::texts::Span;

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
/// 2^64 divided by each of them, rounded up. There is none for 1.
const RECIPROCALS: [u64; 17] = reciprocals();
/// As many digits to the base as eight bytes hold.
const SHORT_DIGITS: usize = 4;
/// The least value with more of them.
const SHORT_MAX: u64 = BASE.pow(4);

const fn powers() -> [u64; 17] {
    let mut powers = [1; 17];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
}

const fn reciprocals() -> [u64; 17] {
    let mut reciprocals = [0; 17];
    let mut at = 1;
    while at < reciprocals.len() {
        reciprocals[at] = u64::MAX / POWERS[at] + 1;
        at += 1;
    }
    reciprocals
}

/// The most bytes of a payload that is written.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 2 + 2 * DIGITS_WRITTEN_MAX;
/// A value of 16 digits and up to 63 behind the point: none needs more digits to the base.
const DIGITS_WRITTEN_MAX: usize = 6;

/// The value of the text at a place, and its scale. `None` if it is not as PostgreSQL writes it, or
/// too large.
///
/// Most numbers have no more than four digits to the base, and are read without a branch for each.
#[inline]
pub(crate) fn read(raw: &[u8], text: Span) -> Option<(i64, i64)> {
    let payload = text.of(raw);
    let at = text.at as usize;
    match raw.get(at..at + 2 + SHORT_DIGITS * 2) {
        Some(word) if matches!(payload.len(), 4 | 6 | 8 | 10) => read_short(word, payload.len()),
        _ => read_any(payload),
    }
}

/// The value and its scale of a payload of at least one digit to the base, and at most
/// [`SHORT_DIGITS`]. The bytes behind it have no meaning.
#[inline]
fn read_short(word: &[u8], bytes: usize) -> Option<(i64, i64)> {
    let header = u16_at(word, 0);
    let unused = 8 * (2 + 2 * SHORT_DIGITS - bytes);
    let digits = u64_at(word, 2) << unused >> unused;
    // A digit is less than the base if adding what is missing to 2^15 sets no highest bit.
    const HIGHEST: u64 = 0x8000_8000_8000_8000;
    const MISSING: u64 = (0x8000 - BASE) * 0x0001_0001_0001_0001;
    let too_large = (digits.wrapping_add(MISSING) | digits) & HIGHEST != 0;
    let ends_with_zero = digits.leading_zeros() as usize >= unused + 16;
    let begins_with_zero = digits & 0xFFFF == 0;
    if header & FORM != SHORT || too_large || ends_with_zero || begins_with_zero {
        return None;
    }
    let digit = |at: u32| digits >> (16 * at) & 0xFFFF;
    let upper = digit(0) * BASE + digit(1);
    let lower = digit(2) * BASE + digit(3);
    // As if there were four digits to the base.
    let value = upper * BASE * BASE + lower;
    let scale = header >> SCALE_SHIFT & SCALE;
    let shift = 4 * (weight(header) + 1 - SHORT_DIGITS as i64) + i64::from(scale);
    let value = match shift {
        0.. => value.checked_mul(*POWERS.get(usize::try_from(shift).ok()?)?)?,
        _ => divided(value, usize::try_from(-shift).ok()?)?,
    };
    signed(value, header).map(|value| (value, scale.into()))
}

/// A value less than 10^16 divided by a power of ten, if nothing is left over.
#[inline]
fn divided(value: u64, power: usize) -> Option<u64> {
    // The reciprocal is too large by less than 2^-64, so the product by less than 2^-10: it has the
    // right quotient if nothing is left over, and else no quotient is right.
    let product = u128::from(value) * u128::from(*RECIPROCALS.get(power)?);
    let quotient = u64_at(&product.to_le_bytes(), 8);
    (quotient * POWERS[power] == value).then_some(quotient)
}

fn weight(header: u16) -> i64 {
    i64::from((low_u16(u64::from(header & WEIGHT) << 9).cast_signed()) >> 9)
}

/// A value with its sign. `None` if it is too large.
#[inline]
fn signed(value: u64, header: u16) -> Option<i64> {
    if value >= VALUE_MAX {
        return None;
    }
    let value = value.cast_signed();
    Some(if header & NEGATIVE == 0 {
        value
    } else {
        -value
    })
}

/// The value and its scale of any payload.
fn read_any(payload: &[u8]) -> Option<(i64, i64)> {
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
    let shift = 4 * (weight(header) + 1 - count as i64) + i64::from(scale);
    let value = scaled(digits, shift)?;
    signed(value, header).map(|value| (value, scale.into()))
}

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
    let header = header | if value < 0 { NEGATIVE } else { 0 };
    if rest < SHORT_MAX {
        return Some(write_short(rest, fraction, header, into));
    }
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
    let header = header | (low_u16(weight.cast_unsigned()) & WEIGHT);
    at -= 2;
    payload[at..at + 2].copy_from_slice(&header.to_le_bytes());
    let payload = &payload[at..end];
    into.extend_from_slice(payload);
    Some(payload.len())
}

/// Appends the payload of what is greater than 0 and has at most [`SHORT_DIGITS`] digits to the
/// base, `fraction` of them behind the point.
#[inline]
fn write_short(rest: u64, fraction: usize, header: u16, into: &mut Vec<u8>) -> usize {
    let (upper, lower) = (rest / (BASE * BASE), rest % (BASE * BASE));
    let upper = upper / BASE + ((upper % BASE) << 16);
    let lower = lower / BASE + ((lower % BASE) << 16);
    let digits = upper | (lower << 32);
    let before = digits.trailing_zeros() / 16;
    let digits = digits >> (16 * before);
    let count = SHORT_DIGITS - digits.leading_zeros() as usize / 16;
    let weight = 3 - i64::from(before) - fraction as i64;
    let header = header | (low_u16(weight.cast_unsigned()) & WEIGHT);
    let mut payload = [0; 2 + 2 * SHORT_DIGITS];
    payload[..2].copy_from_slice(&header.to_le_bytes());
    payload[2..].copy_from_slice(&digits.to_le_bytes());
    // A copy of a length that is known beforehand is much faster.
    let bytes = 2 + 2 * count;
    let end = into.len() + bytes;
    into.extend_from_slice(&payload);
    into.truncate(end);
    bytes
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

    /// Both ways of reading, which must agree: with and without room for a word behind.
    fn read(payload: &[u8]) -> Option<(i64, i64)> {
        let text = Span {
            at: 0,
            bytes: crate::number::position(payload.len()),
        };
        let mut raw = payload.to_vec();
        raw.extend([0xA5; 16]);
        let found = super::read(&raw, text);
        assert_eq!(found, super::read(payload, text), "{payload:?}");
        assert_eq!(found, read_any(payload), "{payload:?}");
        found
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
        fn numbers_of_few_digits_are_read_alike(
            header in any::<u16>(),
            digits in prop::collection::vec(prop_oneof![0u16..10_100, Just(0), 0u16..10], 0..6),
        ) {
            let words = std::iter::once(&header).chain(&digits);
            let payload: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
            read(&payload);
            let near = header & (SCALE << SCALE_SHIFT | NEGATIVE) & !(0x30 << SCALE_SHIFT);
            let near = near | SHORT | (header & 3).wrapping_sub(1) & WEIGHT;
            let payload = [&near.to_le_bytes()[..], &payload[2..]].concat();
            if let Some((value, scale)) = read(&payload) {
                let mut again = Vec::new();
                write(value, scale, &mut again);
                prop_assert_eq!(again, payload);
            }
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
