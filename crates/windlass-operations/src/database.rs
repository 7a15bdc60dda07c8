//! What the word DATABASE means: a SQLite file, a PostgreSQL cluster.

use std::path::{Path, PathBuf};

use crate::caller::ProcessUse;
use crate::error::{DatabaseError, OperationError, OwnerError};
use crate::privilege;

/// A database as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseName {
    /// A libpq connection string or URI.
    Postgres(String),
    /// A path.
    Sqlite(PathBuf),
}

impl DatabaseName {
    /// Finds out what a word means that may stand for a configured database called `name`.
    pub fn resolve_named(text: &str, name: Option<&str>) -> Result<Self, OperationError> {
        match name {
            _ if text.trim().is_empty() => Err(DatabaseError::Empty.into()),
            Some(name) if !Self::is_one(text) => Err(Self::vanished(text, name).into()),
            _ => Self::resolve(text),
        }
    }

    /// Tells a path from a connection string. An existing file is a file, whatever its name.
    pub fn resolve(text: &str) -> Result<Self, OperationError> {
        // libpq takes the server of its variables then. But the word of a script is empty because
        // a variable of the script is, and then another database would be taken.
        if text.trim().is_empty() {
            return Err(DatabaseError::Empty.into());
        }
        let path = Path::new(text);
        let uri = text.starts_with("postgres://") || text.starts_with("postgresql://");
        if !uri && path.symlink_metadata().is_ok() {
            return Self::file(path);
        }
        if Self::is_one(text) {
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err(Self::unknown(text).into())
    }

    /// What a word most likely means; nothing is looked up.
    pub fn guess(text: &str) -> Self {
        let uri = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let is_string = uri || text.contains('=');
        match is_string && (uri || Path::new(text).symlink_metadata().is_err()) {
            true => Self::Postgres(text.to_owned()),
            false => Self::Sqlite(text.into()),
        }
    }

    /// The owner. If it cannot be found (the server or the file does not exist), the usual one:
    /// user `postgres`, or the owner of the directory.
    pub fn owner_or_usual(&self) -> Option<(u32, u32)> {
        self.owner().or_else(|| match self {
            Self::Postgres(_) => privilege::user_ids("postgres"),
            Self::Sqlite(path) => privilege::owner(std::path::absolute(path).ok()?.parent()?),
        })
    }

    /// Whether a word can be a database: a path where something exists, or a connection string.
    pub fn is_one(text: &str) -> bool {
        let uri = text.starts_with("postgres://") || text.starts_with("postgresql://");
        let is_string = uri || text.contains('=');
        is_string || Path::new(text).symlink_metadata().is_ok()
    }

    /// The error for a database that the configuration names and that is not there.
    pub fn vanished(text: &str, name: &str) -> DatabaseError {
        DatabaseError::Vanished {
            text: text.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The error for a word that is not a database.
    pub fn unknown(text: &str) -> DatabaseError {
        let text = text.to_owned();
        match text.contains('/') {
            _ if text.trim().is_empty() => DatabaseError::Empty,
            true => DatabaseError::Missing { text },
            false => DatabaseError::Unknown { text },
        }
    }

    fn file(path: &Path) -> Result<Self, OperationError> {
        let owned = path.to_owned();
        if path.join("PG_VERSION").is_file() {
            return Err(DatabaseError::DataDirectory { path: owned }.into());
        }
        if path.is_dir() {
            return Err(DatabaseError::Directory { path: owned }.into());
        }
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(DatabaseError::Special { path: owned }.into());
        }
        match windlass_sqlite::is_sqlite(path)? {
            true => Ok(Self::Sqlite(owned)),
            false => Err(DatabaseError::NotSqlite { path: owned }.into()),
        }
    }

    /// Becomes the database's owner, if root started this process.
    pub fn become_owner(&self, process: ProcessUse) -> Result<(), OwnerError> {
        self.owner().map_or(Ok(()), |(uid, gid)| {
            privilege::become_user(process, uid, gid)
        })
    }

    /// User and group of the database's owner, if they can be found.
    pub fn owner(&self) -> Option<(u32, u32)> {
        match self {
            Self::Postgres(conninfo) => windlass_postgres::socket_owner(conninfo),
            Self::Sqlite(path) => privilege::owner(path),
        }
    }

    /// The place of the database, which no other database has: the absolute path of the file, or
    /// the address of the server. Nothing is asked.
    pub fn place(&self) -> String {
        match self {
            Self::Postgres(conninfo) => {
                windlass_postgres::server_address(conninfo).unwrap_or_else(|| self.short_name())
            }
            Self::Sqlite(path) => {
                let real = path.canonicalize().or_else(|_| std::path::absolute(path));
                real.unwrap_or_else(|_| path.clone()).display().to_string()
            }
        }
    }

    /// A short name that is known without asking the database: the file's stem, or the kind of the
    /// cluster.
    pub fn short_name(&self) -> String {
        match self {
            Self::Postgres(_) => "postgresql".to_owned(),
            Self::Sqlite(path) => {
                let stem = path.file_stem().unwrap_or_default();
                plain_name(&stem.to_string_lossy())
            }
        }
    }
}

/// The name in the form in which it begins a stripe's name: letters, digits, `-` and `_`.
pub fn plain_name(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    let letters = name.chars().take(40);
    let plain: String = letters
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect();
    match plain.is_empty() {
        true => "database".to_owned(),
        false => plain,
    }
}
