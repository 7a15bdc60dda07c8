//! The format of age, version 1 (C2SP age.md): a short file that one recipient, or one passphrase,
//! can open. Envelopes hold 32 bytes, so the payload is always one chunk.
//!
//!   age-encryption.org/v1
//!   -> X25519 SHARE           or   -> scrypt SALT WORK
//!   WRAPPED FILE KEY               WRAPPED FILE KEY
//!   --- MAC
//!   nonce, payload
//!
//! Invariants
//! - Only what this module writes is read: one stanza, one chunk. Everything else is refused.
//! - The work of a passphrase is bounded before it is done ([`WORK_FACTOR_MAX`]).

mod passphrase;
mod x25519;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use windlass_engine::media::DataKey;
use zeroize::Zeroizing;

use crate::error::KeyError;
pub use passphrase::{Passphrase, WORK_FACTOR, WORK_FACTOR_MAX};
pub(crate) use x25519::IDENTITY_START;
pub use x25519::{Identity, Recipient};

const VERSION_LINE: &str = "age-encryption.org/v1\n";
const FILE_KEY_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Longest line of a header that is read.
const HEADER_BYTES_MAX: usize = 2048;

type FileKey = Zeroizing<[u8; FILE_KEY_BYTES]>;

/// One stanza of a header: who can open the file key.
struct Stanza {
    arguments: Vec<String>,
    body: Vec<u8>,
}

/// What can wrap a file key.
trait Wraps {
    /// The stanza with this file key in it.
    fn wrap(&self, key: &FileKey) -> Result<Stanza, KeyError>;
}

/// What can open a stanza.
pub trait Opens: Send + Sync {
    /// The file key, if the stanza is for this one.
    #[doc(hidden)]
    fn unwrap_key(
        &self,
        arguments: &[String],
        body: &[u8],
    ) -> Result<Option<Zeroizing<[u8; 16]>>, KeyError>;
}

/// A file of age that holds a data key.
fn sealed(to: &dyn Wraps, key: &DataKey) -> Result<Vec<u8>, KeyError> {
    let mut file_key: FileKey = Zeroizing::new([0; FILE_KEY_BYTES]);
    random(&mut *file_key)?;
    let stanza = to.wrap(&file_key)?;
    let mut text = format!("{VERSION_LINE}-> {}\n", stanza.arguments.join(" "));
    text.push_str(&STANDARD_NO_PAD.encode(&stanza.body));
    text.push_str("\n---");
    let mac = hmac::sign(&mac_key(&file_key), text.as_bytes());
    text.push(' ');
    text.push_str(&STANDARD_NO_PAD.encode(mac.as_ref()));
    text.push('\n');
    let mut file = text.into_bytes();
    let mut nonce = [0; NONCE_BYTES];
    random(&mut nonce)?;
    file.extend_from_slice(&nonce);
    let mut payload = Zeroizing::new(key.bytes().to_vec());
    let sealing = payload_key(&file_key, &nonce)?;
    let tag = sealing
        .seal_in_place_separate_tag(only_chunk(), Aad::empty(), &mut payload)
        .map_err(|_| KeyError::NoRandom)?;
    file.extend_from_slice(&payload);
    file.extend_from_slice(tag.as_ref());
    Ok(file)
}

/// The data key in an envelope; none if it is for somebody else.
pub fn open_envelope(envelope: &[u8], with: &dyn Opens) -> Result<Option<DataKey>, KeyError> {
    let header_bytes = header_length(envelope)?;
    let (header, payload) = envelope.split_at(header_bytes);
    let header = std::str::from_utf8(header).map_err(|_| malformed())?;
    let (signed, stanza, mac) = parse(header)?;
    let Some(file_key) = with.unwrap_key(&stanza.arguments, &stanza.body)? else {
        return Ok(None);
    };
    if hmac::verify(&mac_key(&file_key), signed.as_bytes(), &mac).is_err() {
        return Ok(None);
    }
    let (nonce, sealed) = payload
        .split_at_checked(NONCE_BYTES)
        .ok_or_else(malformed)?;
    if sealed.len() != windlass_engine::media::DATA_KEY_BYTES + TAG_BYTES {
        return Err(malformed());
    }
    let mut clear = Zeroizing::new(sealed.to_vec());
    let opening = payload_key(&file_key, nonce)?;
    let opened = opening.open_in_place(only_chunk(), Aad::empty(), &mut clear);
    Ok(opened.ok().and_then(|key| DataKey::from_bytes(key)))
}

/// How long the text in front of the payload is.
fn header_length(file: &[u8]) -> Result<usize, KeyError> {
    let head = &file[..file.len().min(HEADER_BYTES_MAX)];
    let last = head.windows(5).position(|window| window == b"\n--- ");
    let last = last.ok_or_else(malformed)? + 1;
    let end = head[last..].iter().position(|byte| *byte == b'\n');
    Ok(last + end.ok_or_else(malformed)? + 1)
}

/// The part under the MAC, the only stanza, and the MAC.
fn parse(header: &str) -> Result<(&str, Stanza, Vec<u8>), KeyError> {
    let rest = header.strip_prefix(VERSION_LINE).ok_or_else(malformed)?;
    let mut lines = rest.split('\n');
    let mut next = || lines.next().ok_or_else(malformed);
    let arguments = next()?.strip_prefix("-> ").ok_or_else(malformed)?;
    let body = decoded(next()?)?;
    let mac = decoded(next()?.strip_prefix("--- ").ok_or_else(malformed)?)?;
    if (next()?, lines.next()) != ("", None) {
        return Err(malformed());
    }
    let signed = header.rfind("--- ").ok_or_else(malformed)? + 3;
    let arguments = arguments.split(' ').map(str::to_owned).collect();
    Ok((&header[..signed], Stanza { arguments, body }, mac))
}

fn decoded(text: &str) -> Result<Vec<u8>, KeyError> {
    STANDARD_NO_PAD.decode(text).map_err(|_| malformed())
}

fn malformed() -> KeyError {
    KeyError::Envelope("has another form than Windlass gives it")
}

/// The nonce of a chunk that is the first and the last.
fn only_chunk() -> Nonce {
    let mut nonce = [0; 12];
    nonce[11] = 1;
    Nonce::assume_unique_for_key(nonce)
}

fn mac_key(file_key: &FileKey) -> hmac::Key {
    let key = expanded(&**file_key, &[], b"header");
    hmac::Key::new(hmac::HMAC_SHA256, &*key)
}

fn payload_key(file_key: &FileKey, nonce: &[u8]) -> Result<LessSafeKey, KeyError> {
    chacha(&expanded(&**file_key, nonce, b"payload"))
}

fn chacha(key: &Zeroizing<[u8; 32]>) -> Result<LessSafeKey, KeyError> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &**key);
    key.map(LessSafeKey::new).map_err(|_| KeyError::NoRandom)
}

/// Wraps a file key: a key that wraps is used once, so its nonce is zero.
fn wrapped(with: &Zeroizing<[u8; 32]>, key: &FileKey) -> Result<Vec<u8>, KeyError> {
    let mut body = key.to_vec();
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let tag = chacha(with)?.seal_in_place_separate_tag(nonce, Aad::empty(), &mut body);
    body.extend_from_slice(tag.map_err(|_| KeyError::NoRandom)?.as_ref());
    Ok(body)
}

/// Unwraps a file key; none if it was wrapped with another one.
fn unwrapped(with: &Zeroizing<[u8; 32]>, body: &[u8]) -> Result<Option<FileKey>, KeyError> {
    // The length comes first: otherwise one body could be made for several keys.
    if body.len() != FILE_KEY_BYTES + TAG_BYTES {
        return Err(malformed());
    }
    let mut clear = Zeroizing::new(body.to_vec());
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let opened = chacha(with)?.open_in_place(nonce, Aad::empty(), &mut clear);
    let key = opened.ok().and_then(|key| <[u8; 16]>::try_from(&*key).ok());
    Ok(key.map(Zeroizing::new))
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

/// HKDF-SHA256 to 32 bytes.
fn expanded(from: &[u8], salt: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
    let mut key = Zeroizing::new([0; 32]);
    let prk = Salt::new(HKDF_SHA256, salt).extract(from);
    let filled = prk
        .expand(&[info], Length)
        .and_then(|okm| okm.fill(&mut *key));
    assert!(filled.is_ok(), "HKDF gives 32 bytes");
    key
}

fn random(into: &mut [u8]) -> Result<(), KeyError> {
    let filled = SystemRandom::new().fill(into);
    filled.map_err(|_| KeyError::NoRandom)
}
