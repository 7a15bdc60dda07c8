//! The keys of whoever reads.
//!
//! Invariants
//! - A command runs, and a descriptor is read, only when a set needs its key, and once.
//! - A key that was found is kept, so that a set of many stripes costs one passphrase.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_engine::media::{DataKey, KeyCheck, Lock, SetId};
use windlass_engine::{KeyFault, Keys};

use crate::age::{Opens, Passphrase, open_envelope};
use crate::error::KeyError;
use crate::secret::Secret;
use crate::word::KeyWord;

/// Keys, from several words.
#[derive(Default)]
pub struct Keyring(Mutex<Content>);

#[derive(Default)]
struct Content {
    waiting: Vec<KeyWord>,
    secrets: Vec<Box<dyn Opens>>,
    found: HashMap<(SetId, KeyCheck), Arc<DataKey>>,
    /// Envelopes that no key here opens. A passphrase is not tried on them again.
    refused: HashSet<Vec<u8>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyring")
    }
}

impl Keyring {
    /// Takes the keys that these words name. Files are read now.
    pub fn add(&self, words: &[String]) -> Result<(), KeyError> {
        for word in words {
            match KeyWord::parse(word)? {
                KeyWord::Age(recipient) => {
                    return Err(KeyError::OnlyEncrypts(recipient.to_string()));
                }
                word if word.is_read_late() => self.content().waiting.push(word),
                word => {
                    let secret = word.load()?;
                    self.content().take(secret)?;
                }
            }
        }
        Ok(())
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn take(&mut self, secret: Secret) -> Result<(), KeyError> {
        self.refused.clear();
        match secret {
            Secret::Identities(identities) => {
                let boxed = identities
                    .into_iter()
                    .map(|one| Box::new(one) as Box<dyn Opens>);
                self.secrets.extend(boxed);
            }
            Secret::Passphrase(passphrase) => self.secrets.push(Box::new(passphrase)),
            Secret::Recipients(recipients) => {
                let first = recipients.first().map(ToString::to_string);
                return Err(KeyError::OnlyEncrypts(first.unwrap_or_default()));
            }
        }
        Ok(())
    }

    fn load(&mut self) -> Result<(), KeyError> {
        for word in std::mem::take(&mut self.waiting) {
            let secret = word.load()?;
            self.take(secret)?;
        }
        Ok(())
    }

    /// The key in one of the envelopes, and the last thing that was wrong with one.
    fn opened(&mut self, set: SetId, lock: &Lock) -> Result<Option<DataKey>, KeyError> {
        let mut fault = None;
        // Identities cost nothing, passphrases a lot.
        let (slow, fast): (Vec<_>, Vec<_>) = lock
            .envelopes
            .iter()
            .partition(|one| one.recipient == Passphrase::RECIPIENT);
        for envelope in fast.into_iter().chain(slow) {
            if self.refused.contains(&envelope.bytes) {
                continue;
            }
            for secret in &self.secrets {
                match open_envelope(&envelope.bytes, &**secret) {
                    Ok(Some(key)) if key.check_for(set) == lock.check => return Ok(Some(key)),
                    Ok(_) => {}
                    Err(error) => fault = Some(error),
                }
            }
            self.refused.insert(envelope.bytes.clone());
        }
        fault.map_or(Ok(None), Err)
    }
}

impl Keys for Keyring {
    fn open(&self, set: SetId, lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        let mut content = self.content();
        let wanted = (set, lock.check);
        if let Some(found) = content.found.get(&wanted) {
            return Ok(Arc::clone(found));
        }
        let failed = |error: KeyError| KeyFault::Failed(error.to_string());
        content.load().map_err(failed)?;
        if content.secrets.is_empty() {
            return Err(KeyFault::NoKey);
        }
        match content.opened(set, lock).map_err(failed)? {
            Some(key) => {
                let key = Arc::new(key);
                content.found.insert(wanted, Arc::clone(&key));
                Ok(key)
            }
            None => Err(KeyFault::WrongKey),
        }
    }
}
