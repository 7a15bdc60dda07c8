//! What an operation tells while it runs. These are values; the words are up to whoever shows them.

use std::any::Any;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::SetId;
use windlass_engine::{BufferPlan, CleanedUp, EngineError, Mends, Progress, SetEntry};
use windlass_image::ImageError;
use windlass_lab::{LabError, Point, Prediction, Trial};
use windlass_object::Spent;
use windlass_postgres::{Lsn, NameFault, PostgresError, Timeline};
use windlass_repository::{CatalogError, LostEnd};
use windlass_snapshot::Settled;
use windlass_sqlite::SqliteError;

use crate::checks::Check;
use crate::ended::RunEnd;
use crate::error::OperationError;
use crate::experimenting::ExperimentStep;
use crate::hooks::HookError;
use crate::metrics::{ForeignFile, MetricsAddress};
use crate::places::{How, TimeFault};
use crate::recovery::{FilePlan, RecoveryPlan};
use crate::sweeping::SweepStep;
use crate::verify::VerifyStep;

/// The memory that a run needs besides its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoreMemory {
    /// About how many bytes the compressors need, to take pages apart.
    pub pages_bytes: u64,
    /// How many bytes the parity needs.
    pub parity_bytes: u64,
    /// How many bytes mirrors in buckets need, when the set is complete.
    pub mirror_bytes: u64,
}

/// What happened beside the result of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A directory was made for stripes. A mistyped name must not stay unseen.
    MadeDirectory {
        /// The directory.
        path: &'a Path,
        /// Whether it was expected to exist: a disk may not be mounted.
        is_expected: bool,
    },
    /// No hook runs, because nothing is kept: this is no backup.
    NoHooks,
    /// What an interrupted run left was dealt with.
    CleanedUp(&'a CleanedUp),
    /// What a killed process left of a snapshot was removed.
    SnapshotRemoved(&'a Path),
    /// A database is not there, and its snapshots are.
    DatabaseGone(&'a Path),
    /// A revert or an undo of a cluster was cut off. It is finished or undone now.
    RevertSettled {
        /// What became of it.
        settled: Settled,
        /// The data directory.
        data: &'a Path,
        /// The command that starts the server, if it does not run.
        start: Option<&'a str>,
    },
    /// The run is about to start with these buffers and threads.
    Settings {
        /// Buffers and threads.
        plan: &'a BufferPlan,
        /// The codec; none if the run reads a set.
        codec: Option<&'a str>,
        /// What it needs besides the buffers.
        more: MoreMemory,
    },
    /// Devices of a set are lost, or parts of them are damaged, and parity makes up for that.
    Mended(&'a Mends),
    /// A device of a set is written anew.
    WritesAnew {
        /// Where it is, or was.
        path: &'a Path,
        /// What is wrong with it.
        fault: &'a str,
    },
    /// Which set was chosen among several.
    SetChosen {
        /// The set.
        set: &'a SetEntry,
        /// How it was chosen.
        how: &'a How,
    },
    /// The restored cluster will recover like this. Nothing is written yet.
    Recovers(&'a RecoveryPlan),
    /// The log of a SQLite database will be put over the restored file like this. Nothing is
    /// written yet.
    Replays(&'a FilePlan),
    /// The set builds on these, the newest first. They are read, too.
    BuildsOn(&'a [SetId]),
    /// The restore ends with the set, because the place has no log that goes on from it. Nothing
    /// is written yet.
    EndsWithSet(&'a OperationError),
    /// The transactions of a SQLite database are captured from here on.
    Captures {
        /// The database.
        database: &'a Path,
        /// The timeline.
        timeline: Timeline,
        /// Whether nothing is missing since the log that was there.
        goes_on: bool,
        /// Whether there was no log.
        is_first: bool,
    },
    /// A capture has ended: what came before may be lost. Another one begins.
    CaptureBroken(&'a SqliteError),
    /// A transaction is too long for the place. A timeline begins behind it.
    PassedOver {
        /// The database.
        database: &'a Path,
        /// The timeline.
        timeline: Timeline,
        /// Bytes of its pages.
        bytes: u64,
    },
    /// A capture ends because of an error. What the place lacks is in the database's own log.
    NotKept {
        /// That log.
        log: &'a Path,
        /// How many bytes it has.
        bytes: u64,
    },
    /// Log that was durable is gone from the end of a growing object. The source is asked for it.
    LogLost(&'a LostEnd),
    /// The server has removed log that was to be received: what lies between is missing.
    LogGap {
        /// Up to where the place has it: the timeline and the position.
        from: (Timeline, Lsn),
        /// From where on it is received.
        to: (Timeline, Lsn),
    },
    /// A replication slot kept no log any more, and was made anew.
    SlotRenewed(&'a str),
    /// Log is received from here on.
    Receives {
        /// The cluster.
        system: u64,
        /// The timeline.
        timeline: Timeline,
        /// The position.
        from: Lsn,
    },
    /// The session in which log was received has ended. Another one is opened.
    ReceiveBroken(&'a PostgresError),
    /// The note of a receiver in a bucket was gone. It looks whether another one has the place.
    NoteGone(&'a OperationError),
    /// The set that was chosen as the newest says that it was begun in the future.
    SetOfFuture {
        /// The set.
        set: &'a SetEntry,
        /// The newest set that was not begun in the future.
        before: Option<&'a SetEntry>,
    },
    /// The time of a set cannot be right, and by the times another set would have been taken.
    WrongTime {
        /// The set.
        set: &'a SetEntry,
        /// The set that proves it.
        other: &'a SetEntry,
        /// How it does.
        fault: TimeFault,
    },
    /// Newer files of other users, which this user may not read, were passed over.
    FilesOfOthers {
        /// How many.
        count: u64,
        /// The first.
        first: &'a Path,
    },
    /// Codecs are measured on a sample of a database.
    MeasuresCodecs,
    /// Storage is measured.
    Probing {
        /// Where.
        directory: &'a Path,
        /// Bytes of the scratch file.
        scratch_bytes: u64,
        /// How long.
        budget: Duration,
    },
    /// A bucket is measured.
    ProbingBucket {
        /// Where.
        place: &'a Path,
        /// The most that is spent.
        bound: Spent,
        /// How long.
        budget: Duration,
    },
    /// A point of the storage was measured.
    Probed {
        /// Which one, from 1.
        index: usize,
        /// Of how many.
        count: usize,
        /// What was measured.
        point: &'a Point,
    },
    /// A setting was tried.
    Tried(&'a Trial),
    /// A set-up is rehearsed.
    Rehearsing {
        /// Which one, from 1.
        number: usize,
        /// Of how many.
        count: usize,
        /// Its name.
        setup: &'a str,
    },
    /// A sweep went on.
    Sweeping(SweepStep<'a>),
    /// Of an experiment with snapshots.
    Experimenting(ExperimentStep<'a>),
    /// A check was made before a run.
    Checked(&'a Check),
    /// Nobody can commit to this database until the operation ends.
    HoldsWriters(&'a Path),
    /// Names of relations cannot be read.
    UnreadNames(&'a NameFault),
    /// A mount is in use. It ends when the last file of it is closed.
    MountInUse(&'a Path),
    /// A verification went on.
    Verifying(VerifyStep<'a>),
    /// A restore that was cut off left this. The new one removes it.
    RemovesLeft(&'a Path),
    /// An earlier restore left this complete database. The new one keeps it until its own is
    /// complete.
    KeepsLeft(&'a Path),
    /// The log of the caller lies where no output may be. The operation fails.
    LogRefused,
    /// The run has come to another phase.
    Phase(&'a str),
    /// What limited a finished run.
    Verdict(&'a str),
    /// A run has ended. Each run tells this once, when nothing of it is left to do.
    RunEnded(&'a RunEnd),
    /// Metrics are served here.
    Metrics(SocketAddr),
    /// A mount found damage of its set, or could not do what it was asked for.
    OfMount(&'a ImageError),
    /// A scratch directory could not be removed. If it was of an opened set, the next one tries
    /// again.
    ScratchLeft {
        /// The directory.
        path: &'a Path,
        /// Why.
        error: &'a std::io::Error,
    },
    /// A scratch directory that a killed process left could not be removed.
    ScratchStays {
        /// The directory.
        path: &'a Path,
        /// Why.
        error: &'a std::io::Error,
    },
    /// No history is kept, because this user has no place for it.
    NoHistory(&'a CatalogError),
    /// The run is not in the history.
    HistoryUnwritten(&'a CatalogError),
    /// The history was damaged. It was moved aside, and a new one is there.
    HistoryDamaged {
        /// Where the damaged file is.
        aside: &'a Path,
    },
    /// A hook begins.
    Hook {
        /// Which one.
        event: &'static str,
        /// The program and its arguments.
        words: &'a [String],
    },
    /// A hook failed after the run. It does not change the result.
    HookFailed(&'a HookError),
    /// How long the run will take, as the plan says.
    WillTake(&'a Prediction),
    /// The prediction of the run is not kept.
    NoPrediction(&'a LabError),
    /// The speeds of the machine's cores are guessed, because the profile cannot be read.
    GuessedSpeeds(&'a LabError),
    /// Some events were lost, because the file could not be written fast enough.
    LostEvents(u64),
    /// The file of events is not complete.
    EventsFailed(&'a EngineError),
    /// The file of events cannot be created.
    EventsUnwritten {
        /// The file.
        path: &'a Path,
        /// Why.
        error: &'a EngineError,
    },
    /// Metrics are not served.
    MetricsUnserved {
        /// The address.
        address: &'a MetricsAddress,
        /// Why.
        error: &'a std::io::Error,
    },
    /// The file of metrics is not written.
    MetricsUnwritten {
        /// The file.
        path: &'a Path,
        /// Why.
        error: &'a EngineError,
        /// The owner's file in its place, if this user may not replace it.
        foreign: Option<ForeignFile>,
        /// Whether the end of the run tries again, and decides.
        is_early: bool,
    },
    /// The file of metrics, of which an early notice told, is still not written after the run.
    MetricsStillUnwritten,
    /// The run failed before it was watched, and its metrics cannot be written.
    MetricsOfFailure(&'a EngineError),
}

/// Learns what an operation does. All calls come from the thread of the operation, unless a method
/// says otherwise.
pub trait Observer: Send + Sync {
    /// Something happened. It is called from other threads, too.
    fn notice(&self, notice: &Notice<'_>);

    /// A run begins to move bytes. What is returned is dropped when that ends.
    fn watch(&self, progress: &Arc<Progress>) -> Option<Box<dyn Any>> {
        let _ = progress;
        None
    }

    /// Whether something went wrong that must not pass unseen, beside the purpose of the operation:
    /// metrics that cannot be written, for example. Then a run that is done ends with warnings.
    fn is_degraded(&self) -> bool {
        false
    }
}

/// An observer that looks away.
#[derive(Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn notice(&self, _notice: &Notice<'_>) {}
}
