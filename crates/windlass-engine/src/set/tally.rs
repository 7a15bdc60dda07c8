//! A tally: what the index blocks of a stripe hold together, compared with the stripe table.
//!
//! The numbers of blocks and frames stand in the index directory, so every reader compares them
//! when it opens a set. The bytes stand only in the blocks. Whoever reads all blocks of a stripe
//! adds them up.

use windlass_media::{IndexBlock, SetId};

use super::{FoundSet, OpenStripe};
use crate::error::EngineError;

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
        Err(differs(set.set_id(), stripe, held, stated))
    }
}

fn differs(set: SetId, stripe: &OpenStripe, held: (u64, u64), stated: (u64, u64)) -> EngineError {
    let number = stripe.header().stripe.number();
    let ((raw, stored), (raw_stated, stored_stated)) = (held, stated);
    let what = format!(
        "the frames of stripe {number} hold {raw} bytes of files in {stored} bytes, and the stripe \
         table says {raw_stated} in {stored_stated}"
    );
    EngineError::Incomplete { set, what }
}
