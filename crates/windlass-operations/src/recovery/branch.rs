//! Sets of several branches in one place: servers that were restored from one source go on, each on
//! a timeline of its own, and a set of one of them leads to no other.
//!
//!   newest set --too late--> does it lead to the newest timeline? --> sets of other branches are
//!   passed over
//!
//! If the newest set is of another branch than the newest timeline, nobody has said which of them
//! is meant: then no set is passed over, unless the user named the timeline.

use windlass_engine::OpenSet;
use windlass_postgres::{DatabaseFacts, RecoveryTimeline};
use windlass_repository::{LogPath, LogPlace, RepositoryError};

use super::log_place;
use super::request::RecoveryRequest;
use crate::error::OperationError;
use crate::places::LocatedSet;
use crate::stored::log_at;

/// Whether a set is of another branch than the one that is followed, so that an older set may lead
/// there. `is_decided` says whether a newer set has told which one that is.
pub(super) fn is_other(
    error: &OperationError,
    request: &RecoveryRequest,
    is_decided: bool,
) -> bool {
    let OperationError::Repository(error) = error else {
        return false;
    };
    let leads_elsewhere = matches!(
        error,
        RepositoryError::Unrelated { .. } | RepositoryError::NoHistory { .. }
    );
    let is_named = matches!(request.timeline, RecoveryTimeline::Number(_));
    leads_elsewhere && (is_named || is_decided)
}

/// Whether the log leads from a set of a cluster to the timeline that is followed.
pub(super) fn leads_on((found, set): (&LocatedSet, &OpenSet), request: &RecoveryRequest) -> bool {
    let way = || -> Result<(), OperationError> {
        let facts = DatabaseFacts::of_set(&set.description().facts.database)?;
        let place = log_place::of_cluster((found, set), &facts, request)?;
        let log = LogPlace::open(&log_at(&place), facts.system_identifier.parse().ok())?;
        let last = facts.wal.last();
        let timeline = last.map_or(facts.timeline, |range| range.timeline);
        LogPath::find(&log, (timeline, facts.stop_lsn), request.timeline)?;
        Ok(())
    };
    way().is_ok()
}
