//! One committed state of a live database, pinned while somebody reads it.
//!
//!   read transaction --> view --> file, overlaid with the log's pages --> `PinnedReader`
//!
//! In WAL mode no writer waits meanwhile. In rollback mode no writer can commit, as with any other
//! reader that has a transaction open.
//!
//! Locking: see `session.rs`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::Cancel;
use windlass_media::fitted;

use crate::database::{Database, check_same_file, read_header, replaced_or};
use crate::error::{IoContext, SqliteError};
use crate::header::DatabaseHeader;
use crate::log_pages::LogPages;
use crate::reach::Reach;
use crate::session::Session;
use crate::view::{WalView, beside};
use crate::wal::ReadAt;

/// At most this many read transactions are begun if the WAL-index was left half-written.
const VIEW_TRIES_MAX: u32 = 3;

/// A committed state, pinned until [`PinnedState::end`].
pub struct PinnedState {
    session: Session,
    /// The view, and whether the log has pages that the file lacks.
    view: Option<(WalView, bool)>,
    reader: Arc<PinnedReader>,
}

/// The bytes of a pinned state; any number of threads may read.
#[derive(Debug)]
pub struct PinnedReader {
    file: Arc<File>,
    path: PathBuf,
    log_pages: Option<LogPages>,
    reach: Reach,
    page_bytes: u64,
}

impl Database {
    /// Pins the newest committed state.
    pub fn pin(&self, cancel: &Cancel) -> Result<PinnedState, SqliteError> {
        let pinned = self.pin_newest(cancel);
        pinned.map_err(|error| replaced_or(&self.path, &self.file, error))
    }

    fn pin_newest(&self, cancel: &Cancel) -> Result<PinnedState, SqliteError> {
        check_same_file(&self.path, &self.file)?;
        let mut session = Session::open(&self.path, &self.file)?;
        let view = begin(&mut session, self, cancel)?;
        let reach = Reach::of(self, view.as_ref())?;
        let (view, log_pages) = match view {
            None => (None, None),
            Some((_, mut view)) => {
                let log_pages = view.take_log_pages();
                (Some((view, log_pages.is_some())), log_pages)
            }
        };
        let reader = Arc::new(PinnedReader::new(self, log_pages, reach)?);
        Ok(PinnedState {
            session,
            view,
            reader,
        })
    }
}

impl PinnedState {
    /// The state's bytes.
    pub fn reader(&self) -> Arc<PinnedReader> {
        Arc::clone(&self.reader)
    }

    /// Whether a transaction of a process that crashed was rolled back first.
    pub(crate) fn found_hot_journal(&self) -> bool {
        self.session.found_hot_journal()
    }

    /// True when the database has a log, so that writers go on while the state is pinned.
    pub fn writers_go_on(&self) -> bool {
        self.view.is_some()
    }

    /// Releases the state and returns how long it was pinned. What was read is valid only if this
    /// succeeds.
    pub fn end(self) -> Result<Duration, SqliteError> {
        let reader = Arc::clone(&self.reader);
        let ended = self.end_checked();
        ended.map_err(|error| replaced_or(&reader.path, &reader.file, error))
    }

    fn end_checked(mut self) -> Result<Duration, SqliteError> {
        if let Some((view, has_log_pages)) = &self.view {
            view.check(*has_log_pages)?;
        }
        let held = self.session.end()?;
        self.session.close()?;
        Ok(held)
    }
}

impl PinnedReader {
    /// Of the state that a transaction has just pinned.
    pub(crate) fn new(
        database: &Database,
        log_pages: Option<LogPages>,
        reach: Reach,
    ) -> Result<Self, SqliteError> {
        let header = read_header(&database.file, &database.path)?;
        Ok(Self {
            file: Arc::clone(&database.file),
            path: database.path.clone(),
            log_pages,
            reach,
            page_bytes: header.map_or(1, |header| u64::from(header.page_bytes)),
        })
    }

    /// Length of the state in bytes.
    pub fn bytes(&self) -> u64 {
        self.reach.bytes
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    pub(crate) fn log_pages(&self) -> Option<&LogPages> {
        self.log_pages.as_ref()
    }

    /// Bytes of a page; 1 for an empty database.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Reads bytes at `offset`. Returns how many; fewer than asked for only at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, SqliteError> {
        let read = self.read_pinned(offset, into);
        read.map_err(|error| replaced_or(&self.path, &self.file, error))
    }

    fn read_pinned(&self, offset: u64, into: &mut [u8]) -> Result<usize, SqliteError> {
        let left = self.reach.bytes.saturating_sub(offset);
        let length = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let into = &mut into[..length];
        let Some(log_pages) = &self.log_pages else {
            self.read_file(into, offset)?;
            return Ok(length);
        };
        // The log replaces whole pages, so read whole pages first.
        let before = fitted(offset % self.page_bytes);
        let start = offset - before as u64;
        let end = (offset + length as u64).next_multiple_of(self.page_bytes);
        let mut pages = vec![0; fitted(end - start)];
        self.read_file(&mut pages, start)?;
        log_pages.apply(start, &mut pages)?;
        into.copy_from_slice(&pages[before..before + length]);
        Ok(length)
    }

    /// Reads only the file. Leaves zeros where pages of the state are only in the log.
    fn read_file(&self, into: &mut [u8], offset: u64) -> Result<(), SqliteError> {
        let found = self.file.read_full_at(into, offset);
        let found = found.during("read", &self.path)?;
        if found < into.len() {
            self.reach.check_read(&self.path, offset + found as u64)?;
        }
        into[found..].fill(0);
        Ok(())
    }
}

/// Begins a read transaction, which pins a committed state. In WAL mode it also returns the view.
pub(crate) fn begin(
    session: &mut Session,
    database: &Database,
    cancel: &Cancel,
) -> Result<Option<(DatabaseHeader, WalView)>, SqliteError> {
    begin_by(session, database, |session| {
        session.begin(database.lock_wait, cancel)
    })
}

/// The same for another kind of transaction.
pub(crate) fn begin_by(
    session: &mut Session,
    database: &Database,
    mut begin: impl FnMut(&mut Session) -> Result<(), SqliteError>,
) -> Result<Option<(DatabaseHeader, WalView)>, SqliteError> {
    for _ in 0..VIEW_TRIES_MAX {
        begin(session)?;
        check_same_file(&database.path, &database.file)?;
        let header = read_header(&database.file, &database.path)?;
        let Some(header) = header.filter(DatabaseHeader::is_wal) else {
            return Ok(None);
        };
        let shm = session.shm()?;
        if let Some(view) = WalView::take(database, shm, &header)? {
            return Ok(Some((header, view)));
        }
        session.end()?;
    }
    let path = beside(&database.path, "-shm");
    Err(SqliteError::WalIndex {
        path,
        what: "its header does not come to rest",
    })
}
