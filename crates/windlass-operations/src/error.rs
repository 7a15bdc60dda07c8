//! Why an operation failed. Fields and causes only: what to type next is said by whoever shows it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::EngineError;
use windlass_image::ImageError;
use windlass_lab::LabError;
use windlass_model::ModelError;
use windlass_mount::MountError;
use windlass_postgres::{PostgresError, user_shown};
use windlass_sqlite::SqliteError;

use crate::ending::Ending;
use crate::extract::ExtractError;
use crate::hooks::HookError;
use crate::places::{Advice, PlaceError};
use crate::plan::PlanError;

/// Why an operation failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OperationError {
    /// Of the pipeline or a set.
    #[error(transparent)]
    Engine(EngineError),
    /// Of an image.
    #[error("{}", chain(.0.to_string(), .0))]
    Image(ImageError),
    /// Of the laboratory.
    #[error("{}", chain(.0.to_string(), .0))]
    Lab(LabError),
    /// Of a storage model.
    #[error(transparent)]
    Model(ModelError),
    /// Of a PostgreSQL cluster.
    #[error("{}", chain(.0.to_string(), .0))]
    Postgres(PostgresError),
    /// Of a SQLite database.
    #[error("{}", chain(.0.to_string(), .0))]
    Sqlite(SqliteError),
    /// What was named as a database is none.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// What was named as a device is none.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A directory, or a user to become.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A hook failed, so that the run was not begun.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// Not a way to compress.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// Metrics cannot be served at this address, because it is none.
    #[error("{address:?} is no address")]
    MetricsAddress {
        /// What was asked for.
        address: String,
    },
    /// Of a mount.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A scratch directory cannot be made.
    #[error("cannot make a scratch directory in {}: {source}", path.display())]
    Scratch {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The scratch directory has no more room.
    #[error("the scratch directory {} is full: {error}", path.display())]
    ScratchFull {
        /// The directory.
        path: PathBuf,
        /// What failed for lack of room.
        error: Box<OperationError>,
    },
    /// A server cannot run as this user.
    #[error("a server cannot run as user {user:?}")]
    NoServerUser {
        /// The user.
        user: String,
    },
    /// Damage of the set causes it.
    #[error(transparent)]
    OfDamage(Box<OperationError>),
    /// A directory into which a cluster is restored cannot be used.
    #[error("{0}")]
    OfTarget(Box<OperationError>),
    /// A restore of a cluster was begun and not ended.
    #[error("{error}")]
    CutOff {
        /// Why.
        error: Box<OperationError>,
        /// Where something is left.
        places: Vec<PathBuf>,
        /// Whether everything is there, and only the last sync failed.
        is_complete: bool,
    },
    /// A restore of a database failed, and what it wrote cannot be removed.
    #[error("{error}")]
    StagingLeft {
        /// Why it failed.
        error: Box<OperationError>,
        /// The directory that it wrote.
        staging: PathBuf,
    },
    /// The database in a set is damaged, and every byte of the set is right.
    #[error("{0}")]
    OfSource(Box<OperationError>),
    /// One file of events for several runs.
    #[error("a file of events records one run, and each set of a directory has its own")]
    EventsOfSeveral,
    /// A plan or a probe cannot be made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A relation cannot be extracted.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// Images that cannot be compared.
    #[error("{} and {} are of different kinds of database", one.display(), other.display())]
    DifferentKinds {
        /// One.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// An overlay that its own mount would hide.
    #[error("the overlay {} would disappear below the mount on {}", overlay.display(), mount.display())]
    OverlayBelow {
        /// The overlay.
        overlay: PathBuf,
        /// Where the set is mounted.
        mount: PathBuf,
    },
    /// The owner of the source is no user of this machine.
    #[error("the cluster belonged to user {user:?}, who is not known here")]
    UnknownOwner {
        /// The owner.
        user: String,
    },
    /// A data directory cannot be read.
    #[error("read {}: {source}", path.display())]
    DataDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Words for sets mean no set.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Damage of a set causes it, and it is known which other sets there are.
    #[error("{error}")]
    OfSet {
        /// What failed.
        error: Box<OperationError>,
        /// Which set to use instead.
        advice: Box<Advice>,
    },
    /// The set is of a kind of database that this version does not know.
    #[error("the set is of a database of kind {kind:?}")]
    UnknownKind {
        /// What the set says.
        kind: String,
    },
}

/// What was named as a database is none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// Nothing has this path.
    #[error("the file {text} does not exist")]
    Missing {
        /// What was named.
        text: String,
    },
    /// The configuration names it, and it is not there.
    #[error("the file {text} does not exist")]
    Vanished {
        /// What was named.
        text: String,
        /// What the configuration calls the database.
        name: String,
    },
    /// Nothing is named.
    #[error("the name of the database is empty")]
    Empty,
    /// Neither a path nor a connection string.
    #[error("{text} is no file, no connection string and no configured database")]
    Unknown {
        /// What was named.
        text: String,
    },
    /// A data directory alone cannot be copied consistently.
    #[error("{} is a PostgreSQL data directory", path.display())]
    DataDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// A directory.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A device, a pipe or a socket.
    #[error("{} is a device or a pipe, not a file", path.display())]
    Special {
        /// Its path.
        path: PathBuf,
    },
    /// A file of another kind.
    #[error("{} is not a SQLite database", path.display())]
    NotSqlite {
        /// The file.
        path: PathBuf,
    },
    /// The files of the database cannot be found.
    #[error("{}: {source}", path.display())]
    Files {
        /// The database.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What was named as a device is none, or is named twice.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A bucket.
    #[error("{text}: object stores are not supported yet")]
    ObjectStore {
        /// What was named.
        text: String,
    },
    /// No path.
    #[error("{text:?}: {source}")]
    NoPath {
        /// What was named.
        text: String,
        /// Why.
        source: io::Error,
    },
    /// The directory that should hold it does not exist.
    #[error("there is no directory {}", parent.display())]
    NoParent {
        /// That directory.
        parent: PathBuf,
    },
    /// Something else has the name.
    #[error("{} is neither a file nor a directory", path.display())]
    Special {
        /// Its path.
        path: PathBuf,
    },
    /// A directory in which no file can be made or renamed.
    #[error("{} is {word} (chattr +{letter}): no stripe can get its name there", directory.display())]
    Attribute {
        /// The directory.
        directory: PathBuf,
        /// `append-only` or `immutable`.
        word: &'static str,
        /// The letter of chattr(1) for that.
        letter: char,
    },
    /// `nul` beside others.
    #[error("nul keeps nothing, and the other devices would hold a part of the set only")]
    Mixed,
    /// One file for two stripes.
    #[error("{} is named twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
    },
    /// Two names of one file.
    #[error("{} and {} are the same file", one.display(), other.display())]
    Same {
        /// One name.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// One stripe has the name that another one has until the set is sealed.
    #[error("{} is the file that {} is until its set is sealed", named.display(), partial.display())]
    Partial {
        /// The stripe with that name.
        named: PathBuf,
        /// The other stripe.
        partial: PathBuf,
    },
}

/// A directory cannot be made or given away, or a user cannot be become.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// Root cannot become this user.
    #[error("cannot become {}{}: {source}", user_shown(*uid), if *for_good { "" } else { " for a while" })]
    Become {
        /// The user.
        uid: u32,
        /// Whether for the rest of the process.
        for_good: bool,
        /// Why.
        source: nix::Error,
    },
    /// Other operations use the process, which is root's, so this one cannot become this user.
    #[error("cannot become {}: other operations run in this process", user_shown(*uid))]
    Shared {
        /// The user.
        uid: u32,
    },
    /// A directory cannot be given to its user.
    #[error("cannot give {} to {}: {source}", path.display(), user_shown(*uid))]
    Give {
        /// The directory.
        path: PathBuf,
        /// The user.
        uid: u32,
        /// Why.
        source: io::Error,
    },
    /// A directory cannot be made.
    #[error("cannot make the directory {}: {source}", path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// The user who tried.
        uid: u32,
        /// Why.
        source: io::Error,
    },
}

/// Not a way to compress.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CompressionError {
    /// No codec.
    #[error("{text:?} is no codec")]
    Codec {
        /// What was asked for.
        text: String,
    },
    /// No range of codecs.
    #[error("{text:?} is no range of codecs")]
    Range {
        /// What was asked for.
        text: String,
    },
}

impl OperationError {
    /// How an operation ends that fails like this.
    pub fn ending(&self) -> Ending {
        match self {
            Self::Engine(EngineError::Cancelled) => Ending::Interrupted,
            Self::Engine(EngineError::Setting { .. } | EngineError::MemoryLimit { .. })
            | Self::Model(_)
            | Self::Lab(LabError::Setting { .. } | LabError::TrialDevices { .. })
            | Self::Compression(_)
            | Self::MetricsAddress { .. }
            | Self::EventsOfSeveral
            | Self::Plan(_)
            | Self::DifferentKinds { .. }
            | Self::OverlayBelow { .. } => Ending::Usage,
            Self::Engine(error) if error.is_damage() => Ending::Damage,
            Self::Image(error) if error.is_damage() => Ending::Damage,
            // The words are wrong, whatever exists.
            Self::Postgres(
                PostgresError::Conninfo { .. }
                | PostgresError::Service { .. }
                | PostgresError::Label { .. },
            )
            | Self::Sqlite(SqliteError::TargetName { .. }) => Ending::Usage,
            Self::Postgres(error) if error.is_damage() => Ending::Damage,
            Self::Sqlite(SqliteError::Facts { .. }) => Ending::Damage,
            Self::Database(error) => error.ending(),
            Self::Device(DeviceError::NoParent { .. } | DeviceError::Attribute { .. }) => {
                Ending::Failed
            }
            Self::Device(_) => Ending::Usage,
            Self::OfDamage(_) => Ending::Damage,
            Self::OfSet { error, .. }
            | Self::OfTarget(error)
            | Self::OfSource(error)
            | Self::CutOff { error, .. }
            | Self::StagingLeft { error, .. } => error.ending(),
            Self::Place(error) => error.ending(),
            Self::Extract(error) => error.ending(),
            Self::Hook(error) => error.ending(),
            _ => Ending::Failed,
        }
    }

    /// Whether damage of a set causes it.
    pub fn is_damage(&self) -> bool {
        self.ending() == Ending::Damage
    }
}

impl DatabaseError {
    fn ending(&self) -> Ending {
        match self {
            Self::Missing { .. } | Self::Vanished { .. } | Self::NotSqlite { .. } => Ending::Failed,
            _ => Ending::Usage,
        }
    }
}

impl From<EngineError> for OperationError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<ModelError> for OperationError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<ImageError> for OperationError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Engine(error) => error.into(),
            error => Self::Image(error),
        }
    }
}

impl From<LabError> for OperationError {
    fn from(error: LabError) -> Self {
        match error {
            LabError::Engine(error) => error.into(),
            LabError::Model(error) => error.into(),
            error => Self::Lab(error),
        }
    }
}

impl From<PostgresError> for OperationError {
    fn from(error: PostgresError) -> Self {
        match error {
            PostgresError::Engine(error) => error.into(),
            error => Self::Postgres(error),
        }
    }
}

impl From<SqliteError> for OperationError {
    fn from(error: SqliteError) -> Self {
        match error {
            SqliteError::Engine(error) => error.into(),
            error => Self::Sqlite(error),
        }
    }
}

/// The message of an error, followed by those of its causes; each is named once.
pub fn chain(message: String, error: &dyn std::error::Error) -> String {
    let mut text = message;
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}
