//! Columns of floating-point numbers.
//!
//!   decimal   an integer that a power of ten divides; the few numbers that are not decimal apart
//!   planes    the first bytes of all numbers, then their second bytes, and so on
//!
//! Invariants
//! - A number is only read as decimal if the division gives the same bits again.

use crate::error::{PagesError, invalid};
use crate::integers::{self, IntegerEncoder};
use crate::number::{index, low_u8, u64_at};
use crate::opaque::{put_bytes, take_bytes};
use crate::streams::{Source, Streams};

const DECIMAL: u8 = 0;
const PLANES: u8 = 1;

const POWERS: [f64; 10] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// A number that is added becomes whole, because there are no bits for a fraction: 2^52 + 2^51. Its
/// lowest bits are then an integer. There is no instruction for that on all machines, and none for
/// many numbers at once.
const WHOLE: f64 = 6_755_399_441_055_744.0;
/// The bits that are the same in all such sums, if the number was between -2^51 and 2^51.
const WHOLE_MASK: u64 = 0xFFF0_0000_0000_0000;
/// Numbers that are read or written at once.
const BLOCK: usize = 32;
/// How many numbers of a column are looked at before it is tried.
const SAMPLE: usize = 32;
/// At most one number in so many is not decimal.
const EXCEPTIONS: usize = 8;
const NUMBER_BYTES: usize = 8;

/// The integer that a power of ten divides to give a number, and zero if that is so.
#[inline]
fn try_read(bits: i64, power: f64) -> (i64, u64) {
    let sum = f64::from_bits(bits.cast_unsigned()) * power + WHOLE;
    let again = ((sum - WHOLE) / power).to_bits();
    let outside = (sum.to_bits() ^ WHOLE.to_bits()) & WHOLE_MASK;
    let number = sum.to_bits().wrapping_sub(WHOLE.to_bits());
    let number = number.cast_signed();
    (number, (again ^ bits.cast_unsigned()) | outside)
}

/// The same; `None` if there is none.
#[inline]
fn read(bits: i64, power: f64) -> Option<i64> {
    let (number, wrong) = try_read(bits, power);
    (wrong == 0).then_some(number)
}

#[inline]
fn write(number: i64, power: f64) -> i64 {
    #[expect(clippy::cast_precision_loss, reason = "a decoder does the same")]
    let number = number as f64;
    (number / power).to_bits().cast_signed()
}

/// Appends what [`write`] makes of each number.
fn write_all(numbers: &[i64], power: f64, into: &mut Vec<i64>) {
    let (blocks, rest) = numbers.as_chunks::<BLOCK>();
    for block in blocks {
        let sum = |number: i64| WHOLE.to_bits().wrapping_add(number.cast_unsigned());
        let all = block
            .iter()
            .fold(0, |all, number| all | (sum(*number) ^ WHOLE.to_bits()));
        if all & WHOLE_MASK == 0 {
            let write = |number: i64| ((f64::from_bits(sum(number)) - WHOLE) / power).to_bits();
            into.extend(block.iter().map(|number| write(*number).cast_signed()));
        } else {
            into.extend(block.iter().map(|number| write(*number, power)));
        }
    }
    into.extend(rest.iter().map(|number| write(*number, power)));
}

/// Codes columns; its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct RealEncoder {
    numbers: Vec<i64>,
    exceptions: Vec<usize>,
    plane: Vec<u8>,
}

impl RealEncoder {
    /// Appends a column, which is not empty. Each number is given as its bits.
    pub(crate) fn encode(
        &mut self,
        reals: &[i64],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        if let Some(scale) = scale(reals)
            && self.read_all(reals, POWERS[scale])
        {
            streams.byte(DECIMAL);
            streams.byte(low_u8(scale as u64));
            integers.encode(&self.numbers, 7, streams);
            streams.number(self.exceptions.len() as u64);
            let mut next = 0;
            for at in &self.exceptions {
                streams.number((at - next) as u64);
                streams.main.extend_from_slice(&reals[*at].to_le_bytes());
                next = at + 1;
            }
            return;
        }
        streams.byte(PLANES);
        for byte in (0..NUMBER_BYTES).rev() {
            self.plane.clear();
            let bytes = reals.iter().map(|real| real.to_le_bytes()[byte]);
            self.plane.extend(bytes);
            put_bytes(&self.plane, streams);
        }
    }

    fn read_all(&mut self, reals: &[i64], power: f64) -> bool {
        self.numbers.clear();
        self.exceptions.clear();
        for block in reals.chunks(BLOCK) {
            let start = self.numbers.len();
            let mut wrong = 0;
            self.numbers.extend(block.iter().map(|real| {
                let (number, is_wrong) = try_read(*real, power);
                wrong |= is_wrong;
                number
            }));
            if wrong != 0 {
                self.find_exceptions(block, start, power);
            }
        }
        self.exceptions.len() * EXCEPTIONS <= reals.len()
    }

    /// Finds which numbers of a block are not decimal. Another number takes their place.
    #[cold]
    fn find_exceptions(&mut self, block: &[i64], start: usize, power: f64) {
        let mut last = match start {
            0 => 0,
            _ => self.numbers[start - 1],
        };
        for (at, real) in (start..).zip(block) {
            match read(*real, power) {
                Some(number) => last = number,
                None => self.exceptions.push(at),
            }
            self.numbers[at] = last;
        }
    }
}

/// The least scale with which a sample of the numbers is decimal.
fn scale(reals: &[i64]) -> Option<usize> {
    let step = reals.len().div_ceil(SAMPLE);
    let (mut scale, mut misses, mut taken) = (0, 0, 0);
    for real in reals.iter().step_by(step) {
        let found = (scale..POWERS.len()).find(|scale| read(*real, POWERS[*scale]).is_some());
        match found {
            Some(found) => scale = found,
            None => misses += 1,
        }
        taken += 1;
    }
    (misses * EXCEPTIONS <= taken).then_some(scale)
}

/// Appends the bits of the `count` numbers of a column to `into`.
pub(crate) fn decode(
    source: &mut Source<'_>,
    count: usize,
    scratch: &mut Vec<i64>,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    let start = into.len();
    match source.byte()? {
        DECIMAL => {
            let power = *POWERS
                .get(usize::from(source.byte()?))
                .ok_or(invalid("a column of numbers has an impossible scale"))?;
            integers::decode(source, count, scratch)?;
            write_all(scratch, power, into);
            let mut next = 0;
            for _ in 0..source.number()? {
                let at = index(source.number()?).saturating_add(next);
                let bits = u64_at(source.main(NUMBER_BYTES)?, 0);
                let number = into[start..].get_mut(at);
                let number = number.ok_or(invalid("an exception is behind its column"))?;
                *number = bits.cast_signed();
                next = at + 1;
            }
            Ok(())
        }
        PLANES => {
            into.resize(start + count, 0);
            for _ in 0..NUMBER_BYTES {
                let plane = take_bytes(source, count)?;
                for (number, byte) in into[start..].iter_mut().zip(plane) {
                    *number = *number << 8 | i64::from(*byte);
                }
            }
            Ok(())
        }
        _ => Err(invalid("a column of numbers is of an unknown kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(reals: &[f64]) -> usize {
        let bits: Vec<i64> = reals
            .iter()
            .map(|real| real.to_bits().cast_signed())
            .collect();
        let mut streams = Streams::new();
        RealEncoder::default().encode(&bits, &mut IntegerEncoder::default(), &mut streams);
        let slices: Vec<&[u8]> = streams.iter().map(|(stream, _)| stream).collect();
        let mut source = Source::new(&slices).unwrap();
        let mut back = vec![7];
        decode(&mut source, bits.len(), &mut Vec::new(), &mut back).unwrap();
        source.end().unwrap();
        assert_eq!(back[1..], bits);
        streams.bytes()
    }

    #[test]
    fn prices_take_few_bytes() {
        let prices: Vec<f64> = (0..1000).map(|cents| f64::from(cents) / 100.0).collect();
        assert!(round_trip(&prices) < 1500);
        let mut with_others = prices;
        with_others[500] = -0.0;
        with_others[501] = 1.0 / 3.0;
        with_others[999] = f64::NAN;
        assert!(round_trip(&with_others) < 1550);
    }

    #[test]
    fn numbers_are_whole_only_as_far_as_their_bits_reach() {
        let most = 2f64.powi(51);
        let inside = [0.0, 1.0, -1.0, most - 1.0, -most, 0.5 - most];
        let outside = [most, -most - 1.0, 2.0 * most, 4.0 * most, 1e300];
        let bits = |number: f64| number.to_bits().cast_signed();
        let whole = |number| read(bits(number), 1.0);
        assert_eq!(
            inside.map(whole)[..5],
            [0, 1, -1, (1 << 51) - 1, -1 << 51].map(Some)
        );
        assert_eq!(whole(inside[5]), None, "not whole");
        assert_eq!(outside.map(whole), [None; 5]);
        let others = [
            -0.0,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
        ];
        assert_eq!(others.map(whole), [None; 5]);
    }

    #[test]
    fn numbers_of_every_size_are_written_alike_one_by_one_and_in_blocks() {
        for shift in 0..64 {
            let numbers: Vec<i64> = (0..40).map(|at| (at - 20) << shift).collect();
            for power in POWERS {
                let mut all = Vec::new();
                write_all(&numbers, power, &mut all);
                let each = numbers.iter().map(|number| write(*number, power));
                assert_eq!(all, each.collect::<Vec<_>>(), "{shift} {power}");
            }
        }
    }

    proptest! {
        #[test]
        fn all_numbers_come_back(
            bits in prop::collection::vec(any::<u64>(), 1..100),
            decimals in prop::collection::vec((any::<i32>(), 0..12i32), 0..100),
        ) {
            let decimal = |(number, scale): (i32, i32)| f64::from(number) / 10f64.powi(scale);
            let mut reals: Vec<f64> = decimals.into_iter().map(decimal).collect();
            reals.extend(bits.into_iter().map(f64::from_bits));
            round_trip(&reals);
        }
    }
}
