//! Notices that a database in WAL mode was overwritten past SQLite's locks, as `cp` does.
//!
//! While a backup holds its read transaction, SQLite writes the first page of the file only if the
//! log has a version of it up to the pinned commit. So the header of that page is one of these:
//! what it was at the beginning, what the log has, or something in between, whose change counter
//! lies between the two. A header that is none of them is another database's.
//!
//! This proves nothing: a foreign file may have the same header, and a checkpoint may replace it
//! before anybody looks. SQLite forbids such writes, and has no lock that keeps them out.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::database::Database;
use crate::error::{IoContext, SqliteError};
use crate::header::{DATABASE_HEADER_BYTES, be32};
use crate::log_pages::LogPages;
use crate::wal::ReadAt;

/// Where the header has the counter of changes.
const CHANGES_AT: usize = 24;

type Header = [u8; DATABASE_HEADER_BYTES];

/// What the header of a pinned database may be.
#[derive(Debug)]
pub(crate) struct KnownHeader {
    file: Arc<File>,
    path: PathBuf,
    seen: Seen,
}

/// The headers that are known to be this database's.
#[derive(Debug)]
struct Seen {
    at_begin: Header,
    /// The newest version in the log, if it has one.
    in_log: Option<Header>,
}

impl KnownHeader {
    /// Takes the header at the beginning, when the state has just been pinned.
    pub(crate) fn take(
        database: &Database,
        log_pages: Option<&LogPages>,
        page_bytes: u32,
    ) -> Result<Self, SqliteError> {
        let in_log = match log_pages.filter(|log_pages| log_pages.has(0)) {
            None => None,
            Some(log_pages) => {
                let mut page = vec![0; page_bytes as usize];
                log_pages.apply(0, &mut page)?;
                page.first_chunk().copied()
            }
        };
        let at_begin = read(&database.file, &database.path)?;
        Ok(Self {
            file: Arc::clone(&database.file),
            path: database.path.clone(),
            seen: Seen { at_begin, in_log },
        })
    }

    /// Fails if the header is none that SQLite can have written since.
    pub(crate) fn check(&self) -> Result<(), SqliteError> {
        if self.seen.allows(&read(&self.file, &self.path)?) {
            return Ok(());
        }
        Err(SqliteError::SourceOverwritten {
            path: self.path.clone(),
        })
    }
}

impl Seen {
    fn allows(&self, now: &Header) -> bool {
        let changes = |header: &Header| be32(header, CHANGES_AT);
        let since = |header: &Header| changes(header).wrapping_sub(changes(&self.at_begin));
        let is_between = |newest: &Header| since(now) <= since(newest);
        *now == self.at_begin || self.in_log.as_ref().is_some_and(is_between)
    }
}

/// The header as the file has it. What the file lacks is zero: a new database may be in its log
/// only.
fn read(file: &File, path: &Path) -> Result<Header, SqliteError> {
    let mut header = [0; DATABASE_HEADER_BYTES];
    file.read_full_at(&mut header, 0).during("read", path)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(changes: u32, rest: u8) -> Header {
        let mut header = [rest; DATABASE_HEADER_BYTES];
        header[CHANGES_AT..CHANGES_AT + 4].copy_from_slice(&changes.to_be_bytes());
        header
    }

    #[test]
    fn only_headers_that_a_checkpoint_can_have_written_are_allowed() {
        let (at_begin, newest) = (header(u32::MAX, 1), header(2, 1));
        let without_log = Seen {
            at_begin,
            in_log: None,
        };
        assert!(without_log.allows(&at_begin));
        assert!(!without_log.allows(&header(u32::MAX, 2)));
        let with_log = Seen {
            at_begin,
            in_log: Some(newest),
        };
        for changes in [u32::MAX, 0, 1, 2] {
            assert!(with_log.allows(&header(changes, 3)), "{changes}");
        }
        assert!(!with_log.allows(&header(3, 1)));
        assert!(!with_log.allows(&header(u32::MAX - 1, 1)));
    }
}
