//! Whole numbers in a smaller type: where a limit makes sure that they fit, and where they may not.

use std::fmt::Debug;

/// A type of whole numbers.
pub trait Whole: Sized {
    /// The greatest of them.
    const GREATEST: Self;
}

impl Whole for u8 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for u16 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for u32 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for i32 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for u64 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for i64 {
    const GREATEST: Self = Self::MAX;
}

impl Whole for usize {
    const GREATEST: Self = Self::MAX;
}

/// The number in a type that it fits into, because a limit that was checked before makes sure of
/// that. A debug build asserts it.
#[track_caller]
pub fn fitted<To, From>(number: From) -> To
where
    To: Whole + TryFrom<From>,
    From: Copy + Debug,
{
    let fits = To::try_from(number);
    debug_assert!(fits.is_ok(), "{number:?} does not fit");
    fits.unwrap_or(To::GREATEST)
}

/// The number, or the greatest of the type if the number does not fit: where that means `more than
/// anything`.
pub fn saturated<To: Whole + TryFrom<From>, From>(number: From) -> To {
    To::try_from(number).unwrap_or(To::GREATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_fits_stays_what_it_is() {
        assert_eq!(fitted::<u16, usize>(65_535), 65_535);
        assert_eq!(fitted::<i64, i128>(-7), -7);
        assert_eq!(saturated::<u32, u64>(7), 7);
        assert_eq!(saturated::<u32, u64>(u64::MAX), u32::MAX);
    }

    #[test]
    #[should_panic(expected = "65536 does not fit")]
    fn a_number_that_must_fit_and_does_not_is_found_by_tests() {
        fitted::<u16, usize>(65_536);
    }
}
