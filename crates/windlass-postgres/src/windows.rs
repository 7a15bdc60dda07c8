//! The windows of a backup, as its facts, its errors and its messages name them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::lsn::Lsn;

/// The most windows of one backup. If databases are copied again and again, more would not help.
pub(crate) const WINDOWS_MAX: usize = 8;

/// A window of a backup that had to be followed by another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlierWindow {
    /// Where its log began.
    pub start_lsn: Lsn,
    /// Where it ended.
    pub stop_lsn: Lsn,
    /// Why a set of this window would not be right.
    pub cause: WindowCause,
}

/// Why the log of a window cannot be replayed on the files that were read in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WindowCause {
    /// The server copied a database's files: somebody moved it to a tablespace, or made it from a
    /// template that changed meanwhile.
    DatabaseCopied {
        /// The copy's number in pg_database.
        database: u32,
        /// Its name, if it had one when the server was asked before or after the window. Sets of
        /// older versions do not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The database that was copied: the same number if it was moved. Sets of older versions do
        /// not record it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<u32>,
        /// Where the log says so.
        lsn: Lsn,
    },
    /// A tablespace was created.
    TablespaceCreated {
        /// Its number in pg_tablespace.
        tablespace: u32,
        /// Its directory in the source.
        location: String,
        /// Where the log says so.
        lsn: Lsn,
    },
    /// An unlogged relation was being built when its files were listed. Its `_init` fork came
    /// later.
    UnloggedCreated {
        /// Its main file, relative to the data directory.
        file: String,
        /// Where the log says so.
        lsn: Lsn,
    },
    /// Somebody dropped a tablespace that existed at the start.
    TablespaceDropped {
        /// Its number.
        tablespace: u32,
    },
}

impl WindowCause {
    /// The next window must begin behind this position.
    pub(crate) fn lsn(&self) -> Lsn {
        match self {
            Self::DatabaseCopied { lsn, .. }
            | Self::TablespaceCreated { lsn, .. }
            | Self::UnloggedCreated { lsn, .. } => *lsn,
            Self::TablespaceDropped { .. } => Lsn(0),
        }
    }
}

impl fmt::Display for WindowCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DatabaseCopied {
                database,
                name,
                template,
                lsn,
            } => {
                write!(f, "the server copied the files of database ")?;
                match name {
                    Some(name) => write!(f, "{name:?} (number {database})")?,
                    None => write!(f, "{database}")?,
                }
                match template {
                    Some(from) if from == database => {
                        write!(f, " for an ALTER DATABASE ... SET TABLESPACE")?;
                    }
                    Some(_) => write!(f, " for a CREATE DATABASE")?,
                    None => {}
                }
                write!(f, " (log at {lsn})")
            }
            Self::TablespaceCreated {
                tablespace,
                location,
                lsn,
            } => write!(
                f,
                "tablespace {tablespace} was created in {location} (log at {lsn})"
            ),
            Self::UnloggedCreated { file, lsn } => {
                write!(
                    f,
                    "the unlogged relation in {file} was being built (log at {lsn})"
                )
            }
            Self::TablespaceDropped { tablespace } => {
                write!(f, "tablespace {tablespace} was dropped")
            }
        }
    }
}
