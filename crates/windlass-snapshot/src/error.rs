//! What can go wrong with a snapshot.

mod doing;

use std::io;
use std::path::{Path, PathBuf};

use windlass_engine::EngineError;
use windlass_image::ImageError;
use windlass_postgres::{PostgresError, WindowCause};
use windlass_sqlite::SqliteError;

pub(crate) use self::doing::{Doing, failed_at};
use crate::hook::HookError;
use crate::method::Method;
use crate::obstacle::Obstacle;

/// Why a snapshot cannot be made, found, read or dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Not the name of a snapshot.
    #[error("{text:?} cannot be the name of a snapshot: {what}")]
    Name {
        /// What was named.
        text: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another snapshot, or something else, has the name.
    #[error("there is a snapshot {name} already, in {}", path.display())]
    Taken {
        /// The name.
        name: String,
        /// Where it is.
        path: PathBuf,
        /// The other database that it is of.
        owner: Option<PathBuf>,
        /// Whether the list of the database has it. Another database's may have.
        is_listed: bool,
    },
    /// Nothing has the name.
    #[error("there is no snapshot {name} in {}", place.display())]
    Unknown {
        /// The name.
        name: String,
        /// Where snapshots of the database are.
        place: PathBuf,
        /// The snapshots that are there.
        known: Vec<String>,
    },
    /// It is being made or dropped, or a killed process left it.
    #[error("snapshot {name} is not finished")]
    Unfinished {
        /// Its name.
        name: String,
    },
    /// A directory that is no snapshot.
    #[error("{} does not contain a snapshot", path.display())]
    NotASnapshot {
        /// The directory.
        path: PathBuf,
    },
    /// The snapshot is elsewhere, and its directory is not there.
    #[error("the snapshot {name} is in {}, which is not there", path.display())]
    Missing {
        /// The name.
        name: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// A directory with snapshots of the cluster is gone, and one of them may have what a revert
    /// overwrote that was cut off.
    #[error("snapshots of the cluster were in {}, which is not where it was", path.display())]
    Moved {
        /// The directory.
        path: PathBuf,
    },
    /// A revert was cut off while it overwrote the cluster, and what it kept is not found.
    #[error("what a revert overwrote that was cut off was kept in {}, which is not there", path.display())]
    KeptElsewhere {
        /// Where it was.
        path: PathBuf,
    },
    /// A revert was cut off, and nobody knows which of several has what it kept.
    #[error(
        "what a revert overwrote that was cut off is kept in one of {}",
        listed(paths)
    )]
    KeptTwice {
        /// Where it may be.
        paths: Vec<PathBuf>,
    },
    /// The directory of a database's snapshots is a link, and what that leads to is not there.
    #[error("the snapshots are in {}, which is not there: {} leads to it", path.display(), home.display())]
    PlaceAway {
        /// The link.
        home: PathBuf,
        /// Where it leads.
        path: PathBuf,
    },
    /// An entry in the place of a database is a link to a snapshot of another one, or its copy.
    #[error("{} leads to a snapshot of another database, {}", link.display(), database.display())]
    OfAnother {
        /// The link.
        link: PathBuf,
        /// The database that has the snapshot.
        database: PathBuf,
    },
    /// Not all snapshots could be looked at when the command began.
    #[error("not all snapshots of the database could be seen: {what}")]
    Unseen {
        /// Why.
        what: String,
    },
    /// A revert to it was cut off, and it has what was overwritten.
    #[error("{} has what a revert overwrote that was cut off", path.display())]
    NeededToUndo {
        /// Its directory.
        path: PathBuf,
    },
    /// Somebody makes, reads or drops it.
    #[error("the snapshot in {} is in use", path.display())]
    InUse {
        /// Its directory.
        path: PathBuf,
    },
    /// The record, or what it describes, is damaged.
    #[error("read {}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A newer version made it.
    #[error("{} is of version {found}, and this is version {known}", path.display())]
    Version {
        /// The record.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// The snapshot was given up.
    #[error("the snapshot {name} is lost: {why}")]
    Lost {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// A word that should name a snapshot, like DATABASE@NAME.
    #[error("{text:?} names no snapshot")]
    NoName {
        /// The word.
        text: String,
    },
    /// A standby follows its primary.
    #[error("{} belongs to a standby, which cannot go back alone", path.display())]
    Standby {
        /// The data directory.
        path: PathBuf,
    },
    /// Somebody has it recover from archived log.
    #[error("the cluster in {} is to recover: it has the file recovery.signal", path.display())]
    Recovering {
        /// The data directory.
        path: PathBuf,
    },
    /// The system would end with the server.
    #[error("the server on {} is the first process of its container: the container ends with it", path.display())]
    FirstProcess {
        /// The data directory.
        path: PathBuf,
    },
    /// The last server did not end in order.
    #[error("the server on {} was not shut down", path.display())]
    NotShutDown {
        /// The data directory.
        path: PathBuf,
    },
    /// A revert failed, and the server that ran before it is stopped.
    #[error("{error}; the server on {} is stopped, and {left}", path.display())]
    Stopped {
        /// Why.
        error: Box<Self>,
        /// How the cluster is.
        left: Left,
        /// The data directory.
        path: PathBuf,
        /// The command that starts the server.
        start: String,
    },
    /// Somebody started a server.
    #[error("{what} on {} (process {process})", path.display())]
    ServerRuns {
        /// What runs: a server again, or still the recovery of a command that was cut off.
        what: &'static str,
        /// The data directory.
        path: PathBuf,
        /// The server's first process.
        process: i32,
    },
    /// The snapshot is not one of this cluster as it is now.
    #[error("the snapshot {name} is of another cluster, or of another version of it")]
    OtherCluster {
        /// The snapshot.
        name: String,
    },
    /// The snapshot has no page that could be written.
    #[error("the snapshot {name} is of an empty file")]
    EmptySnapshot {
        /// The snapshot.
        name: String,
    },
    /// More pages than have numbers.
    #[error("the cluster has more than 2^32 pages")]
    TooLarge,
    /// Nothing was reverted that could be undone.
    #[error("nothing can be undone: no snapshot in {} has what a revert overwrote", place.display())]
    NoUndo {
        /// Where snapshots of the database are.
        place: PathBuf,
        /// The states that undos overwrote.
        known: Vec<String>,
    },
    /// The state that an undo without a name would bring back.
    #[error("the newest state {name} cannot be brought back: {why}")]
    NewestLost {
        /// Its name.
        name: String,
        /// Why.
        why: String,
        /// Whether its bytes are not what they were.
        is_damaged: bool,
        /// The newest one that can be.
        older: Option<Box<Older>>,
    },
    /// No state has the name.
    #[error("there is no state {name} that can be brought back")]
    NoState {
        /// The name.
        name: String,
        /// The states that are there.
        known: Vec<String>,
    },
    /// The database is not there, and only its snapshots are.
    #[error("the database {} is not there", path.display())]
    Gone {
        /// The database.
        path: PathBuf,
    },
    /// Something of the old database is still there.
    #[error("{} is left of the database that is not there", path.display())]
    Beside {
        /// The file.
        path: PathBuf,
    },
    /// A program has the old database open.
    #[error("{} still has {} open, of the database that is not there", program(*process, name.as_deref()), path.display())]
    LeftOpen {
        /// The process; 0 if the system cannot name it.
        process: i32,
        /// The name of its program.
        name: Option<String>,
        /// The file, by the name that it has or had.
        path: PathBuf,
    },
    /// Only a SQLite database can be put back.
    #[error("the data directory {} is not there", path.display())]
    NotPutBack {
        /// The data directory.
        path: PathBuf,
    },
    /// Its files are kept one by one, and something needs a set.
    #[error("the snapshot {name} is no set: its method is {method}")]
    NotASet {
        /// The name.
        name: String,
        /// Its method.
        method: Method,
    },
    /// This method cannot make a snapshot of this database.
    #[error("method {method}: {obstacle}")]
    Method {
        /// The method that was asked for.
        method: Method,
        /// Why it cannot.
        obstacle: Obstacle,
    },
    /// The library with the hook was not found.
    #[error("the library {name} was not found")]
    NoLibrary {
        /// Its name.
        name: &'static str,
        /// Where it was looked for.
        looked: Vec<PathBuf>,
    },
    /// The server cannot load the library with the hook.
    #[error("the server cannot load {}: {said}", library.display())]
    Library {
        /// The library.
        library: PathBuf,
        /// What the server said.
        said: String,
    },
    /// What the server loads at its start cannot be changed with ALTER SYSTEM.
    #[error("shared_preload_libraries is set by the {by} of the server")]
    PreloadFixed {
        /// The command line, or the environment.
        by: String,
    },
    /// The list is still not what it should be.
    #[error("the server still reads shared_preload_libraries from {place}")]
    PreloadElsewhere {
        /// The file and the line.
        place: String,
    },
    /// The server has loaded the library, and does not write through it.
    #[error("the server on {} has loaded the hook, and does not write through it", data.display())]
    Inactive {
        /// The data directory.
        data: PathBuf,
    },
    /// Snapshots would be lost without the hook.
    #[error("{} would be lost without the hook", many(*count))]
    Depending {
        /// How many.
        count: usize,
    },
    /// The log of each window told of something that replay would get wrong.
    #[error("make a snapshot: {cause} in each of {tries} tries")]
    Disturbed {
        /// What was found last.
        cause: Box<WindowCause>,
        /// How often it was tried.
        tries: u32,
    },
    /// A system call failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Of the pipeline or of a set.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Of an image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Of a PostgreSQL cluster.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// Of a snapshot by the hook.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// Of a SQLite database.
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
}

impl SnapshotError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Whether the caller asked for the end.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Engine(EngineError::Cancelled)
            | Self::Postgres(PostgresError::Engine(EngineError::Cancelled)) => true,
            Self::Stopped { error, .. } => error.is_cancelled(),
            _ => false,
        }
    }

    /// Whether this user may not do what was tried.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Hook(error) => error.is_denied(),
            _ => false,
        }
    }

    /// Whether the words are wrong that the caller chose, or cannot go together.
    pub fn is_usage(&self) -> bool {
        let Self::Method { obstacle, .. } = self else {
            return matches!(self, Self::Name { .. } | Self::NoName { .. });
        };
        match obstacle {
            Obstacle::OtherDatabase
            | Obstacle::NoLimits
            | Obstacle::NeedsCheckpoint
            | Obstacle::NoCheckpoint => true,
            Obstacle::NoHook { .. } | Obstacle::Unseen { .. } | Obstacle::NoClones { .. } => false,
        }
    }

    /// Whether bytes of a snapshot are not what they were.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::NewestLost { is_damaged, .. } => *is_damaged,
            Self::Stopped { error, .. } => error.is_damage(),
            Self::Engine(error) => error.is_damage(),
            Self::Image(error) => error.is_damage(),
            Self::Postgres(error) => error.is_damage(),
            Self::Hook(error) => error.is_damage(),
            Self::Sqlite(error) => matches!(error, SqliteError::Facts { .. }),
            _ => false,
        }
    }
}

/// A state that can be brought back, and is not the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Older {
    /// Its name.
    pub name: String,
    /// When it was overwritten.
    pub at: String,
    /// The database.
    pub database: PathBuf,
}

/// How a revert leaves a cluster whose server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// As it was before.
    AsBefore,
    /// As it was to become.
    Back,
    /// The revert is to be finished or undone.
    CutOff {
        /// Whether it is an undo.
        is_undo: bool,
    },
}

impl std::fmt::Display for Left {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::AsBefore => "the cluster is as it was before",
            Self::Back => "the cluster went back",
            Self::CutOff { is_undo: false } => "the revert was cut off",
            Self::CutOff { is_undo: true } => "the undo was cut off",
        })
    }
}

fn program(process: i32, name: Option<&str>) -> String {
    match (process, name) {
        // It is in a container that this process does not see into.
        (0, _) => "another process".to_owned(),
        (process, Some(name)) => format!("process {process} ({name})"),
        (process, None) => format!("process {process}"),
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

fn many(count: usize) -> String {
    match count {
        1 => "one snapshot".to_owned(),
        count => format!("{count} snapshots"),
    }
}
