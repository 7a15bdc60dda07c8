//! A backup of the log: copies from a running database what a place lacks, up to now.
//!
//!   server: how far is the log written? --> segments that the place lacks --> objects
//!   newest set of the place --> is the log whole from there to now?
//!
//! The log goes into the same objects as with `archive-push` and `receive`, and all three may store
//! in one place at the same time.

mod database;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};
use windlass_engine::Cancel;
use windlass_engine::media::{Codec, SetId};
use windlass_postgres::{Cluster, Lsn, RecoveryTimeline, Timeline, WrittenLog};
use windlass_repository::{
    CopiedLog, CopyRequest, LogPlace, LogSpan, RepositoryError, content_key_beside, copy,
};

use crate::archive;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::devices::{self, DeviceName};
use crate::ended::RunCounts;
use crate::ending::Ending;
use crate::error::{DeviceError, OperationError};
use crate::history::RunAbout;
use crate::hooks::HookCommands;
use crate::info::with_bases;
use crate::outputs;
use crate::places;
use crate::reach::{ClusterSet, Reach};
use crate::run::Run;
use crate::stored::log_into;
use crate::warnings::{LOG_GAP, LOG_WITHOUT_SET, Warnings};
use crate::watch::Watching;
pub use database::DatabaseLogOutcome;

/// How often a copy is begun again because the server reused a segment under it.
const ATTEMPTS_MAX: usize = 5;

/// Whose log to copy, and where to.
#[derive(Clone, Debug)]
pub struct LogBackupRequest {
    /// The cluster: a connection string. Or the path of a SQLite database.
    pub database: String,
    /// What the configuration calls it.
    pub name: Option<String>,
    /// The place: one directory that exists.
    pub to: Vec<String>,
    /// How to compress.
    pub codec: Codec,
    /// Who can read what is copied, as words for keys. If there are none, it is not encrypted.
    pub encrypt: Vec<String>,
    /// On how many threads; without it on some.
    pub threads: Option<usize>,
    /// The names of warnings that do not change the ending.
    pub accept: Vec<String>,
    /// Commands before and after.
    pub hooks: HookCommands,
    /// How the run is recorded: only its end is.
    pub watching: Watching,
}

/// A log that was copied.
#[derive(Debug)]
pub enum LogBackedUp {
    /// Of a cluster.
    Cluster(LogBackupOutcome),
    /// Of a SQLite database.
    Database(DatabaseLogOutcome),
}

impl LogBackedUp {
    /// What the user should know.
    pub fn warnings(&self) -> &Warnings {
        match self {
            Self::Cluster(outcome) => &outcome.warnings,
            Self::Database(outcome) => &outcome.warnings,
        }
    }
}

/// A log of a cluster that was copied.
#[derive(Debug)]
pub struct LogBackupOutcome {
    /// The place.
    pub place: PathBuf,
    /// The cluster.
    pub system: u64,
    /// What people call it.
    pub name: String,
    /// The timeline at the end of the log.
    pub timeline: Timeline,
    /// Whether the place has no later one: a server that was promoted may archive there.
    pub is_newest: bool,
    /// The log is in the place up to here.
    pub end: Lsn,
    /// What was copied.
    pub copied: CopiedLog,
    /// The newest set of the cluster in the place.
    pub set: Option<SetId>,
    /// What is missing between that set and the end.
    pub gap: Option<LogSpan>,
    /// What the user should know.
    pub warnings: Warnings,
    /// How long it took.
    pub seconds: f64,
}

/// Copies the log of a running database up to now. It is durable when this returns.
pub fn back_up_log(
    caller: &Caller,
    request: &LogBackupRequest,
    cancel: &Cancel,
) -> Result<(LogBackedUp, Ending), OperationError> {
    let about = (caller, &request.watching, &request.hooks);
    let mut run = super::run_of(about, &request.database, request.name.as_deref(), cancel);
    run.become_log();
    run.go_unwatched(|run| {
        let name = DatabaseName::resolve_named(&request.database, request.name.as_deref())?;
        run.hooks.before()?;
        let outcome = match &name {
            DatabaseName::Postgres(conninfo) => {
                LogBackedUp::Cluster(make(caller, (request, &name, conninfo), run, cancel)?)
            }
            DatabaseName::Sqlite(path) => {
                LogBackedUp::Database(database::make(caller, (request, path), run, cancel)?)
            }
        };
        run.about(kept_of(&outcome));
        let ending = outcome.warnings().ending();
        let counts = counts(&outcome);
        Ok((outcome, ending, counts))
    })
}

/// What the history keeps of it. The database of a file is known by its path.
fn kept_of(outcome: &LogBackedUp) -> RunAbout {
    let database = match outcome {
        LogBackedUp::Cluster(of) => json!({
            "kind": windlass_postgres::KIND,
            "system_identifier": of.system.to_string(),
            "name": of.name,
        }),
        LogBackedUp::Database(_) => Value::Null,
    };
    RunAbout {
        database,
        warnings: outcome.warnings().names(),
        ..RunAbout::default()
    }
}

fn counts(outcome: &LogBackedUp) -> RunCounts {
    let (bytes_read, bytes_written, seconds) = match outcome {
        LogBackedUp::Cluster(of) => (of.copied.bytes, of.copied.stored_bytes, of.seconds),
        LogBackedUp::Database(of) => (of.captured.bytes, of.captured.bytes, of.seconds),
    };
    RunCounts {
        set_type: Some("log".to_owned()),
        set_id: None,
        stripes: Vec::new(),
        bytes_read,
        bytes_written,
        seconds,
        verdict: String::new(),
    }
}

fn make(
    caller: &Caller,
    (request, name, conninfo): (&LogBackupRequest, &DatabaseName, &str),
    run: &Run<'_>,
    cancel: &Cancel,
) -> Result<LogBackupOutcome, OperationError> {
    let began = Instant::now();
    let device = only_place(&request.to)?;
    let place = device.place().unwrap_or(Path::new(".")).to_owned();
    let at = log_into(&place, &request.encrypt)?;
    name.become_owner(caller.process)?;
    let mut cluster = Cluster::connect(conninfo)?;
    let outputs = outputs::of_cluster(&cluster.facts().data_directory)?;
    run.check(&devices::protect(std::slice::from_ref(&device), &outputs)?)?;
    // Fails if the place cannot be read.
    at.find()?;
    let system = cluster.facts().system_identifier;
    let sets = sets_of(&place, system)?;
    let written = cluster.written_log()?;
    let at = at.comparing_with(content_key_beside(&written.directory.join("log"))?);
    let log = LogPlace::new(&at, system);
    let copy = CopyRequest {
        directory: written.directory.clone(),
        segment_bytes: u64::from(cluster.facts().wal_segment_bytes),
        from: sets.iter().map(|set| set.start).min().unwrap_or_default(),
        end: (written.timeline, written.end),
        history: written.history.clone(),
        codec: request.codec,
        threads: archive::threads(request.threads),
    };
    let copied = copy_all(&log, &copy, cancel)?;
    let (gap, warnings) = judge(&log, sets.last(), &written)?;
    Ok(LogBackupOutcome {
        place,
        system,
        name: cluster.facts().name.clone(),
        timeline: written.timeline,
        is_newest: log.timelines()?.last() <= Some(&written.timeline),
        end: written.end,
        copied,
        set: sets.last().map(|set| set.id),
        gap,
        warnings: Warnings::new(warnings, &request.accept),
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// The one place that holds the log.
fn only_place(words: &[String]) -> Result<DeviceName, DeviceError> {
    match devices::resolve(words)?.as_slice() {
        [device @ (DeviceName::Directory(_) | DeviceName::Bucket(_))] => Ok(device.clone()),
        _ => Err(DeviceError::NotOnePlace),
    }
}

/// The sets of a cluster in a place, the oldest first.
fn sets_of(place: &Path, system: u64) -> Result<Vec<ClusterSet>, OperationError> {
    let place = [place.to_owned()];
    let list = places::list(&place)?;
    let sets = with_bases(&list.sets, &place).into_iter();
    let sets = sets.filter_map(ClusterSet::of);
    Ok(sets.filter(|set| set.system == system).collect())
}

fn copy_all(
    log: &LogPlace,
    request: &CopyRequest,
    cancel: &Cancel,
) -> Result<CopiedLog, OperationError> {
    let mut attempt = 1;
    loop {
        cancel.check()?;
        match copy(log, request) {
            // The server has removed the segment, so it is not listed again.
            Err(RepositoryError::Reused { .. }) if attempt < ATTEMPTS_MAX => attempt += 1,
            copied => return Ok(copied?),
        }
    }
}

type Named = (&'static str, String);

/// What is missing between the newest set and the end of the log.
fn judge(
    log: &LogPlace,
    newest: Option<&ClusterSet>,
    written: &WrittenLog,
) -> Result<(Option<LogSpan>, Vec<Named>), OperationError> {
    let Some(set) = newest else {
        let text = "the place has no set of this cluster, and the log alone restores nothing";
        return Ok((None, vec![(LOG_WITHOUT_SET, text.to_owned())]));
    };
    let to = RecoveryTimeline::Number(written.timeline);
    let short = set.id.to_string()[..8].to_owned();
    let reach = match Reach::of(log, set, (to, Some(written.end))) {
        Ok(reach) => reach,
        Err(error @ (RepositoryError::Unrelated { .. } | RepositoryError::NoHistory { .. })) => {
            let text = format!("the newest set, {short}, does not lead to this log: {error}");
            return Ok((None, vec![(LOG_GAP, text)]));
        }
        Err(error) => return Err(error.into()),
    };
    if reach.end >= written.end || set.stop >= written.end {
        return Ok((None, Vec::new()));
    }
    let gap = LogSpan {
        start: reach.end,
        end: reach.gap.map_or(written.end, |(_, to)| to),
    };
    let text = format!(
        "the log from {} to {} is missing: the server had removed it already, so the newest set, \
         {short}, reaches no later moment",
        gap.start, gap.end
    );
    Ok((Some(gap), vec![(LOG_GAP, text)]))
}
