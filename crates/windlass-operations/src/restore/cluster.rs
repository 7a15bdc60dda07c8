//! The restore of a cluster: a new data directory, and new directories of tablespaces. Or what is
//! there becomes the cluster of the set.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use windlass_engine::{
    DirectoryTarget, Existing, OpenSet, OpenStripe, Outputs, RunReport, TargetLayout,
};
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{
    DatabaseFacts, LeftOut, OverCluster, PostgresError, ReplayedTablespace, RestorePlan,
    check_unoccupied, database_names, replayed_tablespaces,
};
use windlass_repository::LogPlace;

use super::{ChangedCluster, Job, RestoreRequest, Restored};
use crate::ended::RunEnd;
use crate::error::OperationError;
use crate::images::AsCluster;
use crate::recovery::Plan;
use crate::stored::log_at;
use crate::{outputs, places, privilege, watch};

/// A run that has written everything, and how it ends.
type Written = (RunReport, RunEnd);

impl Job<'_, '_> {
    pub(super) fn cluster(&mut self) -> Result<(RunReport, RunEnd, Restored), OperationError> {
        let (request, set, process) = (self.request, self.set, self.caller.process);
        let description = set.description();
        let owner = cluster_owner(&description.facts.database)?;
        let replayed = replayed(set)?;
        let targets = restored_into(Outputs::new(), request.places())?;
        watch::check_log(self.caller, &targets)?;
        // This says most about a directory that is in use or not empty. Nothing is made yet.
        let plan = privilege::as_user(process, owner, || {
            let (facts, files) = (&description.facts, &description.files);
            let map = &request.tablespace_map;
            replayed.iter().try_for_each(|space| space.check(map))?;
            let recovery = self.recovery.and_then(Plan::of_cluster);
            let left_out = left_out(request, set)?;
            let request = request.cluster_request(recovery, left_out);
            Ok::<_, OperationError>(RestorePlan::new(facts, files, &request)?)
        })
        .map_err(of_target)?;
        // A refused restore must leave no directory behind.
        let outputs = self.check_places(&plan)?;
        let layout = plan.layout(description.files.clone());
        let over = plan.over.as_ref();
        let existing = over.map(|over| Ok((over, over.survey(&layout)?)));
        let existing = existing
            .transpose()
            .map_err(|error: PostgresError| of_target(error.into()))?;
        if owner.is_some() {
            self.run.hooks.set_owner(owner);
        }
        self.run.hooks.before()?;
        self.become_owner(owner)?;
        plan.prepare().map_err(|error| of_target(error.into()))?;
        replayed.iter().try_for_each(ReplayedTablespace::prepare)?;
        let written = match existing {
            None => DirectoryTarget::create(layout)
                .map_err(OperationError::from)
                .and_then(|target| Ok((self.write(&target, &outputs)?, None))),
            Some((over, existing)) => {
                over.lock_out().map_err(|error| of_target(error.into()))?;
                self.write_over(over, layout, (&existing, &outputs))
            }
        };
        let ((report, end), changed) = written.map_err(|error| cut_off(&plan, error))?;
        self.note_reading(&plan);
        let restored = Restored::Cluster {
            next_steps: plan.next_steps(),
            changed,
        };
        Ok((report, end, restored))
    }

    /// Notes from where on the restored server will fetch log, which must stay until then.
    fn note_reading(&self, plan: &RestorePlan) {
        let facts = &self.set.description().facts.database;
        let system = facts["system_identifier"].as_str();
        let system = system.and_then(|system| system.parse().ok());
        if let (Some(recovery), Some(system)) = (self.recovery.and_then(Plan::of_cluster), system) {
            let log = LogPlace::new(&log_at(&recovery.place), system);
            log.note_reading(&plan.into.join("pg_wal"), recovery.from);
        }
    }

    /// Refuses places where something else is. Returns what the other outputs may not be.
    fn check_places(&self, plan: &RestorePlan) -> Result<Outputs, OperationError> {
        let (request, set) = (self.request, self.set);
        let mut outputs = outputs::of_set(set)?;
        let log = self.recovery.and_then(Plan::of_cluster);
        if let Some(log) = log {
            outputs::protect_log(&mut outputs, &log.place)?;
        }
        if plan.over.is_some() {
            outputs = outputs::over_cluster(outputs);
            check_outside(set, log.map(|plan| plan.place.as_path()), plan)?;
        }
        // What a restore left that was cut off looks like a tablespace, and is no source.
        let mut spaces = request.spaces().filter(|space| !plan.is_own(space));
        spaces.try_for_each(|space| check_unoccupied(space))?;
        for place in request.places() {
            outputs.check(place)?;
        }
        let outputs = restored_into(outputs, request.places())?;
        self.run.check(&outputs)?;
        // A tablespace that is not mapped goes to where it was, which may be beside a live one.
        for space in &plan.tablespaces {
            if !plan.is_own(&space.becomes) {
                outputs::outputs().check(&space.becomes)?;
            }
        }
        Ok(outputs)
    }

    /// Makes the cluster that is there into that of the set.
    fn write_over(
        &self,
        over: &OverCluster,
        layout: TargetLayout,
        (existing, outputs): (&Existing, &Outputs),
    ) -> Result<(Written, Option<ChangedCluster>), OperationError> {
        let (target, changed) = DirectoryTarget::over(layout, existing)?;
        let written = self.write(&target, outputs)?;
        over.let_in()?;
        let changed = ChangedCluster {
            bytes: changed.bytes.load(Ordering::Relaxed),
            removed: changed.removed.load(Ordering::Relaxed),
        };
        Ok((written, Some(changed)))
    }

    /// Gives the owner the directories that only root can create, then becomes the owner.
    fn become_owner(&self, owner: Option<(u32, u32)>) -> Result<(), OperationError> {
        let Some(ids) = owner else { return Ok(()) };
        for place in self.request.places() {
            privilege::give_directory(place, ids)?;
        }
        Ok(privilege::become_user(self.caller.process, ids.0, ids.1)?)
    }
}

/// The failure that a restored cluster's directory causes.
fn of_target(error: OperationError) -> OperationError {
    OperationError::OfTarget(Box::new(error))
}

/// The failure of a restore that was begun, and what it leaves. No server starts on that, unless
/// everything was there and only the last sync failed.
fn cut_off(plan: &RestorePlan, error: OperationError) -> OperationError {
    let spaces = plan.tablespaces.iter().map(|space| space.becomes.clone());
    OperationError::CutOff {
        error: Box::new(error),
        // pg_control gets its name when everything else is durable.
        is_complete: plan.into.join("global/pg_control").exists(),
        is_over: plan.over.is_some(),
        places: std::iter::once(plan.into.clone()).chain(spaces).collect(),
    }
}

/// Protects these directories, into which a cluster is restored, from the other outputs.
fn restored_into<'a>(
    mut outputs: Outputs,
    places: impl Iterator<Item = &'a PathBuf>,
) -> Result<Outputs, OperationError> {
    for place in places {
        let what = format!("this run restores the cluster into {}", place.display());
        outputs.protect_directory(place, &what)?;
    }
    Ok(outputs)
}

/// The tablespaces that replay will create by itself. This version searches the log when it makes a
/// set. So only the log of an older set is read here.
fn replayed(set: &OpenSet) -> Result<Vec<ReplayedTablespace>, OperationError> {
    let facts = DatabaseFacts::of_set(&set.description().facts.database)?;
    if facts.log_surveyed {
        return Ok(Vec::new());
    }
    Ok(replayed_tablespaces(&AsCluster(&image_of(set)?), &facts)?)
}

fn image_of(set: &OpenSet) -> Result<SetImage, OperationError> {
    let options = SetImageOptions::default();
    let image = SetImage::open(Arc::new(places::open_again(set)?), &options);
    Ok(image?)
}

/// What a restore leaves out, because only some databases or tablespaces were asked for.
pub(crate) fn left_out(request: &RestoreRequest, set: &OpenSet) -> Result<LeftOut, OperationError> {
    let (databases, spaces) = (&request.only_databases, &request.only_tablespaces);
    if databases.is_empty() && spaces.is_empty() {
        return Ok(LeftOut::default());
    }
    let facts = DatabaseFacts::of_set(&set.description().facts.database)?;
    let names = match databases.is_empty() {
        true => HashMap::new(),
        false => {
            database_names(&AsCluster(&image_of(set)?)).map_err(|fault| PostgresError::Set {
                what: format!("{} {}", fault.path, fault.what),
            })?
        }
    };
    Ok(LeftOut::all_but(
        (&names, databases),
        (&facts.tablespaces, spaces),
    )?)
}

/// The user that root becomes: the owner of the source.
pub fn cluster_owner(database: &serde_json::Value) -> Result<Option<(u32, u32)>, OperationError> {
    if !privilege::is_root() {
        return Ok(None);
    }
    let user = DatabaseFacts::of_set(database)?.owner;
    match privilege::user_ids(&user) {
        Some(ids) => Ok(Some(ids)),
        None => Err(OperationError::UnknownOwner { user }),
    }
}

/// Refuses to go over directories in which the sets or their log are: they would be removed.
pub(crate) fn check_outside(
    set: &OpenSet,
    log: Option<&Path>,
    plan: &RestorePlan,
) -> Result<(), OperationError> {
    let stripes = set.links().flat_map(|set| set.stripes());
    let needed = stripes.map(OpenStripe::location).chain(log);
    let mut directories = Outputs::new();
    let spaces = plan.tablespaces.iter().map(|space| &space.becomes);
    for place in std::iter::once(&plan.into).chain(spaces) {
        let what = format!(
            "this run removes what does not belong into {}",
            place.display()
        );
        directories.protect_directory(place, &what)?;
    }
    for path in needed {
        directories.check(path)?;
    }
    Ok(())
}
