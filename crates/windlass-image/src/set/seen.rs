//! The spans of the index blocks that were read: which of them are around a position.
//!
//! They are kept in order, with the greatest end so far. So a lookup looks at those that reach the
//! position, and not at all of a set of terabytes. To take one costs a look at all that follow it,
//! but a block was read and checked for it.

use windlass_engine::media::FileNo;

use super::sorted::Position;

/// From where to where a block has pieces of layer 0.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: Position,
    end: Position,
    index: usize,
}

/// The spans of blocks, in the order of their first positions.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    all: Vec<Span>,
    /// The greatest end of each and those before it.
    reach: Vec<Position>,
}

impl Seen {
    /// Takes the span of a block that was read.
    pub(crate) fn take(&mut self, index: usize, (first, end): (Position, Position)) {
        let at = self.all.partition_point(|span| span.first <= first);
        self.all.insert(at, Span { first, end, index });
        self.reach.truncate(at);
        let mut most = self.reach.last().copied().unwrap_or((FileNo(0), 0));
        for span in &self.all[at..] {
            most = span.end.max(most);
            self.reach.push(most);
        }
    }

    /// The blocks whose spans have a position.
    pub(crate) fn around(&self, position: Position) -> Vec<usize> {
        let around = self.near(position).filter(|span| span.end > position);
        around.map(|span| span.index).collect()
    }

    /// All that a lookup looks at.
    fn near(&self, position: Position) -> impl Iterator<Item = &Span> {
        let after = self.all.partition_point(|span| span.first <= position);
        let before = self.all[..after].iter().zip(&self.reach[..after]);
        let near = before
            .rev()
            .take_while(move |(_, reach)| **reach > position);
        near.map(|(span, _)| span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(offset: u64) -> Position {
        (FileNo(4), offset)
    }

    #[test]
    fn a_position_is_in_each_span_around_it_and_in_no_other() {
        // Some overlap, one lies over others, and two are the same.
        let spans = [
            (50, 60),
            (0, 10),
            (5, 20),
            (30, 90),
            (30, 31),
            (8, 9),
            (90, 95),
            (50, 60),
        ];
        let mut seen = Seen::default();
        for (index, (first, end)) in spans.into_iter().enumerate() {
            seen.take(index, (position(first), position(end)));
            for offset in 0..100 {
                let mut found = seen.around(position(offset));
                found.sort_unstable();
                let taken = spans.iter().take(index + 1).enumerate();
                let around = taken.filter(|(_, (first, end))| (*first..*end).contains(&offset));
                let around: Vec<_> = around.map(|(number, _)| number).collect();
                assert_eq!(found, around, "{offset} after {index}");
            }
        }
        assert!(seen.around((FileNo(3), 5)).is_empty());
        assert!(seen.around((FileNo(5), 5)).is_empty());
    }

    #[test]
    fn a_lookup_among_very_many_spans_looks_at_few() {
        let mut seen = Seen::default();
        // Two stripes whose blocks lie over each other, taken from the ends to the middle.
        let count = 2000;
        let start = |block: usize| (block * 10) as u64;
        for number in 0..count {
            let block = match number % 2 {
                0 => number / 2,
                _ => count - 1 - number / 2,
            };
            let first = start(block);
            seen.take(block, (position(first), position(first + 20)));
        }
        for block in 1..count {
            let inside = position(start(block) + 3);
            assert_eq!(seen.near(inside).count(), 2);
            assert_eq!(seen.around(inside), [block, block - 1]);
        }
    }
}
