//! Recipients and identities of age: a public and a private key of X25519.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bech32::{Bech32, Hrp};
use windlass_engine::media::{DataKey, Envelope};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use super::{FileKey, Opens, Stanza, Wraps, expanded, random, sealed, unwrapped, wrapped};
use crate::error::KeyError;

const INFO: &[u8] = b"age-encryption.org/v1/X25519";
const RECIPIENT: &str = "age";
const IDENTITY: &str = "age-secret-key-";
/// What an identity begins with, as people see it.
pub(crate) const IDENTITY_START: &str = "AGE-SECRET-KEY-1";

/// Somebody who can read: a public key.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipient {
    key: PublicKey,
    text: String,
}

impl Recipient {
    /// The recipient of a text that begins with `age1`.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let fault = || KeyError::Recipient(text.to_owned());
        let key = key_of(text, RECIPIENT).ok_or_else(fault)?;
        Ok(Self {
            key: PublicKey::from(*key),
            text: text.to_owned(),
        })
    }

    fn of(key: PublicKey) -> Self {
        let hrp = Hrp::parse_unchecked(RECIPIENT);
        let text = bech32::encode::<Bech32>(hrp, key.as_bytes());
        Self {
            key,
            // 32 bytes are never too long for this encoding.
            text: text.unwrap_or_default(),
        }
    }

    /// An envelope for this recipient.
    pub fn envelope(&self, key: &DataKey) -> Result<Envelope, KeyError> {
        Ok(Envelope {
            recipient: self.text.clone(),
            bytes: sealed(self, key)?,
        })
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Wraps for Recipient {
    fn wrap(&self, key: &FileKey) -> Result<Stanza, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        random(&mut *bytes)?;
        let once = StaticSecret::from(*bytes);
        let share = PublicKey::from(&once);
        let shared = once.diffie_hellman(&self.key);
        let with = wrap_key(shared.as_bytes(), &share, &self.key);
        Ok(Stanza {
            arguments: vec!["X25519".into(), STANDARD_NO_PAD.encode(share.as_bytes())],
            body: wrapped(&with, key)?,
        })
    }
}

/// What a recipient decrypts with: a private key.
pub struct Identity(StaticSecret);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// The identity of a text that begins with `AGE-SECRET-KEY-1`.
    pub fn parse(text: &str) -> Option<Self> {
        let key = key_of(text, IDENTITY)?;
        Some(Self(StaticSecret::from(*key)))
    }

    /// Its recipient.
    pub fn recipient(&self) -> Recipient {
        Recipient::of(PublicKey::from(&self.0))
    }
}

impl Opens for Identity {
    fn unwrap_key(&self, arguments: &[String], body: &[u8]) -> Result<Option<FileKey>, KeyError> {
        let [kind, share] = arguments else {
            return Ok(None);
        };
        if kind != "X25519" {
            return Ok(None);
        }
        let share = super::decoded(share)?;
        let share: [u8; 32] = share.try_into().map_err(|_| super::malformed())?;
        let share = PublicKey::from(share);
        let shared = self.0.diffie_hellman(&share);
        // A share of low order would give the same secret for every identity.
        if !shared.was_contributory() {
            return Err(super::malformed());
        }
        let with = wrap_key(shared.as_bytes(), &share, &PublicKey::from(&self.0));
        unwrapped(&with, body)
    }
}

fn wrap_key(shared: &[u8; 32], share: &PublicKey, recipient: &PublicKey) -> Zeroizing<[u8; 32]> {
    let salt = [share.as_bytes().as_slice(), recipient.as_bytes()].concat();
    expanded(shared, &salt, INFO)
}

/// The 32 bytes of a text in Bech32 with this beginning.
fn key_of(text: &str, start: &str) -> Option<Zeroizing<[u8; 32]>> {
    let checked = bech32::primitives::decode::CheckedHrpstring::new::<Bech32>(text).ok()?;
    let is_right = checked.hrp().to_lowercase() == start;
    let bytes = Zeroizing::new(checked.byte_iter().collect::<Vec<u8>>());
    let key = <[u8; 32]>::try_from(bytes.as_slice()).ok()?;
    is_right.then(|| Zeroizing::new(key))
}
