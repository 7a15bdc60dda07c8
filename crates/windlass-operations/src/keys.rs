//! The keys that this process reads encrypted sets with.
//!
//! Keys only add up: a set is opened by whichever key opens it, so two operations at the same time
//! do not disturb each other.

use std::sync::{Arc, LazyLock};

use windlass_engine::media::{DataKey, Lock, SetId};
use windlass_engine::{KeyFault, Keys};
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

/// The keys of this process, as a storage has them.
#[derive(Debug)]
pub(crate) struct OwnKeys;

impl Keys for OwnKeys {
    fn open(&self, set: SetId, lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        KEYS.open(set, lock)
    }
}
