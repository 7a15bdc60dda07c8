//! The encryption of a log object: its keys, and how its frames are encrypted.
//!
//!   data key --HKDF-SHA256, salt: object id--> the key of the object's frames
//!   stored bytes of a frame = [content token 16][nonce 12][encrypted: CRC 4, packed bytes][tag 16]
//!
//! All frames are AES-256-GCM with a random nonce. The associated data is the object's header and
//! the frame's own: a frame of another object, or at another position, cannot be decrypted.
//!
//! Invariants
//! - Nothing in the clear depends on the content, but its length: checksums of clear bytes are
//!   encrypted. The content token is a keyed hash, or zeros.
//! - Nothing is returned of bytes that are not right to the last bit.

use ring::aead::LessSafeKey;
use ring::rand::SystemRandom;

use super::frame::check;
use super::{LogFrame, LogHeader, LogLock};
use crate::cipher::{DataKey, NONCE_BYTES, SEALED_BYTES, aes, open, random, seal};
use crate::error::{FormatError, Structure};
use crate::ids::SetId;
use crate::lock::{Envelope, Lock};

/// Bytes of what tells a frame's content from another one to whoever knows how it was made.
pub const CONTENT_TOKEN_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// By how much an encrypted frame is longer than a clear one.
pub const LOG_SEALED_BYTES: usize = CONTENT_TOKEN_BYTES + SEALED_BYTES + CRC_BYTES;

/// Encrypts log objects: a data key, and its envelopes. Each object has keys of its own.
#[derive(Debug)]
pub struct LogEncryption {
    key: DataKey,
    envelopes: Vec<Envelope>,
}

impl LogEncryption {
    /// With this key, which the envelopes hold.
    pub fn new(key: DataKey, envelopes: Vec<Envelope>) -> Self {
        Self { key, envelopes }
    }

    /// The lock of an object.
    pub fn lock(&self, object_id: SetId) -> Lock {
        Lock {
            check: self.key.check_for(object_id),
            envelopes: self.envelopes.clone(),
        }
    }

    /// The lock and the cipher of a new object that has this header.
    pub fn begin(&self, header: &LogHeader) -> Result<(LogLock, LogCipher), FormatError> {
        let mut object_id = SetId([0; 16]);
        random(&mut object_id.0)?;
        let lock = self.lock(object_id);
        let cipher = LogCipher::new(&self.key, object_id, header)?;
        Ok((LogLock { object_id, lock }, cipher))
    }
}

/// Encrypts and decrypts the frames of one log object.
pub struct LogCipher {
    frames: LessSafeKey,
    /// The header of the object, which is part of what each frame is.
    header: Vec<u8>,
    random: SystemRandom,
}

impl std::fmt::Debug for LogCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogCipher")
    }
}

impl LogCipher {
    /// The cipher of an object that has this data key.
    pub fn new(key: &DataKey, object: SetId, header: &LogHeader) -> Result<Self, FormatError> {
        Ok(Self {
            frames: aes(&key.keys_of(object), b"log frames")?,
            header: header.encode()?,
            random: SystemRandom::new(),
        })
    }

    /// What is stored of a frame whose packed bytes and whose CRC-32C of decoded bytes these are.
    pub fn seal_frame(
        &self,
        frame: &LogFrame,
        token: &[u8; CONTENT_TOKEN_BYTES],
        (decoded_crc, packed): (u32, &[u8]),
    ) -> Result<Vec<u8>, FormatError> {
        let mut stored = Vec::with_capacity(packed.len() + LOG_SEALED_BYTES);
        stored.extend_from_slice(token);
        stored.extend_from_slice(&[0; NONCE_BYTES]);
        stored.extend_from_slice(&decoded_crc.to_le_bytes());
        stored.extend_from_slice(packed);
        stored.resize(packed.len() + LOG_SEALED_BYTES, 0);
        let aad = self.aad(frame, token);
        let room = &mut stored[CONTENT_TOKEN_BYTES..];
        seal(&self.frames, &self.random, &aad, room)?;
        Ok(stored)
    }

    /// Decrypts the stored bytes of a frame to `clear`. Returns the CRC-32C of its decoded bytes,
    /// and its packed bytes, which are a part of `clear`.
    pub fn open_frame<'a>(
        &self,
        frame: &LogFrame,
        stored: &[u8],
        clear: &'a mut Vec<u8>,
    ) -> Result<(u32, &'a [u8]), FormatError> {
        let fault = FormatError::Sealed(Structure::LogFrame);
        let Some((token, sealed)) = stored.split_first_chunk() else {
            return Err(fault);
        };
        let aad = self.aad(frame, token);
        let opened = open(&self.frames, &aad, sealed, clear);
        match (opened, clear.split_first_chunk::<CRC_BYTES>()) {
            (Some(()), Some((crc, packed))) => Ok((u32::from_le_bytes(*crc), packed)),
            _ => Err(fault),
        }
    }

    /// What tells the content of a frame from others, as it is stored. `None` if there is nothing.
    pub fn token(stored: &[u8]) -> Option<[u8; CONTENT_TOKEN_BYTES]> {
        let token = stored.first_chunk()?;
        (*token != [0; CONTENT_TOKEN_BYTES]).then_some(*token)
    }

    /// Checks decoded bytes by the CRC that was decrypted with them.
    pub fn check_decoded(decoded: &[u8], crc: u32) -> Result<(), FormatError> {
        check(decoded, crc)
    }

    /// What a frame is: of which object, where, and how to decode it.
    fn aad(&self, frame: &LogFrame, token: &[u8; CONTENT_TOKEN_BYTES]) -> Vec<u8> {
        let mut aad = b"log frame\0".to_vec();
        aad.extend_from_slice(&self.header);
        aad.push(frame.codec.number());
        aad.extend_from_slice(&frame.decoded_bytes.to_le_bytes());
        aad.extend_from_slice(&frame.position.to_le_bytes());
        aad.extend_from_slice(&frame.unsynced_bytes.to_le_bytes());
        aad.extend_from_slice(token);
        aad
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Codec, crc32c};
    use crate::log::LogContent;
    use crate::number::fitted;

    fn header(start: u64) -> LogHeader {
        LogHeader {
            system: 7,
            timeline: 1,
            segment_bytes: 1 << 20,
            start,
            begun_nanos: 5,
            frame_bytes: 1 << 20,
            content: LogContent::Log,
            is_encrypted: true,
        }
    }

    fn frame(position: u64, packed: &[u8]) -> LogFrame {
        LogFrame {
            position,
            codec: Codec::None,
            stored_bytes: fitted(packed.len() + LOG_SEALED_BYTES),
            decoded_bytes: fitted(packed.len()),
            stored_crc: 0,
            decoded_crc: 0,
            unsynced_bytes: 0,
            is_encrypted: true,
        }
    }

    #[test]
    fn a_frame_opens_in_its_own_place_only_and_every_changed_bit_is_found() {
        let key = DataKey::from_bytes(&[9; 32]).unwrap();
        let envelopes = vec![Envelope {
            recipient: "age1x".into(),
            bytes: vec![1],
        }];
        let encryption = LogEncryption::new(key, envelopes);
        let (lock, cipher) = encryption.begin(&header(4096)).unwrap();
        let key = DataKey::from_bytes(&[9; 32]).unwrap();
        assert_eq!(lock.lock.check, key.check_for(lock.object_id));
        let packed = b"three rows of a table".as_slice();
        let own = frame(4096, packed);
        let token = [3; CONTENT_TOKEN_BYTES];
        let crc = crc32c(packed);
        let stored = cipher.seal_frame(&own, &token, (crc, packed)).unwrap();
        assert_eq!(stored.len(), packed.len() + LOG_SEALED_BYTES);
        assert!(!stored.windows(6).any(|part| packed.starts_with(part)));
        let mut clear = Vec::new();
        let reader = LogCipher::new(&key, lock.object_id, &header(4096)).unwrap();
        let opened = reader.open_frame(&own, &stored, &mut clear).unwrap();
        assert_eq!(opened, (crc, packed));
        assert_eq!(LogCipher::token(&stored), Some(token));

        for bit in 0..stored.len() * 8 {
            let mut changed = stored.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(
                reader.open_frame(&own, &changed, &mut clear).is_err(),
                "{bit}"
            );
        }
        let moved = frame(8192, packed);
        assert!(reader.open_frame(&moved, &stored, &mut clear).is_err());
        for (object, header) in [
            (SetId([1; 16]), header(4096)),
            (lock.object_id, header(8192)),
        ] {
            let other = LogCipher::new(&key, object, &header).unwrap();
            assert!(other.open_frame(&own, &stored, &mut clear).is_err());
        }
        for cut in 0..stored.len() {
            assert!(reader.open_frame(&own, &stored[..cut], &mut clear).is_err());
        }
        let none = cipher.seal_frame(&own, &[0; 16], (crc, packed)).unwrap();
        assert_eq!(LogCipher::token(&none), None);
    }
}
