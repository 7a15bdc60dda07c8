//! A clone of one committed state: the file system copies the database file without copying its
//! blocks, and the pages that are only in the log go over the clone.
//!
//!   try, which flushes --> pin --> clone --> pages of the log --> check, end --> sync
//!                                  ^------- one committed state ------^
//!
//! Cloning needs everything on disk, so the first try takes as long as flushing does. Nothing is
//! locked meanwhile. Under the lock only what came since must be flushed.
//!
//! Why the clone is the pinned state: to clone a file is to read it, so the proof is that of
//! reading (`view.rs`). In rollback mode the shared lock keeps writers away from the file.
//!
//! Invariant: the clone is never more than the pinned state. It is cut where the state ends, and no
//! frame behind the pinned commit goes into it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::ioctl_ficlone;
use rustix::io::Errno;
use windlass_engine::{Cancel, Progress};
use windlass_media::{Facts, FileTable};

use crate::database::Database;
use crate::error::{IoContext, SqliteError};
use crate::facts::DatabaseFacts;
use crate::header::{DATABASE_HEADER_BYTES, DatabaseHeader};
use crate::outcome::{Copied, file_table_of, set_facts};
use crate::pinned::PinnedReader;
use crate::restore::check_set;
use crate::warning::Warning;

/// What a clone holds.
#[derive(Debug)]
pub struct CloneOutcome {
    /// What is known about the database, as a set keeps it.
    pub facts: Facts,
    /// The clone, as the only file of an image.
    pub files: FileTable,
    /// The moment of the committed state.
    pub as_of: Timestamp,
    /// How long nobody could commit. Zero in WAL mode.
    pub writers_stopped: Duration,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl Database {
    /// Why the file system cannot clone the database file into this new file, if it cannot. The
    /// file is removed again.
    pub fn clone_fault(&self, trial: &Path) -> Result<Option<io::Error>, SqliteError> {
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(trial).during("create", trial)?;
        let cloned = ioctl_ficlone(&file, &self.file);
        std::fs::remove_file(trial).during("remove", trial)?;
        match cloned {
            Ok(()) => Ok(None),
            Err(errno) if is_unsupported(errno) => Ok(Some(errno.into())),
            Err(errno) => Err(errno).during("clone", &self.path),
        }
    }

    /// Clones the newest committed state into a new file, durably. It must be on a file system that
    /// can clone the database file. `check_room` is asked before whether there is room for so many
    /// bytes, which are written over the clone: no other of its blocks is new.
    ///
    /// The process must have no other connection to the database during the call.
    pub fn clone_into(
        &self,
        into: &Path,
        check_room: &dyn Fn(u64) -> io::Result<()>,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<CloneOutcome, SqliteError> {
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(0o600);
        let clone = options.open(into).during("create", into)?;
        let started = Timestamp::now();
        progress.set_phase("waiting for the database lock");
        let pinned = self.pin(cancel)?;
        let as_of = Timestamp::now();
        progress.set_phase("cloning the database");
        let reader = pinned.reader();
        let (waits, rolled_back) = (!pinned.writers_go_on(), pinned.found_hot_journal());
        // End the transaction in any case. If cloning failed, that is the error to show.
        let checked = check_room(reader.log_bytes()).during("write", into);
        let cloned = checked.and_then(|()| reader.clone_file(&clone, into, progress));
        let ended = pinned.end();
        let facts = cloned?;
        let held = ended?;
        progress.set_phase("syncing the clone");
        clone.sync_all().during("sync", into)?;
        let copied = Copied {
            bytes: reader.bytes(),
            facts: DatabaseFacts {
                label: self.label.clone(),
                host: self.facts().host.clone(),
                ..facts
            },
            lock_held: held,
            lock_bytes: 0,
            layered: false,
            hashes: None,
        };
        let files = file_table_of(self, &copied, None)?;
        let facts = set_facts(self, &copied, started);
        check_set(&facts, &files)?;
        let mut warnings = self.warnings.clone();
        warnings.extend(rolled_back.then_some(Warning::TransactionRolledBack));
        Ok(CloneOutcome {
            facts,
            files,
            as_of,
            writers_stopped: if waits { held } else { Duration::ZERO },
            warnings,
        })
    }
}

/// Whether the system says that it cannot clone this file, rather than that cloning failed
/// (ioctl_ficlonerange(2)).
fn is_unsupported(errno: Errno) -> bool {
    [
        Errno::OPNOTSUPP,
        Errno::XDEV,
        Errno::INVAL,
        Errno::NOTTY,
        Errno::NOSYS,
        Errno::PERM,
        Errno::TXTBSY,
    ]
    .contains(&errno)
}

impl PinnedReader {
    /// Bytes of the pages that the log has of the pinned state.
    fn log_bytes(&self) -> u64 {
        let log_pages = self.log_pages();
        log_pages.map_or(0, |log_pages| log_pages.bytes_below(self.bytes()))
    }

    /// Clones the pinned state into an empty file at `path`. Returns the facts of the state.
    fn clone_file(
        &self,
        clone: &File,
        path: &Path,
        progress: &Progress,
    ) -> Result<DatabaseFacts, SqliteError> {
        ioctl_ficlone(clone, self.file()).during("clone", self.path())?;
        let cloned = clone.metadata().during("inspect", path)?.len();
        self.reach().check_read(self.path(), cloned)?;
        clone.set_len(self.bytes()).during("cut", path)?;
        progress.set_phase("writing the pages of the log");
        if let Some(log_pages) = self.log_pages() {
            log_pages.write_below(self.bytes(), |offset, page| {
                clone.write_all_at(page, offset).during("write", path)
            })?;
        }
        self.facts()
    }

    /// The facts of the pinned state, from its first page.
    fn facts(&self) -> Result<DatabaseFacts, SqliteError> {
        let path = self.path();
        let mut bytes = [0; DATABASE_HEADER_BYTES];
        let found = self.read(0, &mut bytes)?;
        if found == 0 {
            return Ok(DatabaseFacts::new(path, 0, None));
        }
        let header = DatabaseHeader::decode(&bytes[..found]);
        let header = header.map_err(|what| SqliteError::NotADatabase {
            path: path.to_owned(),
            what,
        })?;
        Ok(DatabaseFacts::new(path, self.bytes(), Some(&header)))
    }
}
