//! The session that moves a database's log along: checkpoints, and a moment without writers.

use rusqlite::ErrorCode;

use super::{Session, is_busy};
use crate::error::SqliteError;

impl Session {
    /// Copies what it can of the log into the database file, and waits for nobody. False if another
    /// process is at it, or if the disk is full: then the log grows, and is captured all the same.
    pub(crate) fn checkpoint(&self) -> Result<bool, SqliteError> {
        self.check_map()?;
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        let busy = self
            .connection
            .query_row(sql, [], |row| row.get::<_, i64>(0));
        match busy {
            Ok(busy) => Ok(busy == 0),
            Err(error) if is_busy(&error) || is_full(&error) => Ok(false),
            Err(source) => Err(self.failed("copy the log into", source)),
        }
    }

    /// Keeps others from writing. False if somebody writes just now.
    pub(crate) fn try_hold_writers(&self) -> Result<bool, SqliteError> {
        self.check_map()?;
        match self.connection.execute_batch("BEGIN IMMEDIATE") {
            Ok(()) => Ok(true),
            Err(error) if is_busy(&error) => Ok(false),
            // The disk is full, or the directory cannot be written to: the log grows instead.
            Err(error) if is_full(&error) => Ok(false),
            Err(source) => Err(self.failed("keep writers from", source)),
        }
    }

    /// Lets others write again.
    pub(crate) fn release_writers(&self) -> Result<(), SqliteError> {
        let released = self.connection.execute_batch("ROLLBACK");
        released.map_err(|source| self.failed("let writers into", source))
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}
