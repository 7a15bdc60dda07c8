//! The extent of a pinned state: how long it is, and how much of it the database file has to have.
//!
//!   state    [ page 1 ][ page 2 ] ...                                [ page N ]
//!   file     [ has to have these ....... in_file ]  behind it: newest frame of the log
//!
//! Invariants
//! - A page of the state is in the file or in the log. A page that is in neither is an error, here
//!   or when it is read; zeros never take its place. The one exception is the page at 1 GiB that
//!   SQLite locks bytes of: it holds nothing, and no commit writes it.
//! - No checkpoint cuts the file below `in_file` while the state is pinned (`view.rs` says why), so
//!   a file that is found shorter was cut by somebody else.

use std::fs::File;
use std::path::Path;

use crate::database::{Database, read_header};
use crate::error::{IoContext, SqliteError};
use crate::header::DatabaseHeader;
use crate::lock::PENDING_OFFSET;
use crate::view::WalView;

/// Length of a pinned state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the state.
    pub(crate) bytes: u64,
    /// So many of them, from the start, have to be in the file.
    pub(crate) in_file: u64,
}

impl Extent {
    /// The extent of the state that a read transaction has just pinned; with its view in WAL mode.
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
        let extent = Self {
            bytes,
            in_file: bytes.min(length(&database.file, path)?),
        };
        match extent.missing(view) {
            Some(end_offset) => Err(extent.cut_off(path, end_offset)),
            None => Ok(extent),
        }
    }

    /// The extent where no log says how long the state is: the file's, which must not be shorter
    /// than its header says.
    pub(crate) fn of_file(file: &File, path: &Path) -> Result<Self, SqliteError> {
        let file_bytes = length(file, path)?;
        let header = read_header(file, path)?;
        let promised = header.map_or(0, |header| header.promised_bytes());
        let extent = Self {
            bytes: file_bytes.max(promised),
            in_file: file_bytes.max(promised),
        };
        extent.check_read(path, file_bytes)?;
        Ok(extent)
    }

    /// Where the first page begins that is neither in the file nor in the log.
    fn missing(&self, view: &WalView) -> Option<u64> {
        let page_bytes = u64::from(view.page_bytes());
        let mut pages = self.in_file / page_bytes..self.bytes / page_bytes;
        let lock_page = PENDING_OFFSET / page_bytes;
        let missing = pages.find(|page| *page != lock_page && !view.log_has(*page));
        missing.map(|page| self.in_file.max(page * page_bytes))
    }

    /// Fails if a read came to the end of the file at `end_offset` or before, and the file has to
    /// be longer.
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

/// The error for a database of `needed_bytes` whose file has nothing at `end_offset`; it names the
/// end of the file, which may come even earlier.
pub(crate) fn cut_off(path: &Path, end_offset: u64, needed_bytes: u64) -> SqliteError {
    let end = std::fs::metadata(path).map_or(end_offset, |file| file.len());
    SqliteError::CutOff {
        path: path.to_path_buf(),
        found_bytes: end.min(end_offset),
        needed_bytes,
    }
}

fn length(file: &File, path: &Path) -> Result<u64, SqliteError> {
    Ok(file.metadata().during("inspect", path)?.len())
}
