//! The reach of a pinned state: how long it is, and how much of it must be in the database file.
//!
//!   state    [ page 1 ][ page 2 ] ...                                [ page N ]
//!   file     [ must have these ......... in_file ]  behind it: newest frame of the log
//!
//! Invariants
//! - Each page of the state is in the file or in the log. A page that is in neither is an error,
//!   found here or when it is read. Windlass never puts zeros in its place. There is one exception:
//!   SQLite locks bytes of the page at 1 GiB, so that page holds nothing, and no commit writes it.
//! - No checkpoint cuts the file below `in_file` while the state is pinned (`view.rs` says why). So
//!   if the file is shorter, somebody else cut it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::database::{Database, read_header, replaced_or};
use crate::error::{IoContext, SqliteError};
use crate::header::DatabaseHeader;
use crate::journal::{check_not_emptied, journal_header};
use crate::lock::PENDING_OFFSET;
use crate::log_pages::LogPages;
use crate::playback::check_rollback;
use crate::view::{WalView, beside};
use crate::wal;

/// How often to look at files that nothing locks before a lost end is reported.
const LOOKS_MAX: u32 = 3;

/// Length of a pinned state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// Bytes of the state.
    pub(crate) bytes: u64,
    /// How many of these bytes, counted from the start, must be in the file.
    pub(crate) in_file: u64,
}

impl Database {
    /// Fails if the end of the database is lost: then a backup would fail, too. It locks nothing.
    pub fn check_end(&self) -> Result<(), SqliteError> {
        let checked = Reach::check_unlocked(self);
        checked.map_err(|error| replaced_or(&self.path, &self.file, error))
    }
}

impl Reach {
    /// The reach of the state that a read transaction has just pinned. `view` is its WAL view.
    pub(crate) fn of(
        database: &Database,
        view: Option<&(DatabaseHeader, WalView)>,
    ) -> Result<Self, SqliteError> {
        let path = &database.path;
        let committed =
            view.and_then(|(header, view)| Some((view, view.committed_bytes(header.page_bytes)?)));
        let Some((view, bytes)) = committed else {
            return Self::of_file(&database.file, path);
        };
        let reach = Self {
            bytes,
            in_file: bytes.min(length(&database.file, path)?),
        };
        let in_log = |page| view.log_has(page);
        match reach.missing(view.page_bytes(), in_log) {
            Some(end_offset) => Err(reach.cut_off(path, end_offset)),
            None => Ok(reach),
        }
    }

    /// The reach when there is no log to say how long the state is: the length of the file. The
    /// file must not be shorter than its header says.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<Self, SqliteError> {
        let file_bytes = length(file, path)?;
        let header = read_header(file, path)?;
        let promised = header.map_or(0, |header| header.promised_bytes());
        let reach = Self {
            bytes: file_bytes.max(promised),
            in_file: file_bytes.max(promised),
        };
        reach.check_read(path, file_bytes)?;
        Ok(reach)
    }

    /// Fails if the end of the database is lost, as a backup would. It takes no lock, so somebody
    /// may write between two of its reads. A lost end is lost at the next look, too.
    fn check_unlocked(database: &Database) -> Result<(), SqliteError> {
        check_not_emptied(&database.path, &database.file)?;
        // A transaction is under way, or the next reader plays the journal back, which can restore
        // the end of the file.
        if journal_header(&database.path).is_some() {
            return check_rollback(&database.path, &database.file);
        }
        let mut looked = Self::look(database);
        for _ in 1..LOOKS_MAX {
            if looked.is_ok() {
                break;
            }
            looked = Self::look(database);
        }
        looked
    }

    /// One look at the file and the log, without a lock.
    fn look(database: &Database) -> Result<(), SqliteError> {
        let path = &database.path;
        let header = read_header(&database.file, path)?;
        let log = match header.filter(DatabaseHeader::is_wal) {
            Some(_) => open_log(path)?,
            None => None,
        };
        let Some((page_bytes, bytes, log)) = log else {
            return Self::of_file(&database.file, path).map(drop);
        };
        let reach = Self {
            bytes,
            in_file: bytes.min(length(&database.file, path)?),
        };
        match reach.missing(page_bytes, |page| log.has(page)) {
            Some(end_offset) => Err(reach.cut_off(path, end_offset)),
            None => Ok(()),
        }
    }

    /// Offset of the first page that is neither in the file nor in the log.
    fn missing(&self, page_bytes: u32, in_log: impl Fn(u64) -> bool) -> Option<u64> {
        let page_bytes = u64::from(page_bytes);
        let mut pages = self.in_file / page_bytes..self.bytes / page_bytes;
        let lock_page = PENDING_OFFSET / page_bytes;
        let missing = pages.find(|page| *page != lock_page && !in_log(*page));
        missing.map(|page| self.in_file.max(page * page_bytes))
    }

    /// Fails if the file must be longer than `end_offset`. `end_offset` is where a read ended
    /// early: the file ends there or before.
    pub(crate) fn check_read(&self, path: &Path, end_offset: u64) -> Result<(), SqliteError> {
        if end_offset >= self.in_file {
            return Ok(());
        }
        Err(self.cut_off(path, end_offset))
    }

    fn cut_off(&self, path: &Path, end_offset: u64) -> SqliteError {
        cut_off(path, end_offset, self.bytes)
    }
}

/// The error for a database of `needed_bytes` whose file has nothing at `end_offset`. It names the
/// end of the file, which may lie before `end_offset`.
pub(crate) fn cut_off(path: &Path, end_offset: u64, needed_bytes: u64) -> SqliteError {
    let end = std::fs::metadata(path).map_or(end_offset, |file| file.len());
    SqliteError::CutOff {
        path: path.to_path_buf(),
        found_bytes: end.min(end_offset),
        needed_bytes,
    }
}

/// What the log holds: bytes of a page, bytes of the database, and the pages. `None` if nothing is
/// committed in it.
fn open_log(database: &Path) -> Result<Option<(u32, u64, LogPages)>, SqliteError> {
    let path = beside(database, "-wal");
    let log = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.during("open", &path)?,
    };
    let state = wal::scan(&log, u32::MAX).during("read", &path)?;
    Ok(state.filter(|state| state.page_count > 0).map(|state| {
        let page_bytes = state.header.page_bytes;
        let bytes = u64::from(state.page_count) * u64::from(page_bytes);
        (page_bytes, bytes, LogPages::new(log, path, state))
    }))
}

fn length(file: &File, path: &Path) -> Result<u64, SqliteError> {
    Ok(file.metadata().during("inspect", path)?.len())
}
