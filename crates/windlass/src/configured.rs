//! What the configuration says about a database and its sets.

use std::path::{Path, PathBuf};

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
    /// What its sets may call it: the words of `--database` that may mean it.
    pub fn words(&self) -> Vec<String> {
        // A set has the path without links. On another machine the file need not exist.
        let real = Path::new(&self.source).canonicalize().ok();
        let real = real.map(|path| path.to_string_lossy().into_owned());
        let words = [Some(self.source.clone()), Some(self.name.clone())];
        real.into_iter()
            .chain(words.into_iter().flatten())
            .collect()
    }
}
