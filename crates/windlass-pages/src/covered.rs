//! Which eight bytes of a page belong to rows that begin at multiples of eight.
//!
//! Rows of an index that was changed lie in any order. A bit for each eight bytes shows whether
//! they overlap, and what none of them covers, without putting them in order.

use crate::number::is_zero;

/// How many bytes a bit stands for.
pub(crate) const BLOCK_BYTES: usize = 8;
/// How many blocks a word stands for.
const WORD_BLOCKS: usize = 64;

/// A bit for each block of one page.
#[derive(Debug, Default)]
pub(crate) struct Covered {
    words: Vec<u64>,
}

impl Covered {
    /// Begins a page, of which nothing is covered.
    pub(crate) fn start(&mut self, page_bytes: usize) {
        self.words.clear();
        let words = page_bytes.div_ceil(BLOCK_BYTES * WORD_BLOCKS);
        self.words.resize(words, 0);
    }

    /// Covers the blocks of a row. `false` if one of them is covered already.
    #[inline]
    pub(crate) fn cover(&mut self, from: usize, to: usize) -> bool {
        let (mut first, end) = (from / BLOCK_BYTES, to.div_ceil(BLOCK_BYTES));
        let mut taken = 0;
        while first < end {
            let word = &mut self.words[first / WORD_BLOCKS];
            let at = first % WORD_BLOCKS;
            let count = (end - first).min(WORD_BLOCKS - at);
            let blocks = u64::MAX >> (WORD_BLOCKS - count) << at;
            taken |= *word & blocks;
            *word |= blocks;
            first += count;
        }
        taken == 0
    }

    /// Whether all bytes in a range of the page that are in no covered block are zero. The block in
    /// which the range begins is not covered, and the range ends where a block does.
    pub(crate) fn others_are_zero(&self, page: &[u8], from: usize, to: usize) -> bool {
        let begin = from.next_multiple_of(BLOCK_BYTES).min(to);
        if !is_zero(&page[from..begin]) {
            return false;
        }
        let (begin, end) = (begin / BLOCK_BYTES, to / BLOCK_BYTES);
        let words = self.words.iter().enumerate();
        let mut words = words.skip(begin / WORD_BLOCKS);
        words.all(|(number, word)| {
            let first = number * WORD_BLOCKS;
            let mut open = !word;
            if first < begin {
                open &= u64::MAX << (begin - first);
            }
            if first + WORD_BLOCKS > end {
                open &= !(u64::MAX << end.saturating_sub(first));
            }
            runs_are_zero(page, first, open)
        })
    }
}

/// Whether the blocks of a word's bits are zero.
#[inline]
fn runs_are_zero(page: &[u8], first: usize, mut open: u64) -> bool {
    while open != 0 {
        let from = open.trailing_zeros();
        let count = (open >> from).trailing_ones();
        let begin = first + from as usize;
        let end = begin + count as usize;
        if !is_zero(&page[begin * BLOCK_BYTES..end * BLOCK_BYTES]) {
            return false;
        }
        // Two steps, because a shift by 64 is none.
        open = open >> (from + count - 1) >> 1 << (from + count - 1) << 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_no_row_covers_is_found(
            rows in prop::collection::vec((0usize..1000, 1usize..300), 0..20),
            stale in prop::collection::vec(0usize..8176, 0..3),
            from in 24usize..400,
        ) {
            let (mut page, mut covered) = (vec![0u8; 8192], Covered::default());
            let mut owner = vec![false; 8192];
            covered.start(page.len());
            for (block, bytes) in rows {
                let (from, to) = (block * BLOCK_BYTES, (block * BLOCK_BYTES + bytes).min(8176));
                let blocks = from..to.next_multiple_of(BLOCK_BYTES);
                let is_free = owner[blocks.clone()].iter().all(|taken| !taken);
                prop_assert_eq!(covered.cover(from, to), is_free);
                owner[blocks].fill(true);
            }
            stale.into_iter().for_each(|at| page[at] = 1);
            let from = from / 4 * 4;
            if !owner[from] {
                let others = page.iter().zip(&owner).take(8176).skip(from);
                let zero = others.filter(|(_, taken)| !**taken).all(|(byte, _)| *byte == 0);
                prop_assert_eq!(covered.others_are_zero(&page, from, 8176), zero);
            }
        }
    }
}
