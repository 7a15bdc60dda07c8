//! How a restored database goes on from its set, as a value that can be shown before it begins.

use std::path::PathBuf;

use windlass_postgres::{Lsn, Recovery, Timeline};

use super::file::FilePlan;

/// How a restored database goes on.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Its server fetches the log.
    Cluster(RecoveryPlan),
    /// The restore puts the log over the file.
    File(FilePlan),
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
}
