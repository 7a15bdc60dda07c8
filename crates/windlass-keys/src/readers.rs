//! Who will be able to read what is encrypted.

use windlass_engine::Encryption;
use windlass_engine::media::{
    DataKey, ENVELOPES_MAX, Envelope, Lock, LogEncryption, SetCipher, SetId,
};

use crate::age::{Identity, Passphrase, Recipient};
use crate::error::KeyError;
use crate::secret::Secret;
use crate::word::KeyWord;

/// The readers of a set to be: recipients of age and passphrases.
#[derive(Debug, Default)]
pub struct Readers {
    recipients: Vec<Recipient>,
    passphrases: Vec<Passphrase>,
}

impl Readers {
    /// The readers whom these words name; none if there are no words, because nobody asked for
    /// encryption.
    pub fn asked(words: &[String]) -> Result<Option<Self>, KeyError> {
        match words {
            [] => Ok(None),
            words => Self::of_words(words).map(Some),
        }
    }

    /// The readers whom these words name. Each secret is read now.
    pub fn of_words(words: &[String]) -> Result<Self, KeyError> {
        let mut readers = Self::default();
        for word in words {
            match KeyWord::parse(word)?.load()? {
                Secret::Recipients(more) => readers.recipients.extend(more),
                Secret::Identities(more) => {
                    readers
                        .recipients
                        .extend(more.iter().map(Identity::recipient));
                }
                Secret::Passphrase(one) => readers.passphrases.push(one),
            }
        }
        let mut seen = Vec::new();
        readers.recipients.retain(|one| {
            let text = one.to_string();
            let is_new = !seen.contains(&text);
            seen.push(text);
            is_new
        });
        match readers.recipients.len() + readers.passphrases.len() {
            0 => Err(KeyError::Nobody),
            count if count > ENVELOPES_MAX => Err(KeyError::TooMany),
            _ => Ok(readers),
        }
    }

    /// The encryption of a new set, if it has readers.
    pub fn encryption_of(
        readers: Option<&Self>,
        set_id: SetId,
    ) -> Result<Option<Encryption>, KeyError> {
        readers.map(|it| it.encryption(set_id)).transpose()
    }

    /// The encryption of a new set, with a fresh data key.
    pub fn encryption(&self, set_id: SetId) -> Result<Encryption, KeyError> {
        let key = DataKey::random().map_err(|_| KeyError::NoRandom)?;
        let cipher = SetCipher::new(&key, set_id).map_err(|_| KeyError::NoRandom)?;
        Ok(Encryption {
            lock: self.lock(&key, set_id)?,
            cipher: cipher.into(),
        })
    }

    /// The encryption of the log that one process writes, with a fresh data key.
    pub fn log_encryption(&self) -> Result<LogEncryption, KeyError> {
        let key = DataKey::random().map_err(|_| KeyError::NoRandom)?;
        let envelopes = self.envelopes(&key)?;
        Ok(LogEncryption::new(key, envelopes))
    }

    /// The lock of a set that has this data key.
    pub fn lock(&self, key: &DataKey, set_id: SetId) -> Result<Lock, KeyError> {
        Ok(Lock {
            check: key.check_for(set_id),
            envelopes: self.envelopes(key)?,
        })
    }

    fn envelopes(&self, key: &DataKey) -> Result<Vec<Envelope>, KeyError> {
        let of_age = self.recipients.iter().map(|one| one.envelope(key));
        let of_words = self.passphrases.iter().map(|one| one.envelope(key));
        of_age.chain(of_words).collect()
    }
}
