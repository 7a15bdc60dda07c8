//! Digits at fixed places of a text, all of them at once: `1996-03-13`, `Clerk#000000951`.
//!
//! A text of 8 to 16 bytes is one word. Its digits are taken out of it in stretches, and become a
//! number in three steps: pairs, fours, eights.

use crate::number::u64_at;

const TEXT_MIN: usize = 8;
const TEXT_MAX: usize = 16;
/// Most stretches of digits.
const STRETCHES_MAX: usize = 6;
const EIGHT_DIGITS: u64 = 100_000_000;
/// The bits that no number from 0 to 9 has, for each byte.
const UPPER: u128 = 0xF0F0_F0F0_F0F0_F0F0_F0F0_F0F0_F0F0_F0F0;
const SIXES: u128 = 0x0606_0606_0606_0606_0606_0606_0606_0606;

/// A text whose digits stand for any. The first byte of a word is its lowest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DigitText {
    length: usize,
    digits: u32,
    /// The text, with zeros as its digits.
    text: u128,
    /// Where the digits are.
    mask: u128,
    stretches: [Stretch; STRETCHES_MAX],
    stretches_used: usize,
    /// The first number with too many digits.
    end: u64,
}

/// Digits that stand beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stretch {
    mask: u128,
    /// How many bits before them do not belong to digits.
    shift: u32,
}

impl DigitText {
    /// `None` if the text is too short or too long for that.
    pub(crate) fn new(first: &[u8]) -> Option<Self> {
        let mut this = Self {
            length: first.len(),
            digits: 0,
            text: 0,
            mask: 0,
            stretches: [Stretch::default(); STRETCHES_MAX],
            stretches_used: 0,
            end: 1,
        };
        if !(TEXT_MIN..=TEXT_MAX).contains(&first.len()) {
            return None;
        }
        let mut shift = 0;
        for (byte, at) in first.iter().zip((0u32..).step_by(8)) {
            if !byte.is_ascii_digit() {
                this.text |= u128::from(*byte) << at;
                shift += 8;
                continue;
            }
            let is_first = at == 0 || this.mask >> (at - 8) == 0;
            if is_first {
                this.stretches.get_mut(this.stretches_used)?.shift = shift;
                this.stretches_used += 1;
            }
            this.text |= u128::from(b'0') << at;
            this.mask |= 0xFF << at;
            this.stretches[this.stretches_used - 1].mask |= 0xFF << at;
            this.digits += 1;
            this.end *= 10;
        }
        (this.digits > 0).then_some(this)
    }

    /// The number of a text. `None` if it differs from the first one in more than its digits.
    #[inline]
    pub(crate) fn read(&self, text: &[u8]) -> Option<i64> {
        let word = self.word(text)?;
        let different = word ^ self.text;
        // A digit leaves 0 to 9; more than that has an upper bit when 6 is added.
        let upper = different | ((different & !UPPER) + SIXES);
        if (different & !self.mask) | (upper & UPPER) != 0 {
            return None;
        }
        let stretches = &self.stretches[..self.stretches_used];
        let digits = stretches.iter().fold(0, |digits, stretch| {
            digits | (different & stretch.mask) >> stretch.shift
        });
        // The last digit is the last byte.
        let digits = digits << (u128::BITS - 8 * self.digits);
        let (high, low) = halves(digits);
        let (high, low) = (eight_digits(high), eight_digits(low));
        Some((high * EIGHT_DIGITS + low).cast_signed())
    }

    /// Appends the text of a number. `None` if the number has too many digits.
    #[inline]
    pub(crate) fn write(&self, number: i64, into: &mut Vec<u8>) -> Option<()> {
        let number = u64::try_from(number)
            .ok()
            .filter(|number| *number < self.end)?;
        let (high, low) = match number {
            ..EIGHT_DIGITS => (0, number),
            _ => (number / EIGHT_DIGITS, number % EIGHT_DIGITS),
        };
        let digits = u128::from(as_digits(low)) << 64 | u128::from(as_digits(high));
        let digits = digits >> (u128::BITS - 8 * self.digits);
        let stretches = &self.stretches[..self.stretches_used];
        let text = stretches.iter().fold(self.text, |text, stretch| {
            text | (digits << stretch.shift) & stretch.mask
        });
        let end = into.len() + self.length;
        into.extend_from_slice(&text.to_le_bytes());
        into.truncate(end);
        Some(())
    }

    /// A text as a word; `None` if it has another length.
    #[inline]
    fn word(&self, text: &[u8]) -> Option<u128> {
        if text.len() != self.length {
            return None;
        }
        // Both halves overlap, and where they do they are the same.
        let (head, tail) = (u64_at(text, 0), u64_at(text, self.length - TEXT_MIN));
        Some(u128::from(head) | u128::from(tail) << (8 * (self.length - TEXT_MIN)))
    }
}

#[inline]
fn halves(digits: u128) -> (u64, u64) {
    let bytes = digits.to_le_bytes();
    (u64_at(&bytes, 0), u64_at(&bytes, 8))
}

/// The number of eight digits from 0 to 9, the first of which is the lowest byte.
#[inline]
fn eight_digits(digits: u64) -> u64 {
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00FF_00FF_00FF_00FF;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_FFFF_0000_FFFF;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// The eight digits of a number that has no more.
#[inline]
fn as_digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    // Divided by 100, and then by 10, by a product and a shift that are exact for so few bits.
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let pairs = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000F_000F_000F_000F;
    tens | (pairs - tens * 10) << 8
}

/// The digits of a number as text, with zeros before them.
#[inline]
pub(crate) fn as_text(number: u64) -> [u8; 24] {
    let mut text = [b'0'; 24];
    let mut rest = number;
    for part in text.rchunks_exact_mut(8) {
        let digits = as_digits(rest % EIGHT_DIGITS) | 0x3030_3030_3030_3030;
        part.copy_from_slice(&digits.to_le_bytes());
        rest /= EIGHT_DIGITS;
        if rest == 0 {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_numbers_of_four_digits_come_back() {
        for number in 0..10_000 {
            for wide in [number, number * 10_000, number * 10_000 + number] {
                let text = format!("{wide:08}");
                assert_eq!(
                    as_digits(wide) | 0x3030_3030_3030_3030,
                    u64_at(text.as_bytes(), 0)
                );
                assert_eq!(eight_digits(as_digits(wide)), wide);
            }
        }
    }

    #[test]
    fn texts_of_a_few_lengths_are_words() {
        for text in ["1234567", "12345678901234567", "no digits", "1-2-3-4-5-6-7"] {
            assert_eq!(DigitText::new(text.as_bytes()), None, "{text}");
        }
        let day = DigitText::new(b"1996-03-13").unwrap();
        assert_eq!(day.read(b"2001-12-09"), Some(20_011_209));
        for other in [
            "2001-12-0",
            "2001-12-099",
            "2001-12-0/",
            "2001-12-0:",
            "2001-12+09",
            "2001-12-0\u{80}",
        ] {
            assert_eq!(day.read(other.as_bytes()), None, "{other}");
        }
        let mut into = Vec::new();
        assert_eq!(day.write(100_000_000, &mut into), None);
        assert_eq!(day.write(-1, &mut into), None);
    }

    proptest! {
        #[test]
        fn texts_come_back_as_digit_by_digit(
            first in "[0-9a-]{8,16}",
            other in "[0-9a-]{8,16}",
            number in any::<i64>(),
            shift in 0u32..64,
        ) {
            let Some(pattern) = DigitText::new(first.as_bytes()) else { return Ok(()); };
            let digits: String = first.chars().filter(char::is_ascii_digit).collect();
            prop_assert_eq!(pattern.read(first.as_bytes()), digits.parse().ok());
            let mut into = vec![7];
            if pattern.write(number >> shift, &mut into).is_some() {
                prop_assert_eq!(pattern.read(&into[1..]), Some(number >> shift));
            }
            if let Some(number) = pattern.read(other.as_bytes()) {
                into.clear();
                pattern.write(number, &mut into).unwrap();
                prop_assert_eq!(&into, other.as_bytes());
            }
        }

        #[test]
        fn a_number_as_text_has_all_its_digits(number in any::<u64>(), shift in 0u32..64) {
            let number = number >> shift;
            let text = format!("{number:024}");
            prop_assert_eq!(&as_text(number)[..], text.as_bytes());
        }
    }
}
