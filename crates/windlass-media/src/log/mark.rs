//! The mark beside a growing object: up to where the object is durable.

use crate::error::{FormatError, Structure};
use crate::log::{LOG_VERSION, check_version};
use crate::wire::{Reader, check_crc, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLUPTO";
const STRUCTURE: Structure = Structure::LogMark;
/// Bytes of a mark.
pub const LOG_MARK_BYTES: usize = 32;
/// The position in a mark of an object that has lost its end, if nobody knows up to where it was
/// durable.
pub const LOG_MARK_UNKNOWN: u64 = u64::MAX;

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogMark {
    /// Everything before this position is durable in the object.
    pub durable: u64,
}

impl LogMark {
    /// The bytes of the mark.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LOG_MARK_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.durable.to_le_bytes());
        seal_with_crc(&mut bytes, LOG_MARK_BYTES);
        bytes
    }

    /// Reads a mark. None if it is empty or has zeros only: a power cut may leave that of one whose
    /// bytes were never synced.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if bytes.len() != LOG_MARK_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        Reader::new(bytes, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        check_version(&mut reader, STRUCTURE, 0)?;
        let durable = reader.u64()?;
        reader.padding()?;
        Ok(Some(Self { durable }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_no_changed_bit_is_believed() {
        let mark = LogMark {
            durable: 0xA_0300_1234,
        };
        let bytes = mark.encode();
        assert_eq!(bytes.len(), LOG_MARK_BYTES);
        assert_eq!(LogMark::decode(&bytes), Ok(Some(mark)));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(LogMark::decode(&changed).is_err(), "bit {bit}");
        }
        for length in 1..bytes.len() {
            assert!(LogMark::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert_eq!(LogMark::decode(&[]), Ok(None));
        assert_eq!(LogMark::decode(&[0; LOG_MARK_BYTES]), Ok(None));
    }
}
