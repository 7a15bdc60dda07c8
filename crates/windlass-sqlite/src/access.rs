//! What this user must be allowed to do, so that SQLite can read a database at all.
//!
//!   WAL mode:     the -wal and the -shm must be readable, or be made where they are missing
//!   hot journal:  the database and the journal must be writable, and the journal removable
//!
//! This asks the system and changes nothing.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::ffi;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::database::{Database, read_header};
use crate::error::{IoContext, SqliteError};
use crate::header::DatabaseHeader;
use crate::journal::journal_header;
use crate::lock;
use crate::view::beside;

impl Database {
    /// Fails if this user lacks a right without which a backup would fail.
    pub fn check_access(&self) -> Result<(), SqliteError> {
        check(&self.path, &self.file)
    }
}

/// The same, for the database at `path`, which is open as `file`.
pub(crate) fn check(path: &Path, file: &File) -> Result<(), SqliteError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let may_change_names = may(directory, Access::WRITE_OK | Access::EXEC_OK);
    let journal = beside(path, "-journal");
    if is_hot(path, &journal, file)? {
        let may_write = |path: &Path| may(path, Access::READ_OK | Access::WRITE_OK);
        return match may_change_names && may_write(path) && may_write(&journal) {
            true => Ok(()),
            false => Err(SqliteError::HotJournalReadOnly {
                path: path.to_owned(),
            }),
        };
    }
    let header = read_header(file, path)?;
    if header.filter(DatabaseHeader::is_wal).is_none() {
        return Ok(());
    }
    let sides = ["-wal", "-shm"].map(|suffix| beside(path, suffix));
    let is_usable = |side: &PathBuf| match side.exists() {
        true => may(side, Access::READ_OK),
        false => may_change_names,
    };
    match sides.iter().find(|side| !is_usable(side)) {
        None => Ok(()),
        Some(side) => {
            let what = match side.exists() {
                true => format!("{} cannot be read", side.display()),
                false => format!("{} cannot be made", side.display()),
            };
            let source = ffi::Error::new(ffi::SQLITE_CANTOPEN);
            Err(SqliteError::WalUnavailable {
                path: path.to_owned(),
                source: rusqlite::Error::SqliteFailure(source, Some(what)),
            })
        }
    }
}

/// Whether SQLite rolls the journal back before it reads the database. A journal that cannot be
/// read may be one.
fn is_hot(path: &Path, journal: &Path, file: &File) -> Result<bool, SqliteError> {
    let is_there = journal.metadata().is_ok_and(|journal| journal.len() > 0);
    let may_be = is_there && (journal_header(path).is_some() || !may(journal, Access::READ_OK));
    Ok(may_be && !lock::is_reserved(file).during("inspect", path)?)
}

/// Whether this user may do that with a file.
pub(crate) fn may(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}
