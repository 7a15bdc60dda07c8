//! A passphrase of age: scrypt makes a key of it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use windlass_engine::media::{DataKey, Envelope};
use zeroize::Zeroizing;

use super::{FileKey, Opens, Stanza, Wraps, random, sealed, unwrapped, wrapped};
use crate::error::KeyError;

const LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
const SALT_BYTES: usize = 16;
/// The work for a new envelope: 2^17 rounds, which take 128 MiB and a fraction of a second.
pub const WORK_FACTOR: u8 = 17;
/// The most work that is done for an envelope: 2^20 rounds, which take 1 GiB. An envelope that asks
/// for more is refused, because it can come from anywhere.
pub const WORK_FACTOR_MAX: u8 = 20;

/// A passphrase.
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    /// What the header of a set calls the one who knows a passphrase.
    pub const RECIPIENT: &str = "passphrase";

    /// The passphrase with these bytes.
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// An envelope for whoever knows it.
    pub fn envelope(&self, key: &DataKey) -> Result<Envelope, KeyError> {
        Ok(Envelope {
            recipient: Self::RECIPIENT.to_owned(),
            bytes: sealed(self, key)?,
        })
    }

    fn wrap_key(&self, salt: &[u8], work: u8) -> Result<Zeroizing<[u8; 32]>, KeyError> {
        let salt = [LABEL, salt].concat();
        let fault = |_| KeyError::Envelope("asks for impossible work");
        let parameters = scrypt::Params::new(work, 8, 1).map_err(fault)?;
        let mut key = Zeroizing::new([0; 32]);
        let made = scrypt::scrypt(&self.0, &salt, &parameters, &mut *key);
        made.map_err(|_| KeyError::Envelope("asks for impossible work"))?;
        Ok(key)
    }
}

impl Wraps for Passphrase {
    fn wrap(&self, key: &FileKey) -> Result<Stanza, KeyError> {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt)?;
        let with = self.wrap_key(&salt, WORK_FACTOR)?;
        let salt = STANDARD_NO_PAD.encode(salt);
        Ok(Stanza {
            arguments: vec!["scrypt".into(), salt, WORK_FACTOR.to_string()],
            body: wrapped(&with, key)?,
        })
    }
}

impl Opens for Passphrase {
    fn unwrap_key(&self, arguments: &[String], body: &[u8]) -> Result<Option<FileKey>, KeyError> {
        let [kind, salt, work] = arguments else {
            return Ok(None);
        };
        if kind != "scrypt" {
            return Ok(None);
        }
        let salt = super::decoded(salt)?;
        let work: u8 = work.parse().map_err(|_| super::malformed())?;
        if salt.len() != SALT_BYTES || work == 0 {
            return Err(super::malformed());
        }
        if work > WORK_FACTOR_MAX {
            return Err(KeyError::Envelope(
                "asks for more work for its passphrase than Windlass does (2^20 rounds)",
            ));
        }
        unwrapped(&self.wrap_key(&salt, work)?, body)
    }
}
