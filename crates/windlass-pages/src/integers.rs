//! Columns of integers: each frame chooses the cheapest way for each column.
//!
//!   same        one number for all
//! packed      number - base, or difference to the number before - base, in a fixed width; the few
//!   that
//!               need more bits have their upper bits apart
//!   dictionary  up to 256 different numbers, and which of them, packed
//!   plain       the low bytes as they are, for a codec
//!
//! The width is chosen with a sample of the column. All arithmetic wraps around, so every number
//! comes
//! back whatever the sample has missed.
//!
//! Invariants
//! - A decoder makes exactly as many numbers as its caller asks for, and the caller has a bound for
//!   that.

use crate::bits;
use crate::choice::{self, Choice};
use crate::error::{PagesError, invalid};
use crate::number::{index, low_u8, u64_at, unzigzag, zigzag};
use crate::streams::{Source, Streams};

/// Most numbers in a dictionary.
const ENTRIES_MAX: usize = 256;

/// A column is nearly the same if no more than one number in so many is another one.
const NEARLY_SAME: usize = 64;
/// Numbers that are compared with the usual one at once.
const STRETCH: usize = 32;

const SAME: u8 = 0;
/// And its variants: 1 + 2 for differences + 1 for both signs.
const PACKED: u8 = 1;
const DIFFERENCES: u8 = 2;
const SIGNED: u8 = 1;
const DICTIONARY: u8 = 5;
const PLAIN: u8 = 6;

/// How a number becomes a code that is small and not negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Whether the difference to the number before is coded.
    pub(crate) differences: bool,
    /// Whether codes go to both sides of the base.
    pub(crate) signed: bool,
    pub(crate) base: i64,
    pub(crate) width: u32,
}

impl Packing {
    pub(crate) fn code(self, number: i64) -> u64 {
        let moved = number.wrapping_sub(self.base);
        if self.signed {
            zigzag(moved)
        } else {
            moved.cast_unsigned()
        }
    }

    fn tag(self) -> u8 {
        PACKED + u8::from(self.differences) * DIFFERENCES + u8::from(self.signed) * SIGNED
    }
}

/// Codes columns of integers; its memory is used again.
#[derive(Debug, Default)]
pub(crate) struct IntegerEncoder {
    codes: Vec<u64>,
    /// Numbers that are not as nearly all others: where they are, and their codes.
    others: Vec<(u64, u64)>,
    dictionary: choice::Dictionary,
}

impl IntegerEncoder {
    /// Appends a column. `plain_bytes` says how many low bytes of each number are expected to
    /// count, while the others repeat the sign; if more do, they are written.
    pub(crate) fn encode(&mut self, numbers: &[i64], plain_bytes: u8, streams: &mut Streams) {
        if self.put_unless_plain(numbers, plain_bytes, streams) {
            return;
        }
        put_plain(numbers, plain_bytes.max(bytes_of(numbers)), streams);
    }

    /// Appends a column of which a reader takes only the lowest `low_bytes` bytes of each number.
    pub(crate) fn encode_low(&mut self, numbers: &[i64], low_bytes: u8, streams: &mut Streams) {
        if !self.put_unless_plain(numbers, low_bytes, streams) {
            put_plain(numbers, low_bytes, streams);
        }
    }

    /// Appends a column, unless its numbers are best written as they are.
    fn put_unless_plain(
        &mut self,
        numbers: &[i64],
        plain_bytes: u8,
        streams: &mut Streams,
    ) -> bool {
        if numbers.is_empty() || self.put_nearly_same(numbers, streams) {
            return true;
        }
        match choice::choose(numbers, plain_bytes, &mut self.dictionary) {
            Choice::Packed(packing) => self.put_packed(numbers, packing, streams),
            Choice::Dictionary => self.put_dictionary(numbers, streams),
            Choice::Plain => return false,
        }
        true
    }

    /// Appends a column if nearly all numbers are one, or follow each other at one distance. Most
    /// columns of headers are such, so this comes before everything else, and gives up early.
    fn put_nearly_same(&mut self, numbers: &[i64], streams: &mut Streams) -> bool {
        let middle = numbers.len() / 2;
        let packing = |differences, base| Packing {
            differences,
            signed: true,
            base,
            width: 0,
        };
        let usual = numbers[middle];
        if self.find_others(numbers, numbers, |_, number| number, usual) {
            if self.others.is_empty() {
                streams.byte(SAME);
                streams.signed(numbers[0]);
            } else {
                self.put_others(packing(false, usual), numbers[0], streams);
            }
            return true;
        }
        if middle == 0 {
            return false;
        }
        let difference = |before: i64, number: i64| number.wrapping_sub(before);
        let usual = difference(numbers[middle - 1], numbers[middle]);
        if self.find_others(numbers, &numbers[1..], difference, usual) {
            self.put_others(packing(true, usual), numbers[0], streams);
            return true;
        }
        false
    }

    /// Finds where `of` two numbers that follow each other is not `usual`. `false` if there are
    /// more than a few. Most stretches have none, and that is seen without looking at each number.
    #[inline]
    fn find_others(
        &mut self,
        before: &[i64],
        numbers: &[i64],
        of: impl Fn(i64, i64) -> i64,
        usual: i64,
    ) -> bool {
        self.others.clear();
        let most = before.len() / NEARLY_SAME;
        let stretches = before.chunks(STRETCH).zip(numbers.chunks(STRETCH));
        for (start, (before, numbers)) in (0u64..).step_by(STRETCH).zip(stretches) {
            let pairs = before.iter().zip(numbers);
            let different = pairs.clone().fold(0, |all, (before, number)| {
                all | (of(*before, *number) ^ usual)
            });
            if different == 0 {
                continue;
            }
            for (at, (before, number)) in (start..).zip(pairs) {
                let number = of(*before, *number);
                if number != usual {
                    if self.others.len() > most {
                        return false;
                    }
                    self.others.push((at, zigzag(number.wrapping_sub(usual))));
                }
            }
        }
        true
    }

    fn put_others(&self, packing: Packing, first: i64, streams: &mut Streams) {
        streams.byte(packing.tag());
        if packing.differences {
            streams.signed(first);
        }
        streams.signed(packing.base);
        streams.byte(0);
        put_exceptions(self.others.iter().copied(), self.others.len(), streams);
    }

    fn put_packed(&mut self, numbers: &[i64], packing: Packing, streams: &mut Streams) {
        streams.byte(packing.tag());
        let (codes, base) = (&mut self.codes, packing.base);
        codes.clear();
        let offset = |number: i64| number.wrapping_sub(base).cast_unsigned();
        let zigzag = |number: i64| zigzag(number.wrapping_sub(base));
        let difference = |(before, number): (&i64, &i64)| number.wrapping_sub(*before);
        if packing.differences {
            streams.signed(numbers[0]);
            let pairs = numbers.iter().zip(&numbers[1..]).map(difference);
            match packing.signed {
                true => codes.extend(pairs.map(zigzag)),
                false => codes.extend(pairs.map(offset)),
            }
        } else {
            match packing.signed {
                true => codes.extend(numbers.iter().copied().map(zigzag)),
                false => codes.extend(numbers.iter().copied().map(offset)),
            }
        }
        streams.signed(base);
        self.put_codes(packing.width, streams);
    }

    /// The codes in a width, and the upper bits of those that need more.
    fn put_codes(&self, width: u32, streams: &mut Streams) {
        streams.byte(low_u8(width.into()));
        bits::pack(&self.codes, width, &mut streams.packed);
        if width > bits::NARROW_MAX {
            return;
        }
        let all = self.codes.iter().fold(0, |all, code| all | code);
        if all >> width == 0 {
            streams.byte(0);
            return;
        }
        let wider = || {
            let codes = (0u64..).zip(&self.codes);
            codes.filter_map(|(at, code)| (code >> width > 0).then_some((at, code >> width)))
        };
        put_exceptions(wider(), wider().count(), streams);
    }

    fn put_dictionary(&mut self, numbers: &[i64], streams: &mut Streams) {
        let entries = self.dictionary.entries();
        streams.byte(DICTIONARY);
        streams.byte(low_u8(entries.len() as u64 - 1));
        let mut before = 0i64;
        for entry in entries {
            streams.signed(entry.wrapping_sub(before));
            before = *entry;
        }
        self.codes.clear();
        let codes = self.dictionary.codes(numbers);
        self.codes.extend(codes.iter().map(|code| u64::from(*code)));
        let width = choice::width(&self.codes);
        self.put_codes(width, streams);
    }
}

/// The upper bits of codes that are wider than their column: how many, and for each its distance
/// and its bits.
fn put_exceptions(
    exceptions: impl Iterator<Item = (u64, u64)>,
    count: usize,
    streams: &mut Streams,
) {
    streams.number(count as u64);
    let mut next = 0;
    for (at, upper) in exceptions {
        streams.number(at - next);
        streams.number(upper);
        next = at + 1;
    }
}

/// How many low bytes of the numbers count; the others repeat the sign.
pub(crate) fn bytes_of(numbers: &[i64]) -> u8 {
    // All of them together have the bits of the widest.
    let all = numbers
        .iter()
        .fold(0, |all, number| all | (number ^ (number >> 63)));
    low_u8((65 - all.leading_zeros()).div_ceil(8).min(8).into())
}

fn put_plain(numbers: &[i64], plain_bytes: u8, streams: &mut Streams) {
    streams.byte(PLAIN);
    streams.byte(plain_bytes);
    let into = &mut streams.main;
    match plain_bytes {
        1 => into.extend(numbers.iter().map(|number| number.to_le_bytes()[0])),
        _ => {
            for number in numbers {
                into.extend_from_slice(&number.to_le_bytes()[..usize::from(plain_bytes)]);
            }
        }
    }
}

/// Reads a column of `count` numbers. What was in `into` before is gone.
pub(crate) fn decode(
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    into.clear();
    append(source, count, into)
}

/// The same behind what is in `into`.
pub(crate) fn append(
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    if count == 0 {
        return Ok(());
    }
    into.reserve(count);
    match source.byte()? {
        SAME => {
            let number = source.signed()?;
            into.resize(into.len() + count, number);
            Ok(())
        }
        tag @ PACKED..DICTIONARY => take_packed(tag - PACKED, source, count, into),
        DICTIONARY => take_dictionary(source, count, into),
        PLAIN => take_plain(source, count, into),
        _ => Err(invalid("a column of integers is of an unknown kind")),
    }
}

fn take_packed(
    variant: u8,
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    let differences = variant & DIFFERENCES != 0;
    let signed = variant & SIGNED != 0;
    let first = if differences { source.signed()? } else { 0 };
    let base = source.signed()?;
    let width = take_width(source)?;
    let count = if differences { count - 1 } else { count };
    let offset = |code: u64| base.wrapping_add(code.cast_signed());
    let both = |code: u64| base.wrapping_add(unzigzag(code));
    let packing = Packing {
        differences,
        signed,
        base,
        width,
    };
    let code = |number| packing.code(number);
    let start = into.len();
    match signed {
        false => take_codes(width, source, count, into, offset, code)?,
        true => take_codes(width, source, count, into, both, code)?,
    }
    if differences {
        let mut before = first;
        for number in &mut into[start..] {
            let next = number.wrapping_add(before);
            // Each number moves down by one, to make room for the first.
            *number = std::mem::replace(&mut before, next);
        }
        into.push(before);
    }
    Ok(())
}

fn take_width(source: &mut Source<'_>) -> Result<u32, PagesError> {
    let width = u32::from(source.byte()?);
    if width == bits::stored_width(width) && width <= 64 {
        return Ok(width);
    }
    Err(invalid("a column of integers has an impossible width"))
}

/// Reads codes as the numbers that `of` makes of them; `code` gives the code back.
#[inline]
fn take_codes(
    width: u32,
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
    of: impl Fn(u64) -> i64,
    code: impl Fn(i64) -> u64,
) -> Result<(), PagesError> {
    let bytes = bits::packed_bytes(count, width).ok_or(PagesError::Truncated)?;
    let packed = source.packed(bytes)?;
    let start = into.len();
    into.reserve(count + 1);
    bits::unpack(packed, count, width, into, &of);
    if width > bits::NARROW_MAX {
        return Ok(());
    }
    let mut next = 0;
    for _ in 0..source.number()? {
        let at = index(source.number()?).saturating_add(next);
        let upper = source.number()? << width;
        let number = into[start..].get_mut(at);
        let number = number.ok_or(invalid("an exception is behind the end of its column"))?;
        *number = of(code(*number) | upper);
        next = at + 1;
    }
    Ok(())
}

fn take_dictionary(
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    let mut entries = [0i64; ENTRIES_MAX];
    let count_entries = usize::from(source.byte()?) + 1;
    let mut before = 0i64;
    for entry in &mut entries[..count_entries] {
        before = before.wrapping_add(source.signed()?);
        *entry = before;
    }
    let width = take_width(source)?;
    let (as_number, as_code) = (u64::cast_signed, i64::cast_unsigned);
    let start = into.len();
    take_codes(width, source, count, into, as_number, as_code)?;
    // No step ends the loop, so none waits to know whether the code before was right.
    let mut are_known = true;
    for code in &mut into[start..] {
        let at = code.cast_unsigned();
        are_known &= at < count_entries as u64;
        *code = entries[usize::from(low_u8(at))];
    }
    match are_known {
        true => Ok(()),
        false => Err(invalid("a number is not in the dictionary")),
    }
}

fn take_plain(
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<(), PagesError> {
    let bytes = usize::from(source.byte()?);
    if !matches!(bytes, 1..=8) {
        return Err(invalid("a plain number has an impossible length"));
    }
    let plain = count.checked_mul(bytes).ok_or(PagesError::Truncated)?;
    let plain = source.main(plain)?;
    let unused = 64 - 8 * bytes;
    let number = |word: u64| (word << unused).cast_signed() >> unused;
    // The numbers that can be read with eight bytes at once; the last ones are read from a copy.
    let whole = match plain.len().checked_sub(8) {
        Some(last) => count.min(last / bytes + 1),
        None => 0,
    };
    into.extend((0..whole).map(|at| number(u64_at(plain, at * bytes))));
    into.extend(plain[whole * bytes..].chunks_exact(bytes).map(|last| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(last);
        number(u64::from_le_bytes(word))
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(numbers: &[i64], plain_bytes: u8) -> (Vec<i64>, usize) {
        let mut streams = Streams::new();
        IntegerEncoder::default().encode(numbers, plain_bytes, &mut streams);
        let slices: Vec<&[u8]> = streams.iter().map(|(stream, _)| stream).collect();
        let mut source = Source::new(&slices).unwrap();
        let mut back = Vec::new();
        decode(&mut source, numbers.len(), &mut back).unwrap();
        source.end().unwrap();
        (back, streams.bytes())
    }

    #[test]
    fn numbers_that_are_longer_than_expected_come_back() {
        // Posting lists that point to both ends of the largest table.
        let far = (0..80)
            .map(|n: i64| (n % 2) << 47 | n.wrapping_mul(0x5851_F42D_4C95) >> 1 & 0x7FFF_FFFF_FFFF);
        let far: Vec<i64> = far.collect();
        let (back, bytes) = round_trip(&far, 6);
        assert_eq!(back, far);
        assert!(bytes > 6 * far.len(), "they are plain: {bytes} bytes");
        // Texts of 32 KiB and more.
        let long = [40_000, 33_000, 65_000];
        assert_eq!(round_trip(&long, 2).0, long);
    }

    proptest! {
        #[test]
        fn numbers_come_back_whatever_length_is_expected(
            numbers in prop::collection::vec((any::<i64>(), 0u32..64), 1..200),
            shift in 0u32..64,
            plain_bytes in 1u8..=8,
        ) {
            let each: Vec<i64> = numbers.iter().map(|(number, shift)| number >> shift).collect();
            let all: Vec<i64> = numbers.iter().map(|(number, _)| number >> shift).collect();
            for numbers in [each, all] {
                prop_assert_eq!(round_trip(&numbers, plain_bytes).0, numbers);
            }
        }
    }
}
