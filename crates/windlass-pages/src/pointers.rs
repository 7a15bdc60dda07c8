//! Where rows of B-trees point to, as numbers without gaps between the blocks of a table.

use crate::error::{PagesError, invalid};
use crate::integers::{self, IntegerEncoder};
use crate::number::{low_u16, low_u32, u16_at, u64_at};
use crate::streams::{Source, Streams};

/// A pointer: block and line pointer.
pub(crate) const POINTER_BYTES: usize = 6;
const SLOT_AT: usize = 4;

/// Where a row of a table is: its block, and the number of its line pointer.
#[inline]
pub(crate) fn pointer(bytes: &[u8]) -> u64 {
    let block = u32::from(u16_at(bytes, 0)) << 16 | u32::from(u16_at(bytes, 2));
    u64::from(block) << 16 | u64::from(u16_at(bytes, SLOT_AT))
}

#[inline]
pub(crate) fn pointer_bytes(pointer: u64) -> [u8; POINTER_BYTES] {
    let block = low_u32(pointer >> 16).rotate_left(16).to_le_bytes();
    let slot = low_u16(pointer).to_le_bytes();
    [block[0], block[1], block[2], block[3], slot[0], slot[1]]
}

/// How pointers become numbers without gaps between the blocks.
#[derive(Clone, Copy, Debug)]
struct Linear {
    /// The most rows that a block has; 0 if pointers are numbers as they are.
    slots: u64,
}

impl Linear {
    fn of(pointers: &[i64]) -> Self {
        let (mut least, mut most) = (u16::MAX, 0);
        for pointer in pointers {
            let slot = low_u16(pointer.cast_unsigned());
            (least, most) = (least.min(slot), most.max(slot));
        }
        // A line pointer of 0 points to nothing.
        let slots = if least == 0 { 0 } else { most.into() };
        Self { slots }
    }

    #[inline]
    fn number(self, pointer: i64) -> i64 {
        let pointer = pointer.cast_unsigned();
        let number = match self.slots {
            0 => pointer,
            slots => (pointer >> 16) * slots + u64::from(low_u16(pointer)) - 1,
        };
        number.cast_signed()
    }

    /// What gives pointers of numbers.
    fn inverse(self) -> Inverse {
        Inverse {
            slots: self.slots,
            reciprocal: match self.slots {
                0 => 0,
                slots => (u64::MAX / slots).wrapping_add(1),
            },
        }
    }
}

/// How numbers become pointers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inverse {
    slots: u64,
    /// 2^64 divided by the slots, rounded up (0 if there is one slot): a multiplication is several
    /// times faster than a division.
    reciprocal: u64,
}

impl Inverse {
    /// Below this, the product has no error that reaches the quotient: a block has less than 2^16
    /// rows, so the reciprocal is too large by less than 2^16 / 2^64 of itself.
    const EXACT: u64 = 1 << 48;

    #[inline]
    pub(crate) fn pointer(self, number: i64) -> u64 {
        let number = number.cast_unsigned();
        let block = match self.slots {
            0 => return number,
            1 => number,
            slots if number >= Self::EXACT => number / slots,
            _ => high(number, self.reciprocal),
        };
        block << 16 | (number.wrapping_sub(block.wrapping_mul(self.slots)) + 1)
    }
}

/// The upper half of a product.
#[inline]
fn high(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    u64_at(&product.to_le_bytes(), 8)
}

/// Appends pointers, which become numbers.
pub(crate) fn put_pointers(
    pointers: &mut [i64],
    integers: &mut IntegerEncoder,
    streams: &mut Streams,
) {
    let linear = Linear::of(pointers);
    for pointer in &mut *pointers {
        *pointer = linear.number(*pointer);
    }
    streams.number(linear.slots);
    integers.encode(pointers, 6, streams);
}

/// Reads numbers, and what makes pointers of them.
pub(crate) fn take_pointers(
    source: &mut Source<'_>,
    count: usize,
    into: &mut Vec<i64>,
) -> Result<Inverse, PagesError> {
    let slots = source.number()?;
    if slots > u16::MAX.into() {
        return Err(invalid("a block has too many rows"));
    }
    integers::decode(source, count, into)?;
    Ok(Linear { slots }.inverse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_multiplication_gives_what_a_division_would(
            slots in 1u64..=u64::from(u16::MAX),
            number in any::<u64>(),
            shift in 0u32..64,
        ) {
            let inverse = Linear { slots }.inverse();
            let edge = Inverse::EXACT;
            let multiple = number >> shift;
            let numbers = [multiple, multiple / slots * slots, edge - 1, edge, number % edge];
            for number in numbers.into_iter().flat_map(|it| [it.saturating_sub(1), it]) {
                let expected = (number / slots) << 16 | (number % slots + 1);
                prop_assert_eq!(inverse.pointer(number.cast_signed()), expected);
            }
        }

        #[test]
        fn pointers_come_back(
            pointers in prop::collection::vec((any::<u32>(), any::<u16>()), 1..50),
        ) {
            let pointers: Vec<i64> = pointers
                .into_iter()
                .map(|(block, slot)| i64::from(block) << 16 | i64::from(slot))
                .collect();
            let linear = Linear::of(&pointers);
            let inverse = linear.inverse();
            for pointer in pointers {
                let back = inverse.pointer(linear.number(pointer));
                prop_assert_eq!(back, pointer.cast_unsigned());
            }
        }
    }
}
