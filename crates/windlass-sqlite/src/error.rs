//! What can go wrong with a SQLite database, and what a person can do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::ffi;
use windlass_engine::EngineError;

/// What SQLite says on a full disk: for its index of the log, for a write, and in general. A full
/// quota counts as a failed write.
const NO_ROOM: [i32; 3] = [
    ffi::SQLITE_IOERR_SHMSIZE,
    ffi::SQLITE_IOERR_WRITE,
    ffi::SQLITE_FULL,
];

/// Why a SQLite database cannot be backed up, described or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// A system call on the database or a file beside it failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done, in the present tense.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not start like a SQLite database.
    #[error("{} is not a SQLite database: {what}", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first bytes.
        what: &'static str,
    },
    /// Other connections kept the database locked for the whole time that the backup may wait.
    #[error("{} stayed locked by another process for {}", path.display(),
        seconds(waited))]
    Busy {
        /// The database.
        path: PathBuf,
        /// How long the backup tried to get the lock.
        waited: Duration,
    },
    /// A hot journal has to be rolled back first, which needs write access.
    #[error("{} was left in mid-transaction and cannot be rolled back without write access",
        path.display())]
    HotJournalReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// A database in WAL mode whose `-wal` or `-shm` file can neither be opened nor created.
    #[error("{} is in WAL mode, and its -wal and -shm files cannot be used here", path.display())]
    WalUnavailable {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// SQLite refused a call.
    #[error("{action} {}: {source}", path.display())]
    Sqlite {
        /// What was being done, in the present tense.
        action: &'static str,
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The path no longer names the file that the backup began with.
    #[error("{} was removed or replaced by another file during the backup", path.display())]
    SourceReplaced {
        /// The database.
        path: PathBuf,
    },
    /// The first page of the file is not one that SQLite can have written while the backup held its
    /// lock.
    #[error("{} was overwritten during the backup, past SQLite's locks", path.display())]
    SourceOverwritten {
        /// The database.
        path: PathBuf,
    },
    /// The database is longer than its file, and its log does not hold the rest.
    #[error("{} is cut off at byte {found_bytes}: the database is {needed_bytes} bytes long",
        path.display())]
    CutOff {
        /// The database.
        path: PathBuf,
        /// Offset of the first missing byte.
        found_bytes: u64,
        /// Length of the database in bytes.
        needed_bytes: u64,
    },
    /// The database file is empty, but a file beside it is not.
    #[error("{} is empty, but {} holds data of it", path.display(), kept.display())]
    Emptied {
        /// The database.
        path: PathBuf,
        /// Its log or its journal.
        kept: PathBuf,
    },
    /// The backup would have had to lock writers out for longer than allowed.
    #[error("writers of {} were locked out for {}, and the backup was not done", path.display(),
        seconds(limit))]
    LockLimit {
        /// The database.
        path: PathBuf,
        /// How long they may be locked out.
        limit: Duration,
    },
    /// The WAL does not hold what its index says was committed.
    #[error("read {}: frame {frame} {what}", path.display())]
    WalDamaged {
        /// The WAL.
        path: PathBuf,
        /// The first frame that is wrong, counted from 1; 0 is the header.
        frame: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The WAL-index is not usable.
    #[error("read {}: {what}", path.display())]
    WalIndex {
        /// The WAL-index.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The WAL moved on although a read lock forbade it.
    #[error("{} lost its read lock during the backup", path.display())]
    LockLost {
        /// The database.
        path: PathBuf,
    },
    /// A database in rollback mode has no log that could be kept.
    #[error("{} is in rollback mode, so it has no log", path.display())]
    NoLog {
        /// The database.
        path: PathBuf,
    },
    /// What was captured of a log does not lead to what the log has now.
    #[error("{} {what}", path.display())]
    LogLost {
        /// The log.
        path: PathBuf,
        /// What happened.
        what: &'static str,
    },
    /// A file that all connections share was removed or cut off during the backup.
    #[error("{} was {what} during the backup, although the database is in use", path.display())]
    SideLost {
        /// The file.
        path: PathBuf,
        /// What became of it.
        what: &'static str,
    },
    /// The facts or the list of files of a set are not those of a SQLite database.
    #[error("the set cannot be restored: {what}")]
    Facts {
        /// What is missing or wrong.
        what: &'static str,
    },
    /// The path to restore to ends in `..` or has no name at all.
    #[error("{} has no file name", path.display())]
    TargetName {
        /// The path.
        path: PathBuf,
    },
    /// The directory to restore into does not exist.
    #[error("there is no directory {}", path.display())]
    TargetParent {
        /// The directory.
        path: PathBuf,
    },
    /// A file is already at the place to restore to.
    #[error("{} is already there", path.display())]
    TargetExists {
        /// The file in the way.
        path: PathBuf,
    },
    /// Another process has the database open that the restore would replace.
    #[error("{} is in use by {}", path.display(), process(*pid))]
    TargetInUse {
        /// The file in use.
        path: PathBuf,
        /// A process that holds a lock on it; 0 if the system does not name it.
        pid: i32,
    },
    /// The restored database is complete, but what is at the target now must stay.
    #[error("{source}. The restored database is complete in {}", restored.display())]
    Withheld {
        /// Where it is.
        restored: PathBuf,
        /// Whether the next restore keeps it until its own is complete.
        is_kept: bool,
        /// What is at the target.
        source: Box<SqliteError>,
    },
    /// Something else is where the restored database was written.
    #[error("{} was moved away or replaced by another file during the restore", path.display())]
    RestoredTaken {
        /// Where it was.
        path: PathBuf,
    },
    /// In the way of a restore lies what no restore left.
    #[error("{} is not what a restore leaves that was cut off", path.display())]
    StagingForeign {
        /// What lies there.
        path: PathBuf,
    },
    /// The restored database is in its place, but the directory that it was restored into remains.
    #[error("remove {}: {source}. The restored database {} is complete and in its place",
        staging.display(), path.display())]
    StagingLeft {
        /// The database.
        path: PathBuf,
        /// The directory.
        staging: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The restored database is complete, but it could not be put into its place.
    #[error("{source}. The restored database is complete in {}", restored.display())]
    NotInPlace {
        /// Where it is.
        restored: PathBuf,
        /// Whether the next restore keeps it until its own is complete.
        is_kept: bool,
        /// What failed.
        source: Box<SqliteError>,
    },
    /// The restored database is in its place, but its name may not survive a power cut.
    #[error(
        "sync the directory of {}: {source}. The restored database is complete and in its place, \
         but a power cut may bring back what was there before", path.display()
    )]
    NotDurable {
        /// The database.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two states of a database have pages of different sizes.
    #[error("{} has pages of {page_bytes} bytes, and the other state has pages of {other_bytes}",
        path.display())]
    OtherPageSize {
        /// The database.
        path: PathBuf,
        /// Bytes of a page now.
        page_bytes: u32,
        /// Bytes of a page in the other state.
        other_bytes: u32,
    },
    /// A database without any page cannot be overwritten.
    #[error("{} is an empty file", path.display())]
    EmptyState {
        /// The database.
        path: PathBuf,
    },
    /// SQLite was built without what writes raw pages.
    #[error("this build of Windlass cannot write pages of a SQLite database")]
    NoRawPages,
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl SqliteError {
    /// Whether a capture of the log cannot go on, although the database may be well: another
    /// capture may begin.
    pub fn is_break(&self) -> bool {
        matches!(
            self,
            Self::SourceReplaced { .. }
                | Self::SideLost { .. }
                | Self::LogLost { .. }
                | Self::WalDamaged { .. }
                | Self::WalIndex { .. }
                | Self::LockLost { .. }
        )
    }

    /// What the user can do about it, as a full sentence.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotADatabase { .. } => {
                "Check the path; an encrypted database has to be backed up by its own tools."
            }
            Self::Busy { .. } => {
                "A connection with locking_mode=EXCLUSIVE or a long write transaction holds it; \
                 end that one, or wait longer."
            }
            Self::HotJournalReadOnly { .. } => {
                "Run as a user who may write the database and its directory, or open it once \
                 with sqlite3 there, which rolls the journal back."
            }
            Self::WalUnavailable { .. } => {
                "SQLite needs to write the -shm file even to read: run as a user who may write \
                 the directory, or copy the database and its -wal to a writable place."
            }
            Self::SourceOverwritten { .. } => {
                "Something wrote into the file without SQLite, as cp does. That can damage the \
                 database: check it with PRAGMA integrity_check, then back it up again."
            }
            Self::SourceReplaced { .. } => {
                "Something moved another file over the database, which SQLite forbids while it \
                 is in use; run the backup again."
            }
            Self::CutOff { .. } => {
                "The end of the database is lost, so Windlass does not back it up as if it were \
                 whole. Copy the database, its -journal and its -wal away before any program \
                 opens it: SQLite may fill the gap with zeros. Then restore an older backup; a \
                 snapshot can be put back when the file is away."
            }
            Self::Emptied { .. } => {
                "Something emptied the database. Copy both files away before any program opens \
                 it, because SQLite then removes the log or journal; then restore a backup. A \
                 snapshot can be put back when the file is away."
            }
            Self::LockLimit { .. } => {
                "Windlass gave the lock back and made no backup. Run the backup when less is \
                 written, allow more seconds, or put the database into WAL \
                 mode, where writers are never locked out."
            }
            Self::WalDamaged { .. } | Self::WalIndex { .. } => {
                "Run PRAGMA integrity_check on the database before anything else."
            }
            Self::LockLost { .. } => {
                "Another part of this process closed the database file, which drops POSIX locks, \
                 or the filesystem does not keep them; back up from a process of its own."
            }
            Self::SideLost { .. } => {
                "Programs that had the database open before and after that do not see each other's \
                 locks, and may damage it. Stop all of them, run PRAGMA integrity_check, then \
                 back it up again."
            }
            _ => return self.hint_of_restore(),
        })
    }

    /// The hint when a set or the target of a restore is the cause.
    fn hint_of_restore(&self) -> Option<&'static str> {
        Some(match self {
            Self::TargetExists { .. } => {
                "Choose another path, or have the database replaced, with its -wal, -shm and \
                 -journal files."
            }
            Self::TargetInUse { .. } => "Stop that process, or restore to another path.",
            Self::Withheld { is_kept: false, .. } => {
                "Windlass changed nothing at the target. Stop the program that uses it and move \
                 its files away. Then move the restored file there. If you restore again, move it \
                 away first: the next restore removes it."
            }
            Self::Withheld { .. } => {
                "Windlass changed nothing at the target. Stop the program that uses it and move \
                 its files away. Then move the restored file there, or restore again: that keeps \
                 the file until the new one is complete."
            }
            Self::RestoredTaken { .. } => {
                "Windlass changed nothing at the target. Find out what changes files in that \
                 directory, then restore again."
            }
            Self::StagingForeign { .. } => {
                "A restore first writes into a directory of that name, and removes what an earlier \
                 one left in it. Move away what is yours."
            }
            Self::StagingLeft { .. } => {
                "You can use the database. Look into the directory, and at the disk (`dmesg`); \
                 then remove the directory yourself."
            }
            Self::NotInPlace { is_kept: false, .. } => {
                "If there is a directory `replaced` beside the restored file, it has the -wal or \
                 -journal file of the old database: do not use that database without it. Move the \
                 restored file into its place. If you restore again, move it away \
                 first: the next restore removes it."
            }
            Self::NotInPlace { .. } => {
                "If there is a directory `replaced` beside the restored file, it has the -wal or \
                 -journal file of the old database: do not use that database without it. Move the \
                 restored file into its place, or restore again: that keeps the file \
                 until the new one is complete."
            }
            Self::NotDurable { .. } => {
                "Look at the disk first (`dmesg`). Then run `sync`. If that succeeds, the database \
                 is safe; if not, restore to another disk."
            }
            Self::TargetParent { .. } => {
                "Make the directory first (mkdir -p). A path that ends in / is always a directory."
            }
            Self::TargetName { .. } => "Name the file to restore to, or a directory that exists.",
            Self::Facts { .. } => {
                "No backup of this version writes such a set. If a newer version \
                 wrote it, use that version."
            }
            _ => return self.hint_of_overwrite(),
        })
    }

    /// The hint when pages cannot be written back, or SQLite finds no room.
    fn hint_of_overwrite(&self) -> Option<&'static str> {
        Some(match self {
            Self::OtherPageSize { .. } => {
                "VACUUM has changed the page size since. Back that state up, and restore it over \
                 the database instead, when no program uses it."
            }
            Self::EmptyState { .. } => {
                "An empty file has no pages that could be written or kept. Restore a backup over \
                 it, or move it away, when no program uses it."
            }
            Self::Sqlite { source, .. } if is_without_room(source) => {
                "Free space on the disk of the database: SQLite needs room for the files beside \
                 it, also to read it. If that disk is not full, look at it (`dmesg`)."
            }
            Self::NoRawPages => {
                "Build Windlass in its own directory, so that cargo finds .cargo/config.toml there."
            }
            _ => return None,
        })
    }
}

fn is_without_room(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_extended_error_code();
    code.is_some_and(|code| NO_ROOM.contains(&code))
}

fn process(pid: i32) -> String {
    match pid {
        0 => "another process".to_owned(),
        pid => format!("process {pid}"),
    }
}

fn seconds(time: &Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Adds the action and the path to an I/O error, so that the message names both.
pub(crate) trait IoContext<T> {
    fn during(self, action: &'static str, path: &std::path::Path) -> Result<T, SqliteError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn during(self, action: &'static str, path: &std::path::Path) -> Result<T, SqliteError> {
        let path = path.to_path_buf();
        self.map_err(|source| SqliteError::Io {
            action,
            path,
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_hint_about_room_also_if_only_sqlite_met_it() {
        for (code, is_room) in [
            (4874, true),
            (778, true),
            (13, true),
            (266, false),
            (11, false),
        ] {
            let error = SqliteError::Sqlite {
                action: "begin a read transaction on",
                path: "shop.db".into(),
                source: rusqlite::Error::SqliteFailure(ffi::Error::new(code), None),
            };
            let hint = error.hint().unwrap_or_default();
            assert_eq!(hint.contains("Free space"), is_room, "{error}: {hint}");
        }
    }
}
