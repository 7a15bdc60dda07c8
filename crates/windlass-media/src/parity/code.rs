//! The code: sums and products in the field of 256 numbers, over whole members.
//!
//! Parity j of a group is the sum, over the stripes i, of `coefficient(j, i)` times the member of
//! the stripe. The coefficients are those of a Cauchy matrix, each column divided by its first
//! number. So the first parity is the XOR of the members, and every square part of the matrix can
//! be inverted: any K members can be computed from the others and any K parities.
//!
//! A sum is made member by member, in any order, so nobody has to hold the members of a group
//! together. That is why this is no library: those that exist take all members at once, and their
//! codes could not be described in a page. The loops are over arrays, so that the compiler uses
//! the vectors of the processor.

use crate::limits::STRIPES_MAX;
use crate::number::saturated;

/// The polynomial of the field, without its highest power: x^8 + x^4 + x^3 + x^2 + 1.
const POLYNOMIAL: u8 = 0x1d;
/// How many bytes are multiplied together.
const LANES: usize = 64;

/// Twice a number.
const fn twice(number: u8) -> u8 {
    (number << 1) ^ (POLYNOMIAL & 0u8.wrapping_sub(number >> 7))
}

/// The powers of 2, which are all numbers but zero, and of which power each number is.
struct Powers {
    of: [u8; 255],
    number: [u8; 256],
}

const POWERS: Powers = powers();

const fn powers() -> Powers {
    let mut powers = Powers {
        of: [0; 255],
        number: [0; 256],
    };
    let (mut power, mut number) = (0u8, 1);
    while power < 255 {
        powers.of[power as usize] = number;
        powers.number[number as usize] = power;
        number = twice(number);
        power += 1;
    }
    powers
}

/// The product of two numbers.
fn product(one: u8, other: u8) -> u8 {
    if one == 0 || other == 0 {
        return 0;
    }
    let power = |number: u8| usize::from(POWERS.number[usize::from(number)]);
    POWERS.of[(power(one) + power(other)) % 255]
}

/// The number whose product with this one is 1. Zero has none, and gives 1.
fn inverse(number: u8) -> u8 {
    let power = usize::from(POWERS.number[usize::from(number)]);
    POWERS.of[(255 - power) % 255]
}

/// By what the member of a stripe is multiplied in a parity. Both are below 64.
pub fn coefficient(parity: u16, stripe: u16) -> u8 {
    let number = |index: u16| saturated::<u8, _>(index);
    let column = number(stripe) | 64;
    product(column, inverse(column ^ number(parity)))
}

/// Adds `factor` times each byte of `from` to the byte of `into` at the same place. Both are
/// equally long.
pub fn add_product(factor: u8, from: &[u8], into: &mut [u8]) {
    assert_eq!(
        from.len(),
        into.len(),
        "a sum is of bytes at the same places"
    );
    let (from, from_rest) = from.as_chunks::<LANES>();
    let (into, into_rest) = into.as_chunks_mut::<LANES>();
    if factor == 1 {
        for (from, into) in from.iter().zip(into) {
            add(from, into);
        }
    } else {
        for (from, into) in from.iter().zip(into) {
            add_times(factor, *from, into);
        }
    }
    for (from, into) in from_rest.iter().zip(into_rest) {
        *into ^= product(*from, factor);
    }
}

fn add(from: &[u8; LANES], into: &mut [u8; LANES]) {
    for (from, into) in from.iter().zip(into) {
        *into ^= from;
    }
}

/// Adds the multiples by powers of two that make up the factor.
#[inline(always)]
fn add_times(factor: u8, mut from: [u8; LANES], into: &mut [u8; LANES]) {
    let mut left = factor;
    loop {
        if left & 1 != 0 {
            add(&from, into);
        }
        left >>= 1;
        if left == 0 {
            return;
        }
        from = from.map(twice);
    }
}

/// How one lost member of a group is computed: by what each other member, and each of the parities
/// that are used, is multiplied. The sum of the products is the member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    parities: Vec<(u16, u8)>,
}

impl Recipe {
    /// How the member of `wanted` is computed, if the members of the stripes in `lost` are lost,
    /// and the parities in `parities` are there. `wanted` is one of `lost`. `None` if there are
    /// fewer parities than lost members.
    pub fn new(wanted: u16, lost: &[u16], parities: &[u16]) -> Option<Self> {
        let place = lost.iter().position(|stripe| *stripe == wanted)?;
        let used = parities.get(..lost.len())?;
        let rows = used.iter().map(|parity| {
            let row = lost.iter().map(|stripe| coefficient(*parity, *stripe));
            row.collect::<Vec<_>>()
        });
        let inverted = inverted(rows.collect())?;
        let factors = inverted[place].iter().copied();
        Some(Self {
            parities: used.iter().copied().zip(factors).collect(),
        })
    }

    /// The parities that are used, and the factor of each.
    pub fn parities(&self) -> &[(u16, u8)] {
        &self.parities
    }

    /// The factor of the member of another stripe, which is not lost.
    pub fn factor(&self, stripe: u16) -> u8 {
        let products = self.parities.iter();
        let products =
            products.map(|(parity, factor)| product(*factor, coefficient(*parity, stripe)));
        products.fold(0, |sum, one| sum ^ one)
    }
}

/// The inverse of a square matrix, by elimination.
fn inverted(mut rows: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = rows.len();
    for (number, row) in rows.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == number)));
    }
    for column in 0..size {
        let pivot = (column..size).find(|row| rows[*row][column] != 0)?;
        rows.swap(column, pivot);
        let scale = inverse(rows[column][column]);
        rows[column]
            .iter_mut()
            .for_each(|one| *one = product(*one, scale));
        let own = rows[column].clone();
        for (number, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if number != column && factor != 0 {
                add_product(factor, &own, row);
            }
        }
    }
    Some(rows.into_iter().map(|row| row[size..].to_vec()).collect())
}

// The coefficients of stripes and parities are different numbers only below 64.
const _: () = assert!(STRIPES_MAX <= 64, "a coefficient needs indexes below 64");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn products_are_those_of_the_field() {
        assert_eq!(product(0x80, 2), POLYNOMIAL);
        assert_eq!((product(3, 7), product(0, 9), product(9, 1)), (9, 0, 9));
        for number in 1..=255 {
            assert_eq!(product(number, inverse(number)), 1, "{number}");
        }
        assert!(
            (0..64).all(|stripe| coefficient(0, stripe) == 1),
            "the first parity is an XOR"
        );
    }

    #[test]
    fn every_part_of_the_matrix_with_up_to_three_rows_can_be_inverted() {
        let can = |stripes: &[u16], parities: &[u16]| {
            Recipe::new(stripes[0], stripes, parities).is_some()
        };
        for (a, b) in (0..64).flat_map(|a| (0..a).map(move |b| (a, b))) {
            for (p, q) in (0..8).flat_map(|p| (0..p).map(move |q| (p, q))) {
                assert!(can(&[a, b], &[p, q]), "{a} {b} of {p} {q}");
            }
        }
        for stripes in [[0, 1, 2], [3, 20, 63], [61, 62, 63]] {
            for parities in [[0, 1, 2], [5, 9, 41], [0, 1, 63]] {
                assert!(can(&stripes, &parities), "{stripes:?} of {parities:?}");
            }
        }
    }

    /// Multiplies as the definition says it.
    fn slowly(factor: u8, from: &[u8], into: &mut [u8]) {
        for (from, into) in from.iter().zip(into) {
            *into ^= product(factor, *from);
        }
    }

    proptest! {
        #[test]
        fn members_are_multiplied_as_their_bytes_are(
            factor: u8,
            from in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut expected = vec![0x5a; from.len()];
            let mut found = expected.clone();
            slowly(factor, &from, &mut expected);
            add_product(factor, &from, &mut found);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_lost_members_are_computed_from_as_many_parities(
            members in prop::collection::vec(prop::collection::vec(any::<u8>(), 70), 1..7),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..5),
            skipped in prop::collection::btree_set(0u16..8, 0..3),
        ) {
            let count = u16::try_from(members.len()).unwrap();
            let pick = |it: &prop::sample::Index| u16::try_from(it.index(members.len())).unwrap();
            let mut lost: Vec<u16> = picks.iter().map(pick).collect();
            lost.sort_unstable();
            lost.dedup();
            let there: Vec<u16> = (0..8).filter(|it| !skipped.contains(it)).collect();
            let parity = |number: u16| {
                let mut sum = vec![0; 70];
                for stripe in 0..count {
                    let factor = coefficient(number, stripe);
                    add_product(factor, &members[usize::from(stripe)], &mut sum);
                }
                sum
            };
            for wanted in &lost {
                let recipe = Recipe::new(*wanted, &lost, &there).unwrap();
                let mut found = vec![0; 70];
                for (number, factor) in recipe.parities() {
                    add_product(*factor, &parity(*number), &mut found);
                }
                for other in (0..count).filter(|it| !lost.contains(it)) {
                    add_product(recipe.factor(other), &members[usize::from(other)], &mut found);
                }
                prop_assert_eq!(&found, &members[usize::from(*wanted)]);
            }
            prop_assert!(Recipe::new(lost[0], &lost, &there[..lost.len() - 1]).is_none());
        }
    }
}
