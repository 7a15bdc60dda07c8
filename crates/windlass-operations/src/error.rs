//! Why an operation failed. Fields and causes only: what to type next is said by whoever shows it.

mod named;
mod wrap;

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::EngineError;
use windlass_image::ImageError;
use windlass_keys::KeyError;
use windlass_lab::LabError;
use windlass_model::ModelError;
use windlass_mount::MountError;
use windlass_postgres::{PostgresError, user_shown};
use windlass_repository::RepositoryError;
use windlass_snapshot::SnapshotError;
use windlass_sqlite::SqliteError;

pub use named::{CompressionError, DatabaseError, DeviceError};

use crate::drill::DrillError;
use crate::ending::Ending;
use crate::experimenting::ExperimentError;
use crate::expire::ExpireError;
use crate::extract::ExtractError;
use crate::history::HistoryError;
use crate::hooks::HookError;
use crate::kept::KeptError;
use crate::places::{Advice, PlaceError};
use crate::plan::PlanError;
use crate::recovery::RecoveryError;
use crate::rehearsing::RehearseError;
use crate::repair::RepairError;
use crate::schedule::ScheduleError;
use crate::sweeping::SweepError;

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
    /// A key, or somebody who was to read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file of envelopes cannot be written.
    #[error("write {}: {source}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no encrypted set.
    #[error("no set in {place} is encrypted")]
    NotEncrypted {
        /// Where.
        place: String,
    },
    /// Of a snapshot.
    #[error("{}", chain(.0.to_string(), .0))]
    Snapshot(SnapshotError),
    /// Of an archived log.
    #[error("{}", chain(.0.to_string(), .0))]
    Repository(RepositoryError),
    /// A drill proved nothing.
    #[error(transparent)]
    Drill(#[from] DrillError),
    /// Of the history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A cluster cannot recover to a point.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
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
    /// A cluster cannot be repaired.
    #[error(transparent)]
    Repair(#[from] RepairError),
    /// Nothing can be removed.
    #[error(transparent)]
    Expire(#[from] ExpireError),
    /// A schedule cannot be installed.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A database cannot be kept open, or closed.
    #[error(transparent)]
    Kept(#[from] KeptError),
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
        /// Whether the same restore can go on there.
        is_over: bool,
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
    /// A sweep cannot be made.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// An experiment with snapshots cannot be made.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// Nothing can be rehearsed.
    #[error(transparent)]
    Rehearse(#[from] RehearseError),
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
    /// A backup was to build on an earlier set, and cannot.
    #[error("there is nothing to build on: {reason}")]
    NoBase {
        /// Why.
        reason: String,
    },
    /// The set that was named cannot be the base of the backup.
    #[error("the backup cannot build on set {set}: {reason}")]
    BaseUnfit {
        /// The set.
        set: String,
        /// Why.
        reason: String,
    },
    /// The set is of a kind of database that this version does not know.
    #[error("the set is of a database of kind {kind:?}")]
    UnknownKind {
        /// What the set says.
        kind: String,
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

impl OperationError {
    /// How an operation ends that fails like this.
    pub fn ending(&self) -> Ending {
        match self {
            Self::Engine(EngineError::Cancelled) => Ending::Interrupted,
            Self::Engine(
                EngineError::Setting { .. }
                | EngineError::MemoryLimit { .. }
                | EngineError::PagesMemory { .. }
                | EngineError::ParityMemory { .. },
            )
            | Self::Model(_)
            | Self::Lab(LabError::Setting { .. })
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
            | Self::Sqlite(SqliteError::TargetName { .. } | SqliteError::NoLog { .. }) => {
                Ending::Usage
            }
            Self::Postgres(error) if error.is_damage() => Ending::Damage,
            Self::Kept(KeptError::Name { .. }) => Ending::Usage,
            Self::Snapshot(error) if error.is_usage() => Ending::Usage,
            Self::Snapshot(error) if error.is_damage() => Ending::Damage,
            Self::Snapshot(error) if error.is_cancelled() => Ending::Interrupted,
            Self::Recovery(
                RecoveryError::NotACluster
                | RecoveryError::NoMoment
                | RecoveryError::NotOfDatabase { .. }
                | RecoveryError::NoServer
                | RecoveryError::NoSlot { .. },
            )
            | Self::Repository(RepositoryError::Name { .. }) => Ending::Usage,
            Self::Repository(error) if error.is_damage() => Ending::Damage,
            Self::Recovery(error) if error.is_damage() => Ending::Damage,
            Self::OfDamage(_) | Self::Sqlite(SqliteError::Facts { .. }) => Ending::Damage,
            Self::OfSet { error, .. }
            | Self::OfTarget(error)
            | Self::OfSource(error)
            | Self::CutOff { error, .. }
            | Self::StagingLeft { error, .. } => error.ending(),
            Self::Key(error) if error.is_usage() => Ending::Usage,
            other => other.ending_of_own(),
        }
    }

    /// How an operation ends whose error says that itself.
    fn ending_of_own(&self) -> Ending {
        match self {
            Self::Database(error) => error.ending(),
            Self::Device(error) => error.ending(),
            Self::Expire(error) => error.ending(),
            Self::Extract(error) => error.ending(),
            Self::Experiment(error) => error.ending(),
            Self::Hook(error) => error.ending(),
            Self::Place(error) => error.ending(),
            Self::Rehearse(error) => error.ending(),
            Self::Schedule(error) => error.ending(),
            Self::Sweep(error) => error.ending(),
            _ => Ending::Failed,
        }
    }

    /// Whether damage of a set causes it.
    pub fn is_damage(&self) -> bool {
        self.ending() == Ending::Damage
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
