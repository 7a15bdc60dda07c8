//! How a restored database goes on from its set, as a value that can be shown before it begins.

use std::path::PathBuf;

use jiff::Timestamp;
use windlass_postgres::{Lsn, Recovery, RecoveryPoint, Timeline};
use windlass_repository::{Linked, LogPlace, LostEnd};

/// How a restored database goes on.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Its server fetches the log.
    Cluster(RecoveryPlan),
    /// The restore puts the log over the file.
    File(Box<FilePlan>),
}

impl Plan {
    /// That of a cluster.
    pub fn of_cluster(&self) -> Option<&RecoveryPlan> {
        match self {
            Self::Cluster(plan) => Some(plan),
            Self::File(_) => None,
        }
    }
}

/// A recovery that will get to its point.
#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    /// How the server recovers.
    pub recovery: Recovery,
    /// Where its log is.
    pub place: PathBuf,
    /// Where the set ends.
    pub from: Lsn,
    /// How far the log goes.
    pub to: Lsn,
    /// The record at which the server stops; none if only the server can tell.
    pub stops: Option<Lsn>,
    /// The timeline at the end.
    pub timeline: Timeline,
    /// What the user may not expect at the point.
    pub remarks: Vec<PointRemark>,
}

/// A way to a moment that exists.
#[derive(Clone, Debug)]
pub struct FilePlan {
    /// The moment.
    pub point: RecoveryPoint,
    /// Where the log is.
    pub place: PathBuf,
    /// Where the set stands in it.
    pub from: Linked,
    /// The last transaction.
    pub to: u64,
    /// It was not there at the first of these moments, and there at the second.
    pub moment: (Timestamp, Timestamp),
    /// What the latest state lacks, because the log has lost its end.
    pub lost: Option<LostEnd>,
    pub(super) log: LogPlace,
}

/// What a user may not expect of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PointRemark {
    /// The log has lost its end, which was durable: the latest state is the one before.
    LostEnd(LostEnd),
    /// The transaction was rolled back.
    RolledBack,
    /// More restore points have the name, and a server stops at the first.
    Repeated {
        /// How many come later.
        count: u32,
        /// When the last of them was made.
        last: Timestamp,
    },
    /// At that moment, no transaction had ended on the timeline yet.
    StateOfFork {
        /// The timeline from which it came.
        from: Timeline,
        /// Where it left it.
        at: Lsn,
        /// When the last transaction before ended.
        last: Option<Timestamp>,
        /// The last transaction up to the moment that the older timeline has behind it.
        lost: Option<Timestamp>,
    },
}
