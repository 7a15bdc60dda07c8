//! What can be wrong with the catalog of runs.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the catalog cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// There is no directory for it.
    #[error("make {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An error of one of its files.
    #[error("open {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A later version of Windlass made it.
    #[error("{} is of version {version}, and this Windlass knows version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: i64,
        /// The version that this program writes.
        known: i64,
    },
    /// The file is a database of something else.
    #[error("{} is no history of Windlass", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
    /// SQLite cannot do it.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: rusqlite::Error,
    },
}

impl CatalogError {
    /// Whether this user has no place for a catalog, as in a hook that runs as another user than
    /// the one whose state directory the environment names.
    pub fn is_without_place(&self) -> bool {
        match self {
            Self::Directory { .. } => true,
            Self::Io { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// What an error of SQLite means for the catalog.
pub(super) fn of(path: &Path) -> impl Fn(rusqlite::Error) -> CatalogError {
    let path = path.to_owned();
    move |source| {
        let code = source.sqlite_error_code();
        let path = path.clone();
        match code {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                CatalogError::Damaged { path, source }
            }
            _ => CatalogError::Sqlite { path, source },
        }
    }
}
