//! A tally: what the index blocks of a stripe hold together, compared with the stripe table.
//!
//! The numbers of blocks and frames stand in the index directory, so every reader compares them
//! when it opens a set. The bytes stand only in the blocks. Whoever reads all blocks of a stripe
//! adds them up.

use windlass_media::IndexBlock;

use super::{FoundSet, OpenStripe};
use crate::error::EngineError;
use crate::mismatch::Mismatch;

/// The bytes of the frames of one stripe.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    raw_bytes: u64,
    stored_bytes: u64,
    /// A block could not be read, so there is nothing to compare.
    is_partial: bool,
}

impl Tally {
    /// Adds the frames of a block.
    pub(crate) fn add(&mut self, block: &IndexBlock) {
        for frame in &block.frames {
            self.raw_bytes += u64::from(frame.raw_bytes);
            self.stored_bytes += u64::from(frame.stored_bytes);
        }
    }

    /// Notes that a block is missing.
    pub(crate) fn miss(&mut self) {
        self.is_partial = true;
    }

    /// Compares the sums with the stripe table, after the last block of the stripe.
    pub(crate) fn check(&self, set: &FoundSet, stripe: &OpenStripe) -> Result<(), EngineError> {
        let index = usize::from(stripe.header().stripe.0);
        let Some(listed) = set.description().stripes.get(index) else {
            return Ok(());
        };
        let held = (self.raw_bytes, self.stored_bytes);
        let stated = (listed.raw_bytes, listed.stored_bytes);
        if self.is_partial || stripe.is_walked || held == stated {
            return Ok(());
        }
        let what = Mismatch::Frames {
            stripe: stripe.header().stripe,
            raw_bytes: self.raw_bytes,
            stored_bytes: self.stored_bytes,
            raw_listed: listed.raw_bytes,
            stored_listed: listed.stored_bytes,
        };
        Err(EngineError::Incomplete {
            set: set.set_id(),
            what,
        })
    }
}
