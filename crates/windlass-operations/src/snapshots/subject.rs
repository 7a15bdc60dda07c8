//! The database of a snapshot: where it is, and whose.

use std::path::{Path, PathBuf};

use windlass_postgres::Cluster;
use windlass_snapshot::{Place, hook};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::privilege;

/// A database that can have snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A SQLite file, or a server.
    Live(DatabaseName),
    /// A data directory. Its server need not run, so nothing new can be made of it.
    DataDirectory(PathBuf),
    /// A database that is not there any more. Its snapshots are.
    Gone(PathBuf),
}

impl Subject {
    /// Finds out what a word means that may stand for a configured database called `name`.
    pub fn resolve(text: &str, name: Option<&str>) -> Result<Self, OperationError> {
        let path = Path::new(text);
        if path.join("PG_VERSION").is_file() {
            return Ok(Self::of_directory(path));
        }
        let resolved = DatabaseName::resolve_named(text, name).map(Self::Live);
        resolved.or_else(|error| Self::gone(path).ok_or(error))
    }

    /// A database that is not there, if it has snapshots.
    pub fn gone(path: &Path) -> Option<Self> {
        let home = |path| Some(Place::beside(path).ok()?.home().is_dir());
        (!path.exists() && home(path)?).then(|| Self::Gone(path.to_owned()))
    }

    /// A data directory. A bare name has no directory above it, so it becomes an absolute path.
    pub fn of_directory(path: &Path) -> Self {
        Self::DataDirectory(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// Becomes the owner of the database, if root started this process.
    pub fn become_owner(&self, caller: &Caller) -> Result<(), OperationError> {
        let process = caller.process;
        match self {
            Self::Live(name) => Ok(name.become_owner(process)?),
            Self::DataDirectory(_) | Self::Gone(_) => match self.owner() {
                Some((uid, gid)) => Ok(privilege::become_user(process, uid, gid)?),
                None => Ok(()),
            },
        }
    }

    /// User and group of the owner, if they can be found.
    pub fn owner(&self) -> Option<(u32, u32)> {
        match self {
            Self::Live(name) => name.owner(),
            Self::DataDirectory(path) => privilege::owner(path),
            // It was the database's owner who made the place.
            Self::Gone(path) => privilege::owner(Place::beside(path).ok()?.home()),
        }
    }

    /// Removes the memories of the hook that no server needs any more. A SQLite database never had
    /// one.
    pub(super) fn sweep_memories(&self) {
        if !matches!(self, Self::Live(DatabaseName::Sqlite(_))) {
            hook::sweep_memories();
        }
    }

    /// The place of its snapshots. A server is asked where its data directory is.
    pub fn place(&self) -> Result<Place, OperationError> {
        Ok(Place::beside(&self.path()?)?)
    }

    /// The database file, or the data directory.
    pub fn path(&self) -> Result<PathBuf, OperationError> {
        match self {
            Self::Live(DatabaseName::Sqlite(path))
            | Self::DataDirectory(path)
            | Self::Gone(path) => Ok(path.clone()),
            Self::Live(DatabaseName::Postgres(conninfo)) => {
                let cluster = Cluster::connect(conninfo)?;
                Ok(cluster.facts().data_directory.clone())
            }
        }
    }
}
