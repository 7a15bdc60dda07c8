//! Going back: a database becomes what its snapshot is, and what it was before that.
//!
//!   plan (nothing is changed; what would be, can be shown) --> run

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::{Cancel, Progress};
use windlass_postgres::ClusterServer;
use windlass_snapshot::{
    Back, ClusterBack, Entry, Place, Reverted, Settled, Snapshot, SnapshotError, State, UndoNumber,
    UndoRecord,
};
use windlass_snapshot::{check_left_open, find_undo, leaving, newest_undo, undo_states};
use windlass_sqlite::Database;

use super::SnapshotsOf;
use super::named::split;
use super::subject::Subject;
use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::recorded;
use crate::privilege::as_typed;
use crate::status::Operation;

/// What going back would do.
#[derive(Debug)]
pub struct BackPlan {
    /// The database file.
    pub database: PathBuf,
    /// The snapshot. For an undo, the one that the database went back to.
    pub snapshot: Snapshot,
    /// What an undo brings back; none for a revert.
    pub undo: Option<(UndoNumber, UndoRecord)>,
    /// Kept states that go if this overwrites something.
    pub leaving: Vec<UndoNumber>,
    /// Snapshots that are newer. They stay as they are.
    pub newer: Vec<String>,
    /// Snapshots by the hook, newer or older, that can be read. What a revert of a cluster
    /// overwrites is kept for them, which is growth: these have a limit on that.
    pub limited: Vec<String>,
    /// All that can be read.
    kept: Vec<String>,
    /// Whether SQLite rolled back a transaction already.
    rolled_back: bool,
    place: Place,
    what: What,
}

/// What an undo finds.
#[derive(Debug)]
pub enum Undoing {
    /// A state to bring back.
    Planned(Box<BackPlan>),
    /// Something that was cut off, and is settled now. That is what the caller wants: an undo is
    /// finished, or the newest revert is undone.
    Settled {
        /// What it was, and what became of it.
        settled: Settled,
        /// The database file, or the data directory.
        database: PathBuf,
        /// PostgreSQL: the command that starts the server, if it does not run.
        start_command: Option<String>,
    },
}

/// What goes back.
#[derive(Debug)]
enum What {
    /// A SQLite database.
    Sqlite,
    /// A cluster with its server.
    Cluster(Box<ClusterBack>),
    /// A SQLite database whose file is not there.
    Gone,
}

/// A database that went back.
#[derive(Debug)]
pub struct BackOutcome {
    /// What was changed.
    pub reverted: Reverted,
    /// How long it took.
    pub took: Duration,
    /// Snapshots that were lost by it, each with the cause.
    pub lost: Vec<(String, String)>,
}

impl BackOutcome {
    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        // Somebody counts on them.
        match self.lost.is_empty() && self.reverted.lacks.is_empty() {
            true => Ending::Done,
            false => Ending::Warnings,
        }
    }
}

/// Plans to make a database what its snapshot is. The database is named like `DATABASE@NAME`.
pub fn plan_revert(caller: &Caller, of: &SnapshotsOf) -> Result<BackPlan, OperationError> {
    let named = split(of.database.as_ref())?;
    let (database, name) = named.ok_or_else(|| SnapshotError::NoName {
        text: of.database.clone(),
    })?;
    let of = SnapshotsOf {
        database: database.to_owned(),
        name: of.name.clone(),
    };
    if let Ok(Subject::Gone(path)) = Subject::resolve(&of.database, of.name.as_deref()) {
        // Before it becomes the owner: root sees the programs of every user.
        check_left_open(&Place::beside(&path)?.database())?;
    }
    let opened = open(caller, &of)?;
    let snapshot = opened.place.find(&name)?;
    BackPlan::new(opened, snapshot, None)
}

/// Plans to bring back a state that a revert or an undo overwrote: the one with this name, or the
/// newest that a revert did. Whoever finds an undo that was cut off, and names none or the state
/// that it brought back, means that one; whoever finds a revert that was cut off, and names no
/// state, means that revert. A next one would lead one state too far.
pub fn plan_undo(
    caller: &Caller,
    of: &SnapshotsOf,
    state: Option<&str>,
) -> Result<Undoing, OperationError> {
    let opened = open(caller, of)?;
    if let Some(settled) = opened.settled
        && is_all(settled, state, &opened.place)?
    {
        let cluster = opened.what.cluster();
        return Ok(Undoing::Settled {
            settled,
            start_command: cluster.and_then(start_if_stopped),
            database: opened.database,
        });
    }
    if let What::Gone = opened.what {
        let path = opened.database;
        return Err(SnapshotError::Gone { path }.into());
    }
    let undo = match state {
        Some(name) => find_undo(&opened.place, state_named(name, &opened.place)?)?,
        None => newest_undo(&opened.place)?,
    };
    let record = undo.known()?;
    let plan = BackPlan::new(opened, undo.snapshot, Some((undo.number, record)))?;
    Ok(Undoing::Planned(Box::new(plan)))
}

/// Whether what was cut off, and was settled just now, is all that the caller of an undo wants who
/// names this state, or none.
fn is_all(settled: Settled, state: Option<&str>, place: &Place) -> Result<bool, OperationError> {
    match (settled.is_undo, settled.is_finished) {
        (true, true) => is_brought_back(state, place),
        // The newest revert is undone already, and nobody asked for the one before it.
        (false, false) => Ok(state.is_none()),
        // The undo is still to be done, or the revert can be undone.
        (true, false) | (false, true) => Ok(false),
    }
}

/// Whether the undo that was just finished is the one that brings back what this word names, if it
/// names something. That state is gone, and the one that was overwritten for it says which it was.
fn is_brought_back(state: Option<&str>, place: &Place) -> Result<bool, OperationError> {
    let Some(name) = state else {
        return Ok(true);
    };
    let UndoNumber(wanted) = state_named(name, place)?;
    let newest = undo_states(place)?.pop();
    let brought_back = newest.and_then(|undo| undo.record?.brings_back);
    Ok(brought_back == Some(wanted))
}

/// The state that a word names: `undo:3`, or its number alone.
fn state_named(name: &str, place: &Place) -> Result<UndoNumber, OperationError> {
    let number = name.parse().ok().map(UndoNumber);
    if let Some(number) = UndoNumber::parse(name).or(number) {
        return Ok(number);
    }
    let known = undo_states(place)?.into_iter();
    Err(SnapshotError::NoState {
        name: name.to_owned(),
        known: known.map(|undo| undo.number.to_string()).collect(),
    }
    .into())
}

/// A database that can go back.
struct Opened {
    database: PathBuf,
    place: Place,
    what: What,
    /// Whether SQLite rolled back a transaction while the end of a killed revert was decided.
    rolled_back: bool,
    /// What became of a revert that was cut off, if one was.
    settled: Option<Settled>,
}

impl What {
    fn cluster(&self) -> Option<&ClusterBack> {
        match self {
            Self::Cluster(cluster) => Some(cluster),
            Self::Sqlite | Self::Gone => None,
        }
    }
}

/// The command that starts the server of a cluster, if it did not run.
fn start_if_stopped(cluster: &ClusterBack) -> Option<String> {
    let server = cluster.server();
    (!server.was_running()).then(|| as_typed(&server.start_command()))
}

/// Finds the database and its snapshots. The process becomes the owner of the database.
fn open(caller: &Caller, of: &SnapshotsOf) -> Result<Opened, OperationError> {
    let subject = Subject::resolve(&of.database, of.name.as_deref())?;
    caller.history.open();
    subject.become_owner(caller)?;
    let database = subject.path()?;
    let place = Place::beside(&database)?;
    let (mut rolled_back, mut settled) = (false, None);
    let what = match subject {
        Subject::Live(DatabaseName::Sqlite(_)) => {
            let (live, cancel) = (Database::open(&database)?, Cancel::new());
            let decided = windlass_snapshot::settle(&place, &live, &cancel)?;
            (rolled_back, settled) = (decided.rolled_back, decided.settled);
            What::Sqlite
        }
        Subject::Gone(_) => What::Gone,
        Subject::Live(DatabaseName::Postgres(_)) | Subject::DataDirectory(_) => {
            settled = super::settle(caller, &database, &place)?;
            let cluster = ClusterBack::new(&database)?;
            cluster.check()?;
            What::Cluster(Box::new(cluster))
        }
    };
    Ok(Opened {
        database,
        place,
        what,
        rolled_back,
        settled,
    })
}

impl BackPlan {
    fn new(
        opened: Opened,
        snapshot: Snapshot,
        undo: Option<(UndoNumber, UndoRecord)>,
    ) -> Result<Self, OperationError> {
        let Opened {
            database,
            place,
            what,
            rolled_back,
            settled: _,
        } = opened;
        if let What::Cluster(_) = what {
            place.check_own(&snapshot)?;
        }
        let others: Vec<_> = snapshots(&place)?
            .filter(|other| other.record().state == State::Kept)
            .collect();
        let names = |wanted: &dyn Fn(&&Snapshot) -> bool| -> Vec<String> {
            let wanted = others.iter().filter(wanted);
            wanted.map(|other| other.record().name.clone()).collect()
        };
        let limited = match what {
            What::Cluster(_) => names(&|other| has_limit(other)),
            What::Sqlite | What::Gone => Vec::new(),
        };
        let brought_back = undo.as_ref().map(|(number, _)| *number);
        Ok(Self {
            leaving: leaving(&undo_states(&place)?, brought_back),
            newer: names(&|other| {
                let is_newer = other.created() > snapshot.created();
                is_newer && !limited.contains(&other.record().name)
            }),
            limited,
            kept: names(&|_| true),
            rolled_back,
            database,
            snapshot,
            undo,
            place,
            what,
        })
    }

    /// Whether a server is stopped for it.
    pub fn stops_server(&self) -> bool {
        let server = self.cluster().map(ClusterBack::server);
        server.is_some_and(ClusterServer::was_running)
    }

    /// PostgreSQL: the command that starts the server, if it is stopped at the end.
    pub fn start_command(&self) -> Option<String> {
        let server = self.cluster()?.server();
        let is_started = server.was_running() && !server.is_managed();
        (!is_started).then(|| as_typed(&server.start_command()))
    }

    /// Whether it is a PostgreSQL cluster.
    pub fn is_cluster(&self) -> bool {
        self.cluster().is_some()
    }

    /// Whether it is a SQLite database whose file is not there, and is put back.
    pub fn puts_back(&self) -> bool {
        matches!(self.what, What::Gone)
    }

    fn cluster(&self) -> Option<&ClusterBack> {
        self.what.cluster()
    }

    /// Does it.
    pub fn run(&self, caller: &Caller, cancel: &Cancel) -> Result<BackOutcome, OperationError> {
        let database = std::path::absolute(&self.database);
        let database = database.unwrap_or_else(|_| self.database.clone());
        let database = database.display().to_string();
        let subject = format!("{database}@{}", self.snapshot.record().name);
        let command = match self.undo {
            None => "snapshot revert",
            Some(_) => "snapshot undo",
        };
        recorded(caller, command, (subject, database), || {
            let outcome = self.go_back(caller, cancel)?;
            let ending = outcome.ending();
            Ok((outcome, ending))
        })
    }

    fn go_back(&self, caller: &Caller, cancel: &Cancel) -> Result<BackOutcome, OperationError> {
        let back = match self.undo {
            None => Back::ToSnapshot,
            Some((number, _)) => Back::ToState(number),
        };
        let progress = Arc::<Progress>::default();
        let title = format!(
            "{} back to {}",
            self.database.display(),
            self.snapshot.record().name
        );
        let (shown, watched) = (Arc::clone(&progress), caller.observer.watch(&progress));
        let operation = Operation::begin("snapshot", &title, move || {
            (shown.phase().to_owned(), serde_json::Value::Null)
        });
        let began = std::time::Instant::now();
        let (place, snapshot) = (&self.place, &self.snapshot);
        let reverted = match &self.what {
            What::Cluster(cluster) => cluster.run(place, (snapshot, back), &progress, cancel),
            What::Gone => windlass_snapshot::put_back(place, snapshot, &progress, cancel),
            What::Sqlite => {
                let database = Database::open(&self.database)?;
                windlass_snapshot::revert(place, snapshot, back, &database, &progress, cancel)
            }
        };
        drop((watched, operation));
        let mut reverted = reverted?;
        reverted.rolled_back |= self.rolled_back;
        Ok(BackOutcome {
            reverted,
            took: began.elapsed(),
            lost: self.lost()?,
        })
    }

    /// The snapshots that could be read before, and why they cannot now.
    fn lost(&self) -> Result<Vec<(String, String)>, OperationError> {
        let lost = |other: Snapshot| match &other.record().state {
            State::Lost { why } => Some((other.record().name.clone(), why.clone())),
            State::Kept => None,
        };
        let mut all: Vec<_> = snapshots(&self.place)?.filter_map(lost).collect();
        all.retain(|(name, _)| self.kept.contains(name));
        Ok(all)
    }
}

fn snapshots(place: &Place) -> Result<impl Iterator<Item = Snapshot>, OperationError> {
    let all = place.list()?.into_iter();
    Ok(all.filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(*snapshot),
        _ => None,
    }))
}

/// Whether a snapshot ends if it grows.
fn has_limit(snapshot: &Snapshot) -> bool {
    let growth = snapshot.growth();
    growth.is_some_and(|it| it.limits.max_bytes.is_some() || it.limits.keep_free_bytes.is_some())
}
