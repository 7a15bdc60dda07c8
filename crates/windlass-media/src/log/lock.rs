//! The lock of an encrypted log object, behind its header: its id, and who can read it.
//!
//! Invariant: this module never sees a key, only envelopes.

use crate::error::{FormatError, Structure};
use crate::ids::SetId;
use crate::lock::{ENVELOPE_BYTES_MAX, ENVELOPES_MAX, Lock, RECIPIENT_BYTES_MAX};
use crate::number::fitted;
use crate::wire::{Reader, check_crc, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLLOCK";
const STRUCTURE: Structure = Structure::LogLock;
/// The first bytes of a lock, which say how long it is.
pub const LOG_LOCK_HEAD_BYTES: usize = 16;
/// Longest lock: every envelope, with its two lengths, and what stands around them.
const LOCK_BYTES_MAX: usize = 128 + ENVELOPES_MAX * (ENVELOPE_BYTES_MAX + RECIPIENT_BYTES_MAX + 4);

/// Who can read an encrypted log object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLock {
    /// The object, by a random number.
    pub object_id: SetId,
    /// The envelopes of its data key.
    pub lock: Lock,
}

impl LogLock {
    /// The bytes of the lock.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; LOG_LOCK_HEAD_BYTES - MAGIC.len()]);
        bytes.extend_from_slice(&self.object_id.0);
        self.lock.encode(&mut bytes)?;
        let total = bytes.len() + 4;
        let length = fitted::<u32, usize>(total).to_le_bytes();
        bytes[MAGIC.len()..MAGIC.len() + length.len()].copy_from_slice(&length);
        seal_with_crc(&mut bytes, total);
        Ok(bytes)
    }

    /// How long the lock is that begins with these bytes.
    pub fn length(head: &[u8; LOG_LOCK_HEAD_BYTES]) -> Result<usize, FormatError> {
        let mut reader = Reader::new(head, STRUCTURE);
        reader.magic(MAGIC)?;
        let length = reader.u32()? as usize;
        if !(LOG_LOCK_HEAD_BYTES..=LOCK_BYTES_MAX).contains(&length) {
            return Err(reader.limit("length", length as u64, LOCK_BYTES_MAX as u64));
        }
        match reader.u32()? {
            0 => Ok(length),
            _ => Err(reader.invalid("reserved bytes are not zero")),
        }
    }

    /// Reads the lock from all of its bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        let head = reader.array()?;
        if Self::length(&head)? != bytes.len() {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let object_id = SetId(reader.array()?);
        let lock = Lock::decode(&mut reader)?;
        reader.end()?;
        Ok(Self { object_id, lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Envelope, KeyCheck};

    #[test]
    fn a_lock_reads_back_and_every_changed_byte_is_found() {
        let envelope = |recipient: &str, bytes: usize| Envelope {
            recipient: recipient.into(),
            bytes: vec![7; bytes],
        };
        let one = LogLock {
            object_id: SetId([3; 16]),
            lock: Lock {
                check: KeyCheck([5; 16]),
                envelopes: vec![envelope("age1x", 200), envelope("passphrase", 150)],
            },
        };
        let bytes = one.encode().unwrap();
        let head = bytes[..LOG_LOCK_HEAD_BYTES].try_into().unwrap();
        assert_eq!(LogLock::length(&head).unwrap(), bytes.len());
        assert_eq!(LogLock::decode(&bytes).unwrap(), one);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(LogLock::decode(&changed).is_err(), "byte {at}");
            assert!(LogLock::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let longest = LogLock {
            lock: Lock {
                envelopes: vec![
                    envelope(&"x".repeat(RECIPIENT_BYTES_MAX), ENVELOPE_BYTES_MAX);
                    ENVELOPES_MAX
                ],
                ..one.lock.clone()
            },
            ..one
        };
        let bytes = longest.encode().unwrap();
        assert_eq!(LogLock::decode(&bytes).unwrap(), longest);
    }
}
