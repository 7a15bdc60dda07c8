//! The session that writes: pages of the database, in one transaction.

use std::time::Duration;

use rusqlite::ErrorCode;
use windlass_engine::Cancel;

use super::Session;
use crate::error::SqliteError;

/// How long SQLite waits for readers at a time. It keeps new ones out meanwhile. Between two such
/// times the user can end the wait.
const READERS_WAIT: Duration = Duration::from_millis(500);

impl Session {
    /// Begins a transaction that nobody else can write beside. In rollback mode nobody can read,
    /// either. The second lock is not taken: SQLite could not get the lock that it needs to write.
    pub(crate) fn begin_exclusive(
        &mut self,
        wait: Duration,
        cancel: &Cancel,
    ) -> Result<(), SqliteError> {
        let failed = |source| self.failed("configure the connection to", source);
        self.connection.busy_timeout(READERS_WAIT).map_err(failed)?;
        // A damaged schema must not keep anybody from writing a good one back. And the file system
        // must not bring a deleted journal back after a power cut.
        self.run("PRAGMA writable_schema=ON; PRAGMA synchronous=EXTRA")?;
        self.begin_by(wait, cancel, |session| {
            session.connection.execute_batch("BEGIN EXCLUSIVE")
        })
    }

    /// Puts a page, or cuts the database off in front of it. The cut must be the last: putting
    /// another page takes it back.
    pub(crate) fn put_page(&self, page: u32, bytes: Option<&[u8]>) -> Result<(), SqliteError> {
        let sql = "INSERT INTO sqlite_dbpage(pgno, data) VALUES (?1, ?2)";
        let put = self.connection.prepare_cached(sql);
        let put = put.and_then(|mut put| put.execute((page, bytes)));
        put.map(drop).map_err(|source| match is_no_table(&source) {
            true => SqliteError::NoRawPages,
            false => self.failed("write pages of", source),
        })
    }

    /// Sets the schema cookie, which SQLite takes as a signed number.
    pub(crate) fn set_schema_cookie(&self, cookie: u32) -> Result<(), SqliteError> {
        self.run(&format!("PRAGMA schema_version={}", cookie.cast_signed()))
    }

    /// Commits the transaction.
    pub(crate) fn commit(&self) -> Result<(), SqliteError> {
        let committed = self.connection.execute_batch("COMMIT");
        committed.map_err(|source| self.failed("commit to", source))
    }

    /// Runs a statement.
    pub(crate) fn run(&self, sql: &str) -> Result<(), SqliteError> {
        let run = self.connection.execute_batch(sql);
        run.map_err(|source| self.failed("prepare to write", source))
    }
}

/// Whether SQLite was built without its table of raw pages.
fn is_no_table(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::Unknown)
        && error.to_string().contains("no such table")
}
