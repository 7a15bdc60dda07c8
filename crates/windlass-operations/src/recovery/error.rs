//! Why a cluster cannot recover to a point.

use std::path::PathBuf;

use jiff::Timestamp;
use thiserror::Error;
use windlass_postgres::Lsn;
use windlass_repository::RepositoryError;

/// Why a cluster cannot recover to a point.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecoveryError {
    /// A set of another kind of database.
    #[error("only a PostgreSQL cluster recovers to a point in its log")]
    NotACluster,
    /// No server streams the log of this database.
    #[error("{} is a SQLite database, and no server streams its log", path.display())]
    NoStream {
        /// The database.
        path: PathBuf,
    },
    /// The log of this database is not copied.
    #[error("{} is a SQLite database, and its log cannot be copied", path.display())]
    NoLogKept {
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
}

fn last_words(last: Option<&Timestamp>) -> String {
    last.map_or_else(String::new, |last| format!(" (last transaction: {last})"))
}

impl RecoveryError {
    /// Whether an older set may reach the point.
    pub(super) fn is_of_this_set(&self) -> bool {
        matches!(
            self,
            Self::BeforeSet { .. } | Self::NotInLog { .. } | Self::OtherLog { .. }
        )
    }
}
