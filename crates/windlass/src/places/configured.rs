//! A configured database's name in the place of a set: it stands for the places of its backups.

use std::path::{Path, PathBuf};

use windlass_engine::EngineError;

use crate::cli::Global;
use crate::configured::Configured;
use crate::exit::Failure;
use crate::nearest::nearest;

/// The configured database that a word means. A file or directory of this name comes first, and a
/// word with a slash is always a path.
pub(super) fn find<'a>(global: &'a Global, word: &Path) -> Result<Option<&'a Configured>, Failure> {
    let Some(name) = name(word) else {
        return Ok(None);
    };
    let mut all = global.configured.iter();
    let Some(found) = all.find(|one| one.name == name) else {
        return Err(unknown(global, name));
    };
    if found.places.is_empty() {
        let message = format!("the configuration does not say where the sets of {name} are");
        let hint = "Name a stripe or a directory, or add to the database in the configuration: \
                    to = [\"/path/of/its/sets\"]";
        return Err(Failure::usage(message, hint));
    }
    Ok(Some(found))
}

/// The configured names that these words are, which may end in `@WHICH`. None if a word is a path.
pub fn names_of(global: &Global, words: &[PathBuf]) -> Option<String> {
    let names = words.iter().map(|word| {
        let name = name(word)?;
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        let is_configured = global.configured.iter().any(|one| one.name == name);
        is_configured.then_some(name)
    });
    Some(names.collect::<Option<Vec<_>>>()?.join(", "))
}

/// The word, if it can be a name.
fn name(word: &Path) -> Option<&str> {
    let name = word.to_str()?;
    let is_path = name.is_empty() || name.contains('/') || word.symlink_metadata().is_ok();
    (!is_path).then_some(name)
}

/// The failure for a word that is neither a file nor a name.
fn unknown(global: &Global, word: &str) -> Failure {
    let location = word.to_owned();
    let failure = Failure::from(EngineError::NoSet { location });
    let names = global.configured.iter().map(|one| one.name.as_str());
    match nearest(word, names) {
        Some(near) => {
            let hint = format!("Did you mean {near}, which the configuration names?");
            failure.hinting(&hint)
        }
        None => failure,
    }
}
