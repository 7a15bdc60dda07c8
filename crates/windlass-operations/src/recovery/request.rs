//! How far a restored database goes on, as a user asks for it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_postgres::{Lsn, RecoveryAction, RecoveryPoint, RecoveryTimeline};

/// Up to where a restored database recovers.
#[derive(Clone, Debug)]
pub struct RecoveryRequest {
    /// The point.
    pub point: RecoveryPoint,
    /// Whether what lies exactly at the point is still recovered.
    pub inclusive: bool,
    /// On which timeline.
    pub timeline: RecoveryTimeline,
    /// What the server does then.
    pub action: RecoveryAction,
    /// Whether a set without log in its place is refused. If not, it is restored up to its own end,
    /// and so is a set that was chosen, unless a point behind it was asked for.
    pub needs_log: bool,
    /// The place of the log; without it that of the set.
    pub log: Option<PathBuf>,
    /// The command that fetches log for the server, for a place and a cluster: in the form of
    /// restore_command. It is told whether the log is encrypted, so that it needs keys, and from
    /// where on log is lost that was durable.
    pub fetch: fn(&Path, (u64, bool), Option<Lsn>) -> String,
}

impl RecoveryRequest {
    /// The moment, if the point is one.
    pub(super) fn limit(&self) -> Option<Timestamp> {
        match self.point {
            RecoveryPoint::Time(time) => Some(time),
            _ => None,
        }
    }
}
