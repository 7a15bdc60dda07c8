//! Which index blocks have bytes of a range that lie over others, as the footers say.
//!
//! A block whose spans stand in the footer need not be read to know that. It is read when a reader
//! wants a range that it has, and then its spans are checked. Who wants to rely on no span reads
//! the blocks that tell of a file by the index directory.

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
    /// All blocks with spans, in the order of their lowest files.
    blocks: Vec<Listed>,
}

/// The files that a block may have pieces of, as its directory says.
#[derive(Clone, Copy, Debug)]
struct Listed {
    file_min: FileNo,
    file_max: FileNo,
    place: BlockPlace,
}

impl SpannedBlocks {
    /// Takes the spans of a block. Only those that `over` accepts count, but the block may have
    /// something of each file between the first and the last of them.
    pub(super) fn take(
        &mut self,
        place: BlockPlace,
        spans: &[FileSpan],
        over: impl Fn(&FileSpan) -> bool,
    ) {
        if let (Some(first), Some(last)) = (spans.first(), spans.last()) {
            self.blocks.push(Listed {
                file_min: first.file,
                file_max: last.file,
                place,
            });
        }
        let spans = spans.iter().filter(|span| over(span));
        self.all.extend(spans.map(|span| Spanned {
            file: span.file,
            first: span.first,
            end: span.end,
            place,
        }));
    }

    /// Must follow what was taken.
    pub(super) fn put_in_order(&mut self) {
        self.blocks
            .sort_unstable_by_key(|one| (one.file_min, one.place));
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

    /// How many blocks have spans.
    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    /// The blocks that may have something of a file, if no span is believed.
    pub(super) fn that_may_tell_of(&self, file: FileNo) -> impl Iterator<Item = BlockPlace> {
        let after = self.blocks.partition_point(|one| one.file_min <= file);
        let blocks = self.blocks[..after].iter();
        let blocks = blocks.filter(move |one| one.file_max >= file);
        blocks.map(|one| one.place)
    }

    /// How much memory this takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let spans = self.all.capacity() * size_of::<Spanned>();
        let blocks = self.blocks.capacity() * size_of::<Listed>();
        spans + self.reach.capacity() * size_of::<u64>() + blocks
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
            blocks.take(BlockPlace { stripe: 0, block }, &[span], |_| true);
        }
        blocks.put_in_order();
        for file in 0..4 {
            assert_eq!(blocks.has(FileNo(file)), file == 1 || file == 2);
            let telling = blocks.that_may_tell_of(FileNo(file)).count();
            assert_eq!(telling, [0, 4, 1, 0][file as usize]);
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

    #[test]
    fn a_block_may_tell_of_each_file_between_those_of_its_spans_and_of_layers_that_do_not_count() {
        let mut blocks = SpannedBlocks::default();
        let span = |file, layer_max| FileSpan {
            file: FileNo(file),
            layer_max,
            first: 0,
            end: 1,
        };
        let place = BlockPlace {
            stripe: 3,
            block: 7,
        };
        blocks.take(place, &[span(2, 0), span(5, 1)], |span| span.layer_max > 0);
        blocks.put_in_order();
        for file in 0..8 {
            assert_eq!(blocks.has(FileNo(file)), file == 5);
            let telling: Vec<_> = blocks.that_may_tell_of(FileNo(file)).collect();
            let expected = (2..=5).contains(&file).then_some(place);
            assert_eq!(telling, Vec::from_iter(expected), "file {file}");
        }
    }
}
