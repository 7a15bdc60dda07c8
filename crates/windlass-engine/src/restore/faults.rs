//! What a run does when it meets damage: a restore ends, a verification lists it and reads on.

use windlass_media::{FrameEntry, IndexDirectoryEntry, PieceEntry};

use super::ledger::Ledger;
use crate::error::EngineError;
use crate::set::{FoundSet, OpenStripe};

/// Is told about all damage that a run meets. Returns an error if the run has to end with it.
pub(crate) trait Faults: Sync {
    /// True when the error is listed and does not end the run.
    fn lists(&self, error: &EngineError) -> bool;

    /// A frame is damaged. `ledger` says which of its bytes count.
    fn frame(
        &self,
        stripe: &OpenStripe,
        frame: (&FrameEntry, &[PieceEntry]),
        ledger: &Ledger,
        error: EngineError,
    ) -> Result<(), EngineError>;

    /// An index block is damaged: its region cannot be read.
    fn block(
        &self,
        stripe: &OpenStripe,
        entry: &IndexDirectoryEntry,
        error: EngineError,
    ) -> Result<(), EngineError>;

    /// Bytes between frames are not zero, or cannot be read.
    fn padding(
        &self,
        stripe: &OpenStripe,
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
    /// A ledger of the files of a set.
    pub(crate) fn ledger(&self, set: &FoundSet) -> Result<Ledger, EngineError> {
        // Blocks that cannot be read are reported when the stripe is read.
        let upper = set.upper_layers_unless(|error| self.lists(error))?;
        self.pass(set.check_upper(&upper))?;
        self.pass(set.check_layered(|file| upper.has(file)))?;
        Ok(Ledger::new(set, upper))
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
        _: &Ledger,
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    fn block(
        &self,
        _: &OpenStripe,
        _: &IndexDirectoryEntry,
        error: EngineError,
    ) -> Result<(), EngineError> {
        Err(error)
    }

    fn padding(
        &self,
        _: &OpenStripe,
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
