//! The session: a connection of SQLite, used only for its locks.
//!
//! Invariants
//! - POSIX drops *all* of a process's locks on a file when the process closes *any* descriptor of
//!   it. SQLite locks its read marks in the -shm. So only the session opens the -shm, and it keeps
//!   it open to the end. The engine also opens and closes the database file. So while a transaction
//!   is open, the session holds a second lock on that file, which survives this (`lock.rs`).
//! - The process should have no other connection to the database: when this session ends, the
//!   kernel would drop the locks of that connection.
//! - The session never checkpoints, unless the capture asks for it (`checkpoint.rs`). It writes
//!   only what every SQLite reader would write: it rolls a hot journal back, and creates the -wal
//!   and -shm files if they are missing.
//!
//! - SQLite maps the -shm into memory. If somebody cuts that file off, the next access to the lost
//!   part ends the process (SIGBUS). So SQLite touches the map only while a transaction begins, and
//!   before another one begins in the same session, the length of the file is looked at. Closing
//!   does not touch it: what SQLite would remove at the end, the session removes (`close`).
//!
//! Locking: `begin` waits at most `lock_wait` and can be cancelled; nothing else here blocks.

mod checkpoint;
mod exclusive;

use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use windlass_engine::{Cancel, durable};

use crate::access;
use crate::error::{IoContext, SqliteError};
use crate::journal::{check_not_emptied, is_hot};
use crate::lock::{ExclusiveLock, SharedLock};
use crate::playback::check_rollback;
use crate::reach::Reach;
use crate::view::beside;

/// Pause between two tries for the lock. SQLite's own busy handler waits up to 100 ms between
/// tries. Under a storm of writers it would miss most of the short gaps.
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The files that a connection has open at once: the database, its log or journal, the index of the
/// log, and for a moment their directory.
const FILES_OF_SQLITE: usize = 4;

/// A connection that can hold a read transaction.
pub(crate) struct Session {
    // Dropped first, so that SQLite releases its locks before the descriptors below are closed.
    connection: Connection,
    path: PathBuf,
    /// The second lock of an open transaction, and when it was taken.
    held: Option<(SharedLock, Instant)>,
    /// Opening this session created an empty -wal, so closing it may remove that file.
    made_wal: bool,
    shm: Option<Arc<File>>,
    /// The length of the -shm when SQLite last used it.
    shm_bytes: Cell<u64>,
    /// A hot journal was there, which SQLite rolls back.
    found_hot_journal: bool,
    database: Arc<File>,
}

impl Session {
    /// Opens a connection to the database at `path`. `file` is the same file, already open.
    pub(crate) fn open(path: &Path, file: &Arc<File>) -> Result<Self, SqliteError> {
        let found_hot_journal = look_at_journal(path, file)?;
        let made_wal = !beside(path, "-wal").exists();
        // Ask for write access where possible (SQLite falls back to read-only by itself). SQLite
        // needs it to roll a hot journal back, and to clean up WAL files that it creates here.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |source| {
            no_more_files(path).unwrap_or(SqliteError::Sqlite {
                action: "open",
                path: path.into(),
                source,
            })
        };
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        let session = Self {
            connection,
            path: path.to_path_buf(),
            held: None,
            made_wal,
            shm: None,
            shm_bytes: Cell::new(0),
            found_hot_journal,
            database: Arc::clone(file),
        };
        session.keep_wal()?;
        Ok(session)
    }

    /// Begins a read transaction. From then on the database's committed state is pinned.
    pub(crate) fn begin(&mut self, wait: Duration, cancel: &Cancel) -> Result<(), SqliteError> {
        self.begin_by(wait, cancel, Self::try_begin)?;
        let since = Instant::now();
        let lock = SharedLock::take(&self.database).during("lock", &self.path)?;
        self.held = Some((lock, since));
        Ok(())
    }

    /// Begins a transaction, and waits until that is possible.
    fn begin_by(
        &mut self,
        wait: Duration,
        cancel: &Cancel,
        try_begin: impl Fn(&Self) -> Result<(), rusqlite::Error>,
    ) -> Result<(), SqliteError> {
        let start = Instant::now();
        loop {
            cancel.check()?;
            self.check_map()?;
            self.found_hot_journal |= look_at_journal(&self.path, &self.database)?;
            let begun = try_begin(self);
            self.shm_bytes.set(self.shm_length());
            match begun {
                Ok(()) => return Ok(()),
                Err(error) if !is_busy(&error) => return Err(self.explain(error)),
                Err(_) if start.elapsed() >= wait => {
                    return Err(SqliteError::Busy {
                        path: self.path.clone(),
                        waited: wait,
                    });
                }
                Err(_) => std::thread::sleep(LOCK_PAUSE),
            }
        }
    }

    /// Whether there was no log when this session was opened.
    pub(crate) fn made_wal(&self) -> bool {
        self.made_wal
    }

    /// Whether a hot journal was there when this session was opened or began a transaction. SQLite
    /// rolled it back.
    pub(crate) fn found_hot_journal(&self) -> bool {
        self.found_hot_journal
    }

    /// Fails if the -shm became shorter since SQLite mapped it.
    fn check_map(&self) -> Result<(), SqliteError> {
        let path = beside(&self.path, "-shm");
        match path.exists() && self.shm_length() < self.shm_bytes.get() {
            true => Err(SqliteError::SideLost {
                path,
                what: "cut off",
            }),
            false => Ok(()),
        }
    }

    /// The length of the -shm. This must not open the file: closing it would drop SQLite's locks.
    fn shm_length(&self) -> u64 {
        let shm = std::fs::metadata(beside(&self.path, "-shm"));
        shm.map_or(0, |shm| shm.len())
    }

    fn try_begin(&self) -> Result<(), rusqlite::Error> {
        // Read only the header: a schema that this SQLite cannot parse must not fail the backup.
        self.try_begin_with(|connection| {
            connection
                .pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))
                .map(drop)
        })
    }

    fn try_begin_with(
        &self,
        read: impl FnOnce(&Connection) -> Result<(), rusqlite::Error>,
    ) -> Result<(), rusqlite::Error> {
        self.connection.execute_batch("BEGIN")?;
        read(&self.connection).inspect_err(|_| self.roll_back())
    }

    /// Ends a transaction that failed. SQLite has already ended some of them, and then refuses
    /// ROLLBACK. The user needs to know why the transaction failed, so this refusal is dropped. If
    /// a transaction stays open, the next BEGIN reports it.
    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            self.connection
                .execute_batch("ROLLBACK")
                .unwrap_or_default();
        }
    }

    /// Ends the read transaction and returns how long it was open.
    pub(crate) fn end(&mut self) -> Result<Duration, SqliteError> {
        let held = self
            .held
            .take()
            .map_or(Duration::ZERO, |(_, since)| since.elapsed());
        self.connection
            .execute_batch("COMMIT")
            .map_err(|source| self.failed("end the read transaction on", source))?;
        Ok(held)
    }

    /// The -shm file. The session opens it once and keeps it open to the end.
    pub(crate) fn shm(&mut self) -> Result<Arc<File>, SqliteError> {
        if let Some(shm) = &self.shm {
            return Ok(Arc::clone(shm));
        }
        let path = beside(&self.path, "-shm");
        let shm = Arc::new(File::open(&path).during("open", &path)?);
        self.shm = Some(Arc::clone(&shm));
        Ok(shm)
    }

    /// Closes the connection. Removes the -wal and the -shm if opening created them and nobody has
    /// written to the log or uses the database. SQLite would do this itself, but it would look into
    /// its map of the -shm, which somebody may have cut off.
    pub(crate) fn close(self) -> Result<(), SqliteError> {
        let Self {
            connection,
            path,
            held,
            made_wal,
            shm,
            ..
        } = self;
        // After a failure the second lock is still there. It would keep this session from removing
        // what it made.
        drop((held, shm));
        connection
            .close()
            .map_err(|(_, source)| SqliteError::Sqlite {
                action: "close",
                path: path.clone(),
                source,
            })?;
        match made_wal {
            true => remove_unused(&path),
            false => Ok(()),
        }
    }

    /// Keeps SQLite from a checkpoint when it closes the connection.
    fn keep_wal(&self) -> Result<(), SqliteError> {
        self.connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map(drop)
            .map_err(|source| self.failed("configure the connection to", source))
    }

    fn failed(&self, action: &'static str, source: rusqlite::Error) -> SqliteError {
        SqliteError::Sqlite {
            action,
            path: self.path.clone(),
            source,
        }
    }

    /// Says in Windlass's words why a read transaction cannot begin.
    fn explain(&self, source: rusqlite::Error) -> SqliteError {
        let path = self.path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => SqliteError::NotADatabase {
                path,
                what: "SQLite does not recognize its header",
            },
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
                let denied = access::check(&path, &self.database).err();
                if let Some(error) = no_more_files(&path).or(denied) {
                    error
                } else if source.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
                    self.failed("begin a read transaction on", source)
                } else if beside(&self.path, "-journal").exists() {
                    SqliteError::HotJournalReadOnly { path }
                } else {
                    SqliteError::WalUnavailable { path, source }
                }
            }
            Some(ErrorCode::DatabaseCorrupt) => match Reach::of_file(&self.database, &path) {
                Err(error) => error,
                Ok(_) => self.failed("begin a read transaction on", source),
            },
            _ => self.failed("begin a read transaction on", source),
        }
    }
}

/// Looks at the journal before SQLite does, and says whether it is hot. Fails if SQLite would roll
/// it back although the end of the database is lost, or would remove it although the file is empty.
fn look_at_journal(path: &Path, file: &File) -> Result<bool, SqliteError> {
    check_not_emptied(path, file)?;
    check_rollback(path, file)?;
    is_hot(path, file)
}

/// Removes an empty log and its index, as the last connection does. SQLite holds all locks of the
/// database meanwhile, and so does this: nobody who begins to use it finds only one of the files.
/// Without the locks the files stay, which does no harm.
fn remove_unused(path: &Path) -> Result<(), SqliteError> {
    let (wal, shm) = (beside(path, "-wal"), beside(path, "-shm"));
    let is_empty = || std::fs::metadata(&wal).is_ok_and(|wal| wal.len() == 0);
    if !is_empty() {
        return Ok(());
    }
    let Ok(_lock) = ExclusiveLock::of_writable(path) else {
        return Ok(());
    };
    if !is_empty() {
        return Ok(());
    }
    for side in [wal, shm] {
        durable::if_there(std::fs::remove_file(&side)).during("remove", &side)?;
    }
    Ok(())
}

/// The error if this process may not open as many files as SQLite needs beside those that it has.
/// SQLite itself does not say that this is why it cannot open one.
fn no_more_files(path: &Path) -> Option<SqliteError> {
    let tried: Result<Vec<_>, _> = (0..FILES_OF_SQLITE)
        .map(|_| File::open("/dev/null"))
        .collect();
    let is_limit = |error: &std::io::Error| {
        let limits = [libc::EMFILE, libc::ENFILE];
        error.raw_os_error().is_some_and(|it| limits.contains(&it))
    };
    tried.err().filter(is_limit).map(|source| SqliteError::Io {
        action: "open",
        path: path.into(),
        source,
    })
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let busy = [ffi::SQLITE_BUSY, ffi::SQLITE_LOCKED, ffi::SQLITE_PROTOCOL];
    let code = error.sqlite_error().map(|error| error.extended_code & 0xff);
    code.is_some_and(|code| busy.contains(&code))
}

#[cfg(test)]
mod tests {
    use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, run_once};

    use super::*;

    fn ledger(directory: &Path, journal: Journal) -> CommitLedger {
        let spec = LedgerSpec {
            journal,
            accounts: 10,
            ..LedgerSpec::default()
        };
        CommitLedger::create(&directory.join("a.db"), spec)
    }

    fn begun(ledger: &CommitLedger) -> Session {
        let file = Arc::new(File::open(&ledger.path).unwrap());
        let mut session = Session::open(&ledger.path, &file).unwrap();
        session.begin(Duration::ZERO, &Cancel::new()).unwrap();
        session
    }

    /// Does what the engine does when it has finished with one of its own descriptors.
    fn close_another_descriptor(path: &Path) {
        drop(File::open(path).unwrap());
    }

    #[test]
    fn writers_in_rollback_mode_wait_although_another_descriptor_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), Journal::Delete);
        let mut session = begun(&ledger);
        close_another_descriptor(&ledger.path);
        let refused = run_once(&ledger.path, &ledger.transaction(1));
        assert!(
            refused.as_ref().is_err_and(|why| why.contains("locked")),
            "{refused:?}"
        );
        session.end().unwrap();
        run_once(&ledger.path, &ledger.transaction(1)).unwrap();
        session.close().unwrap();
    }

    #[test]
    fn the_log_is_not_removed_although_another_descriptor_was_closed() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), Journal::Wal);
        let mut session = begun(&ledger);
        close_another_descriptor(&ledger.path);
        // The shell believes that it is the last connection, and the last one removes the log.
        run_once(&ledger.path, &ledger.transaction(1)).unwrap();
        assert!(beside(&ledger.path, "-wal").exists());
        session.end().unwrap();
        session.close().unwrap();
    }

    #[test]
    fn the_error_that_ended_a_transaction_is_the_one_that_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), Journal::Delete);
        let file = Arc::new(File::open(&ledger.path).unwrap());
        let session = Session::open(&ledger.path, &file).unwrap();
        // After a failed read of the disk SQLite ends the transaction itself, and nothing is left
        // to roll back. After other errors the session must roll back.
        for ended in [true, false] {
            let failing = |connection: &Connection| {
                if ended {
                    connection.execute_batch("ROLLBACK")?;
                }
                Err(rusqlite::Error::InvalidQuery)
            };
            let error = session.try_begin_with(failing).unwrap_err();
            assert!(matches!(error, rusqlite::Error::InvalidQuery), "{error}");
            assert!(session.connection.is_autocommit());
        }
    }

    /// SQLite would look into the lost part of its map, and the process would end.
    #[test]
    fn an_index_that_was_cut_off_begins_no_further_transaction() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), Journal::Wal);
        let mut session = begun(&ledger);
        session.end().unwrap();
        let index = beside(&ledger.path, "-shm");
        let file = File::options().write(true).open(&index).unwrap();
        file.set_len(0).unwrap();
        let error = session.begin(Duration::ZERO, &Cancel::new()).unwrap_err();
        let SqliteError::SideLost { path, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*path, index);
        session.close().unwrap();
        assert!(!index.exists());
    }

    #[test]
    fn a_lock_that_is_not_to_be_had_can_be_cancelled() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = ledger(directory.path(), Journal::Delete);
        let mut shell = ledger.shell();
        shell.run("BEGIN EXCLUSIVE;");
        let file = Arc::new(File::open(&ledger.path).unwrap());
        let mut session = Session::open(&ledger.path, &file).unwrap();
        let cancel = Cancel::new();
        let canceller = cancel.clone();
        let waiting = std::thread::spawn(move || canceller.cancel());
        let error = session.begin(Duration::MAX, &cancel).unwrap_err();
        assert!(matches!(error, SqliteError::Engine(_)), "{error}");
        waiting.join().unwrap();
    }
}
