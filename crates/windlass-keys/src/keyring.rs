//! The keys of whoever reads.
//!
//! Invariants
//! - A command runs, and a descriptor is read, only when a set needs its key, and once. One that
//!   fails keeps no other key from being tried.
//! - A key that was found is kept, so that a set of many stripes costs one passphrase.

use std::collections::{HashMap, HashSet, VecDeque};
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
    waiting: VecDeque<KeyWord>,
    /// Why keys could not be had.
    failed: Vec<String>,
    secrets: Vec<Box<dyn Opens>>,
    found: HashMap<(SetId, KeyCheck), Arc<DataKey>>,
    /// What was in envelopes for passphrases. The objects of a log share them.
    opened: HashMap<Vec<u8>, Arc<DataKey>>,
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
                word if word.is_read_late() => self.content().waiting.push_back(word),
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

    /// The key in one of the envelopes. Keys that wait are fetched one after the other until one
    /// opens it.
    fn found(&mut self, set: SetId, lock: &Lock) -> Result<Arc<DataKey>, KeyFault> {
        loop {
            let opened = self.opened(set, lock);
            match opened.map_err(|error| KeyFault::Failed(error.to_string())) {
                Ok(Some(key)) => return Ok(key),
                Ok(None) => {}
                Err(fault) if self.waiting.is_empty() => return Err(fault),
                Err(_) => {}
            }
            let Some(word) = self.waiting.pop_front() else {
                break;
            };
            let taken = word.load().and_then(|secret| self.take(secret));
            self.failed
                .extend(taken.err().map(|error| error.to_string()));
        }
        Err(match (self.failed.first(), self.secrets.is_empty()) {
            (Some(why), _) => KeyFault::Failed(why.clone()),
            (None, true) => KeyFault::NoKey,
            (None, false) => KeyFault::WrongKey,
        })
    }

    /// The key in one of the envelopes, and the last thing that was wrong with one.
    fn opened(&mut self, set: SetId, lock: &Lock) -> Result<Option<Arc<DataKey>>, KeyError> {
        let mut fault = None;
        let known = lock
            .envelopes
            .iter()
            .filter_map(|one| self.opened.get(&one.bytes));
        if let Some(key) = { known }.find(|key| key.check_for(set) == lock.check) {
            return Ok(Some(Arc::clone(key)));
        }
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
                    Ok(Some(key)) if key.check_for(set) == lock.check => {
                        let key = Arc::new(key);
                        if envelope.recipient == Passphrase::RECIPIENT {
                            let known = Arc::clone(&key);
                            self.opened.insert(envelope.bytes.clone(), known);
                        }
                        return Ok(Some(key));
                    }
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
        let key = content.found(set, lock)?;
        content.found.insert(wanted, Arc::clone(&key));
        Ok(key)
    }
}
