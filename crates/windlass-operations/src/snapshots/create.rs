//! Makes a snapshot.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use windlass_engine::{Cancel, Outputs, Progress};
use windlass_postgres::{BackupRequest, Cluster};
use windlass_snapshot::hook::{HookLimits, HookStart};
use windlass_snapshot::{
    Created, Entry, Maker, Method, Obstacle, PassedOver, Place, PostgresClone, PostgresCopy,
    PostgresHook, Record, Snapshot, SnapshotError, SnapshotName, Source, SqliteClone, SqliteCopy,
    choose,
};
use windlass_sqlite::Database;

use super::enable::is_named;
use super::subject::Subject;
use super::{SnapshotsOf, away, tell_removed};
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::ending::Ending;
use crate::error::{DatabaseError, DeviceError, OperationError};
use crate::history::recorded;
use crate::status::Operation;
use crate::warnings::{DATABASE_EMPTIED, is_accepted};
use crate::{emptied, outputs, privilege};

/// A snapshot to make.
#[derive(Clone, Debug, Default)]
pub struct CreateRequest {
    /// The database.
    pub of: SnapshotsOf,
    /// The name of the new snapshot.
    pub name: String,
    /// The directory for it, instead of the place beside the database.
    pub into: Option<PathBuf>,
    /// The method. Without it, the cheapest that works.
    pub method: Option<Method>,
    /// PostgreSQL: whether to begin with a checkpoint, and with which.
    pub start: HookStart,
    /// PostgreSQL: at which size and free space it ends.
    pub limits: HookLimits,
    /// PostgreSQL: at which age it ends.
    pub max_age: Option<Duration>,
    /// Whether it outlives a power cut. By `clone` and `copy` each one does.
    pub durable: bool,
    /// The names of warnings that the user accepts.
    pub accept: Vec<String>,
}

impl CreateRequest {
    /// All limits, from now on.
    fn limits(&self) -> HookLimits {
        self.limits.for_at_most(self.max_age)
    }
}

/// A snapshot that was made.
#[derive(Debug)]
pub struct CreateOutcome {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The cheaper methods, and why they could not be used.
    pub passed_over: Vec<PassedOver>,
    /// What the user should know.
    pub warnings: Vec<SnapshotWarning>,
}

/// A warning about a snapshot that was made.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotWarning {
    /// Its name.
    pub name: String,
    /// What is the matter.
    pub text: String,
    /// Whether the user accepted it.
    pub accepted: bool,
}

impl SnapshotWarning {
    /// A warning, which the user may have accepted.
    pub(super) fn new(name: String, text: String, accept: &[String]) -> Self {
        Self {
            accepted: is_accepted(&name, accept),
            name,
            text,
        }
    }
}

impl CreateOutcome {
    /// What is known about the snapshot.
    pub fn record(&self) -> &Record {
        self.snapshot.record()
    }

    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        match self.warnings.iter().all(|warning| warning.accepted) {
            true => Ending::Done,
            false => Ending::Warnings,
        }
    }
}

/// A database of which a snapshot can be made now.
struct Ready {
    place: Place,
    source: Source,
    makers: Vec<Box<dyn Maker>>,
    outputs: Outputs,
    /// PostgreSQL: whether the next start of the server does not load the hook.
    is_disabled: bool,
}

/// The name of the warning about a snapshot by the hook that the next start of the server loses.
const HOOK_DISABLED: &str = "hook-disabled";

/// What has a name in the place of a new snapshot, if somebody had to look. Each entry is read for
/// that, so nobody looks twice.
pub(super) type Around = Option<Vec<Entry>>;

/// Makes a snapshot. It exists when this returns.
pub fn create(
    caller: &Caller,
    request: &CreateRequest,
    cancel: &Cancel,
) -> Result<CreateOutcome, OperationError> {
    Ok(create_among(caller, request, cancel)?.0)
}

/// The same, for one who wants to know what else is there.
pub(super) fn create_among(
    caller: &Caller,
    request: &CreateRequest,
    cancel: &Cancel,
) -> Result<(CreateOutcome, Around), OperationError> {
    let names = super::names(&request.of, &request.name);
    recorded(caller, "snapshot create", names, || {
        let made = make(caller, request, cancel)?;
        let ending = made.0.ending();
        Ok((made, ending))
    })
}

fn make(
    caller: &Caller,
    request: &CreateRequest,
    cancel: &Cancel,
) -> Result<(CreateOutcome, Around), OperationError> {
    let name = SnapshotName::parse(&request.name)?;
    let subject = Subject::resolve(&request.of.database, request.of.name.as_deref())?;
    let name_of_live = live(&subject)?;
    let into = request.into.as_deref().map(absolute).transpose()?;
    if let Some(into) = &into {
        // Only root may be allowed to make it.
        make_directory(into, &subject)?;
    }
    subject.become_owner(caller)?;
    let ready = prepare(caller, name_of_live, request)?;
    // The place itself has other snapshots.
    let beside = ready.place.home().parent().unwrap_or(Path::new("/"));
    ready.outputs.check(beside)?;
    into.iter().try_for_each(|into| ready.outputs.check(into))?;
    let mut tell = tell_removed(caller);
    let reserved = ready.place.reserve(&name, into.as_deref(), &mut tell)?;
    let progress = Arc::<Progress>::default();
    progress.set_phase("choosing the method");
    let title = format!("{name} of {}", ready.source.path.display());
    let operation = shown(&title, &progress);
    let chosen = match choose(ready.makers, request.method, reserved.directory()) {
        Ok(chosen) => chosen,
        Err(error) => {
            reserved.take_back()?;
            return Err(error.into());
        }
    };
    let mut maker = chosen.maker;
    let watched = caller.observer.watch(&progress);
    let made = windlass_snapshot::create(reserved, &mut *maker, ready.source, &progress, cancel);
    drop((watched, operation));
    let Created {
        snapshot,
        mut warnings,
    } = made?;
    subject.sweep_memories();
    let (more, around) = look_around(&ready.place, snapshot.record(), into.as_deref());
    warnings.extend(more);
    if ready.is_disabled && snapshot.record().method == Method::Hook {
        let text = "the next start of the server does not load the hook, and loses this snapshot: \
                    shared_preload_libraries does not name the library any more";
        warnings.push((HOOK_DISABLED.to_owned(), text.to_owned()));
    }
    let judged = warnings.into_iter();
    let judged = judged.map(|(name, text)| SnapshotWarning::new(name, text, &request.accept));
    let outcome = CreateOutcome {
        snapshot,
        passed_over: chosen.passed_over,
        warnings: judged.collect(),
    };
    Ok((outcome, around))
}

/// The warnings about a new snapshot for which one looks at what else is in its place. One that
/// cannot be listed gives none: no snapshot fails for this.
fn look_around(
    place: &Place,
    new: &Record,
    into: Option<&Path>,
) -> (Vec<(String, String)>, Around) {
    let listed: OnceCell<Around> = OnceCell::new();
    let all = || listed.get_or_init(|| place.list().ok()).as_deref();
    let emptied = emptied::of_snapshots(new, all);
    let emptied = emptied.map(|text| (DATABASE_EMPTIED.to_owned(), text));
    let away = into.and_then(|into| away::warning(all()?, into));
    let warnings = emptied.into_iter().chain(away).collect();
    (warnings, listed.into_inner().flatten())
}

/// The database, if a snapshot of it can be made.
fn live(subject: &Subject) -> Result<&DatabaseName, OperationError> {
    match subject {
        Subject::Live(name) => Ok(name),
        Subject::DataDirectory(path) => {
            let path = path.clone();
            Err(DatabaseError::DataDirectory { path }.into())
        }
        Subject::Gone(path) => {
            let path = path.clone();
            Err(SnapshotError::Gone { path }.into())
        }
    }
}

/// Which method a snapshot would be made by, and why not by a cheaper one. Nothing is made.
pub fn method_of(
    caller: &Caller,
    request: &CreateRequest,
) -> Result<(Method, Vec<PassedOver>), OperationError> {
    let subject = Subject::resolve(&request.of.database, request.of.name.as_deref())?;
    let name = live(&subject)?;
    subject.become_owner(caller)?;
    let ready = prepare(caller, name, request)?;
    // The place itself may not exist yet, and its directory is on the same file system.
    let into = ready.place.home().parent().unwrap_or(Path::new("/"));
    let chosen = choose(ready.makers, request.method, into)?;
    Ok((chosen.maker.method(), chosen.passed_over))
}

/// Shows the operation to others.
fn shown(title: &str, progress: &Arc<Progress>) -> Operation {
    let progress = Arc::clone(progress);
    Operation::begin("snapshot", title, move || {
        (progress.phase().to_owned(), serde_json::Value::Null)
    })
}

fn absolute(path: &Path) -> Result<PathBuf, OperationError> {
    let absolute = std::path::absolute(path).map_err(|source| DeviceError::NoPath {
        text: path.display().to_string(),
        source,
    });
    Ok(absolute?)
}

/// Makes the directory for snapshots if it does not exist, for the owner of the database.
fn make_directory(path: &Path, subject: &Subject) -> Result<(), OperationError> {
    outputs::outputs().check(path)?;
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    if !parent.is_dir() {
        let parent = parent.to_owned();
        return Err(DeviceError::NoParent { parent }.into());
    }
    Ok(privilege::make_directory(path, subject.owner())?)
}

/// Opens the database, and says which methods there are, the cheapest first.
fn prepare(
    caller: &Caller,
    name: &DatabaseName,
    request: &CreateRequest,
) -> Result<Ready, OperationError> {
    match name {
        DatabaseName::Sqlite(path) => {
            check_for_sqlite(request)?;
            let label = format!("snapshot {}", request.name);
            let open = || -> Result<Database, OperationError> {
                let mut database = Database::open(path)?;
                database.set_label(&label);
                database.set_host(&caller.host);
                Ok(database)
            };
            let (first, second) = (open()?, open()?);
            let source = Source {
                kind: windlass_sqlite::KIND.to_owned(),
                path: PathBuf::from(&first.facts().path),
            };
            Ok(Ready {
                place: Place::beside(&source.path)?,
                source,
                makers: vec![
                    Box::new(SqliteClone::new(first)),
                    Box::new(SqliteCopy::new(second)),
                ],
                outputs: outputs::of_sqlite(path)?,
                is_disabled: false,
            })
        }
        DatabaseName::Postgres(conninfo) => {
            let asked = BackupRequest {
                label: format!("windlass snapshot {}", request.name),
                fast_checkpoint: request.start == HookStart::Checkpoint,
                ..BackupRequest::default()
            };
            asked.check()?;
            let mut cluster = Cluster::connect(conninfo)?;
            let source = Source {
                kind: windlass_postgres::KIND.to_owned(),
                path: cluster.facts().data_directory.clone(),
            };
            let place = Place::beside(&source.path)?;
            Ok(Ready {
                outputs: outputs::of_cluster(&source.path)?,
                source,
                // A role that may not ask learns nothing, and its snapshot is as good.
                is_disabled: cluster
                    .preload()
                    .is_ok_and(|preload| !is_named(&preload.next)),
                makers: of_cluster((cluster, place.home()), (conninfo, request), asked)?,
                place,
            })
        }
    }
}

/// Refuses what a snapshot of a SQLite database cannot have.
fn check_for_sqlite(request: &CreateRequest) -> Result<(), OperationError> {
    if !request.limits().is_none() {
        return Err(refused(request, Obstacle::NoLimits));
    }
    match request.start == HookStart::Pause && request.method != Some(Method::Hook) {
        true => Err(refused(request, Obstacle::NoCheckpoint)),
        false => Ok(()),
    }
}

/// The methods for a cluster. One that begins with a checkpoint is none if no checkpoint is wanted.
fn of_cluster(
    (cluster, home): (Cluster, &Path),
    (conninfo, request): (&str, &CreateRequest),
    asked: BackupRequest,
) -> Result<Vec<Box<dyn Maker>>, OperationError> {
    let hook = |cluster: Cluster| {
        PostgresHook::new(cluster, asked.clone(), request.start)
            .limited(request.limits())
            .durable(request.durable)
            .among(home)
    };
    let obstacle = if request.start == HookStart::Pause {
        Some(Obstacle::NeedsCheckpoint)
    } else {
        (!request.limits().is_none()).then_some(Obstacle::NoLimits)
    };
    let makers: Vec<Box<dyn Maker>> = match (request.method, obstacle) {
        (Some(Method::Hook), _) | (None, Some(_)) => vec![Box::new(hook(cluster))],
        (Some(_), Some(obstacle)) => return Err(refused(request, obstacle)),
        // Each has a session of its own.
        (_, None) => {
            let (hooked, cloned) = (Cluster::connect(conninfo)?, Cluster::connect(conninfo)?);
            vec![
                Box::new(hook(hooked)),
                Box::new(PostgresClone::new(cloned, asked.clone())),
                Box::new(PostgresCopy::new(cluster, asked)),
            ]
        }
    };
    Ok(makers)
}

fn refused(request: &CreateRequest, obstacle: Obstacle) -> OperationError {
    let method = request.method.unwrap_or(Method::Copy);
    SnapshotError::Method { method, obstacle }.into()
}
