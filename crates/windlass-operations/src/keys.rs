//! The keys that this process reads encrypted sets with.
//!
//! Keys only add up: a set is opened by whichever key opens it, so two operations at the same time
//! do not disturb each other.

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use windlass_engine::{EngineError, Files, Kept, Keys, Lies, PlaceFile, ReadAt, Storage};
use windlass_keys::Keyring;

use crate::error::OperationError;

static KEYS: LazyLock<Keyring> = LazyLock::new(Keyring::default);

/// Takes the keys that these words name: `identity-file:PATH`, `passphrase-file:PATH`, `fd:N`,
/// `command:PROGRAM`. Call it before the process becomes another user, who may not read them.
pub fn add_keys(words: &[String]) -> Result<(), OperationError> {
    Ok(KEYS.add(words)?)
}

/// Refuses a word that names no key.
pub fn check_key(word: &str) -> Result<(), OperationError> {
    Ok(windlass_keys::check_words(&[word.to_owned()])?)
}

/// The files of this machine, and the keys of this process.
#[derive(Debug)]
pub(crate) struct OwnFiles;

impl Storage for OwnFiles {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        Files.look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Files.open(location)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        Files.list(place, each)
    }

    fn keys(&self) -> &dyn Keys {
        &*KEYS
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        Files.is_same(one, other)
    }

    fn keep(&self, location: &Path, opened: &dyn ReadAt) -> io::Result<Kept> {
        Files.keep(location, opened)
    }

    fn reserve(&self, location: &Path) -> io::Result<Option<Kept>> {
        Files.reserve(location)
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        Files.remove(location)
    }

    fn write(&self, location: &Path, content: &[u8]) -> io::Result<()> {
        Files.write(location, content)
    }
}
