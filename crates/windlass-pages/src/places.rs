//! Where the next value of each row is, while rows that have a value in each column are cut or
//! joined column by column.
//!
//! As long as values have fixed lengths, all rows move by the same number of bytes, and that number
//! is all that changes.
//!
//! Invariants
//! - A place is never before the one where its row began.

use crate::number::{align_up, position, u64_at};
use crate::slotted::ROW_ALIGN;

/// The places of all rows.
#[derive(Debug, Default)]
pub(crate) struct Places {
    at: Vec<u32>,
    /// What must be added to each place.
    skip: usize,
    /// Each place without that is a multiple of this.
    modulus: usize,
}

impl Places {
    /// Begins at these places, which are multiples of [`ROW_ALIGN`].
    pub(crate) fn start(&mut self, places: impl Iterator<Item = u32>) {
        self.at.clear();
        self.at.extend(places);
        self.skip = 0;
        self.modulus = ROW_ALIGN;
    }

    /// All of them.
    #[inline]
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let skip = self.skip;
        self.at.iter().map(move |at| *at as usize + skip)
    }

    /// Moves all by as many bytes.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.skip += bytes;
    }

    /// Moves each to where `end` says that its value ends, and says whether there was such a place
    /// for each.
    #[inline]
    pub(crate) fn go(&mut self, mut end: impl FnMut(usize) -> Option<usize>) -> bool {
        let skip = self.skip;
        self.skip = 0;
        self.modulus = 1;
        for at in &mut self.at {
            let Some(next) = end(*at as usize + skip) else {
                return false;
            };
            *at = position(next);
        }
        true
    }

    /// Moves each to the next multiple.
    pub(crate) fn align(&mut self, align: usize) {
        if align <= self.modulus {
            self.skip = align_up(self.skip, align);
            return;
        }
        self.go(|at| Some(align_up(at, align)));
        self.modulus = align;
    }

    /// Moves each to the next multiple. `false` if there are bytes between that are not zero.
    pub(crate) fn align_over_zeros(&mut self, raw: &[u8], align: usize) -> bool {
        let mut others = 0;
        if align > self.modulus {
            self.go(|at| {
                let next = align_up(at, align);
                others |= padding(raw, at, next);
                Some(next)
            });
            self.modulus = align;
            return others == 0;
        }
        let next = align_up(self.skip, align);
        if next > self.skip {
            let bytes = next - self.skip;
            let all = self.iter().map(|at| padding(raw, at, at + bytes));
            others = all.fold(0, |all, one| all | one);
        }
        self.skip = next;
        others == 0
    }
}

/// Less than eight bytes of a frame; not 0 if one of them is not, or is outside.
#[inline]
fn padding(raw: &[u8], from: usize, to: usize) -> u64 {
    if let Some(word) = raw.get(from..from + 8) {
        return u64_at(word, 0) & !(u64::MAX << (8 * (to - from)));
    }
    let bytes = raw.get(from..to);
    u64::from(bytes.is_none_or(|bytes| bytes.iter().any(|byte| *byte != 0)))
}
