//! What a restore would read and write, and whether it is allowed to.
//!
//! Invariant: no directory is made, and nothing is removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_engine::media::{FileKind, FileTable, SetId};
use windlass_engine::{OpenSet, show_size};
use windlass_lab::{Prediction, Speeds};
use windlass_postgres::{OverCluster, RestorePlan};

use super::sinks::{self, closed_to_all, may_create};
use super::targets::room_for_files;
use crate::caller::{Caller, ProcessUse};
use crate::checks::{Checks, Finding};
use crate::error::OperationError;
use crate::foretold::StateDirectory;
use crate::held::Held;
use crate::moments::moment;
use crate::outputs::{self, existing};
use crate::privilege;
use crate::recovery::{self, Plan, RecoveryPlan};
use crate::restore::{RestoreRequest, check_outside, cluster_owner, foretell, left_out, parent};

/// So many of the paths that would be removed are named.
const REMOVED_SHOWN: usize = 3;

/// A restore that was checked.
pub struct CheckedRestore {
    /// What was checked.
    pub checks: Checks,
    /// The set.
    pub set_id: SetId,
    /// Bytes of its stripes.
    pub stripe_bytes: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// What would be written.
    pub into: Vec<PathBuf>,
    /// How long it would take, if the storage was probed.
    pub prediction: Option<Prediction>,
}

/// Checks whether a restore can run, and predicts how long it would take.
pub fn check_restore(
    caller: &Caller,
    request: &RestoreRequest,
) -> Result<CheckedRestore, OperationError> {
    let chosen = recovery::choose(caller, &request.set, request.recovery.as_ref())?;
    let (_, set, recovery) = chosen;
    let mut checks = Checks::new(&caller.observer);
    let description = set.description();
    checks.ok("set", sealed(&set));
    let about = (caller.process, &mut checks);
    let places = match Held::of(description)? {
        Held::Postgres => postgres(
            about,
            (request, recovery.as_ref().and_then(Plan::of_cluster)),
            &set,
        ),
        Held::Sqlite => sqlite(about, request, &set).map(|places| (places, 0)),
    };
    let (into, there) = places.unwrap_or_else(|error| {
        checks.failure("target", error);
        (Vec::new(), 0)
    });
    let bytes: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    if let Some(place) = into.first().and_then(|place| existing(place)) {
        room_for_files(&mut checks, place, bytes.saturating_sub(there));
    }
    let mut outputs = outputs::of_set(&set)?;
    if request.delta {
        outputs = outputs::over_cluster(outputs);
    }
    for place in &into {
        if let Err(error) = outputs.check(place) {
            checks.failure("target", error);
        }
    }
    sinks::check(&mut checks, (caller, &request.watching), &outputs)?;
    Ok(CheckedRestore {
        prediction: predict(request, &set, &into)?,
        checks,
        set_id: set.set_id(),
        stripe_bytes: set.chain_bytes(),
        bytes,
        into,
    })
}

/// Which set it is, as other operations say it.
fn sealed(set: &OpenSet) -> String {
    let facts = &set.description().facts;
    let name = facts.database["name"].as_str().unwrap_or("a database");
    let id = &set.set_id().to_string()[..8];
    let begun = facts.started.parse().map_or(facts.started.clone(), moment);
    format!("set {id} of {name}, begun {begun}, is sealed, and its indexes are whole")
}

/// Predicts how long it would take, if the storage was probed.
fn predict(
    request: &RestoreRequest,
    set: &OpenSet,
    places: &[PathBuf],
) -> Result<Option<Prediction>, OperationError> {
    let state = StateDirectory::to_read();
    let speeds = Speeds::probed(state.directory())?;
    let places = places.iter().filter_map(|place| existing(place));
    Ok(foretell(request, set, (&state, speeds), places.collect()))
}

/// The directories of a cluster, and how many bytes of its files need no room: they are there
/// already, or left out.
fn postgres(
    (process, checks): (ProcessUse, &mut Checks),
    (request, recovery): (&RestoreRequest, Option<&RecoveryPlan>),
    set: &OpenSet,
) -> Result<(Vec<PathBuf>, u64), OperationError> {
    let description = set.description();
    let owner = cluster_owner(&description.facts.database)?;
    let log = recovery.map(|plan| plan.place.as_path());
    let left_out = left_out(request, set);
    let request = request.cluster_request(recovery, left_out?);
    let (plan, there) = privilege::as_user(process, owner, || {
        let (facts, files) = (&description.facts, &description.files);
        let plan = RestorePlan::new(facts, files, &request)?;
        let there = match &plan.over {
            Some(over) => {
                check_outside(set, log, &plan)?;
                over_cluster(checks, (over, &plan), files)?
            }
            None => request.left_out.bytes(files),
        };
        Ok::<_, OperationError>((plan, there))
    })?;
    let spaces = plan.tablespaces.iter().map(|space| space.becomes.clone());
    let places: Vec<_> = std::iter::once(plan.into.clone()).chain(spaces).collect();
    for place in &places {
        // Root creates the last directory of the path itself, and gives it to the owner.
        let above = existing(place).unwrap_or(Path::new("/"));
        match privilege::is_root() && closed_to_all(above).is_none() {
            true => checks.ok("target", format!("{} would be made", place.display())),
            false => writable(checks, place),
        }
    }
    Ok((places, there))
}

/// Tells what a restore over a cluster would remove. Returns how many bytes it would find in place.
fn over_cluster(
    checks: &mut Checks,
    (over, plan): (&OverCluster, &RestorePlan),
    files: &FileTable,
) -> Result<u64, OperationError> {
    let existing = over.survey(&plan.layout(files.clone()))?;
    let blocks = |path: PathBuf| path.metadata().map_or(0, |found| found.blocks() * 512);
    let files = files.0.iter().filter(|entry| entry.kind == FileKind::File);
    let there = files.map(|entry| {
        let path = plan.into.join(OsStr::from_bytes(&entry.path));
        blocks(path).min(entry.bytes)
    });
    let there: u64 = there.sum();
    checks.ok(
        "delta",
        format!(
            "{} of files are in place: only what differs is written; {}",
            show_size(there),
            removed_words(&plan.into, existing.to_remove())
        ),
    );
    Ok(there)
}

/// What would be removed, in words.
fn removed_words(into: &Path, paths: &[PathBuf]) -> String {
    let shown = |path: &PathBuf| {
        let below = path.strip_prefix(into).unwrap_or(path);
        below.display().to_string()
    };
    let shown: Vec<_> = paths.iter().take(REMOVED_SHOWN).map(shown).collect();
    match paths.len() - shown.len() {
        _ if paths.is_empty() => "nothing is removed".to_owned(),
        0 => format!("{} would be removed", shown.join(", ")),
        more => format!("{} and {more} more would be removed", shown.join(", ")),
    }
}

fn sqlite(
    (process, checks): (ProcessUse, &mut Checks),
    request: &RestoreRequest,
    set: &OpenSet,
) -> Result<Vec<PathBuf>, OperationError> {
    let above = parent(&request.into);
    privilege::as_user(process, privilege::owner(above), || {
        left_out(request, set)?;
        let outputs = outputs::of_set(set)?;
        let (into, force) = (&request.into, request.force);
        let plan = windlass_sqlite::restore_layout(set.description(), into, force, &outputs)?;
        for path in &plan.leftovers {
            let path = path.clone();
            checks.warning("target", Finding::Replaced { path });
        }
        // The whole path, also of a bare name: a reader sees which directory is meant.
        let target = std::path::absolute(&plan.target).unwrap_or(plan.target);
        writable(checks, parent(&target));
        Ok(vec![target])
    })
}

fn writable(checks: &mut Checks, place: &Path) {
    let found = existing(place).unwrap_or(Path::new("/"));
    if let Some(error) = closed_to_all(found) {
        checks.failure("target", error);
    } else if may_create(found).is_ok() {
        checks.ok("target", format!("{} can be written to", found.display()));
    } else {
        let directory = found.to_owned();
        checks.failed("target", Finding::NotWritable { directory });
    }
}
