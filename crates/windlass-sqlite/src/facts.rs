//! Facts: what a database is, in the form that people read and that a set keeps.

use serde::{Deserialize, Serialize};
use windlass_media::{Facts, FileNo};

use crate::error::SqliteError;
use crate::header::{DatabaseHeader, is_page_size};
use crate::key::DatabaseKey;
use crate::standing::Standing;

/// Value of `kind` in the facts of a set of a SQLite database.
pub const KIND: &str = "sqlite";

/// The number of the database file, which is the only file in the table of a set.
pub(crate) const DATABASE_FILE: FileNo = FileNo(0);

/// How the database protects its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalMode {
    /// A rollback journal: delete, truncate, persist, memory or off, as each connection chooses.
    Rollback,
    /// A write-ahead log.
    Wal,
}

/// That a set has hashes of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedPages {
    /// The number of the file that has them.
    pub file: u32,
}

/// What a database says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseFacts {
    /// Always `sqlite`.
    pub kind: String,
    /// What the user calls the backup.
    #[serde(default)]
    pub label: String,
    /// File name, without directories.
    pub name: String,
    /// The name of the machine; empty in sets that do not say it.
    #[serde(default)]
    pub host: String,
    /// Absolute path, symbolic links resolved.
    pub path: String,
    /// Page size in bytes; 0 for an empty database.
    pub page_bytes: u32,
    /// Size in pages.
    pub page_count: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Rollback journal or WAL.
    pub journal_mode: JournalMode,
    /// Text encoding: `UTF-8`, `UTF-16le`, `UTF-16be`.
    pub encoding: String,
    /// `PRAGMA user_version`.
    pub user_version: i32,
    /// `PRAGMA application_id`.
    pub application_id: i32,
    /// Whether the file shrinks by itself.
    pub auto_vacuum: bool,
    /// Version of SQLite that was the last to write; empty if the file records none.
    pub sqlite_version: String,
    /// The database is in WAL mode, and that version of SQLite can corrupt such a database
    /// ([`DatabaseHeader::has_wal_reset_bug`]).
    #[serde(default)]
    pub wal_reset_bug: bool,
    /// The number of transactions in rollback mode, as the header counts them.
    pub change_counter: u32,
    /// Where the state of a set stands in the log. Only sets of databases in WAL mode have it.
    #[serde(default)]
    pub standing: Option<Standing>,
    /// Whether the file alone was the state of a set, without the log. Only sets of databases in
    /// WAL mode say that.
    #[serde(default)]
    pub file_is_state: bool,
    /// In a set that builds on another: what said which pages changed since, `log` or `pages`.
    #[serde(default)]
    pub changes_from: Option<String>,
    /// Where the set has the hashes of its pages. Sets that were not read from the database have
    /// none, and older ones.
    #[serde(default)]
    pub page_hashes: Option<HashedPages>,
}

impl DatabaseFacts {
    /// The facts of the database at `path`. `header` is `None` for an empty database.
    pub(crate) fn new(path: &std::path::Path, bytes: u64, header: Option<&DatabaseHeader>) -> Self {
        let name = path.file_name().unwrap_or_default();
        let page_bytes = header.map_or(0, |header| header.page_bytes);
        Self {
            kind: KIND.to_owned(),
            label: String::new(),
            name: name.to_string_lossy().into_owned(),
            host: String::new(),
            path: path.to_string_lossy().into_owned(),
            page_bytes,
            page_count: bytes.div_ceil(u64::from(page_bytes.max(1))),
            bytes,
            journal_mode: match header {
                Some(header) if header.is_wal() => JournalMode::Wal,
                _ => JournalMode::Rollback,
            },
            encoding: encoding_name(header.map_or(1, |header| header.encoding)).to_owned(),
            user_version: header.map_or(0, |header| header.user_version),
            application_id: header.map_or(0, |header| header.application_id),
            auto_vacuum: header.is_some_and(|header| header.auto_vacuum),
            sqlite_version: version_name(header.map_or(0, |header| header.sqlite_version)),
            wal_reset_bug: header.is_some_and(DatabaseHeader::has_wal_reset_bug),
            change_counter: header.map_or(0, |header| header.change_counter),
            standing: None,
            file_is_state: false,
            changes_from: None,
            page_hashes: None,
        }
    }

    /// Which database this is.
    pub fn key(&self) -> DatabaseKey {
        DatabaseKey {
            host: self.host.clone(),
            path: self.path.clone(),
        }
    }

    /// Reads the facts that a set keeps.
    pub fn of_set(facts: &Facts) -> Result<Self, SqliteError> {
        let found: Self =
            serde_json::from_value(facts.database.clone()).map_err(|_| SqliteError::Facts {
                what: "its facts are not those of a SQLite database",
            })?;
        if found.kind != KIND {
            return Err(SqliteError::Facts {
                what: "the set is not one of a SQLite database",
            });
        }
        if found.page_bytes != 0 && !is_page_size(found.page_bytes) {
            return Err(SqliteError::Facts {
                what: "its facts name a page size that SQLite does not have",
            });
        }
        Ok(found)
    }

    /// The facts as a set keeps them.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "kind": self.kind,
            "label": self.label,
            "name": self.name,
            "host": self.host,
            "path": self.path,
            "page_bytes": self.page_bytes,
            "page_count": self.page_count,
            "bytes": self.bytes,
            "journal_mode": self.journal_mode,
            "encoding": self.encoding,
            "user_version": self.user_version,
            "application_id": self.application_id,
            "auto_vacuum": self.auto_vacuum,
            "sqlite_version": self.sqlite_version,
            "wal_reset_bug": self.wal_reset_bug,
            "change_counter": self.change_counter,
            "standing": self.standing,
            "file_is_state": self.file_is_state,
            "changes_from": self.changes_from,
            "page_hashes": self.page_hashes,
        })
    }
}

/// SQLite leaves the field 0 until somebody creates the first table; the encoding is then UTF-8.
fn encoding_name(encoding: u32) -> &'static str {
    match encoding {
        2 => "UTF-16le",
        3 => "UTF-16be",
        _ => "UTF-8",
    }
}

/// `3040001` is 3.40.1.
fn version_name(number: u32) -> String {
    if number == 0 {
        return String::new();
    }
    format!(
        "{}.{}.{}",
        number / 1_000_000,
        number / 1000 % 1000,
        number % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_database_has_facts_and_they_survive_json() {
        let facts = DatabaseFacts::new(std::path::Path::new("/data/app.db"), 0, None);
        let json = facts.to_json();
        assert_eq!(json["name"], "app.db");
        let again: DatabaseFacts = serde_json::from_value(json).unwrap();
        assert_eq!(again, facts);
    }

    #[test]
    fn version_numbers_read_like_versions() {
        assert_eq!(version_name(3_040_001), "3.40.1");
        assert_eq!(version_name(0), "");
    }
}
