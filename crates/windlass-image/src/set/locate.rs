//! Which index block holds a position: found without reading the whole index.
//!
//! For each index block the footer has only the lowest and the highest file number. That does not
//! help in a set of one huge file. But frames are on a stripe roughly in the order of the source,
//! so its blocks overlap little, and a binary search finds the right one. The range of each block
//! that was read is remembered, so after a while a lookup reads no index at all.
//!
//! Invariants
//! - The order is only a hint. A position is missing only if every block that may hold it was read.
//!   If a block cannot be read, a position that is in no other block is an error; positions in
//!   other blocks are found.
//! - A lookup of a position in a block that was read looks at the ranges around the position. Only
//!   one that has to read a block looks at the ranges of all.
//!
//! Locking: `seen` alone. It is not held while a block is read.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use windlass_engine::EngineError;
use windlass_engine::media::{FileNo, IndexDirectoryEntry};

use super::seen::Seen;
use super::sorted::{PieceAt, Position, SortedBlock};

/// One index block of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockPlace {
    pub(crate) stripe: u16,
    pub(crate) block: u32,
}

/// A piece, and the block that describes it.
pub(crate) struct Located {
    pub(crate) place: BlockPlace,
    pub(crate) block: Arc<SortedBlock>,
    pub(crate) at: PieceAt,
}

/// What is known about the index blocks of a set.
#[derive(Debug)]
pub(crate) struct Locator {
    outlines: Vec<Outline>,
    /// Where each stripe begins in `outlines`, and the end of the last one.
    stripes: Vec<usize>,
    /// The spans that are known.
    seen: RwLock<Seen>,
}

#[derive(Debug)]
struct Outline {
    place: BlockPlace,
    file_min: FileNo,
    file_max: FileNo,
    /// Known once the block has been read; `None` when it has no piece of layer 0.
    span: OnceLock<Option<(Position, Position)>>,
}

enum Side {
    Before,
    Here,
    After,
    Unknown,
}

impl Outline {
    fn may_hold(&self, (file, _): Position) -> bool {
        (self.file_min..=self.file_max).contains(&file)
    }

    /// Whether the block's span lies before the position, after it or around it.
    fn side(&self, position: Position) -> Side {
        match self.span.get() {
            None | Some(None) => Side::Unknown,
            Some(Some((_, end))) if *end <= position => Side::Before,
            Some(Some((first, _))) if *first > position => Side::After,
            Some(Some(_)) => Side::Here,
        }
    }
}

impl Locator {
    /// Takes the index directories of all stripes, in the order of stripes.
    pub(crate) fn new<'a>(directories: impl Iterator<Item = &'a [IndexDirectoryEntry]>) -> Self {
        let (mut outlines, mut stripes) = (Vec::new(), vec![0]);
        for (stripe, directory) in (0u16..).zip(directories) {
            outlines.extend((0u32..).zip(directory).map(|(block, entry)| Outline {
                place: BlockPlace { stripe, block },
                file_min: entry.file_min,
                file_max: entry.file_max,
                span: OnceLock::new(),
            }));
            stripes.push(outlines.len());
        }
        Self {
            outlines,
            stripes,
            seen: RwLock::default(),
        }
    }

    /// Takes the span of a block that was read.
    fn learn(&self, index: usize, block: &SortedBlock) {
        let known = &self.outlines[index].span;
        if known.get().is_some() {
            return;
        }
        let span = block.span();
        // Another thread may have read it meanwhile.
        if let (Ok(()), Some(span)) = (known.set(span), span) {
            let seen = self.seen.write();
            seen.unwrap_or_else(PoisonError::into_inner)
                .take(index, span);
        }
    }

    /// Finds the piece of layer 0 that holds `position`. Reads index blocks with `load`.
    pub(crate) fn find(
        &self,
        position: Position,
        load: &dyn Fn(BlockPlace) -> Result<Arc<SortedBlock>, EngineError>,
    ) -> Result<Option<Located>, EngineError> {
        let probed = HashSet::new();
        let mut search = Search {
            locator: self,
            position,
            load,
            probed,
            fault: None,
        };
        let found = search
            .known()
            .or_else(|| search.guided())
            .or_else(|| search.rest());
        match (found, search.fault) {
            (Some(found), _) => Ok(Some(found)),
            (None, Some(fault)) => Err(fault),
            (None, None) => Ok(None),
        }
    }
}

/// One lookup.
struct Search<'a> {
    locator: &'a Locator,
    position: Position,
    load: &'a dyn Fn(BlockPlace) -> Result<Arc<SortedBlock>, EngineError>,
    probed: HashSet<usize>,
    fault: Option<EngineError>,
}

impl Search<'_> {
    /// Looks into the blocks whose known span includes the position.
    fn known(&mut self) -> Option<Located> {
        let seen = self.locator.seen.read();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        let around = seen.around(self.position);
        drop(seen);
        around.into_iter().find_map(|index| self.probe(index))
    }

    /// Does a binary search in each stripe, and reads the blocks that the search visits.
    fn guided(&mut self) -> Option<Located> {
        let stripes = self.locator.stripes.windows(2);
        stripes
            .into_iter()
            .find_map(|range| self.guided_in(range[0]..range[1]))
    }

    fn guided_in(&mut self, range: std::ops::Range<usize>) -> Option<Located> {
        let outlines = &self.locator.outlines;
        let candidates: Vec<_> = range
            .filter(|index| outlines[*index].may_hold(self.position))
            .collect();
        let mut rest = candidates.as_slice();
        while !rest.is_empty() {
            let middle = rest.len() / 2;
            let outline = &outlines[rest[middle]];
            if let Side::Unknown | Side::Here = outline.side(self.position) {
                let found = self.probe(rest[middle]);
                if found.is_some() {
                    return found;
                }
            }
            rest = match outline.side(self.position) {
                Side::Before => &rest[middle + 1..],
                Side::After => &rest[..middle],
                Side::Here | Side::Unknown => return None,
            };
        }
        None
    }

    /// Looks into every block that has not been ruled out.
    fn rest(&mut self) -> Option<Located> {
        let outlines = &self.locator.outlines;
        (0..outlines.len()).find_map(|index| match outlines[index].side(self.position) {
            Side::Unknown | Side::Here if outlines[index].may_hold(self.position) => {
                self.probe(index)
            }
            _ => None,
        })
    }

    /// Looks into one block, at most once in a search. The block's span is known from then on.
    fn probe(&mut self, index: usize) -> Option<Located> {
        if !self.probed.insert(index) {
            return None;
        }
        let outline = &self.locator.outlines[index];
        // A block without pieces of layer 0 cannot hold the position.
        if outline.span.get().is_some_and(Option::is_none) {
            return None;
        }
        let place = outline.place;
        match (self.load)(place) {
            Ok(block) => {
                self.locator.learn(index, &block);
                let at = block.find(self.position, 0)?;
                Some(Located { place, block, at })
            }
            Err(fault) => {
                self.fault.get_or_insert(fault);
                None
            }
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use windlass_engine::media::{Codec, FrameEntry, IndexBlock, PieceEntry, SetId, StripeIndex};

    const FRAME: u64 = 128 * 1024;
    const FRAMES_A_BLOCK: u64 = 64;

    /// Blocks of one file whose frames go to the stripes in turn.
    struct Striped {
        stripes: u64,
        blocks: u64,
        loads: AtomicUsize,
        damaged: Option<BlockPlace>,
        backwards: bool,
    }

    impl Striped {
        fn new(stripes: u64, blocks: u64) -> Self {
            Self {
                stripes,
                blocks,
                loads: AtomicUsize::new(0),
                damaged: None,
                backwards: false,
            }
        }

        fn locator(&self) -> Locator {
            let entry = IndexDirectoryEntry {
                offset: 0,
                bytes: 0,
                frame_count: 0,
                region_offset: 0,
                file_min: FileNo(4),
                file_max: FileNo(4),
                layer_max: 0,
                hash: [0; 32],
            };
            let directory = vec![entry; self.blocks as usize];
            Locator::new((0..self.stripes).map(|_| directory.as_slice()))
        }

        fn load(&self, place: BlockPlace) -> Result<Arc<SortedBlock>, EngineError> {
            self.loads.fetch_add(1, Ordering::Relaxed);
            if self.damaged == Some(place) {
                return Err(EngineError::Stopped);
            }
            let mut block = u64::from(place.block);
            if self.backwards {
                block = self.blocks - 1 - block;
            }
            let first = block * FRAMES_A_BLOCK;
            let piece = |index: u64| PieceEntry {
                file: FileNo(4),
                bytes: FRAME as u32,
                offset: ((first + index) * self.stripes + u64::from(place.stripe)) * FRAME,
                crc32c: 0,
                layer: 0,
            };
            let frame = FrameEntry {
                offset: 0,
                stored_bytes: 1,
                raw_bytes: FRAME as u32,
                crc32c: 0,
                codec: Codec::Lz4,
                piece_count: 1,
                page: None,
            };
            Ok(Arc::new(SortedBlock::new(IndexBlock {
                set_id: SetId([0; 16]),
                stripe: StripeIndex(place.stripe),
                number: place.block,
                region_offset: 0,
                region_bytes: 0,
                encoded_bytes: 0,
                frames: vec![frame; FRAMES_A_BLOCK as usize],
                pieces: (0..FRAMES_A_BLOCK).map(piece).collect(),
            })))
        }

        fn find(&self, locator: &Locator, offset: u64) -> Result<Option<Located>, EngineError> {
            locator.find((FileNo(4), offset), &|place| self.load(place))
        }

        fn bytes(&self) -> u64 {
            self.stripes * self.blocks * FRAMES_A_BLOCK * FRAME
        }
    }

    #[test]
    fn one_huge_file_takes_a_binary_search_and_then_nothing() {
        let set = Striped::new(4, 2000);
        let locator = set.locator();
        let offset = set.bytes() / 3 * 2;
        let found = set.find(&locator, offset).unwrap().unwrap();
        assert_eq!(found.at.piece.offset, offset / FRAME * FRAME);
        let first = set.loads.swap(0, Ordering::Relaxed);
        assert!(first <= 4 * 12, "{first} blocks of 8000 were read");
        set.find(&locator, offset + 4 * FRAME).unwrap().unwrap();
        let second = set.loads.load(Ordering::Relaxed);
        assert!(second <= 4, "{second} blocks were read again");
    }

    #[test]
    fn every_frame_is_found() {
        let set = Striped::new(3, 7);
        let locator = set.locator();
        for number in (0..set.bytes() / FRAME).rev() {
            let offset = number * FRAME;
            let found = set.find(&locator, offset + 17).unwrap().unwrap();
            assert_eq!(found.at.piece.offset, offset);
        }
        assert!(set.find(&locator, set.bytes()).unwrap().is_none());
    }

    #[test]
    fn every_frame_is_found_even_where_blocks_are_out_of_order() {
        let set = Striped {
            backwards: true,
            ..Striped::new(2, 9)
        };
        for number in 0..set.bytes() / FRAME {
            let found = set.find(&set.locator(), number * FRAME).unwrap().unwrap();
            assert_eq!(found.at.piece.offset, number * FRAME);
        }
    }

    #[test]
    fn a_damaged_block_hides_only_its_own_frames() {
        let place = BlockPlace {
            stripe: 1,
            block: 3,
        };
        let set = Striped {
            damaged: Some(place),
            ..Striped::new(2, 8)
        };
        let locator = set.locator();
        let mut failed = 0;
        for number in 0..set.bytes() / FRAME {
            let own = number % 2 == 1 && number / 2 / FRAMES_A_BLOCK == 3;
            let found = set.find(&locator, number * FRAME);
            assert_eq!(found.is_err(), own, "frame {number}");
            failed += usize::from(own);
        }
        assert_eq!(failed, FRAMES_A_BLOCK as usize);
    }
}
