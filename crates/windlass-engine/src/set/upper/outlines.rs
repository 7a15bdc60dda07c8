//! From where to where index blocks have pieces that lie over others, and these pieces in order.

use std::collections::BTreeSet;

use windlass_media::{FileNo, SetId};

use super::blocks::{Block, BlockPlace, UpperBlocks, UpperPiece, UpperRange};
use crate::error::EngineError;
use crate::mismatch::Mismatch;

/// How many pieces are put in order at a time.
const WINDOW_PIECES: usize = 256 * 1024;
/// How many layers are possible.
const LAYERS: usize = 256;

/// From where to where a block has such pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    pub(super) place: BlockPlace,
    first: (FileNo, u64),
    end: (FileNo, u64),
}

/// The outlines of blocks that were read.
#[derive(Debug, Default)]
pub(super) struct Outlines {
    /// In the order of their first pieces, once [`Outlines::put_in_order`] was called.
    all: Vec<Outline>,
    /// The greatest end of each outline and those before it.
    reach: Vec<(FileNo, u64)>,
    /// The files of all pieces.
    files: BTreeSet<FileNo>,
}

impl Outlines {
    /// Takes what a block has.
    pub(super) fn take(&mut self, place: BlockPlace, block: &Block) {
        let pieces = &block.pieces;
        let ends = pieces.iter().map(|piece| (piece.file, piece.end()));
        if let (Some(first), Some(end)) = (pieces.first(), ends.max()) {
            let first = (first.file, first.start);
            self.all.push(Outline { place, first, end });
        }
        self.files.extend(pieces.iter().map(|piece| piece.file));
    }

    /// Takes what others have of these blocks.
    pub(super) fn take_all(&mut self, others: Self, blocks: &BTreeSet<BlockPlace>) {
        let all = others.all.into_iter();
        self.all
            .extend(all.filter(|one| blocks.contains(&one.place)));
        self.files.extend(others.files);
    }

    /// Must follow what was taken. The sort is fast where most is in order already.
    pub(super) fn put_in_order(&mut self) {
        self.all.sort_by_key(|outline| outline.first);
        let ends = self.all.iter().map(|outline| outline.end);
        let reach = ends.scan((FileNo(0), 0), |most, end| {
            *most = end.max(*most);
            Some(*most)
        });
        self.reach = reach.collect();
    }

    /// Whether one of the pieces is of this file.
    pub(super) fn has(&self, file: FileNo) -> bool {
        self.files.contains(&file)
    }

    /// All outlines, in order.
    pub(super) fn all(&self) -> &[Outline] {
        &self.all
    }

    /// Those that may overlap `from..to` of a file, the last one first.
    pub(super) fn over(&self, file: FileNo, from: u64, to: u64) -> impl Iterator<Item = &Outline> {
        let after = self.all.partition_point(|one| one.first < (file, to));
        let before = self.all[..after].iter().zip(&self.reach[..after]);
        let near = before
            .rev()
            .take_while(move |(_, reach)| **reach > (file, from));
        let near = near.map(|(outline, _)| outline);
        near.filter(move |outline| outline.end > (file, from))
    }

    /// How much memory this takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let outlines = self.all.capacity() * size_of::<Outline>();
        let reach = self.reach.capacity() * size_of::<(FileNo, u64)>();
        outlines + reach + self.files.len() * 2 * size_of::<FileNo>()
    }
}

/// Hands over all pieces of these blocks by file and start, some at a time; or only those of one
/// file. The outlines must be in order.
fn each_in_order(
    (blocks, outlines): (&UpperBlocks, &[Outline]),
    of: Option<FileNo>,
    mut take: impl FnMut(&[UpperPiece]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut window: Vec<UpperPiece> = Vec::new();
    let mut low: Option<UpperPiece> = None;
    loop {
        window.clear();
        // Pieces from here on come in a later window.
        let mut high: Option<UpperPiece> = None;
        for outline in outlines {
            if high.is_some_and(|high| outline.first > (high.file, high.start)) {
                break;
            }
            if low.is_some_and(|low| outline.end <= (low.file, low.start)) {
                continue;
            }
            let block = blocks.get(outline.place, None)?;
            let is_now = |piece: &&UpperPiece| {
                of.is_none_or(|file| piece.file == file)
                    && low.is_none_or(|low| **piece >= low)
                    && high.is_none_or(|high| **piece < high)
            };
            window.extend(block.pieces.iter().filter(is_now));
            if window.len() > 2 * WINDOW_PIECES {
                window.sort_unstable();
                let first = window[WINDOW_PIECES];
                let before = window.partition_point(|piece| *piece < first);
                if before == 0 {
                    // All of these are the same piece, and nobody takes that.
                    return take(&window[..2]);
                }
                high = Some(first);
                window.truncate(before);
            }
        }
        window.sort_unstable();
        take(&window)?;
        if high.is_none() {
            return Ok(());
        }
        low = high;
    }
}

/// The outlines that lie over others of these. They are in order.
fn touching(outlines: &[Outline]) -> Vec<Outline> {
    let mut found = Vec::new();
    let mut rest = outlines;
    while let Some(first) = rest.first() {
        let mut reach = first.end;
        let lies_over = |one: &&Outline| {
            let lies_over = one.first < reach;
            reach = reach.max(one.end);
            lies_over
        };
        let count = 1 + rest[1..].iter().take_while(lies_over).count();
        if count > 1 {
            found.extend_from_slice(&rest[..count]);
        }
        rest = &rest[count..];
    }
    found
}

/// Refuses pieces of one layer that overlap, even if they are in different index blocks. A block in
/// which they do is refused when it is read, so only blocks that lie over others are read again.
pub(super) fn check_overlaps(
    set: SetId,
    (blocks, outlines): (&UpperBlocks, &[Outline]),
    of: Option<FileNo>,
) -> Result<(), EngineError> {
    let touching = touching(outlines);
    let mut ends = [(FileNo(0), 0); LAYERS];
    each_in_order((blocks, touching.as_slice()), of, |pieces| {
        for piece in pieces {
            let last = &mut ends[usize::from(piece.layer)];
            if last.0 == piece.file && piece.start < last.1 {
                let what = Mismatch::Overlap {
                    layer: piece.layer,
                    file: piece.file,
                    offset: piece.start,
                };
                return Err(EngineError::Incomplete { set, what });
            }
            *last = (piece.file, piece.end());
        }
        Ok(())
    })
}

/// Refuses ranges of a file, in order, of which two of one layer overlap.
pub(super) fn check_found(
    set: SetId,
    file: FileNo,
    found: &[UpperRange],
) -> Result<(), EngineError> {
    let mut ends = [0; LAYERS];
    for range in found {
        let last = &mut ends[usize::from(range.layer)];
        if range.start < *last {
            let what = Mismatch::Overlap {
                layer: range.layer,
                file,
                offset: range.start,
            };
            return Err(EngineError::Incomplete { set, what });
        }
        *last = range.end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outline of a file from where to where, with a number.
    fn outline(block: u32, file: u32, range: std::ops::Range<u64>) -> Outline {
        Outline {
            place: BlockPlace { stripe: 0, block },
            first: (FileNo(file), range.start),
            end: (FileNo(file), range.end),
        }
    }

    #[test]
    fn only_blocks_that_lie_over_others_can_have_pieces_that_overlap_theirs() {
        let of = |outlines: &[Outline]| {
            let found = touching(outlines).into_iter();
            found.map(|one| one.place.block).collect::<Vec<_>>()
        };
        // One ends where the next begins, and another file begins.
        let apart = [
            outline(0, 1, 0..10),
            outline(1, 1, 10..20),
            outline(2, 2, 0..30),
        ];
        assert_eq!(of(&apart), [0u32; 0]);
        // The first of three reaches over both that follow, which do not meet.
        let nested = [
            outline(0, 1, 0..5),
            outline(1, 1, 10..40),
            outline(2, 1, 12..14),
            outline(3, 1, 39..41),
            outline(4, 1, 41..50),
        ];
        assert_eq!(of(&nested), [1, 2, 3]);
        assert_eq!(of(&[]), [0u32; 0]);
    }
}
