//! What lies over other bytes: found on the stripes when it is wanted, within bounded memory.
//!
//! That are the ranges above layer 0. In a file that has bytes in the base of the set, it is all
//! ranges, also those of layer 0: they lie over the base.
//!
//!   index blocks with such --once--> [outlines]: from where to where each has such pieces
//!   a range of a file --> outlines --> blocks (cached, or read again) --> pieces
//!
//! A writer takes ranges in the order of a file, so the blocks of a set overlap little, and a range
//! is in few of them. This order is only a hint: in a set without it every answer is the same, and
//! takes longer.
//!
//! Whoever reads a whole set takes [`UpperLayers`], and all outlines are read first. Whoever reads
//! some files takes [`AskedLayers`], and a file costs the outlines of the blocks that tell of it.
//! If the footer has spans of a block, only ranges that it has something of cost a read.
//!
//! Invariants
//! - Memory: 16 MiB of pieces for all sets of a chain together, twice `WINDOW_PIECES` pieces while
//!   they are put in order, 56 bytes for each index block with layers, and a number for each file
//!   with layers or that was asked for; 40 bytes for each span, and 16 for each block with spans.
//!   It does not grow with the number of ranges.
//! - Every block is checked each time that it is read.

mod asked;
mod blocks;
mod outlines;
mod spans;

use std::sync::Arc;

use windlass_media::{FileNo, InheritedFiles, SetId};

use super::stripe::OpenStripe;
use crate::error::EngineError;
use crate::waits::Stage;
pub use asked::AskedLayers;
use blocks::UpperBlocks;
pub use blocks::{PieceCache, UpperRange};
use outlines::{Outlines, check_overlaps};

/// What a set has that lies over other bytes.
#[derive(Debug)]
pub struct UpperLayers {
    blocks: UpperBlocks,
    outlines: Outlines,
}

impl UpperLayers {
    /// Reads the outlines of all index blocks. It leaves out blocks that cannot be read, if
    /// `passes` accepts the error.
    pub(crate) fn read(
        stripes: &Arc<[OpenStripe]>,
        inherited: InheritedFiles,
        cache: &Arc<PieceCache>,
        passes: impl Fn(&EngineError) -> bool,
    ) -> Result<Self, EngineError> {
        let blocks = UpperBlocks::new(stripes, inherited, cache);
        let mut outlines = Outlines::default();
        for (place, _) in blocks.listed() {
            match blocks.load(place) {
                Err(error) if passes(&error) => {}
                loaded => outlines.take(place, &loaded?),
            }
        }
        outlines.put_in_order();
        Ok(Self { blocks, outlines })
    }

    /// Whether anything here lies over other bytes of this file.
    pub fn has(&self, file: FileNo) -> bool {
        self.outlines.has(file)
    }

    /// How much memory this takes now, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.outlines.memory_bytes() + self.blocks.cached_bytes()
    }

    /// The ranges of a file that overlap `from..to`, in order.
    pub fn near(&self, file: FileNo, from: u64, to: u64) -> Result<Vec<UpperRange>, EngineError> {
        self.near_in(file, (from, to), None)
    }

    /// As [`UpperLayers::near`], in a thread of this stage.
    pub(crate) fn near_in(
        &self,
        file: FileNo,
        (from, to): (u64, u64),
        stage: Option<&Stage>,
    ) -> Result<Vec<UpperRange>, EngineError> {
        let mut found = Vec::new();
        if from >= to || !self.has(file) {
            return Ok(found);
        }
        for outline in self.outlines.over(file, from, to) {
            let block = self.blocks.get(outline.place, stage)?;
            found.extend(block.near(outline.place, file, (from, to)));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Refuses pieces of one layer that overlap, even if they are in different index blocks.
    pub(crate) fn check_overlaps(&self, set: SetId) -> Result<(), EngineError> {
        check_overlaps(set, (&self.blocks, self.outlines.all()), None)
    }
}
