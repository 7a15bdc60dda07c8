//! The restore of a drill: everything is written to a scratch directory, timed, and removed.
//!
//! Invariant: nothing of it stays. What a killed drill left in the directory is removed by the next
//! one there.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{Cancel, Progress};
use windlass_postgres::{DatabaseFacts, KIND};

use super::pick::Picked;
use super::{DrillError, DrillRequest};
use crate::caller::Caller;
use crate::check::free;
use crate::error::OperationError;
use crate::history::History;
use crate::notice::{Notice, Observer};
use crate::places::Which;
use crate::restore::{RestoreRequest, cluster_owner, restore};
use crate::scratch::Scratch;
use crate::{outputs, privilege};

/// A restore that a drill made.
#[derive(Clone, Debug)]
pub struct RestoreProof {
    /// How long it took.
    pub seconds: f64,
    /// How long the plan would have said that it takes; none if nobody probed the storage, or if it
    /// was too short to say.
    pub predicted_seconds: Option<f64>,
    /// Bytes of the database.
    pub bytes: u64,
    /// What limited it.
    pub verdict: String,
}

/// A directory to restore into, which is removed when it is dropped.
pub(super) struct Room {
    scratch: Scratch,
    owner: Option<(u32, u32)>,
}

/// Makes a directory for the restore, before anything else is done: a drill of hours should not
/// fail at its end. It belongs to the user that a restore becomes.
pub(super) fn room(caller: &Caller, into: &Path, picked: &Picked) -> Result<Room, OperationError> {
    let database = &picked.set().description().facts.database;
    let owner = match database["kind"] == KIND {
        true => cluster_owner(database)?,
        false => None,
    };
    outputs::outputs().check(into)?;
    if !into.is_dir() {
        let path = into.to_owned();
        return Err(DrillError::NoDirectory { path }.into());
    }
    let made = privilege::as_user(caller.process, owner, || {
        Scratch::create(&caller.observer, Some(into), None, None)
    });
    let scratch = made.map_err(|error| match error {
        OperationError::Scratch { path, source } => DrillError::Into { path, source }.into(),
        other => other,
    })?;
    // What a killed drill left there is gone by now.
    let files = &picked.set().description().files.0;
    let needed = files.iter().map(|file| file.bytes).sum();
    match free(into) {
        Some(free) if free < needed => Err(DrillError::NoRoom {
            path: into.to_owned(),
            needed,
            free,
        }
        .into()),
        _ => Ok(Room { scratch, owner }),
    }
}

impl Room {
    /// Restores what was picked.
    pub(super) fn restore(
        &self,
        caller: &Caller,
        request: &DrillRequest,
        picked: &Picked,
        cancel: &Cancel,
    ) -> Result<RestoreProof, OperationError> {
        let caller = Caller {
            history: History::none(),
            observer: Arc::new(OnlyProgress(Arc::clone(&caller.observer))),
            ..caller.clone()
        };
        let mut wanted = RestoreRequest::new("", self.scratch.path().join("restored"));
        wanted.set = request.set.clone();
        match picked {
            Picked::Set(_, set) => {
                // A newer one may be there by now.
                wanted.set.choice.which = Some(Which::Id(set.set_id().to_string()));
            }
            Picked::Moment(_) => wanted.recovery = Some(request.moment.clone()),
        }
        wanted.keep_prediction = false;
        wanted.settings = request.settings.clone();
        wanted.tablespace_map = self.spaces(picked)?;
        let (outcome, _) = restore(&caller, &wanted, cancel)?;
        let foretold = outcome.judgement.foretold;
        let foretold = foretold.filter(|record| !record.is_too_short());
        Ok(RestoreProof {
            seconds: outcome.report.seconds,
            predicted_seconds: foretold.map(|record| record.predicted_seconds),
            bytes: outcome.report.bytes_written,
            verdict: outcome.report.verdict,
        })
    }

    /// Tablespaces go into the same directory, and never to where those of the source are.
    fn spaces(&self, picked: &Picked) -> Result<Vec<(PathBuf, PathBuf)>, OperationError> {
        let database = &picked.set().description().facts.database;
        if database["kind"] != KIND {
            return Ok(Vec::new());
        }
        let facts = DatabaseFacts::of_set(database)?;
        let spaces = facts.tablespaces.iter().filter(|one| !one.is_in_place());
        let into = |oid: u32| self.scratch.path().join(format!("tablespace-{oid}"));
        let spaces = spaces.map(|one| (PathBuf::from(&one.location), into(one.oid)));
        let spaces: Vec<_> = spaces.collect();
        for (_, becomes) in &spaces {
            privilege::make_directory(becomes, self.owner)?;
        }
        Ok(spaces)
    }
}

/// Shows how far the restore is. What it says besides was said before.
struct OnlyProgress(Arc<dyn Observer>);

impl Observer for OnlyProgress {
    fn notice(&self, _notice: &Notice<'_>) {}

    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Any>> {
        self.0.watch(progress)
    }
}
