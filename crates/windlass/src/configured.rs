//! What the configuration says about a database and its sets.

use std::path::{Path, PathBuf};

use crate::database::DatabaseName;
use crate::places::Identity;

/// What the configuration says about a database and its sets.
#[derive(Clone, Debug)]
pub struct Configured {
    /// Its name.
    pub name: String,
    /// The database itself: a path or a connection string.
    pub source: String,
    /// Where its backups go.
    pub places: Vec<PathBuf>,
}

impl Configured {
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
        self.source == of.key() || real.as_deref() == Some(of.key())
    }
}
