//! Why an opened server ended, read from the last lines of its log.

use super::PostgresError;

/// Why an opened server ended, if its log says so in words that we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerEnd {
    /// The log needs a library that is not preloaded.
    LibraryNeeded,
    /// A file cannot be read.
    Unreadable,
    /// The file system is full.
    NoSpace,
    /// Replay would create a tablespace outside.
    TablespaceOutside,
    /// The server does not take the value or the name of a parameter.
    Parameter,
    /// The server may not use a file or directory.
    Denied,
    /// A library that shall be preloaded is not installed.
    LibraryMissing,
    /// A file of the cluster is damaged.
    FileDamaged,
    /// A file of the cluster is missing.
    FileMissing,
    /// A file that is not the cluster's is missing.
    OtherFileMissing,
}

/// What to do about a damaged cluster.
pub(super) const DAMAGED: &str = "Verify the set. If it is not damaged, the source was damaged \
    before the backup.";

/// What to do if files of one database are damaged in the cluster that is backed up.
pub(super) const DATABASE_DAMAGED: &str = "Files of this database are damaged or missing; nothing \
    is wrong with the connection string. See the server log. A backup copies all databases, \
    whichever one its session is in: to save what is left, write dbname=template1, or another \
    database that works.";

/// What to do if other files of it are.
pub(super) const SERVER_DAMAGED: &str = "Files of the server are damaged or missing; nothing is \
    wrong with the connection string. See the server log. Keep the sets that were made before, and \
    a copy of the data directory as it is, before you repair anything.";

/// Where the files of a cluster are, as a server names them in its messages.
const CLUSTER_FILES: [&str; 10] = [
    "\"base/",
    "\"global/",
    "\"pg_commit_ts/",
    "\"pg_logical/",
    "\"pg_multixact/",
    "\"pg_subtrans",
    "\"pg_tblspc/",
    "\"pg_twophase/",
    "\"pg_wal/",
    "\"pg_xact/",
];

/// What the log says in each case. The first that is found counts.
const WORDS: [(ServerEnd, &[&str]); 9] = [
    (
        ServerEnd::LibraryNeeded,
        &["shared_preload_libraries", "resource manager with ID"],
    ),
    (
        ServerEnd::Unreadable,
        &["Input/output error", "Transport endpoint"],
    ),
    (ServerEnd::NoSpace, &["No space left"]),
    (
        ServerEnd::TablespaceOutside,
        &[
            "could not create symbolic link",
            "directory for the tablespace",
        ],
    ),
    (
        ServerEnd::Parameter,
        &[
            "invalid value for parameter",
            "unrecognized configuration parameter",
            // Of a value outside of its range, and of every other fault.
            "contains errors",
        ],
    ),
    (ServerEnd::Denied, &["Permission denied"]),
    (ServerEnd::LibraryMissing, &["could not access file"]),
    (ServerEnd::OtherFileMissing, &["No such file or directory"]),
    (
        ServerEnd::FileDamaged,
        &[
            "could not access status of transaction",
            "invalid page in block",
            "contains unexpected zero page",
            "could not read block",
            "could not read file",
            "contains incorrect checksum",
            "contains invalid data",
            "could not locate a valid checkpoint record",
            "could not locate required checkpoint record",
        ],
    ),
];

/// Whether a server's message names a file of its cluster.
pub(super) fn names_cluster_file(message: &str) -> bool {
    CLUSTER_FILES.iter().any(|file| message.contains(file))
}

impl ServerEnd {
    fn of_log(log: &str) -> Option<Self> {
        let says = |words: &[&str]| words.iter().any(|word| log.contains(word));
        let found = WORDS.into_iter().find(|(_, words)| says(words));
        found.map(|(end, _)| match end {
            Self::OtherFileMissing if names_cluster_file(log) => Self::FileMissing,
            end => end,
        })
    }

    /// Whether the set, or what was backed up, is damaged.
    pub(super) fn is_damage(self) -> bool {
        matches!(self, Self::FileDamaged | Self::FileMissing)
    }

    /// What the user can do about it.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::LibraryNeeded => "Preload the library that the set needs.",
            Self::Unreadable => "The set may be damaged: verify it.",
            Self::NoSpace => "Free space, or name a roomier scratch directory.",
            Self::TablespaceOutside => {
                "A tablespace was created while this copy was made, and replay would link to the \
                 source's own directory. Do not start it on the source's machine: make a new \
                 backup and open that."
            }
            Self::Parameter => "Set or leave out the parameter.",
            Self::Denied => "The server's user must be able to enter the scratch directory.",
            Self::LibraryMissing => {
                "Install the library that the server names, or do not preload it."
            }
            Self::FileDamaged => DAMAGED,
            Self::FileMissing => {
                "The set lacks a file that the server needs. Verify the set. If it is not damaged, \
                 the source lacked the file during the backup."
            }
            Self::OtherFileMissing => {
                "Put the file where the server looks for it, or leave out the setting that names it."
            }
        }
    }
}

impl PostgresError {
    /// Why the opened server ended, if its log says so.
    pub fn server_end(&self) -> Option<ServerEnd> {
        match self {
            Self::ServerEnded { log, .. } => ServerEnd::of_log(log),
            _ => None,
        }
    }
}
