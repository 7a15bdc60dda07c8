//! Warnings: what a backup that succeeded still has to say. Values, so that programs can match.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something the user should know of a backup that is good all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// No temporary replication slot: the server may recycle WAL before it is read.
    WalNotPinned {
        /// What the server said.
        reason: String,
    },
    /// The session with the temporary replication slot ended during the backup.
    WalPinLost {
        /// Why.
        reason: String,
        /// Another one holds the log since.
        again: bool,
    },
    /// Replication slots are lost by design: on a restored cluster they would hold back WAL.
    ReplicationSlots {
        /// How many the server has.
        count: u64,
    },
    /// A configuration file lies outside the data directory and is not in the backup.
    ConfigurationOutside {
        /// The file.
        path: String,
    },
    /// The configuration includes a file or directory that is outside the data directory and not
    /// in the backup.
    IncludeOutside {
        /// The file or directory.
        path: String,
    },
    /// A symbolic link was followed: the set holds what it points to, in its place.
    LinkFollowed {
        /// The link, below the data directory.
        path: String,
        /// Where it points.
        target: String,
    },
    /// A symbolic link that points nowhere was left out.
    LinkDangling {
        /// The link, below the data directory.
        path: String,
    },
    /// A file that is neither regular, directory nor link was left out.
    SpecialFile {
        /// The file, below the data directory.
        path: String,
    },
    /// Pages whose checksum does not hold.
    PageChecksums {
        /// How many pages.
        pages: u64,
        /// In how many files.
        files: u64,
    },
    /// Relation files whose length is no multiple of the page size.
    PartialPages {
        /// The first of them, below the data directory.
        path: String,
        /// How many more.
        more: u64,
    },
    /// A database whose directory has no PG_VERSION in the source itself.
    DatabaseWithoutFiles {
        /// Its name.
        database: String,
    },
    /// Page checksums were switched on or off meanwhile, so no page was judged by its own.
    ChecksumsChanging,
    /// The log segments of an older timeline's end were not there; recovery does not need them.
    WalTailMissing {
        /// The segment's file name.
        segment: String,
    },
}

impl Warning {
    /// The words for files that are not as a backup expects them.
    fn fmt_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkFollowed { path, target } => {
                write!(
                    f,
                    "symbolic link {path} was followed: the set holds the content of {target}"
                )
            }
            Self::LinkDangling { path } => {
                write!(f, "symbolic link {path} points nowhere and was left out")
            }
            Self::SpecialFile { path } => write!(f, "special file {path} was left out"),
            Self::PartialPages { path, more } => {
                write!(f, "{path} ends within a page")?;
                match more {
                    0 => Ok(()),
                    more => write!(f, ", and so do {more} more files"),
                }
            }
            Self::DatabaseWithoutFiles { database } => {
                write!(f, "database {database:?} has no files in the source itself")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WalNotPinned { reason } => {
                write!(
                    f,
                    "no temporary replication slot ({reason}): WAL may be recycled too early"
                )
            }
            Self::WalPinLost { reason, again } => {
                let since = if *again {
                    "another session has kept WAL since then"
                } else {
                    "WAL may be recycled too early"
                };
                write!(
                    f,
                    "the session that kept WAL for the backup ended ({reason}); {since}"
                )
            }
            Self::ReplicationSlots { count } => {
                write!(
                    f,
                    "{count} replication slots exist; a restored cluster will not have them"
                )
            }
            Self::ConfigurationOutside { path } => {
                write!(
                    f,
                    "{path} lies outside the data directory and is not in the backup"
                )
            }
            Self::IncludeOutside { path } => {
                write!(
                    f,
                    "the configuration includes {path}, which lies outside the data directory and \
                     is not in the backup"
                )
            }
            Self::LinkFollowed { .. }
            | Self::LinkDangling { .. }
            | Self::SpecialFile { .. }
            | Self::PartialPages { .. }
            | Self::DatabaseWithoutFiles { .. } => self.fmt_files(f),
            Self::PageChecksums { pages, files } => {
                write!(f, "{pages} pages in {files} files fail their checksum")
            }
            Self::ChecksumsChanging => {
                write!(
                    f,
                    "the server is switching page checksums on or off: Windlass did not check them"
                )
            }
            Self::WalTailMissing { segment } => {
                write!(
                    f,
                    "WAL segment {segment}, which its timeline's successor repeats, is gone"
                )
            }
        }
    }
}
