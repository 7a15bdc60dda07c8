//! What a restore would read and write, and whether it is allowed to.
//!
//! Invariant: no directory is made, and nothing is removed.

use std::path::{Path, PathBuf};

use windlass_engine::media::SetId;
use windlass_engine::{OpenSet, OpenStripe};
use windlass_lab::{Prediction, Speeds, to_f64};
use windlass_postgres::RestorePlan;

use super::sinks::{self, closed_to_all, may_create};
use super::targets::room_for_files;
use crate::caller::{Caller, ProcessUse};
use crate::checks::{Checks, Finding};
use crate::error::OperationError;
use crate::foretold::{self, StateDirectory};
use crate::held::Held;
use crate::moments::moment;
use crate::outputs::{self, existing};
use crate::probed::Ends;
use crate::recovery::{self, Plan, RecoveryPlan};
use crate::restore::{RestoreRequest, cluster_owner, parent};
use crate::{compression, privilege};

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
        Held::Sqlite => sqlite(about, request, &set),
    };
    let into = places.unwrap_or_else(|error| {
        checks.failure("target", error);
        Vec::new()
    });
    let bytes: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    if let Some(place) = into.first().and_then(|place| existing(place)) {
        room_for_files(&mut checks, place, bytes);
    }
    let mut outputs = outputs::of_set(&set)?;
    if request.delta {
        outputs = outputs.unguarded();
    }
    for place in &into {
        if let Err(error) = outputs.check(place) {
            checks.failure("target", error);
        }
    }
    sinks::check(&mut checks, (caller, &request.watching), &outputs)?;
    Ok(CheckedRestore {
        prediction: predict(request, &set, &into, bytes)?,
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
    bytes: u64,
) -> Result<Option<Prediction>, OperationError> {
    let state = StateDirectory::to_read();
    let facts = &set.description().facts;
    let ends = Ends {
        database: places.iter().filter_map(|place| existing(place)).collect(),
        stripes: set.stripes().iter().map(OpenStripe::location).collect(),
        is_backup: false,
        emulation: &request.settings.emulation,
    };
    let codec = facts.options["compress"].as_str();
    let codec = codec.and_then(|text| compression::parse_codec(text).ok());
    let speeds = Speeds::probed(state.directory())?;
    Ok(codec.and_then(|codec| {
        let before = foretold::Before {
            bytes,
            files: set.stripes().len(),
            codec,
            ratio: to_f64(bytes) / to_f64(set.chain_bytes()).max(1.0),
            speeds,
            request: request.settings.buffers.clone(),
            rates: (request.max_rate, None),
        };
        foretold::before(state.directory(), &ends, before)
    }))
}

fn postgres(
    (process, checks): (ProcessUse, &mut Checks),
    (request, recovery): (&RestoreRequest, Option<&RecoveryPlan>),
    set: &OpenSet,
) -> Result<Vec<PathBuf>, OperationError> {
    let description = set.description();
    let owner = cluster_owner(&description.facts.database)?;
    let request = request.cluster_request(recovery);
    let plan = privilege::as_user(process, owner, || {
        let (facts, files) = (&description.facts, &description.files);
        Ok::<_, OperationError>(RestorePlan::new(facts, files, &request)?)
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
    Ok(places)
}

fn sqlite(
    (process, checks): (ProcessUse, &mut Checks),
    request: &RestoreRequest,
    set: &OpenSet,
) -> Result<Vec<PathBuf>, OperationError> {
    let above = parent(&request.into);
    privilege::as_user(process, privilege::owner(above), || {
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
