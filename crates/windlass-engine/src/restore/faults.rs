//! What a run does when it meets damage: a restore ends, a verification lists it and reads on.

use std::sync::Arc;

use windlass_media::{FrameEntry, IndexDirectoryEntry, PieceEntry};

use super::ledger::{Ledger, LinkLedger};
use crate::error::EngineError;
use crate::set::{FoundSet, OpenStripe};

/// Is told about all damage that a run meets. Returns an error if the run has to end with it. A
/// stripe comes with the number of its set in the chain: 0 is the newest.
pub(crate) trait Faults: Sync {
    /// True when the error is listed and does not end the run.
    fn lists(&self, error: &EngineError) -> bool;

    /// A frame is damaged. `ledger` says which of its bytes count.
    fn frame(
        &self,
        stripe: &OpenStripe,
        frame: (&FrameEntry, &[PieceEntry]),
        ledger: LinkLedger<'_>,
        error: EngineError,
    ) -> Result<(), EngineError>;

    /// An index block is damaged: its region cannot be read.
    fn block(
        &self,
        stripe: (usize, &OpenStripe),
        entry: &IndexDirectoryEntry,
        error: EngineError,
    ) -> Result<(), EngineError>;

    /// Bytes between frames are not zero, or cannot be read.
    fn padding(
        &self,
        stripe: (usize, &OpenStripe),
        place: (u64, u64),
        error: EngineError,
    ) -> Result<(), EngineError>;

    /// Parts which are right one by one do not add up to the set.
    fn whole(&self, error: EngineError) -> Result<(), EngineError>;

    /// Everything was read. Ends the run if the files are not complete, unless that is found out
    /// later.
    fn complete(&self, set: &FoundSet, ledger: &Ledger) -> Result<(), EngineError>;
}

impl dyn Faults + '_ {
    /// A ledger of the files of a set, and of those that it builds on.
    pub(crate) fn ledger(&self, set: &FoundSet) -> Result<Ledger, EngineError> {
        let cache = Arc::default();
        let mut uppers = Vec::new();
        for link in set.links() {
            // Blocks that cannot be read are reported when the stripe is read.
            let upper = link.upper_layers_unless(&cache, |error| self.lists(error))?;
            self.pass(link.check_upper(&upper))?;
            self.pass(link.check_layered(|file| upper.has(file)))?;
            uppers.push(upper);
        }
        Ok(Ledger::new(set, uppers))
    }

    /// Reports the error of a result, if it has one.
    pub(crate) fn pass(&self, result: Result<(), EngineError>) -> Result<(), EngineError> {
        result.or_else(|error| self.whole(error))
    }
}

/// Ends the run at the first damage: a restore.
pub(super) struct Stop;

impl Faults for Stop {
    fn lists(&self, _: &EngineError) -> bool {
        false
    }

    fn frame(
        &self,
        _: &OpenStripe,
        _: (&FrameEntry, &[PieceEntry]),
        _: LinkLedger<'_>,
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    fn block(
        &self,
        _: (usize, &OpenStripe),
        _: &IndexDirectoryEntry,
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    fn padding(
        &self,
        _: (usize, &OpenStripe),
        _: (u64, u64),
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    fn whole(&self, error: EngineError) -> Result<(), EngineError> {
        Err(error)
    }

    fn complete(&self, set: &FoundSet, ledger: &Ledger) -> Result<(), EngineError> {
        ledger.check(set)
    }
}
