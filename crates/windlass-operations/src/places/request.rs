//! What names a set: words, and a choice among the sets that they stand for.

use std::path::{Path, PathBuf};

use super::database::Configured;
use super::which::Which;
use crate::devices::is_place;

/// Which of many sets is meant.
#[derive(Clone, Debug, Default)]
pub struct SetChoice {
    /// Which one; without it the newest.
    pub which: Option<Which>,
    /// Only sets of this database.
    pub of: Option<String>,
}

/// The words that name a set or several: directories, stripes, names of configured databases.
#[derive(Clone, Debug, Default)]
pub struct SetRequest {
    /// The words, each of which may end in `@WHICH`.
    pub words: Vec<PathBuf>,
    /// The choice among the sets.
    pub choice: SetChoice,
    /// The databases whose names stand for the places of their sets.
    pub configured: Vec<Configured>,
}

impl SetRequest {
    /// The newest set of this directory, or the set of this stripe.
    pub fn at(place: impl AsRef<Path>) -> Self {
        Self {
            words: vec![place.as_ref().to_owned()],
            ..Self::default()
        }
    }

    /// The configured names that the words are, without `@WHICH`. None if a word is a path.
    pub fn configured_names(&self) -> Option<String> {
        let names = self.words.iter().map(|word| {
            let name = as_name(word)?;
            let name = name.split_once('@').map_or(name, |(name, _)| name);
            let is_configured = self.configured.iter().any(|one| one.name == name);
            is_configured.then_some(name)
        });
        Some(names.collect::<Option<Vec<_>>>()?.join(", "))
    }

    /// The two parts of `PLACE@WHICH`, unless something with that whole name exists.
    pub(super) fn split<'a>(&self, word: &'a Path) -> Option<(&'a Path, &'a str)> {
        if word.symlink_metadata().is_ok() {
            return None;
        }
        let (place, which) = word.to_str()?.rsplit_once('@')?;
        let is_configured = self.configured.iter().any(|one| one.name == place);
        let place = Path::new(place);
        (is_place(place) || is_configured).then_some((place, which))
    }
}

/// The word, if it can be a name.
pub(super) fn as_name(word: &Path) -> Option<&str> {
    let name = word.to_str()?;
    let is_path = name.is_empty() || name.contains('/') || word.symlink_metadata().is_ok();
    (!is_path).then_some(name)
}
