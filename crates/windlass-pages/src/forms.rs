//! Forms of SQLite's records: the kinds of a record's values together as one number.
//!
//! Invariants
//! - Two records have one number if, and only if, their values have the same kinds.

use std::collections::HashMap;

use crate::integers::IntegerEncoder;
use crate::number::{index, position, u64_at};
use crate::streams::Streams;

/// Forms that are found again without the map, by their hash.
const SLOTS: usize = 64;
const SLOT_BITS: u32 = SLOTS.ilog2();

/// Where the kinds of a form are.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    /// The first is 1; 0 is none.
    number: i64,
    from: u32,
    to: u32,
}

/// The forms of a frame.
#[derive(Debug)]
pub(crate) struct Forms {
    /// The kinds of each form, one form after the other, and how many each has.
    kinds: Vec<u8>,
    counts: Vec<u32>,
    /// Records of a table alternate between a few forms.
    recent: [Form; SLOTS],
    last: Form,
    known: HashMap<Box<[u8]>, Form>,
}

impl Default for Forms {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            counts: Vec::new(),
            recent: [Form::default(); SLOTS],
            last: Form::default(),
            known: HashMap::new(),
        }
    }
}

impl Forms {
    pub(crate) fn clear(&mut self) {
        self.kinds.clear();
        self.counts.clear();
        self.recent = [Form::default(); SLOTS];
        self.last = Form::default();
        self.known.clear();
    }

    /// The number of the form of a record with these kinds.
    #[inline]
    pub(crate) fn of(&mut self, kinds: &[u8]) -> i64 {
        if self.is(self.last, kinds) {
            return self.last.number;
        }
        let slot = slot(kinds);
        if !self.is(self.recent[slot], kinds) {
            self.recent[slot] = self.find(kinds);
        }
        self.last = self.recent[slot];
        self.last.number
    }

    #[inline]
    fn is(&self, form: Form, kinds: &[u8]) -> bool {
        form.number != 0 && self.kinds[form.from as usize..form.to as usize] == *kinds
    }

    #[cold]
    fn find(&mut self, kinds: &[u8]) -> Form {
        if let Some(form) = self.known.get(kinds) {
            return *form;
        }
        let from = position(self.kinds.len());
        self.kinds.extend_from_slice(kinds);
        self.counts.push(position(kinds.len()));
        let form = Form {
            number: self.counts.len() as i64,
            from,
            to: position(self.kinds.len()),
        };
        self.known.insert(kinds.into(), form);
        form
    }

    /// Appends the form of each cell, and the kinds of each form.
    pub(crate) fn put(
        &self,
        of_cells: &[i64],
        integers: &mut IntegerEncoder,
        streams: &mut Streams,
    ) {
        integers.encode(of_cells, 4, streams);
        streams.number(self.counts.len() as u64);
        for count in &self.counts {
            streams.number((*count).into());
        }
        streams.main.extend_from_slice(&self.kinds);
    }
}

/// A hash of some kinds.
#[inline]
fn slot(kinds: &[u8]) -> usize {
    let (words, rest) = kinds.as_chunks::<8>();
    let mix = |hash: u64, word: u64| {
        (hash ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(31)
    };
    let hash = words
        .iter()
        .fold(0, |hash, word| mix(hash, u64_at(word, 0)));
    let rest = rest
        .iter()
        .fold(0, |word, kind| word << 8 | u64::from(*kind));
    index(mix(hash, rest).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOT_BITS))
}
