//! A chain becomes one full set. The database is not read, and need not be there any more.
//!
//!   SET --> its chain --> image: each block from the newest set that has it --> backup
//!
//! Invariant: the sets of the chain stay as they are. Nothing here removes one.

use windlass_engine::Cancel;

use super::image::FixedSource;
use super::{BackupOutcome, BackupRequest, watched};
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::{self, SetRequest};
use crate::privilege;
use crate::run::Run;

/// Writes what a set and the sets that it builds on hold together as one full set. Of the request,
/// everything counts that does not concern a live database.
pub fn merge(
    caller: &Caller,
    (sets, request): (&SetRequest, &BackupRequest),
    cancel: &Cancel,
) -> Result<(BackupOutcome, Ending), OperationError> {
    let about = (caller, &request.watching, &request.hooks);
    let subject = (&*request.database, &*request.database);
    let mut run = Run::new(about, "merge", subject, cancel);
    let first = sets.words.first();
    run.hooks
        .set_owner(first.and_then(|word| privilege::owner(word)));
    run.go(|run| {
        let set = places::open(caller, sets)?;
        let bases: Vec<_> = set.links().skip(1).map(|set| set.set_id()).collect();
        if !bases.is_empty() {
            caller.tell(&Notice::BuildsOn(&bases));
        }
        let source = FixedSource::of_chain(set)?;
        watched((caller, request), Some(source), run, cancel)
    })
}
