//! One index block as a reader of pages wants it: searchable by file and offset.

use windlass_engine::media::{FileNo, FrameEntry, IndexBlock, PieceEntry};

/// A place in the files of an image.
pub(crate) type Position = (FileNo, u64);

/// An index block, with the order of its pieces by (file, layer, offset).
#[derive(Debug)]
pub(crate) struct SortedBlock {
    frames: Vec<FrameEntry>,
    /// Index of each frame's first piece.
    first_piece: Vec<u32>,
    /// In the order on the stripe: the pieces of a frame follow its bytes.
    pieces: Vec<PieceEntry>,
    /// Indexes of the pieces that are not empty, sorted.
    order: Vec<u32>,
}

/// A piece, its frame, and where in the decoded frame the piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceAt {
    pub(crate) piece: PieceEntry,
    pub(crate) frame: usize,
    pub(crate) start: usize,
}

impl SortedBlock {
    pub(crate) fn new(block: IndexBlock) -> Self {
        let mut first_piece = Vec::with_capacity(block.frames.len());
        let mut next = 0;
        for frame in &block.frames {
            first_piece.push(next);
            next += u32::from(frame.piece_count);
        }
        let IndexBlock { frames, pieces, .. } = block;
        let mut order: Vec<u32> = (0u32..)
            .zip(&pieces)
            .filter(|(_, piece)| piece.bytes > 0)
            .map(|(index, _)| index)
            .collect();
        order.shrink_to_fit();
        order.sort_unstable_by_key(|index| sort_key(&pieces[*index as usize]));
        Self {
            frames,
            first_piece,
            pieces,
            order,
        }
    }

    /// The piece of `layer` that holds the position.
    pub(crate) fn find(&self, (file, offset): Position, layer: u8) -> Option<PieceAt> {
        let wanted = (file, layer, offset);
        let after = self
            .order
            .partition_point(|index| sort_key(self.piece(*index)) <= wanted);
        let index = *self.order.get(after.checked_sub(1)?)?;
        let piece = *self.piece(index);
        let holds = piece.file == file && piece.layer == layer && offset < end(&piece);
        holds.then(|| self.piece_at(index, piece))
    }

    fn piece_at(&self, index: u32, piece: PieceEntry) -> PieceAt {
        let frame = self.first_piece.partition_point(|first| *first <= index) - 1;
        let before = &self.pieces[self.first_piece[frame] as usize..index as usize];
        let start = before.iter().map(|piece| piece.bytes as usize).sum();
        PieceAt {
            piece,
            frame,
            start,
        }
    }

    fn piece(&self, index: u32) -> &PieceEntry {
        &self.pieces[index as usize]
    }

    pub(crate) fn frame(&self, frame: usize) -> &FrameEntry {
        &self.frames[frame]
    }

    /// The pieces of a frame, in the order of its bytes.
    pub(crate) fn pieces_of(&self, frame: usize) -> &[PieceEntry] {
        let first = self.first_piece[frame] as usize;
        &self.pieces[first..first + usize::from(self.frames[frame].piece_count)]
    }

    /// From the start of the first piece of layer 0 to the end of the last.
    pub(crate) fn span(&self) -> Option<(Position, Position)> {
        let base = || {
            self.pieces
                .iter()
                .filter(|piece| piece.layer == 0 && piece.bytes > 0)
        };
        let first = base().map(|piece| (piece.file, piece.offset)).min()?;
        let last = base().map(|piece| (piece.file, end(piece))).max()?;
        Some((first, last))
    }

    /// How much memory the block takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.frames.capacity() * size_of::<FrameEntry>()
            + self.pieces.capacity() * size_of::<PieceEntry>()
            + (self.first_piece.capacity() + self.order.capacity()) * size_of::<u32>()
    }
}

fn sort_key(piece: &PieceEntry) -> (FileNo, u8, u64) {
    (piece.file, piece.layer, piece.offset)
}

fn end(piece: &PieceEntry) -> u64 {
    piece.offset + u64::from(piece.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_engine::media::{Codec, SetId, StripeIndex};

    fn piece(file: u32, offset: u64, bytes: u32, layer: u8) -> PieceEntry {
        PieceEntry {
            file: FileNo(file),
            bytes,
            offset,
            crc32c: 0,
            layer,
        }
    }

    fn frame(raw_bytes: u32, piece_count: u16) -> FrameEntry {
        let codec = Codec::Lz4;
        FrameEntry {
            offset: 0,
            stored_bytes: 1,
            raw_bytes,
            crc32c: 0,
            codec,
            piece_count,
            page: None,
        }
    }

    fn block(frames: Vec<FrameEntry>, pieces: Vec<PieceEntry>) -> SortedBlock {
        SortedBlock::new(IndexBlock {
            set_id: SetId([1; 16]),
            stripe: StripeIndex(0),
            number: 0,
            region_offset: 0,
            region_bytes: 0,
            encoded_bytes: 0,
            frames,
            pieces,
        })
    }

    #[test]
    fn a_piece_is_found_with_its_frame_and_its_place_in_it() {
        let pieces = vec![
            piece(7, 4096, 4096, 0),
            piece(3, 0, 10, 0),
            piece(9, 0, 0, 0),
            piece(9, 0, 20, 0),
            piece(7, 4096, 100, 2),
        ];
        let block = block(
            vec![frame(4096, 1), frame(30, 3), frame(0, 0), frame(100, 1)],
            pieces,
        );
        let at = block.find((FileNo(9), 19), 0).unwrap();
        assert_eq!((at.frame, at.start, at.piece.bytes), (1, 10, 20));
        assert_eq!(block.find((FileNo(7), 4100), 0).unwrap().frame, 0);
        assert_eq!(block.find((FileNo(7), 4100), 2).unwrap().frame, 3);
        for (position, layer) in [
            ((FileNo(9), 20), 0),
            ((FileNo(7), 4095), 0),
            ((FileNo(3), 5), 1),
        ] {
            assert_eq!(block.find(position, layer), None);
        }
        assert_eq!(block.span(), Some(((FileNo(3), 0), (FileNo(9), 20))));
        assert_eq!(block.pieces_of(1).len(), 3);
    }
}
