//! Why a cluster cannot recover to a point.

use std::path::PathBuf;

use jiff::Timestamp;
use thiserror::Error;
use windlass_postgres::{Lsn, RecoveryPoint, Timeline};
use windlass_repository::{LostEnd, RepositoryError};

use crate::commits::CommitRun;
use crate::reach::Window;

/// Why a cluster cannot recover to a point.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// A target that only the log of a cluster has.
    #[error("the log of a SQLite database has no {target}")]
    NotOfDatabase {
        /// The target.
        target: String,
    },
    /// What a server does at the target, or on which timeline, was asked for.
    #[error("a SQLite database has no server that recovers")]
    NoServer,
    /// A database that is one file is not restored over another one.
    #[error("a SQLite database is restored as a whole, not by what differs")]
    NoDelta,
    /// The set says nothing about the database's log.
    #[error("the set does not say where it stands in the log of its database")]
    NoStanding,
    /// The log does not have the state of the set.
    #[error("the log in {} does not go on from this set", place.display())]
    NotLinked {
        /// The place.
        place: PathBuf,
        /// Whether the log ends later than the set.
        has_later: bool,
    },
    /// A device of the set is lost with its place, and the other places have no log.
    #[error(
        "beside what is left of the set is no log, and {}, where a lost device was, cannot be read",
        place.display()
    )]
    LogAway {
        /// The place that cannot be read.
        place: PathBuf,
    },
    /// The log of a SQLite database ends before the point.
    #[error("{target} is not in the log, which has every transaction up to {end}{}{}", lost_words(*is_last), gone_words(lost.as_deref()))]
    NotCaptured {
        /// The point.
        target: String,
        /// The timeline.
        timeline: Timeline,
        /// Where it ends.
        end: Timestamp,
        /// Whether nothing follows, on this timeline or another.
        is_last: bool,
        /// What is gone behind it, although it was durable.
        lost: Option<Box<LostEnd>>,
    },
    /// The log changed during the restore.
    #[error("the log in {} no longer has the transactions that it had", place.display())]
    LogShrank {
        /// The place.
        place: PathBuf,
    },
    /// A replication slot for a database without a server.
    #[error("{} is a SQLite database, which has no replication slots", path.display())]
    NoSlot {
        /// The database.
        path: PathBuf,
    },
    /// The point lies before the end of the backup.
    #[error("{target} lies before the end of the backup, {end}")]
    BeforeSet {
        /// The point.
        target: String,
        /// The end of the backup.
        end: String,
    },
    /// The point lies in the log that the set needs itself.
    #[error(
        "{target} lies at {at}, within the backup of the set ({from} to {to}): a server that \
         stopped there would not be consistent"
    )]
    WithinBackup {
        /// The point.
        target: String,
        /// Where it is.
        at: Lsn,
        /// Where the log of the backup begins.
        from: Lsn,
        /// Where it ends.
        to: Lsn,
    },
    /// The log of the place was written by another server than the log in the set.
    #[error(
        "the log of the place is not that of the set: from {from} on, another server of this \
         cluster wrote it"
    )]
    OtherLog {
        /// Where both have log.
        from: Lsn,
    },
    /// The server logged too little for a recovery.
    #[error("the server ran with wal_level = minimal from {at} on, and no recovery gets past that")]
    Minimal {
        /// Where.
        at: Lsn,
    },
    /// A record of the log is damaged, and the log goes on behind it.
    #[error("the log cannot be replayed beyond {at}, although it goes on to {end}")]
    Broken {
        /// Where its records end.
        at: Lsn,
        /// Where the log ends.
        end: Lsn,
    },
    /// The log ends before the point.
    #[error("{target} is not in the log, which ends at {end}{}", last_words(last.as_ref()))]
    NotInLog {
        /// The point.
        target: String,
        /// Where the log ends.
        end: Lsn,
        /// When the last transaction in it ended.
        last: Option<Timestamp>,
        /// What is missing there, if the log goes on later.
        gap: Option<Box<RepositoryError>>,
    },
    /// A server was to be shut down, and there is none.
    #[error("a SQLite database has no server that ends")]
    NotACluster,
    /// Only the end of a set was asked for.
    #[error("the end of a set is no moment in its log")]
    NoMoment,
    /// A server got to the point, and something that it read of the set was damaged.
    #[error("set {set} is damaged, so what recovered from it cannot be trusted")]
    Damaged {
        /// The set.
        set: String,
    },
    /// No set of the places gets to the point.
    #[error("{error}{}", window_words(windows))]
    NoSet {
        /// Why the newest set does not.
        error: Box<RecoveryError>,
        /// What can be restored.
        windows: Vec<WindowShown>,
    },
}

/// A window that can be restored, as a message shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowShown {
    /// The timeline.
    pub timeline: Timeline,
    /// When its first set ended, as the set says it.
    pub start_time: String,
    /// When its last transaction ended; none if there is no log behind its last set.
    pub last: Option<Timestamp>,
    /// Where it ends, in the log of a cluster.
    pub end: Option<Lsn>,
}

impl WindowShown {
    pub(super) fn new(timeline: Timeline, window: &Window) -> Self {
        let first = window.sets.first();
        Self {
            timeline,
            start_time: first.map_or_else(String::new, |set| set.stop_time.clone()),
            last: window.last,
            end: Some(window.end),
        }
    }

    /// That of a SQLite database, if a set leads into it.
    pub(super) fn of_database(timeline: Timeline, run: &CommitRun) -> Option<Self> {
        let moment = |nanos: i64| Timestamp::from_nanosecond(nanos.into()).ok();
        Some(Self {
            timeline,
            start_time: moment(run.first_nanos?)?.to_string(),
            last: moment(run.end_nanos),
            end: None,
        })
    }
}

fn window_words(windows: &[WindowShown]) -> String {
    let words = windows.iter().map(|window| {
        let WindowShown {
            timeline,
            start_time,
            last,
            end,
        } = window;
        let to = last.map_or_else(String::new, |last| format!(" to {last}"));
        let end = end.map_or_else(String::new, |end| format!(" ({end})"));
        format!("{start_time}{to}{end} on timeline {timeline}")
    });
    match words.collect::<Vec<_>>().as_slice() {
        [] => String::new(),
        words => format!("; what can be restored: {}", words.join(", ")),
    }
}

fn gone_words(lost: Option<&LostEnd>) -> String {
    lost.map_or_else(String::new, |lost| format!("; {lost}"))
}

fn lost_words(is_last: bool) -> &'static str {
    match is_last {
        true => "",
        false => "; what follows may lack transactions",
    }
}

fn last_words(last: Option<&Timestamp>) -> String {
    last.map_or_else(String::new, |last| format!(" (last transaction: {last})"))
}

impl RecoveryError {
    /// Whether damage of the archived log causes it.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::NotInLog { gap: Some(gap), .. } => gap.is_damage(),
            Self::NotCaptured { lost, .. } => lost.is_some(),
            Self::NoSet { error, .. } => error.is_damage(),
            _ => false,
        }
    }

    /// Whether an older set may reach the point. The newest state that there is, is never that of
    /// an older set: if the log does not go on from the newest set, that is said.
    pub(super) fn is_of_this_set(&self, point: &RecoveryPoint) -> bool {
        match self {
            Self::NotLinked { .. } | Self::NoStanding => *point != RecoveryPoint::Latest,
            Self::BeforeSet { .. }
            | Self::WithinBackup { .. }
            | Self::NotInLog { .. }
            | Self::OtherLog { .. }
            | Self::NotCaptured { .. } => true,
            _ => false,
        }
    }
}
