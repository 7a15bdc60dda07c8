//! Why an experiment with snapshots cannot be made.

use thiserror::Error;

use crate::ending::Ending;

/// Why an experiment cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The database is no server.
    #[error("experiments with snapshots need a PostgreSQL server, to make a cluster like it")]
    NotAServer,
    /// After a revert, the data are not those of the snapshot.
    #[error("after the revert the data are not those of the snapshot: {found} and not {expected}")]
    NotReverted {
        /// The sum that the table has now.
        found: i64,
        /// The sum that it had.
        expected: i64,
    },
    /// An opened snapshot did not say where it is.
    #[error("the snapshot was opened, and {said:?} does not say where")]
    NotOpened {
        /// What was said.
        said: String,
    },
    /// A snapshot that was made is not listed, or has no size.
    #[error("the snapshot {name} that was just made has no size in the list")]
    NoSize {
        /// Its name.
        name: String,
    },
    /// The database counts nothing from which growth could be foreseen.
    #[error("a SQLite database does not count its changes, so growth cannot be foreseen")]
    NoCounters,
    /// The server's changes cannot be foreseen.
    #[error("a standby changes nothing by itself, so the growth of its snapshots is its primary's")]
    Standby,
    /// A snapshot says a time that is none.
    #[error("the snapshot that was just made is of {said:?}, which is no time")]
    NoTime {
        /// What it says.
        said: String,
    },
}

impl ExperimentError {
    /// How an operation ends that fails like this.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::NotAServer | Self::NoCounters => Ending::Usage,
            Self::NotReverted { .. } => Ending::Damage,
            _ => Ending::Failed,
        }
    }
}
