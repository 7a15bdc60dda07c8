//! Which index blocks have bytes of a range that lie over others, as the footers say.
//!
//! A block whose spans stand in the footer need not be read to know that. It is read when a reader
//! wants a range that it has, and then its spans are checked.

use windlass_media::{FileNo, FileSpan};

use super::blocks::BlockPlace;

/// What a block has of a file.
#[derive(Clone, Copy, Debug)]
struct Spanned {
    file: FileNo,
    first: u64,
    end: u64,
    place: BlockPlace,
}

/// What blocks have of each file, in the order of files and of first positions.
#[derive(Debug, Default)]
pub(super) struct SpannedBlocks {
    all: Vec<Spanned>,
    /// The greatest end of each and those before it of the same file.
    reach: Vec<u64>,
}

impl SpannedBlocks {
    /// Takes a span of a block.
    pub(super) fn take(&mut self, place: BlockPlace, span: &FileSpan) {
        self.all.push(Spanned {
            file: span.file,
            first: span.first,
            end: span.end,
            place,
        });
    }

    /// Must follow what was taken.
    pub(super) fn put_in_order(&mut self) {
        self.all
            .sort_unstable_by_key(|one| (one.file, one.first, one.place));
        let reach = self.all.iter().scan((FileNo(0), 0), |(file, most), one| {
            *most = if *file == one.file { *most } else { 0 };
            *file = one.file;
            *most = one.end.max(*most);
            Some(*most)
        });
        self.reach = reach.collect();
    }

    /// Whether a block has something of this file.
    pub(super) fn has(&self, file: FileNo) -> bool {
        let first = self.all.partition_point(|one| one.file < file);
        self.all.get(first).is_some_and(|one| one.file == file)
    }

    /// The blocks that may have something of `from..to` of a file.
    pub(super) fn over(
        &self,
        file: FileNo,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = BlockPlace> {
        let after = self
            .all
            .partition_point(|one| (one.file, one.first) < (file, to));
        let before = self.all[..after].iter().zip(&self.reach[..after]);
        let near = before
            .rev()
            .take_while(move |(one, reach)| one.file == file && **reach > from);
        let near = near.filter(move |(one, _)| one.end > from);
        near.map(|(one, _)| one.place)
    }

    /// How much memory this takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let spans = self.all.capacity() * size_of::<Spanned>();
        spans + self.reach.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_in_each_block_that_reaches_it_and_in_no_other() {
        let mut blocks = SpannedBlocks::default();
        let spans = [
            (1, 0, 100),
            (1, 10, 20),
            (1, 30, 40),
            (2, 5, 9),
            (1, 100, 101),
        ];
        for (block, (file, first, end)) in (0u32..).zip(spans) {
            let span = FileSpan {
                file: FileNo(file),
                layer_max: 1,
                first,
                end,
            };
            blocks.take(BlockPlace { stripe: 0, block }, &span);
        }
        blocks.put_in_order();
        for file in 0..4 {
            assert_eq!(blocks.has(FileNo(file)), file == 1 || file == 2);
            for (from, to) in (0..110).flat_map(|from| (from + 1..112).map(move |to| (from, to))) {
                let found = blocks.over(FileNo(file), from, to);
                let mut found: Vec<_> = found.map(|place| place.block).collect();
                found.sort_unstable();
                let over =
                    |(of, first, end): &(u32, u64, u64)| *of == file && *first < to && *end > from;
                let expected = (0u32..).zip(&spans).filter(|(_, span)| over(span));
                let expected: Vec<_> = expected.map(|(block, _)| block).collect();
                assert_eq!(found, expected, "file {file}, {from} to {to}");
            }
        }
    }
}
