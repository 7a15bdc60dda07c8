//! Texts that are numbers in words: `33078.94`, `user_17`, `Customer#000000001`, `25-989-741-2988`.
//!
//!   decimal    the same text before and behind a number without needless zeros, and as many digits
//!              behind its point
//!   digits     the same length, and the same bytes where the first text has no digit
//!
//! Invariants
//! - A text that is read as a number is what writing the number gives.

use crate::digits::{DigitText, as_text};
use crate::error::{PagesError, invalid};
use crate::number::low_u8;
use crate::streams::{Source, Streams};

/// Most digits of a number.
const DIGITS_MAX: usize = 18;
/// Longest text with digits at fixed places.
const PLACES_MAX: usize = 64;
/// Longest text before or behind a decimal number.
const AFFIX_MAX: usize = 32;

const DECIMAL: u8 = 0;
const DIGITS: u8 = 1;

/// What all texts of a column have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern<'a> {
    Decimal {
        before: &'a [u8],
        behind: &'a [u8],
        /// Digits behind the point; without any there is no point.
        scale: usize,
    },
    Digits {
        /// The first text; its digits stand for any.
        first: &'a [u8],
        /// The same as a word.
        word: Option<Box<DigitText>>,
    },
}

impl<'a> Pattern<'a> {
    /// The decimal pattern that a text follows, if any.
    pub(crate) fn decimal(text: &'a [u8]) -> Option<Self> {
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let first = text.iter().position(is_digit)?;
        let digits = |from: usize| {
            text[from..]
                .iter()
                .take_while(|byte| is_digit(byte))
                .count()
        };
        let end = first + digits(first);
        let scale = match text.get(end) {
            Some(b'.') => digits(end + 1),
            _ => 0,
        };
        let end = if scale > 0 { end + 1 + scale } else { end };
        let before = if first == 1 && text[0] == b'-' {
            0
        } else {
            first
        };
        let (before, behind) = (&text[..before], &text[end..]);
        let fits = before.len() <= AFFIX_MAX && behind.len() <= AFFIX_MAX;
        let pattern = Self::Decimal {
            before,
            behind,
            scale,
        };
        (fits && pattern.read(text).is_some()).then_some(pattern)
    }

    /// The pattern of digits at fixed places that a text follows, if any.
    pub(crate) fn digits(text: &'a [u8]) -> Option<Self> {
        let digits = text.iter().filter(|byte| byte.is_ascii_digit()).count();
        let fits = text.len() <= PLACES_MAX && (1..=DIGITS_MAX).contains(&digits);
        fits.then(|| Self::Digits {
            first: text,
            word: DigitText::new(text).map(Box::new),
        })
    }

    /// The number of a text. `None` if it does not follow the pattern.
    #[inline]
    pub(crate) fn read(&self, text: &[u8]) -> Option<i64> {
        match self {
            Self::Decimal {
                before,
                behind,
                scale,
            } => {
                let text = text.strip_prefix(*before)?.strip_suffix(*behind)?;
                read_decimal(text, before.is_empty(), *scale)
            }
            Self::Digits { first, word } => match word {
                Some(word) => word.read(text),
                None => read_digits(text, first),
            },
        }
    }

    /// Appends the text of a number. `None` if no text has it.
    #[inline]
    pub(crate) fn write(&self, number: i64, into: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Decimal {
                before,
                behind,
                scale,
            } => {
                into.extend_from_slice(before);
                write_decimal(number, *scale, into)?;
                into.extend_from_slice(behind);
                Some(())
            }
            Self::Digits { first, word } => match word {
                Some(word) => word.write(number, into),
                None => write_digits(number, first, into),
            },
        }
    }

    /// Most bytes that a text has.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Decimal { before, behind, .. } => before.len() + behind.len() + DIGITS_MAX + 3,
            Self::Digits { first, .. } => first.len(),
        }
    }

    pub(crate) fn put(&self, streams: &mut Streams) {
        let mut put = |bytes: &[u8]| {
            streams.byte(low_u8(bytes.len() as u64));
            streams.main.extend_from_slice(bytes);
        };
        match self {
            Self::Decimal {
                before,
                behind,
                scale,
            } => {
                put(before);
                put(behind);
                streams.byte(DECIMAL);
                streams.byte(low_u8(*scale as u64));
            }
            Self::Digits { first, .. } => {
                put(first);
                put(&[]);
                streams.byte(DIGITS);
            }
        }
    }

    pub(crate) fn take(source: &mut Source<'a>) -> Result<Self, PagesError> {
        let mut take = || {
            let bytes = source.byte()?;
            source.main(bytes.into())
        };
        let (first, second) = (take()?, take()?);
        let kind = source.byte()?;
        let pattern = if kind == DECIMAL {
            let scale = usize::from(source.byte()?);
            let fits = first.len().max(second.len()) <= AFFIX_MAX && scale < DIGITS_MAX;
            fits.then_some(Self::Decimal {
                before: first,
                behind: second,
                scale,
            })
        } else {
            Self::digits(first).filter(|_| kind == DIGITS)
        };
        pattern.ok_or(invalid("no text follows a pattern"))
    }
}

#[inline]
fn read_decimal(text: &[u8], may_be_negative: bool, scale: usize) -> Option<i64> {
    let (negative, text) = match text {
        [b'-', rest @ ..] if may_be_negative => (true, rest),
        _ => (false, text),
    };
    let point = if scale > 0 { scale + 1 } else { 0 };
    let whole = text.len().checked_sub(point).filter(|whole| *whole > 0)?;
    if whole + scale > DIGITS_MAX || (whole > 1 && text[0] == b'0') {
        return None;
    }
    let mut number = 0i64;
    for (at, byte) in text.iter().enumerate() {
        if at == whole {
            if *byte != b'.' {
                return None;
            }
            continue;
        }
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    match negative {
        true => (number > 0).then_some(-number),
        false => Some(number),
    }
}

#[inline]
fn write_decimal(number: i64, scale: usize, into: &mut Vec<u8>) -> Option<()> {
    let digits = as_text(number.unsigned_abs());
    let zeros = digits.iter().position(|digit| *digit != b'0');
    // At least one digit stands before the point.
    let (first, point) = (
        zeros.unwrap_or(digits.len()),
        digits.len().checked_sub(scale)?,
    );
    let first = first.min(point.checked_sub(1)?);
    if number < 0 {
        into.push(b'-');
    }
    into.extend_from_slice(&digits[first..point]);
    if scale > 0 {
        into.push(b'.');
        into.extend_from_slice(&digits[point..]);
    }
    Some(())
}

#[inline]
fn read_digits(text: &[u8], first: &[u8]) -> Option<i64> {
    if text.len() != first.len() {
        return None;
    }
    let mut number = 0i64;
    for (byte, first) in text.iter().zip(first) {
        if !first.is_ascii_digit() {
            if byte != first {
                return None;
            }
            continue;
        }
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(number)
}

#[inline]
fn write_digits(number: i64, first: &[u8], into: &mut Vec<u8>) -> Option<()> {
    let start = into.len();
    into.extend_from_slice(first);
    let mut rest = u64::try_from(number).ok()?;
    let places = into[start..].iter_mut().rev();
    for place in places.filter(|place| place.is_ascii_digit()) {
        *place = b'0' + low_u8(rest % 10);
        rest /= 10;
    }
    (rest == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reads(pattern: &Pattern<'_>, text: &str) -> Option<i64> {
        let number = pattern.read(text.as_bytes())?;
        let mut again = Vec::new();
        pattern.write(number, &mut again).unwrap();
        assert_eq!(again, text.as_bytes());
        assert!(again.len() <= pattern.bytes_max());
        Some(number)
    }

    #[test]
    fn decimal_numbers_are_found_in_texts() {
        let price = Pattern::decimal(b"33078.94").unwrap();
        assert_eq!(reads(&price, "33078.94"), Some(3_307_894));
        assert_eq!(reads(&price, "-0.04"), Some(-4));
        assert_eq!(reads(&price, "0.00"), Some(0));
        for other in [
            "", "-0.00", "1", "1.0", "01.00", ".50", "1.000", "1e.00", "--1.00", "1.0a",
        ] {
            assert_eq!(reads(&price, other), None, "{other}");
        }
        let user = Pattern::decimal(b"user_17@example").unwrap();
        assert_eq!(reads(&user, "user_4@example"), Some(4));
        assert_eq!(reads(&user, "user_-4@example"), None);
        assert_eq!(reads(&user, "user_"), None);
        assert_eq!(Pattern::decimal(b"007"), None);
        assert_eq!(Pattern::decimal(b"no digit"), None);
        assert_eq!(reads(&Pattern::decimal(b"-5").unwrap(), "5"), Some(5));
    }

    #[test]
    fn digits_are_found_at_their_places() {
        let phone = Pattern::digits(b"25-989-741-2988").unwrap();
        assert_eq!(reads(&phone, "00-000-000-0001"), Some(1));
        assert_eq!(reads(&phone, "99-999-999-9999"), Some(999_999_999_999));
        assert_eq!(reads(&phone, "99-999-999x9999"), None);
        assert_eq!(reads(&phone, "9-999-999-9999"), None);
        assert_eq!(Pattern::digits(b"1234567890123456789"), None);
        assert_eq!(Pattern::digits(b"none"), None);
    }

    proptest! {
        #[test]
        fn a_text_that_is_read_is_written_again(
            first in "[a-]{0,2}[0-9]{0,4}[.]?[0-9]{0,3}[b]{0,1}",
            text in "[a-]{0,2}[0-9]{0,20}[.]?[0-9]{0,3}[b]{0,1}",
        ) {
            let bytes = first.as_bytes();
            let patterns = [Pattern::decimal(bytes), Pattern::digits(bytes)];
            for pattern in patterns.into_iter().flatten() {
                reads(&pattern, &first).unwrap();
                reads(&pattern, &text);
            }
        }

        #[test]
        fn no_number_makes_writing_panic(number in any::<i64>(), scale in 0usize..DIGITS_MAX) {
            let mut into = Vec::new();
            Pattern::Decimal { before: b"x", behind: b"", scale }.write(number, &mut into);
            Pattern::digits(b"12-3").unwrap().write(number, &mut into);
        }
    }
}
