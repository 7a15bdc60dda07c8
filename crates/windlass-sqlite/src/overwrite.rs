//! Overwriting pages of a live database, all of them in one transaction of SQLite.
//!
//!   BEGIN EXCLUSIVE --> read the state --> put pages --> page 1, the new length --> COMMIT
//!
//! SQLite's own journal or log makes this atomic. If the process is killed, the next program that
//! opens the database finds all of the new pages or none. In WAL mode readers go on and see the old
//! state until they begin another transaction. In rollback mode they wait.
//!
//! SQLite gives raw pages to its table `sqlite_dbpage`, behind the back of its B-trees. So this
//! takes care of what they would do:
//! - Each connection keeps the schema that it has read, and reads it again if the schema cookie
//!   changes. The new cookie is one that no connection can have: larger than both, with a gap. The
//!   gap also tells later whether the transaction was committed (`is_committed`).
//! - With `auto_vacuum=full` a commit moves pages by what it knew when it began. In this
//!   transaction it is `incremental`, which moves none.
//! - Before each statement SQLite looks at the cookie, also in this transaction, and would read
//!   the schema out of pages that it believes to be others. So the cookie is set by the last one.
//! - The version bytes stay: whether a database has a log is decided by those who use it.
//! - SQLite writes the change counter and its own version into page 1 at the commit.
//!
//! Locking: SQLite's exclusive lock is held from `begin_overwrite` to the end. No descriptor of the
//! database may be closed in this process meanwhile (`session.rs`).

use std::fs::File;
use std::sync::Arc;

use rustix::fs::Access;
use windlass_engine::Cancel;
use windlass_media::fitted;

use crate::access::may;
use crate::database::{Database, check_same_file, replaced_or};
use crate::error::{IoContext, SqliteError};
use crate::extents::SharedExtents;
use crate::header::{DATABASE_HEADER_BYTES, DatabaseHeader, be32};
use crate::lock::PENDING_OFFSET;
use crate::pinned::{PinnedReader, begin_by};
use crate::reach::Reach;
use crate::session::Session;

/// The version bytes, for writing and for reading.
const VERSIONS: std::ops::Range<usize> = 18..20;
const CHANGE_COUNTER: std::ops::Range<usize> = 24..28;
const PAGE_COUNT: std::ops::Range<usize> = 28..32;
const SCHEMA_COOKIE: std::ops::Range<usize> = 40..44;
/// The largest root page; not 0 if the database has `auto_vacuum`.
const LARGEST_ROOT_AT: usize = 52;
/// Not 0 if `auto_vacuum` is `incremental`.
const INCREMENTAL_AT: usize = 64;
/// The change counter again, and the version of SQLite.
const WRITTEN_BY: std::ops::Range<usize> = 92..100;

/// How far the new schema cookie is from the old ones. If it was committed, the cookie is that or
/// larger; nobody changes a schema so often between a kill and the next command.
const COOKIE_GAP: u32 = 1 << 20;

/// A transaction that overwrites pages. Dropping it before [`Overwrite::commit`] changes nothing.
pub struct Overwrite {
    session: Session,
    reader: Arc<PinnedReader>,
    first_page: Vec<u8>,
    page_bytes: u32,
}

impl Database {
    /// Locks the database, and begins a transaction that can overwrite pages of these many bytes.
    ///
    /// The process must have no other connection to the database, and must close no descriptor of
    /// it, until the transaction ends.
    pub fn begin_overwrite(
        &self,
        page_bytes: u32,
        cancel: &Cancel,
    ) -> Result<Overwrite, SqliteError> {
        let begun = self.begin_overwrite_checked(page_bytes, cancel);
        begun.map_err(|error| replaced_or(&self.path, &self.file, error))
    }

    fn begin_overwrite_checked(
        &self,
        page_bytes: u32,
        cancel: &Cancel,
    ) -> Result<Overwrite, SqliteError> {
        check_same_file(&self.path, &self.file)?;
        if !may(&self.path, Access::WRITE_OK) {
            let denied = std::io::ErrorKind::PermissionDenied;
            return Err(std::io::Error::from(denied)).during("write", &self.path);
        }
        let mut session = Session::open(&self.path, &self.file)?;
        let wait = self.lock_wait;
        let view = begin_by(&mut session, self, |session| {
            session.begin_exclusive(wait, cancel)
        })?;
        let reach = Reach::of(self, view.as_ref())?;
        let log_pages = view.and_then(|(_, mut view)| view.take_log_pages());
        let reader = Arc::new(PinnedReader::new(self, log_pages, reach)?);
        let first_page = read_first_page(&reader, page_bytes)?;
        let overwrite = Overwrite {
            session,
            reader,
            first_page,
            page_bytes,
        };
        overwrite.keep_pages_where_they_are()?;
        Ok(overwrite)
    }
}

/// The first page of the state, which must have pages of this size.
fn read_first_page(reader: &PinnedReader, page_bytes: u32) -> Result<Vec<u8>, SqliteError> {
    let path = reader.path().to_owned();
    if reader.bytes() == 0 {
        return Err(SqliteError::EmptyState { path });
    }
    if reader.page_bytes() != u64::from(page_bytes) {
        return Err(SqliteError::OtherPageSize {
            path,
            page_bytes: fitted(reader.page_bytes()),
            other_bytes: page_bytes,
        });
    }
    let mut page = vec![0; fitted(page_bytes)];
    reader.read(0, &mut page)?;
    Ok(page)
}

impl Overwrite {
    /// Whether a process had ended within a transaction, which SQLite rolled back when this one
    /// began. The state is the one without it.
    pub fn found_hot_journal(&self) -> bool {
        self.session.found_hot_journal()
    }

    /// The state as it is now.
    pub fn reader(&self) -> &Arc<PinnedReader> {
        &self.reader
    }

    /// The parts of the database file that share their blocks with a clone of it, if the file
    /// system tells that.
    pub fn shared_with<'a>(&'a self, clone: &'a File) -> Option<SharedExtents<'a>> {
        SharedExtents::of(self.reader.file(), clone)
    }

    /// Whether the state has one of these pages in its log, and not in the database file. Pages are
    /// counted from 1.
    pub fn is_logged(&self, mut pages: std::ops::Range<u32>) -> bool {
        let log_pages = self.reader.log_pages();
        let is_logged = |page: u32| log_pages.is_some_and(|log| log.has(u64::from(page) - 1));
        pages.any(is_logged)
    }

    /// Whether pages that a killed process wanted to write, with this schema cookie, were
    /// committed.
    pub fn is_committed(&self, schema_cookie: u32) -> bool {
        let now = be32(&self.first_page, SCHEMA_COOKIE.start);
        // Cookies may wrap around.
        now.wrapping_sub(schema_cookie) < u32::MAX / 2
    }

    /// The schema cookie that the database gets if this first page is committed.
    pub fn schema_cookie(&self, first_page: &[u8]) -> u32 {
        let cookie = |page: &[u8]| be32(page, SCHEMA_COOKIE.start);
        let (now, then) = (cookie(&self.first_page), cookie(first_page));
        now.max(then).wrapping_add(COOKIE_GAP)
    }

    /// Overwrites a page, or adds one at the end. Pages are counted from 1. The first page is put
    /// by `commit`.
    pub fn put(&self, page: u32, bytes: &[u8]) -> Result<(), SqliteError> {
        self.session.put_page(page, Some(bytes))
    }

    /// Puts the first page, cuts the database to its new length, and commits, durably.
    pub fn commit(self, first_page: &[u8], page_count: u32) -> Result<(), SqliteError> {
        let reader = Arc::clone(&self.reader);
        let committed = self.commit_checked(first_page, page_count);
        committed.map_err(|error| replaced_or(reader.path(), reader.file(), error))
    }

    fn commit_checked(self, first_page: &[u8], page_count: u32) -> Result<(), SqliteError> {
        let mut page = first_page.to_vec();
        let cookie = self.schema_cookie(first_page);
        page[VERSIONS].copy_from_slice(&self.first_page[VERSIONS]);
        page[PAGE_COUNT].copy_from_slice(&page_count.to_be_bytes());
        page[SCHEMA_COOKIE].copy_from_slice(&self.first_page[SCHEMA_COOKIE]);
        self.session.put_page(1, Some(&page))?;
        let bytes = u64::from(page_count) * u64::from(self.page_bytes);
        if bytes < self.reader.bytes() {
            self.session.put_page(page_count + 1, None)?;
        }
        self.session.set_schema_cookie(cookie)?;
        check_same_file(self.reader.path(), self.reader.file())?;
        self.session.commit()?;
        self.session.close()
    }

    /// Keeps the commit from moving pages.
    fn keep_pages_where_they_are(&self) -> Result<(), SqliteError> {
        let number = |at| be32(&self.first_page, at);
        match number(LARGEST_ROOT_AT) != 0 && number(INCREMENTAL_AT) == 0 {
            true => self.session.run("PRAGMA auto_vacuum=incremental"),
            false => Ok(()),
        }
    }
}

/// Whether nothing can be stored in a page, because SQLite locks bytes of it. Pages are counted
/// from 1.
pub fn is_lock_page(page: u32, page_bytes: u32) -> bool {
    u64::from(page) == PENDING_OFFSET / u64::from(page_bytes) + 1
}

/// The first page without what SQLite writes into it at every commit, and without what stays when a
/// state is written back. Two states are alike if these are, and all other pages.
pub fn comparable_first_page(page: &[u8]) -> Vec<u8> {
    let mut page = page.to_vec();
    for range in [VERSIONS, CHANGE_COUNTER, SCHEMA_COOKIE, WRITTEN_BY] {
        if let Some(bytes) = page.get_mut(range) {
            bytes.fill(0);
        }
    }
    page
}

/// Size of a page of a state, and the number of its pages. `first_bytes` are the first 100 bytes of
/// its file. `None` if it is empty.
pub fn shape_of_state(first_bytes: &[u8], bytes: u64) -> Option<(u32, u32)> {
    let header = DatabaseHeader::decode(first_bytes.get(..DATABASE_HEADER_BYTES)?).ok()?;
    let pages = bytes / u64::from(header.page_bytes);
    Some((header.page_bytes, u32::try_from(pages).ok()?))
}
