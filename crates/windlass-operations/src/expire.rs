//! Retention: removes the sets and the log of a place that its rules no longer keep.
//!
//!   list --> plan (what goes, and why the rest stays) --> dry run: no more than that
//!               |
//!               +--> reserve what goes --> list and plan again --> remove --> log
//!
//! In a bucket, where readers cannot lock, a set is hidden first, and removed by a later run: see
//! `steps.rs` and `readers.rs`.
//!
//! Locking: a set that somebody reads cannot be reserved, so it stays, with all that it needs. A
//! backup keeps its base until its own set is sealed. Because the plan is made again when
//! everything that goes is reserved, nobody can have begun to need it.
//!
//! Invariants
//! - Nothing goes that the second plan keeps.
//! - What builds on a set goes before the set. What is left never looks damaged.
//! - Nothing goes that a set which stays needs or may need, of whatever database it is. That holds
//!   for sets in the places that were named; of others only the history knows.
//! - Nothing of a database goes if one of its sets comes from the future: a clock is wrong.

mod apply;
mod away;
mod error;
mod logs;
mod needs;
mod plan;
mod readers;
mod steps;

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use windlass_engine::EngineError;
use windlass_engine::media::SetId;
use windlass_object::is_in_bucket;
use windlass_repository::retention::Policy;

pub use error::ExpireError;
pub use logs::LogExpiry;
pub use needs::{Unclear, Withheld};
pub use plan::{DatabasePlan, ExpirePlan, Fate, PlannedSet};
pub use steps::{GRACE_DEFAULT, Step};

use crate::caller::Caller;
use crate::devices::{STORAGE, is_place};
use crate::ending::Ending;
use crate::error::OperationError;
use crate::places::{Named, PlaceError, SetRequest};
use crate::privilege;
use crate::stored::is_missing;
use away::Away;
use plan::Planner;

/// What to remove.
#[derive(Clone, Debug, Default)]
pub struct ExpireRequest {
    /// The places; maybe only the sets of one database there.
    pub set: SetRequest,
    /// What stays.
    pub policy: Policy,
    /// Whether to remove nothing, and only say what would be removed.
    pub dry_run: bool,
    /// How long a set that readers cannot lock is hidden before it is removed; none for
    /// [`GRACE_DEFAULT`].
    pub grace: Option<SignedDuration>,
    /// What the clock says, if that is not asked.
    pub now: Option<Timestamp>,
}

/// What was removed.
#[derive(Debug)]
pub struct ExpireOutcome {
    /// What was to be done, and why.
    pub plan: ExpirePlan,
    /// The sets that are gone.
    pub removed: Vec<SetId>,
    /// Sets that stay because somebody reads them.
    pub in_use: Vec<SetId>,
    /// Sets whose removal an earlier run had begun.
    pub finished: Vec<SetId>,
    /// Sets that are hidden now.
    pub hidden: Vec<SetId>,
    /// Sets that were hidden, and are shown again.
    pub shown: Vec<SetId>,
    /// Sets that could not be removed, hidden or shown again, and why.
    pub failed: Vec<(SetId, EngineError)>,
    /// The log that is gone.
    pub logs: Vec<LogExpiry>,
}

/// Removes what has expired. Returns what was done, and how the operation ends: with warnings if
/// something stays because it is read, or because nobody knows whether it is needed, and as failed
/// if a clock is wrong.
pub fn expire(
    caller: &Caller,
    request: &ExpireRequest,
) -> Result<(ExpireOutcome, Ending), OperationError> {
    if request.policy.is_empty() {
        return Err(ExpireError::NoPolicy.into());
    }
    let named = Named::new(caller, &request.set)?;
    check_places(&named)?;
    let away = Away::of(caller, &named.paths);
    if !request.dry_run {
        // What is written there belongs to those who read it.
        let owner = named.paths.iter().find_map(|place| privilege::owner(place));
        if let Some((uid, gid)) = owner {
            privilege::become_user(caller.process, uid, gid)?;
        }
    }
    let mut planner = Planner::new(&named, request, away);
    let outcome = match request.dry_run {
        true => ExpireOutcome::planned(planner.plan()?),
        false => apply::apply(&mut planner)?,
    };
    let ending = outcome.ending();
    Ok((outcome, ending))
}

/// Refuses what is no place. So does it an empty place among several: nobody knows which sets lie
/// on a disk that is not mounted, and what they need of the other places.
fn check_places(named: &Named) -> Result<(), OperationError> {
    if let Some(path) = named.paths.iter().find(|path| is_missing(path)) {
        let path = path.clone();
        return Err(PlaceError::Missing { path }.into());
    }
    if named.paths.len() > 1 {
        for path in &named.paths {
            if is_empty(path)? {
                let path = path.clone();
                return Err(ExpireError::EmptyPlace { path }.into());
            }
        }
    }
    if let Some(stripe) = named.paths.iter().find(|path| !is_place(path)) {
        let what = stripe.display().to_string();
        return Err(ExpireError::NoPlace { what }.into());
    }
    match named.choice.which {
        None => Ok(()),
        Some(_) => {
            let what = "one set".to_owned();
            Err(ExpireError::NoPlace { what }.into())
        }
    }
}

/// Whether nothing is in a place.
fn is_empty(path: &Path) -> Result<bool, OperationError> {
    if is_in_bucket(path) {
        let mut is_empty = true;
        STORAGE.list(path, &mut |_| is_empty = false)?;
        return Ok(is_empty);
    }
    let mut entries = path.read_dir().into_iter().flatten().flatten();
    Ok(path.is_dir() && entries.all(|entry| entry.file_name() == "lost+found"))
}

impl ExpireOutcome {
    fn planned(plan: ExpirePlan) -> Self {
        Self {
            plan,
            removed: Vec::new(),
            in_use: Vec::new(),
            finished: Vec::new(),
            hidden: Vec::new(),
            shown: Vec::new(),
            failed: Vec::new(),
            logs: Vec::new(),
        }
    }

    fn ending(&self) -> Ending {
        let is_refused = self.plan.databases.iter().any(|one| one.future.is_some());
        let mut databases = self.plan.databases.iter();
        let is_all = self.in_use.is_empty() && databases.all(|one| one.withheld.is_empty());
        match (is_refused || !self.failed.is_empty(), is_all) {
            (true, _) => Ending::Failed,
            (false, false) => Ending::Warnings,
            (false, true) => Ending::Done,
        }
    }
}
