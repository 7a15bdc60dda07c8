//! Side files: the files that SQLite keeps beside a database, named like it with a suffix.
//!
//! These names belong to the database whether or not the files exist. SQLite plays a `-wal` or
//! `-journal` that it finds into the database, and may remove either at any time.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_engine::OutputKind;

use crate::database::is_sqlite;
use crate::error::{IoContext, SqliteError};
use crate::journal::JOURNAL_MAGIC;
use crate::shm::VERSION as WAL_INDEX_VERSION;
use crate::view::beside;

/// The suffixes of side files.
pub(crate) const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-journal", "-shm"];

/// What a file with such a name may hold so that it may be removed with its database: a log, a
/// journal (it begins with zeros once its transaction has ended), or a log's index.
pub(crate) const SIDE_FILE: OutputKind = OutputKind {
    noun: "a side file of a SQLite database",
    is_own: |beginning| {
        let log = beginning.starts_with(&[0x37, 0x7f, 0x06, 0x82])
            || beginning.starts_with(&[0x37, 0x7f, 0x06, 0x83]);
        let journal = beginning.starts_with(&JOURNAL_MAGIC);
        // The number is in the byte order of the machine that made it.
        let index = beginning.starts_with(&WAL_INDEX_VERSION.to_le_bytes())
            || beginning.starts_with(&WAL_INDEX_VERSION.to_be_bytes());
        let ended = beginning
            .iter()
            .take(JOURNAL_MAGIC.len())
            .all(|byte| *byte == 0);
        log || journal || index || ended
    },
    is_renamed: true,
};

/// The paths of a database and its side files, whether or not they exist: under the given name, and
/// under the real one.
pub fn files_of(database: &Path) -> io::Result<Vec<PathBuf>> {
    let named = std::path::absolute(database)?;
    let mut databases = vec![named.clone()];
    // SQLite first follows a link, and keeps the side files where the link leads.
    databases.extend(named.canonicalize().ok().filter(|real| *real != named));
    let mut files = Vec::new();
    for database in databases {
        files.extend(SIDE_SUFFIXES.map(|suffix| beside(&database, suffix)));
        files.push(database);
    }
    Ok(files)
}

/// Says which database a path is, or would be, a side file of, in words that follow `cannot write
/// PATH:`.
pub fn side_file_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let database = SIDE_SUFFIXES
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))?;
    let database = path.with_file_name(database);
    let is_database = database.is_file() && is_sqlite(&database).unwrap_or(true);
    is_database.then(|| {
        let database = database.display();
        format!("SQLite keeps changes of the database {database} under this name")
    })
}

/// Fails if the path does not name this open side file any more.
pub(crate) fn check_side(path: &Path, file: &File) -> Result<(), SqliteError> {
    let opened = file.metadata().during("inspect", path)?;
    let named = std::fs::metadata(path).ok();
    match named.is_some_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
        true => Ok(()),
        false => Err(SqliteError::SideLost {
            path: path.to_owned(),
            what: "removed or replaced",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_side_file_is_known_by_the_database_it_stands_beside() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("a.db"), b"SQLite format 3\0 and so on").unwrap();
        std::fs::write(at("notes"), b"eggs").unwrap();
        std::os::unix::fs::symlink(at("a.db"), at("link.db")).unwrap();
        for name in ["a.db-wal", "a.db-shm", "a.db-journal", "link.db-wal"] {
            assert!(side_file_of(&at(name)).is_some(), "{name}");
        }
        for name in ["a.db", "notes-wal", "none-wal", "a.db-walnut", "-wal"] {
            assert_eq!(side_file_of(&at(name)), None, "{name}");
        }
        let files = files_of(&at("link.db")).unwrap();
        for name in ["link.db", "link.db-wal", "a.db", "a.db-wal"] {
            let path = at("").canonicalize().unwrap().join(name);
            assert!(files.contains(&path), "{name} in {files:?}");
        }
    }
}
