//! Warnings: what a successful backup must still tell the user. They are values, so that programs
//! can match on them.

use std::fmt;

use serde::{Deserialize, Serialize};
use windlass_engine::counted;

use crate::facts::ConfigurationFault;

/// Something that the user should know about a backup that is nevertheless good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Warning {
    /// There is no temporary replication slot, so the server may recycle WAL before it is read.
    WalNotPinned {
        /// What the server said.
        reason: String,
    },
    /// The session with the temporary replication slot ended during the backup.
    WalPinLost {
        /// Why.
        reason: String,
        /// Whether another session has pinned the log since.
        again: bool,
    },
    /// The backup leaves replication slots out by design: on a restored cluster they would hold WAL
    /// back.
    ReplicationSlots {
        /// How many the server has.
        count: u64,
    },
    /// A configuration file lies outside the data directory and is not in the backup.
    ConfigurationOutside {
        /// The file.
        path: String,
    },
    /// The configuration includes a file or directory outside the data directory, which is not in
    /// the backup.
    IncludeOutside {
        /// The file or directory.
        path: String,
    },
    /// A line of the configuration keeps every server from starting, also a restored one.
    ConfigurationError {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: u32,
        /// What the server says about it.
        what: String,
        /// How many more such lines there are.
        more: u64,
    },
    /// The backup followed a symbolic link: in its place the set holds what it points to.
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
    /// Some pages have a checksum that does not match.
    PageChecksums {
        /// How many pages.
        pages: u64,
        /// In how many files.
        files: u64,
    },
    /// Some relation files have a length that is not a multiple of the page size.
    PartialPages {
        /// The first of them, below the data directory.
        path: String,
        /// How many more such files there are.
        more: u64,
    },
    /// A database whose directory in the source itself has no PG_VERSION.
    DatabaseWithoutFiles {
        /// Its name.
        database: String,
    },
    /// Segments that say what became of transactions are missing in the source itself.
    StatusMissing {
        /// The first of them, below the data directory.
        path: String,
        /// How many more there are.
        more: u64,
    },
    /// The server switched page checksums on or off during the backup, so the backup did not check
    /// them.
    ChecksumsChanging,
    /// Log segments at the end of an older timeline were missing; recovery does not need them.
    WalTailMissing {
        /// The segment's file name.
        segment: String,
    },
}

impl Warning {
    /// The names of all warnings.
    pub const NAMES: &[&str] = &[
        "wal-not-pinned",
        "wal-pin-lost",
        "replication-slots",
        "configuration-outside",
        "include-outside",
        "configuration-error",
        "link-followed",
        "link-dangling",
        "special-file",
        "page-checksums",
        "partial-pages",
        "database-without-files",
        "status-missing",
        "checksums-changing",
        "wal-tail-missing",
    ];
    /// The names of those that say how the cluster is set up. They come back with each backup.
    pub const LASTING: &[&str] = &[
        "wal-not-pinned",
        "replication-slots",
        "configuration-outside",
        "include-outside",
        "configuration-error",
        "link-followed",
        "link-dangling",
        "special-file",
    ];

    /// The name of this kind of warning: that of its JSON, with dashes. It never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::WalNotPinned { .. } => "wal-not-pinned",
            Self::WalPinLost { .. } => "wal-pin-lost",
            Self::ReplicationSlots { .. } => "replication-slots",
            Self::ConfigurationOutside { .. } => "configuration-outside",
            Self::IncludeOutside { .. } => "include-outside",
            Self::ConfigurationError { .. } => "configuration-error",
            Self::LinkFollowed { .. } => "link-followed",
            Self::LinkDangling { .. } => "link-dangling",
            Self::SpecialFile { .. } => "special-file",
            Self::PageChecksums { .. } => "page-checksums",
            Self::PartialPages { .. } => "partial-pages",
            Self::DatabaseWithoutFiles { .. } => "database-without-files",
            Self::StatusMissing { .. } => "status-missing",
            Self::ChecksumsChanging => "checksums-changing",
            Self::WalTailMissing { .. } => "wal-tail-missing",
        }
    }

    /// The warning about these faults of the configuration, if there are any.
    pub fn of_configuration(faults: &[ConfigurationFault]) -> Option<Self> {
        let (first, others) = faults.split_first()?;
        Some(Self::ConfigurationError {
            path: first.path.clone(),
            line: first.line,
            what: first.what.clone(),
            more: others.len() as u64,
        })
    }

    /// Writes the text of warnings about files that are not as a backup expects them.
    fn fmt_files(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkFollowed { path, target } => {
                write!(
                    f,
                    "symbolic link {path} was followed: the set holds the content of {target}"
                )
            }
            Self::ConfigurationError {
                path,
                line,
                what,
                more,
            } => {
                write!(f, "{path} line {line}: {what}")?;
                match more {
                    0 => Ok(()),
                    1 => write!(f, ", and 1 more error"),
                    more => write!(f, ", and {more} more errors"),
                }?;
                write!(f, ": no server starts with this configuration")
            }
            Self::LinkDangling { path } => {
                write!(f, "symbolic link {path} points nowhere and was left out")
            }
            Self::SpecialFile { path } => write!(f, "special file {path} was left out"),
            Self::PartialPages { path, more } => {
                write!(f, "{path} ends within a page")?;
                match more {
                    0 => Ok(()),
                    1 => write!(f, ", and so does 1 more file"),
                    more => write!(f, ", and so do {more} more files"),
                }
            }
            Self::PageChecksums { pages, files } => {
                let (pages, files) = (counted(*pages, "page"), counted(*files, "file"));
                write!(f, "page checksums are wrong: {pages} in {files}")
            }
            Self::DatabaseWithoutFiles { database } => {
                write!(f, "database {database:?} has no files in the source itself")
            }
            Self::StatusMissing { path, more } => {
                write!(
                    f,
                    "{path} is missing, which says what became of transactions"
                )?;
                match more {
                    0 => Ok(()),
                    1 => write!(f, ", and so is 1 more file"),
                    more => write!(f, ", and so are {more} more files"),
                }
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
                write!(f, "{path} lies outside the data directory and is left out")
            }
            Self::IncludeOutside { path } => {
                write!(
                    f,
                    "the configuration includes {path}, which lies outside the data directory and \
                     is left out"
                )
            }
            Self::ConfigurationError { .. }
            | Self::LinkFollowed { .. }
            | Self::LinkDangling { .. }
            | Self::SpecialFile { .. }
            | Self::PartialPages { .. }
            | Self::PageChecksums { .. }
            | Self::StatusMissing { .. }
            | Self::DatabaseWithoutFiles { .. } => self.fmt_files(f),
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
