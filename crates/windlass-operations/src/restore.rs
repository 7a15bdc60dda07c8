//! A restore: a set to a new data directory, or to a new database file.
//!
//!   request --> set --> what the target means --> checks --> owner --> run --> judgement
//!
//! Invariants
//! - A refused restore leaves no directory behind.
//! - If root started the process, the operation becomes the owner of what it restores before it
//!   writes a byte of it.

mod cluster;
mod file;

use std::path::{Path, PathBuf};

use serde_json::json;
use windlass_engine::{Cancel, DirectoryTarget, OpenSet, OpenStripe, Outputs, RunReport};
use windlass_lab::{Prediction, Speeds, to_f64};
use windlass_postgres::{Kept, LeftOut, RestoreId, RestoreRequest as ClusterRequest};

use crate::caller::Caller;
use crate::ended::RunEnd;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::foretold::{self, Done, Judgement, StateDirectory};
use crate::held::Held;
use crate::history::RunAbout;
use crate::hooks::HookCommands;
use crate::notice::{MoreMemory, Notice};
use crate::outputs::existing;
use crate::places::SetRequest;
use crate::probed::Ends;
use crate::recovery::{self, Plan, RecoveryError, RecoveryPlan, RecoveryRequest};
use crate::run::Run;
use crate::settings::RunSettings;
use crate::watch::{Ended, Watching};
use crate::{compression, privilege};

pub(crate) use cluster::check_outside;
pub use cluster::cluster_owner;
pub(crate) use cluster::left_out;

/// What to restore, where to, and how.
#[derive(Clone, Debug)]
pub struct RestoreRequest {
    /// The set.
    pub set: SetRequest,
    /// PostgreSQL: the new data directory. SQLite: the new file, or the directory to put it in.
    pub into: PathBuf,
    /// PostgreSQL: where tablespaces were, and where they go.
    pub tablespace_map: Vec<(PathBuf, PathBuf)>,
    /// PostgreSQL: only these databases; all if there are none.
    pub only_databases: Vec<String>,
    /// PostgreSQL: only these tablespaces; all if there are none.
    pub only_tablespaces: Vec<String>,
    /// PostgreSQL: what the restored server does as its source did.
    pub keep: Kept,
    /// How far the restored database goes on; without it to the end of the set's own log.
    pub recovery: Option<RecoveryRequest>,
    /// PostgreSQL: whether the data directory may be a cluster's, of which only what differs is
    /// rewritten.
    pub delta: bool,
    /// SQLite: whether to replace the database that exists. PostgreSQL, with `delta`: also another
    /// cluster.
    pub force: bool,
    /// The most bytes per second that are read from the devices.
    pub max_rate: Option<u64>,
    /// Whether to keep the plan's prediction beside what the run took.
    pub keep_prediction: bool,
    /// Commands before and after.
    pub hooks: HookCommands,
    /// How the run is recorded.
    pub watching: Watching,
    /// Buffers, threads, storage.
    pub settings: RunSettings,
}

impl RestoreRequest {
    /// A restore of the newest set in a directory, or of the set of a stripe.
    pub fn new(set: impl AsRef<Path>, into: impl AsRef<Path>) -> Self {
        Self {
            set: SetRequest::at(set),
            into: into.as_ref().to_owned(),
            tablespace_map: Vec::new(),
            only_databases: Vec::new(),
            only_tablespaces: Vec::new(),
            keep: Kept::default(),
            recovery: None,
            delta: false,
            force: false,
            max_rate: None,
            keep_prediction: true,
            hooks: HookCommands::default(),
            watching: Watching::default(),
            settings: RunSettings::default(),
        }
    }

    /// What is restored of a cluster, and where to.
    pub fn cluster_request(
        &self,
        recovery: Option<&RecoveryPlan>,
        left_out: LeftOut,
    ) -> ClusterRequest {
        ClusterRequest {
            left_out,
            into: self.into.clone(),
            delta: self.delta,
            force: self.force,
            tablespace_map: self.tablespace_map.clone(),
            keep: self.keep,
            recovery: recovery.map(|plan| plan.recovery.clone()),
            id: RestoreId(*uuid::Uuid::new_v4().as_bytes()),
        }
    }

    /// Where the tablespaces go that the request names.
    fn spaces(&self) -> impl Iterator<Item = &PathBuf> + Clone {
        self.tablespace_map.iter().map(|(_, becomes)| becomes)
    }

    /// All directories that the request names.
    fn places(&self) -> impl Iterator<Item = &PathBuf> + Clone {
        std::iter::once(&self.into).chain(self.spaces())
    }
}

/// A restored set.
#[derive(Debug)]
pub struct RestoreOutcome {
    /// What the run did, and what limited it.
    pub report: RunReport,
    /// Bytes of the set's stripes.
    pub stripe_bytes: u64,
    /// What the plan would have predicted, and what would have made the run faster.
    pub judgement: Judgement,
    /// What was restored.
    pub restored: Restored,
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restored {
    /// A cluster, with what to do before it can be used, line by line.
    Cluster {
        /// The steps.
        next_steps: String,
        /// What was changed of the cluster that was there.
        changed: Option<ChangedCluster>,
    },
    /// A database, which is ready to open.
    Database {
        /// Its file.
        path: PathBuf,
    },
}

/// What a restore changed of a cluster that was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedCluster {
    /// Bytes that were written because they differed or were missing.
    pub bytes: u64,
    /// Files, links and directories that did not belong there, and are gone.
    pub removed: u64,
}

/// Restores a set. Returns the outcome, and how the operation ends.
pub fn restore(
    caller: &Caller,
    request: &RestoreRequest,
    cancel: &Cancel,
) -> Result<(RestoreOutcome, Ending), OperationError> {
    let about = (caller, &request.watching, &request.hooks);
    let run = run_of(about, &request.into, cancel);
    run.go(|run| restored(caller, request, run, cancel))
}

/// Tells metrics and hooks of a restore that could not be begun, because what was asked for is
/// wrong.
pub fn restore_not_begun(
    about: (&Caller, &Watching, &HookCommands),
    into: &Path,
    (ending, text): (Ending, &str),
) {
    run_of(about, into, &Cancel::new()).failed(ending, text);
}

fn run_of<'a>(
    about: (&'a Caller, &'a Watching, &HookCommands),
    into: &Path,
    cancel: &Cancel,
) -> Run<'a> {
    let subject = into.display().to_string();
    let mut run = Run::new(about, "restore", (&subject, &series(into)), cancel);
    run.hooks.set_owner(privilege::owner(parent(into)));
    run
}

fn restored(
    caller: &Caller,
    request: &RestoreRequest,
    run: &mut Run<'_>,
    cancel: &Cancel,
) -> Result<(RestoreOutcome, RunEnd), OperationError> {
    let chosen = recovery::choose(caller, &request.set, request.recovery.as_ref())?;
    let (found, set, recovery) = chosen;
    run.about(about(request, &set));
    // The profiles belong to the user who probed, who need not be the database's owner.
    let emulation = &request.settings.emulation;
    let state = StateDirectory::open(caller, emulation, request.keep_prediction);
    tell_time(caller, request, (&set, &state));
    let mut job = Job {
        caller,
        request,
        set: &set,
        recovery: recovery.as_ref(),
        run,
        cancel,
    };
    let restored = match Held::of(set.description())? {
        Held::Postgres => job.cluster(),
        Held::Sqlite if request.delta => Err(RecoveryError::NoDelta.into()),
        Held::Sqlite => job.file(),
    };
    // Damage in a frame is found only by reading it.
    let (mut report, end, restored) = restored.map_err(|error| found.advised(error))?;
    let ends = Ends {
        database: request.places().map(PathBuf::as_path).collect(),
        stripes: set.stripes().iter().map(OpenStripe::location).collect(),
        is_backup: false,
        emulation,
    };
    ends.judge(state.directory(), &mut report);
    let codec = set.description().facts.options["compress"].as_str();
    let done = Done {
        report: &report,
        codec: codec.and_then(|text| compression::parse_codec(text).ok()),
        pages_asked: false,
        request: request.settings.buffers.clone(),
        rates: (request.max_rate, None),
    };
    let judgement = state.judge(caller, &ends, &done);
    caller.tell(&Notice::Verdict(&report.verdict));
    let is_mended = set.mends().is_some_and(|mends| !mends.is_empty());
    let ending = match is_mended {
        true => Ending::Warnings,
        false => Ending::Done,
    };
    let end = end.judged(ending, &report);
    let outcome = RestoreOutcome {
        report,
        stripe_bytes: set.chain_bytes(),
        judgement,
        restored,
    };
    Ok((outcome, end))
}

/// What the history keeps of a restore. One of a part says so: it proves nothing of the rest.
fn about(request: &RestoreRequest, set: &OpenSet) -> RunAbout {
    let mut about = RunAbout::of_set(set.description());
    let spaces = request.only_tablespaces.iter();
    let only: Vec<_> = request.only_databases.iter().chain(spaces).collect();
    if !only.is_empty() {
        about.options["only"] = json!(only);
    }
    about
}

/// Tells how long it will take, before anything is written, if that can be known.
fn tell_time(caller: &Caller, request: &RestoreRequest, (set, state): (&OpenSet, &StateDirectory)) {
    if !request.keep_prediction {
        return;
    }
    let speeds = Speeds::probed(state.directory()).unwrap_or_default();
    let places = request.places().filter_map(|place| existing(place));
    let prediction = foretell(request, set, (state, speeds), places.collect());
    if let Some(prediction) = prediction.filter(|one| !one.is_too_short()) {
        caller.tell(&Notice::WillTake(&prediction));
    }
}

/// How long a restore of a set into these places would take, if the storage was probed. What the
/// log has behind the set is not in it.
pub(crate) fn foretell(
    request: &RestoreRequest,
    set: &OpenSet,
    (state, speeds): (&StateDirectory, Speeds),
    places: Vec<&Path>,
) -> Option<Prediction> {
    let description = set.description();
    let codec = description.facts.options["compress"].as_str()?;
    let whole: u64 = description.files.0.iter().map(|file| file.bytes).sum();
    // What is left out is not read either.
    let left_out = left_out(request, set).ok()?;
    let bytes = whole.saturating_sub(left_out.bytes(&description.files));
    let ends = Ends {
        database: places,
        stripes: set.stripes().iter().map(OpenStripe::location).collect(),
        is_backup: false,
        emulation: &request.settings.emulation,
    };
    let before = foretold::Before {
        bytes,
        files: set.stripes().len(),
        codec: compression::parse_codec(codec).ok()?,
        ratio: to_f64(whole) / to_f64(set.chain_bytes()).max(1.0),
        speeds,
        request: request.settings.buffers.clone(),
        rates: (request.max_rate, None),
    };
    foretold::before(state.directory(), &ends, before)
}

/// One restore to make.
struct Job<'a, 'b> {
    caller: &'a Caller,
    request: &'a RestoreRequest,
    set: &'a OpenSet,
    recovery: Option<&'a Plan>,
    run: &'a mut Run<'b>,
    cancel: &'a Cancel,
}

impl Job<'_, '_> {
    fn write(
        &self,
        target: &DirectoryTarget,
        outputs: &Outputs,
    ) -> Result<(RunReport, RunEnd), OperationError> {
        let request = self.request;
        let settings = &request.settings;
        let options = settings.restore_options(self.set, request.max_rate, true)?;
        self.caller.tell(&Notice::Settings {
            plan: &options.plan,
            codec: None,
            more: MoreMemory::default(),
        });
        let subject = request.into.display().to_string();
        let names = (subject.as_str(), &*series(&request.into));
        let watch = self.run.watch(outputs, names)?;
        let (progress, cancel) = (watch.progress(), self.cancel);
        let restored = windlass_engine::restore(self.set, target, &options, progress, cancel);
        watch.end(restored, |report| Ended::well(report))
    }
}

/// The subject of the metrics.
fn series(into: &Path) -> String {
    let absolute = std::path::absolute(into);
    absolute.unwrap_or(into.to_owned()).display().to_string()
}

/// The directory that a restored file goes into.
pub fn parent(into: &Path) -> &Path {
    let parent = if into.is_dir() {
        Some(into)
    } else {
        into.parent()
    };
    parent
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
