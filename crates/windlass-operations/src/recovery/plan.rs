//! How a restored cluster goes on from its set, as a value that can be shown before it begins.

use std::path::PathBuf;

use windlass_postgres::{Lsn, Recovery, Timeline};

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
    /// The timeline at the end.
    pub timeline: Timeline,
}
