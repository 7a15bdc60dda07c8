//! Which way of coding a column of integers is the cheapest.
//!
//! It looks at every number once (for the least and the greatest) and at a sample of them closely.
//! A bad
//! choice costs bytes and nothing else.

use crate::bits;
use crate::integers::Packing;
use crate::number::index;

/// How many numbers of a column are looked at closely.
const SAMPLE: usize = 128;
/// What a number costs that needs more bits than its column has, besides those bits.
const EXCEPTION_BITS: u64 = 14;
/// Most numbers in a dictionary.
const ENTRIES_MAX: usize = 256;
/// Slots of the hash table over them.
const SLOTS: usize = 1024;
/// A dictionary is tried if the sample has no more different numbers than this.
const SAMPLE_ENTRIES_MAX: usize = 48;
/// What an entry of a dictionary costs.
const ENTRY_BITS: u64 = 20;

/// The ways of coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Packed(Packing),
    /// The dictionary is complete, and has the code of each number.
    Dictionary,
    Plain,
}

/// How many numbers of the sample need how many bits.
struct Widths {
    counts: [u32; 65],
    total: u32,
}

impl Widths {
    fn of(codes: impl Iterator<Item = u64>) -> Self {
        let mut widths = Self {
            counts: [0; 65],
            total: 0,
        };
        for code in codes {
            widths.counts[64 - code.leading_zeros() as usize] += 1;
            widths.total += 1;
        }
        widths
    }

    /// The cheapest width, and what the sample costs with it in bits.
    fn cheapest(&self) -> (u32, u64) {
        let widest = self.counts.iter().rposition(|count| *count > 0);
        let mut width = bits::stored_width(crate::number::position(widest.unwrap_or(0)));
        let mut best = (width, u64::from(width) * u64::from(self.total));
        let (mut wider, mut wider_bits) = (0, 0);
        while width > 0 {
            let count = u64::from(self.counts[width as usize]);
            wider += count;
            wider_bits += count * (EXCEPTION_BITS + u64::from(width));
            width -= 1;
            let narrow = bits::stored_width(width) == width;
            let upper = wider_bits - wider * u64::from(width);
            let cost = u64::from(width) * u64::from(self.total) + upper;
            if narrow && cost < best.1 {
                best = (width, cost);
            }
        }
        best
    }
}

/// The cheapest width for codes that a dictionary made.
pub(crate) fn width(codes: &[u64]) -> u32 {
    Widths::of(codes.iter().copied()).cheapest().0
}

/// Chooses. `numbers` is not empty.
pub(crate) fn choose(numbers: &[i64], plain_bytes: u8, dictionary: &mut Dictionary) -> Choice {
    let step = (numbers.len() / SAMPLE).max(1);
    let (packing, cost) = best_packing(numbers, step);
    let taken = numbers.len().div_ceil(step) as u64;
    // What a width of one bit or two costs cannot be halved by anything.
    if cost > 2 * taken && dictionary.is_worth(numbers, step, cost) {
        return Choice::Dictionary;
    }
    let plain = 8 * u64::from(plain_bytes) * taken;
    if cost * 10 > plain * 9 {
        return Choice::Plain;
    }
    Choice::Packed(with_its_base((packing, cost), numbers, step))
}

/// The cheapest of the four packings, and what the sample costs with it.
fn best_packing(numbers: &[i64], step: usize) -> (Packing, u64) {
    let least = numbers.iter().step_by(step).copied().min();
    let least_difference = numbers.windows(2).step_by(step).map(difference).min();
    let packing = |differences, signed, base| Packing {
        differences,
        signed,
        base,
        width: 0,
    };
    let middle = numbers[numbers.len() / 2];
    let candidates = [
        packing(false, false, least.unwrap_or(0)),
        packing(false, true, middle),
        packing(true, false, least_difference.unwrap_or(0)),
        packing(true, true, 0),
    ];
    let judged = candidates.map(|candidate| {
        let (width, cost) = widths(candidate, numbers, step).cheapest();
        (Packing { width, ..candidate }, cost)
    });
    let cheapest = judged.into_iter().min_by_key(|(_, cost)| *cost);
    cheapest.unwrap_or((candidates[0], u64::MAX))
}

fn difference(pair: &[i64]) -> i64 {
    pair[1].wrapping_sub(pair[0])
}

/// The packing with a base that suits all numbers. The base is the least of the sample. A number
/// below it becomes a code with 64 bits. So the least of all numbers may be the better base, unless
/// that is so far away that it makes all codes wide.
fn with_its_base((packing, cost): (Packing, u64), numbers: &[i64], step: usize) -> Packing {
    if packing.signed {
        return packing;
    }
    let (below, least) = match packing.differences {
        true => below(numbers.windows(2).map(difference), packing.base),
        false => below(numbers.iter().copied(), packing.base),
    };
    if below == 0 {
        return packing;
    }
    let base = least;
    let lower = Packing { base, ..packing };
    let (width, lower_cost) = widths(lower, numbers, step).cheapest();
    match lower_cost * step as u64 <= cost * step as u64 + below * (EXCEPTION_BITS + 64) {
        true => Packing { width, ..lower },
        false => packing,
    }
}

/// How many numbers are below a base, and the least of them.
fn below(numbers: impl Iterator<Item = i64>, base: i64) -> (u64, i64) {
    numbers.fold((0, base), |(count, least), number| {
        (count + u64::from(number < base), least.min(number))
    })
}

/// How wide the codes of a sample are.
fn widths(packing: Packing, numbers: &[i64], step: usize) -> Widths {
    if packing.differences {
        let pairs = numbers.windows(2).step_by(step);
        return Widths::of(pairs.map(|pair| packing.code(difference(pair))));
    }
    Widths::of(
        numbers
            .iter()
            .step_by(step)
            .map(|number| packing.code(*number)),
    )
}

/// The different numbers of a column, and the code of each number.
#[derive(Debug)]
pub(crate) struct Dictionary {
    entries: Vec<i64>,
    /// The code of the entry with this hash, plus one; 0 if there is none.
    slots: Vec<u16>,
    codes: Vec<u8>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            slots: vec![0; SLOTS],
            codes: Vec::new(),
        }
    }
}

impl Dictionary {
    pub(crate) fn entries(&self) -> &[i64] {
        &self.entries
    }

    /// The codes of the numbers that [`Dictionary::is_worth`] has seen.
    pub(crate) fn codes(&self, numbers: &[i64]) -> &[u8] {
        debug_assert_eq!(self.codes.len(), numbers.len());
        &self.codes
    }

    /// Whether a dictionary is cheaper than `cost`, which is that of a sample. If so, it is made.
    fn is_worth(&mut self, numbers: &[i64], step: usize, cost: u64) -> bool {
        let taken = numbers.len().div_ceil(step);
        self.clear();
        let sample = numbers.iter().step_by(step);
        let few = sample
            .map(|number| self.code(*number))
            .all(|code| code.is_some_and(|code| usize::from(code) < SAMPLE_ENTRIES_MAX));
        let bits = u64::from(usize::BITS - (self.entries.len() - 1).leading_zeros());
        let entries = ENTRY_BITS * self.entries.len() as u64 / step as u64;
        if !few || taken as u64 * bits + entries >= cost {
            return false;
        }
        self.codes.clear();
        for number in numbers {
            match self.code(*number) {
                Some(code) => self.codes.push(code),
                None => return false,
            }
        }
        true
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(0);
    }

    /// The code of a number, which is new if it was not there; `None` if the dictionary is full.
    fn code(&mut self, number: i64) -> Option<u8> {
        let hash = number.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut slot = index(hash >> 54);
        while let Some(code) = self.slots[slot].checked_sub(1) {
            if self.entries[usize::from(code)] == number {
                return u8::try_from(code).ok();
            }
            slot = (slot + 1) % SLOTS;
        }
        if self.entries.len() == ENTRIES_MAX {
            return None;
        }
        let code = u8::try_from(self.entries.len()).ok()?;
        self.entries.push(number);
        self.slots[slot] = u16::from(code) + 1;
        Some(code)
    }
}
