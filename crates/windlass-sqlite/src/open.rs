//! A database of a set, opened in place: which file of the image it is, and what a program that may
//! not write must see of it.
//!
//! A set holds one file in one committed state, so there is nothing to recover. But SQLite cannot
//! open a file in WAL mode if it cannot create the -wal and -shm files beside it. So Windlass shows
//! a read-only file as one with a rollback journal: it changes the two bytes of the header that
//! only SQLite needs. A writable copy keeps the source's two bytes.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use windlass_engine::counted;
use windlass_media::{Facts, FileNo, FileTable};

use crate::error::SqliteError;
use crate::facts::{DatabaseFacts, JournalMode};
use crate::restore::only_file;

/// Offset of the two version bytes in the header, for writing and for reading: 1 means a rollback
/// journal, 2 means WAL.
const VERSIONS_AT: u64 = 18;
const ROLLBACK_VERSIONS: [u8; 2] = [1, 1];
/// At most this many rows of a check are kept.
const ROWS_MAX: usize = 100;

/// How an image's database is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownDatabase {
    /// The file's name.
    pub name: PathBuf,
    /// The bytes that a read-only view shows instead of the file's own: file, offset, bytes.
    pub read_only: Option<(FileNo, u64, Vec<u8>)>,
}

/// How the database of a set is shown.
pub fn shown(facts: &Facts, files: &FileTable) -> Result<ShownDatabase, SqliteError> {
    let database = DatabaseFacts::of_set(facts)?;
    let (entry, name) = only_file(files)?;
    let patch = || (entry.file, VERSIONS_AT, ROLLBACK_VERSIONS.to_vec());
    Ok(ShownDatabase {
        name,
        read_only: (database.journal_mode == JournalMode::Wal).then(patch),
    })
}

/// What SQLite's own checks say about a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Number of tables that were checked.
    pub tables: u64,
    /// What is damaged: the table, if it is known, and SQLite's words.
    pub faults: Vec<(String, String)>,
    /// What does not match the schema, or could not be checked.
    pub warnings: Vec<(String, String)>,
}

/// Asks a database that nobody writes to something. Columns are separated by `|` and rows by line
/// breaks; nulls are empty.
pub fn ask(path: &Path, sql: &str) -> Result<String, SqliteError> {
    let failed = |source| SqliteError::Sqlite {
        action: "ask",
        path: path.to_path_buf(),
        source,
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(failed)?;
    let answered = || -> rusqlite::Result<String> {
        let mut statement = database.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|index| row.get_ref(index).map(shown_value));
            lines.push(values.collect::<rusqlite::Result<Vec<_>>>()?.join("|"));
        }
        Ok(lines.join("\n"))
    };
    answered().map_err(failed)
}

fn shown_value(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => String::new(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }
}

/// Lets SQLite check a database that nobody writes to.
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
        // Check each table by itself, to find out which ones are damaged.
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
    /// Runs a check. Each row other than `ok` is a fault. Returns false if there were faults.
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

    /// Drops a fault of the whole database if a table already reports it in the same words.
    fn drop_repeated(&mut self) {
        let all = self.faults.clone();
        self.faults.retain(|(table, text)| {
            let named = |(other, said): &(String, String)| !other.is_empty() && said == text;
            !table.is_empty() || !all.iter().any(named)
        });
    }

    /// Finds rows whose parent rows are missing. They are only a warning: SQLite allows such rows
    /// unless a connection asks it to enforce foreign keys.
    fn references(&mut self, database: &Connection) {
        const SQL: &str = "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check \
            GROUP BY 1, 2 ORDER BY 1, 2";
        let missing = database.prepare(SQL).and_then(|mut statement| {
            let rows = statement.query_map([], |row| {
                let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
                let count = row.get::<_, i64>(2)?.cast_unsigned();
                Ok((
                    table,
                    format!("{} without a row in {parent}", counted(count, "row")),
                ))
            })?;
            rows.take(ROWS_MAX).collect::<Result<Vec<_>, _>>()
        });
        match missing {
            Ok(rows) => self.warnings.extend(rows),
            Err(error) => self.note("foreign keys", &error),
        }
    }

    /// Records an error of a check: as damage if SQLite says so, otherwise as a check that failed.
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
