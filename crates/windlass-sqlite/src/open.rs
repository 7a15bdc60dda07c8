//! A database of a set, opened in place: which file of the image it is, and what a program that
//! may not write must see of it.
//!
//! A set holds one file in one committed state, so there is nothing to recover. But a file that
//! says it is in WAL mode cannot be opened where no -wal and -shm can be made beside it. Shown
//! read-only it therefore says that it has a rollback journal: the two bytes of its header that
//! any reader may ignore but SQLite. A copy that is written to says what the source said.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use windlass_media::{Facts, FileNo, FileTable};

use crate::error::SqliteError;
use crate::facts::{DatabaseFacts, JournalMode};
use crate::restore::only_file;

/// Where the header says which versions of SQLite may write and read: 1 for a rollback journal,
/// 2 for WAL.
const VERSIONS_AT: u64 = 18;
const ROLLBACK_VERSIONS: [u8; 2] = [1, 1];
/// Rows of a check that are kept.
const ROWS_MAX: usize = 100;

/// How an image's database is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The file's name.
    pub name: PathBuf,
    /// What is to be seen of it where nobody may write: file, offset, bytes.
    pub read_only: Option<(FileNo, u64, Vec<u8>)>,
}

/// How the database of a set is shown.
pub fn view(facts: &Facts, files: &FileTable) -> Result<View, SqliteError> {
    let database = DatabaseFacts::of_set(facts)?;
    let (entry, name) = only_file(files)?;
    let patch = || (entry.file, VERSIONS_AT, ROLLBACK_VERSIONS.to_vec());
    Ok(View {
        name,
        read_only: (database.journal_mode == JournalMode::Wal).then(patch),
    })
}

/// What SQLite's own checks say of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Tables that were looked at.
    pub tables: u64,
    /// What is damaged: the table if it is known, and what SQLite says.
    pub faults: Vec<(String, String)>,
    /// What is not as the schema wants it, or could not be checked.
    pub warnings: Vec<(String, String)>,
}

/// Has SQLite check a database that nobody writes to.
pub fn inspect(path: &Path) -> Result<Inspection, SqliteError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let failed = |source| SqliteError::Sqlite {
        action: "open",
        path: path.to_path_buf(),
        source,
    };
    let database = Connection::open_with_flags(path, flags).map_err(failed)?;
    let mut found = Inspection::default();
    let tables = names(&database, &mut found);
    found.tables = tables.len() as u64;
    if !found.check(&database, "", "PRAGMA integrity_check") {
        // Which tables they are, as far as the damage lies in tables.
        for table in &tables {
            let pragma = format!("PRAGMA integrity_check('{}')", table.replace('\'', "''"));
            found.check(&database, table, &pragma);
        }
        found.drop_repeated();
    }
    found.references(&database);
    Ok(found)
}

fn names(database: &Connection, found: &mut Inspection) -> Vec<String> {
    const SQL: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let listed = database.prepare(SQL).and_then(|mut statement| {
        let rows = statement.query_map([], |row| row.get(0))?;
        rows.collect::<Result<Vec<String>, _>>()
    });
    listed.unwrap_or_else(|error| {
        found.note("sqlite_schema", &error);
        Vec::new()
    })
}

impl Inspection {
    /// Runs a check of which each row but `ok` is a fault; false when there were any.
    fn check(&mut self, database: &Connection, table: &str, pragma: &str) -> bool {
        let said = database.prepare(pragma).and_then(|mut statement| {
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            rows.take(ROWS_MAX).collect::<Result<Vec<_>, _>>()
        });
        match said {
            Ok(rows) => {
                let faults = rows.into_iter().filter(|row| row != "ok");
                let before = self.faults.len();
                self.faults
                    .extend(faults.map(|row| (table.to_owned(), row)));
                self.faults.len() == before
            }
            Err(error) => {
                self.note(table, &error);
                false
            }
        }
    }

    /// What was said of a table need not be said of the whole.
    fn drop_repeated(&mut self) {
        let all = self.faults.clone();
        self.faults.retain(|(table, text)| {
            let named = |(other, said): &(String, String)| !other.is_empty() && said == text;
            !table.is_empty() || !all.iter().any(named)
        });
    }

    /// Rows whose parents are missing. SQLite keeps such rows unless each connection asks it not
    /// to, so they are a warning.
    fn references(&mut self, database: &Connection) {
        const SQL: &str = "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check \
            GROUP BY 1, 2 ORDER BY 1, 2";
        let missing = database.prepare(SQL).and_then(|mut statement| {
            let rows = statement.query_map([], |row| {
                let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
                let count: i64 = row.get(2)?;
                Ok((table, format!("{count} rows without their row in {parent}")))
            })?;
            rows.take(ROWS_MAX).collect::<Result<Vec<_>, _>>()
        });
        match missing {
            Ok(rows) => self.warnings.extend(rows),
            Err(error) => self.note("foreign keys", &error),
        }
    }

    /// An error of a check: damage if SQLite says so, else something that it could not do.
    fn note(&mut self, table: &str, error: &rusqlite::Error) {
        let damage = [
            ErrorCode::DatabaseCorrupt,
            ErrorCode::NotADatabase,
            ErrorCode::SystemIoFailure,
        ];
        let code = error.sqlite_error_code();
        let list = if code.is_some_and(|code| damage.contains(&code)) {
            &mut self.faults
        } else {
            &mut self.warnings
        };
        list.push((table.to_owned(), error.to_string()));
    }
}
