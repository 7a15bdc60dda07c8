//! Verifies what a restore to a moment needs: each set of the chain, and the log. If it is asked
//! to, it also brings the database to the moment, and lets its own tools check it.

use std::path::PathBuf;

use windlass_engine::{Cancel, FoundSet};

use super::inspect;
use super::log::{self, Log};
use super::outcome::{
    BadSets, Opening, SetResult, VerifiedMoment, VerifiedSet, VerifiedSets, VerifyStep,
};
use crate::caller::Caller;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::{LocatedSet, SetRequest};
use crate::recovered::{ChosenMoment, MomentRequest};
use crate::recovery::Plan;

/// What is asked for.
pub(super) struct Asked<'a> {
    pub(super) caller: &'a Caller,
    /// The sets among which one is chosen.
    pub(super) sets: &'a SetRequest,
    pub(super) moment: &'a MomentRequest,
    /// Whether only indexes are checked.
    pub(super) quick: bool,
    /// Whether the database is opened at the moment.
    pub(super) open: bool,
    /// Whether the run of one set is recorded, so that there cannot be several.
    pub(super) is_recorded: bool,
    pub(super) cancel: &'a Cancel,
}

/// Verifies it. `one` verifies a set, and is told whether all before were right.
pub(super) fn verify(
    asked: &Asked<'_>,
    mut one: impl FnMut(&LocatedSet, bool) -> Result<VerifiedSet, OperationError>,
) -> Result<VerifiedSets, OperationError> {
    let chosen = ChosenMoment::find(asked.caller, asked.sets, &asked.moment.recovery)?;
    let count = chosen.set.links().count();
    if count > 1 && asked.is_recorded {
        return Err(OperationError::EventsOfSeveral);
    }
    let mut results = Vec::new();
    for link in chosen.set.links() {
        let found = located(link, &chosen.found.places);
        let is_well = !results.iter().any(SetResult::is_damaged);
        let verified = one(&found, is_well)?;
        let name = verified.id.to_string()[..8].to_owned();
        let verified = Box::new(verified);
        results.push(SetResult::Verified { name, verified });
    }
    let log = log_of(&chosen);
    let mut log = log::verify((asked.quick, asked.cancel), &log, &[])?;
    // What is missing elsewhere does not matter: the way to the moment is whole.
    log.database = log.database.map(|found| found.without_timelines());
    let step = VerifyStep::Log { log: &log };
    asked.caller.tell(&Notice::Verifying(step));
    let is_sound = !results.iter().any(SetResult::is_damaged) && !log.is_damaged();
    let opened = match asked.open && is_sound {
        true => Some(open(asked, &chosen)?),
        false => None,
    };
    Ok(VerifiedSets {
        earlier: 0,
        sets: count,
        results,
        unfinished: Vec::new(),
        instead: BadSets::None,
        logs: vec![log],
        moment: Some(Box::new(VerifiedMoment {
            title: chosen.title(),
            opened,
        })),
    })
}

/// One set of a chain, wherever it is.
fn located(link: &FoundSet, places: &[PathBuf]) -> LocatedSet {
    LocatedSet::of_stripes(link.locations(), places)
}

fn log_of(chosen: &ChosenMoment) -> Log {
    Log {
        place: chosen.log(),
        is_of_cluster: matches!(chosen.plan, Plan::Cluster(_)),
    }
}

fn open(asked: &Asked<'_>, chosen: &ChosenMoment) -> Result<Opening, OperationError> {
    let (caller, settings, cancel) = (asked.caller, &asked.moment.settings, asked.cancel);
    let inspected = chosen
        .to_open(caller, settings, cancel)
        .and_then(|(what, _scratch)| inspect::opened(caller, &what, settings, cancel));
    match inspected {
        Ok(inspected) => Ok(Opening::Inspected(inspected)),
        Err(error) if error.is_damage() => {
            Ok(Opening::Failed(OperationError::OfSource(Box::new(error))))
        }
        Err(error) => Err(error),
    }
}
