//! The rollback journal beside a database: whether it is hot, and whether the database lost its
//! content to it.

use std::fs::File;
use std::path::Path;

use windlass_engine::open_regular;

use crate::error::{IoContext, SqliteError};
use crate::header::be32;
use crate::lock;
use crate::view::beside;
use crate::wal::ReadAt;

/// The first bytes of every header in a journal, as SQLite's documentation of its file format gives
/// them.
pub(crate) const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];

/// Fails if the database is empty and a file beside it holds data of it. SQLite would take that
/// file for a leftover and remove it as soon as somebody reads the database. But it may be all that
/// is left of the data.
pub(crate) fn check_not_emptied(path: &Path, file: &File) -> Result<(), SqliteError> {
    if file.metadata().during("inspect", path)?.len() > 0 {
        return Ok(());
    }
    let (wal, journal) = (beside(path, "-wal"), beside(path, "-journal"));
    let logged = std::fs::metadata(&wal).is_ok_and(|wal| wal.len() > 0);
    let emptied = match journal_header(path).map(|header| be32(&header, 16)) {
        _ if logged => Some(wal),
        // When a database gets its first transaction ever, the journal says that it had no pages.
        Some(pages) if pages > 0 && !lock::is_reserved(file).during("inspect", path)? => {
            Some(journal)
        }
        _ => None,
    };
    match emptied {
        Some(kept) => Err(SqliteError::Emptied {
            path: path.to_path_buf(),
            kept,
        }),
        None => Ok(()),
    }
}

/// Magic, page count, random number, initial size in pages, sector size and page size of the
/// database's journal. `None` if there is no journal, or if it is zeroed, as a commit in persist
/// mode leaves it.
pub(crate) fn journal_header(database: &Path) -> Option<[u8; 28]> {
    let journal = open_regular(&beside(database, "-journal")).ok()?;
    let mut header = [0; 28];
    let found = journal.read_full_at(&mut header, 0).ok()?;
    (found == header.len() && header[0] != 0).then_some(header)
}

/// If a journal lies beside a database that nobody is writing to, a transaction never ended. The
/// journal's header holds a random number. So if the header is the same before and after the look
/// at the lock, it is the same journal, and it was there while nobody was writing.
pub(crate) fn is_hot(path: &Path, file: &File) -> Result<bool, SqliteError> {
    let Some(before) = journal_header(path) else {
        return Ok(false);
    };
    let is_idle = !lock::is_reserved(file).during("inspect", path)?;
    Ok(is_idle && journal_header(path) == Some(before))
}
