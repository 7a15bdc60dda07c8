//! A configured database: its name stands for the places of its backups, in the place of a set.

use std::path::{Path, PathBuf};

use windlass_engine::EngineError;

use super::error::PlaceError;
use super::identity::Identity;
use super::request::{SetRequest, as_name};
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::nearest::nearest;

/// What the configuration says about a database and its sets.
#[derive(Clone, Debug)]
pub struct Configured {
    /// Its name.
    pub name: String,
    /// The database itself: a path or a connection string.
    pub source: String,
    /// The name of the machine that this configuration is for.
    pub host: String,
    /// Where its backups go.
    pub places: Vec<PathBuf>,
    /// Whether it is no database, but the name of places with the sets of many.
    pub is_repository: bool,
}

impl Configured {
    /// The name of places with the sets of many databases.
    pub fn repository(name: &str, places: Vec<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            source: String::new(),
            host: String::new(),
            places,
            is_repository: true,
        }
    }

    /// Whether the database of a set is of the same kind. A connection string means a cluster.
    pub fn may_be(&self, of: &Identity) -> bool {
        let is_cluster = matches!(DatabaseName::guess(&self.source), DatabaseName::Postgres(_));
        is_cluster == of.is_cluster()
    }

    /// Whether the database of a set has the path of this one.
    pub fn is_at(&self, of: &Identity) -> bool {
        // A set has the path without links. On another machine the file need not exist.
        let real = Path::new(&self.source).canonicalize().ok();
        let real = real.map(|path| path.to_string_lossy().into_owned());
        let path = match of.is_cluster() {
            true => of.key(),
            false => &of.file().path,
        };
        self.source == path || real.as_deref() == Some(path)
    }

    /// Whether the database of a set is on this machine, or does not say where it is.
    pub fn is_here(&self, of: &Identity) -> bool {
        let host = &of.file().host;
        host.is_empty() || *host == self.host
    }
}

/// The configured database that a word means. A file or directory of this name comes first, and a
/// word with a slash is always a path.
pub(super) fn find<'a>(
    request: &'a SetRequest,
    word: &Path,
) -> Result<Option<&'a Configured>, OperationError> {
    let Some(name) = as_name(word) else {
        return Ok(None);
    };
    let mut all = request.configured.iter();
    let Some(found) = all.find(|one| one.name == name) else {
        return Err(unknown(request, name));
    };
    if found.places.is_empty() {
        let name = name.to_owned();
        return Err(PlaceError::NoPlaces { name }.into());
    }
    Ok(Some(found))
}

/// The failure for a word that is neither a file nor a name.
fn unknown(request: &SetRequest, word: &str) -> OperationError {
    let location = word.to_owned();
    let error = EngineError::NoSet { location };
    let names = request.configured.iter().map(|one| one.name.as_str());
    match nearest(word, names) {
        Some(near) => PlaceError::Mistyped {
            error,
            near: near.to_owned(),
        }
        .into(),
        None => error.into(),
    }
}
