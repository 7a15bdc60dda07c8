//! Which way of coding a column of integers is the cheapest.
//!
//! It looks at every number once (for the least and the greatest) and at a sample of them closely.
//! A bad
//! choice costs bytes and nothing else.

use crate::bits;
use crate::integers::Packing;
use crate::number::index;

/// At most so many numbers of a column are looked at closely.
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

/// The cheapest width for codes that a dictionary made, as a sample of them shows.
pub(crate) fn width(codes: &[u64]) -> u32 {
    let step = codes.len().div_ceil(SAMPLE).max(1);
    Widths::of(codes.iter().step_by(step).copied()).cheapest().0
}

/// Chooses. `numbers` is not empty.
pub(crate) fn choose(numbers: &[i64], plain_bytes: u8, dictionary: &mut Dictionary) -> Choice {
    let step = numbers.len().div_ceil(SAMPLE);
    let sample = Sample::of(numbers, step);
    let (packing, cost) = best_packing(&sample, numbers[numbers.len() / 2]);
    let taken = numbers.len().div_ceil(step) as u64;
    // What a width of one bit or two costs cannot be halved by anything.
    if cost > 2 * taken && dictionary.is_worth(numbers, step, cost) {
        return Choice::Dictionary;
    }
    let plain = 8 * u64::from(plain_bytes) * taken;
    if cost * 10 > plain * 9 {
        return Choice::Plain;
    }
    Choice::Packed(with_its_base((packing, cost), &sample, numbers, step))
}

/// The numbers of a sample, and the differences to the numbers before them.
struct Sample {
    numbers: [i64; SAMPLE],
    differences: [i64; SAMPLE],
    count: usize,
    /// How many of the differences count.
    pairs: usize,
}

impl Sample {
    fn of(column: &[i64], step: usize) -> Self {
        let mut sample = Self {
            numbers: [0; SAMPLE],
            differences: [0; SAMPLE],
            count: column.len().div_ceil(step),
            pairs: (column.len() - 1).div_ceil(step),
        };
        for (into, number) in sample.numbers.iter_mut().zip(column.iter().step_by(step)) {
            *into = *number;
        }
        let pairs = column.windows(2).step_by(step);
        for (into, pair) in sample.differences.iter_mut().zip(pairs) {
            *into = difference(pair);
        }
        sample
    }

    fn numbers(&self) -> &[i64] {
        &self.numbers[..self.count]
    }

    fn differences(&self) -> &[i64] {
        &self.differences[..self.pairs]
    }

    /// How wide the codes of a packing are.
    fn widths(&self, packing: Packing) -> Widths {
        let numbers = match packing.differences {
            true => self.differences(),
            false => self.numbers(),
        };
        Widths::of(numbers.iter().map(|number| packing.code(*number)))
    }
}

/// The cheapest of the four packings, and what the sample costs with it.
fn best_packing(sample: &Sample, middle: i64) -> (Packing, u64) {
    let packing = |differences, signed, base| Packing {
        differences,
        signed,
        base,
        width: 0,
    };
    let candidates = [
        packing(false, false, least(sample.numbers())),
        packing(false, true, middle),
        packing(true, false, least(sample.differences())),
        packing(true, true, 0),
    ];
    let judged = candidates.map(|candidate| {
        let (width, cost) = sample.widths(candidate).cheapest();
        (Packing { width, ..candidate }, cost)
    });
    let cheapest = judged.into_iter().min_by_key(|(_, cost)| *cost);
    cheapest.unwrap_or((candidates[0], u64::MAX))
}

fn difference(pair: &[i64]) -> i64 {
    pair[1].wrapping_sub(pair[0])
}

/// The least of some numbers; 0 if there is none.
fn least(numbers: &[i64]) -> i64 {
    numbers.iter().copied().min().unwrap_or(0)
}

/// The packing with a base that suits all numbers. The base is the least of the sample. A number
/// below it becomes a code with 64 bits. So the least of all numbers may be the better base, unless
/// that is so far away that it makes all codes wide.
fn with_its_base(
    (packing, cost): (Packing, u64),
    sample: &Sample,
    numbers: &[i64],
    step: usize,
) -> Packing {
    if packing.signed {
        return packing;
    }
    let base = match packing.differences {
        true => least_difference(numbers),
        false => least(numbers),
    };
    if base >= packing.base {
        return packing;
    }
    let lower = Packing { base, ..packing };
    let (width, lower_cost) = sample.widths(lower).cheapest();
    let lower = Packing { width, ..lower };
    if lower_cost <= cost {
        return lower;
    }
    let is_below = |number: i64| u64::from(number < packing.base);
    let below: u64 = match packing.differences {
        true => numbers.windows(2).map(difference).map(is_below).sum(),
        false => numbers.iter().copied().map(is_below).sum(),
    };
    match lower_cost * step as u64 <= cost * step as u64 + below * (EXCEPTION_BITS + 64) {
        true => lower,
        false => packing,
    }
}

fn least_difference(numbers: &[i64]) -> i64 {
    let differences = numbers.windows(2).map(difference);
    differences.min().unwrap_or(0)
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
