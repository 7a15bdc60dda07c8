//! The header of a frame of a log object: 40 bytes in front of its stored bytes.

use crate::codec::{Codec, crc32c};
use crate::error::{FormatError, Structure};
use crate::log::LOG_SEALED_BYTES;
use crate::number::fitted;
use crate::wire::{Reader, check_crc, seal_with_crc};

const STRUCTURE: Structure = Structure::LogFrame;
/// Bytes of a frame's header.
pub const LOG_FRAME_HEADER_BYTES: usize = 40;

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFrame {
    /// Position of the first decoded byte.
    pub position: u64,
    /// How the bytes are stored.
    pub codec: Codec,
    /// Stored length.
    pub stored_bytes: u32,
    /// Decoded length, at least 1.
    pub decoded_bytes: u32,
    /// CRC-32C of the stored bytes.
    pub stored_crc: u32,
    /// CRC-32C of the decoded bytes.
    pub decoded_crc: u32,
    /// How many bytes in front of `position` were not known to be durable when the frame was
    /// written. So a torn end of a growing object can be told from damage in its middle.
    pub unsynced_bytes: u32,
    /// Whether the stored bytes are encrypted. Then `decoded_crc` is 0: it is among these bytes.
    pub is_encrypted: bool,
}

impl LogFrame {
    /// How each header begins.
    pub const MAGIC: [u8; 4] = *b"WLFR";

    /// The header's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LOG_FRAME_HEADER_BYTES);
        bytes.extend_from_slice(&Self::MAGIC);
        bytes.extend_from_slice(&[self.codec.number(), u8::from(self.is_encrypted), 0, 0]);
        bytes.extend_from_slice(&self.stored_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.decoded_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.position.to_le_bytes());
        bytes.extend_from_slice(&self.stored_crc.to_le_bytes());
        bytes.extend_from_slice(&self.decoded_crc.to_le_bytes());
        bytes.extend_from_slice(&self.unsynced_bytes.to_le_bytes());
        seal_with_crc(&mut bytes, LOG_FRAME_HEADER_BYTES);
        bytes
    }

    /// Reads a header. No frame may be longer than `frame_bytes`, stored or decoded.
    pub fn decode(bytes: &[u8], frame_bytes: u32) -> Result<Self, FormatError> {
        if bytes.len() != LOG_FRAME_HEADER_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        if reader.array::<4>()? != Self::MAGIC {
            return Err(FormatError::Magic(STRUCTURE));
        }
        let codec = Codec::from_number(reader.u8()?)?;
        let is_encrypted = match reader.array::<3>()? {
            [0, 0, 0] => false,
            [1, 0, 0] => true,
            _ => return Err(reader.invalid("reserved bytes are not zero")),
        };
        let (stored_bytes, decoded_bytes) = (reader.u32()?, reader.u32()?);
        let added = added_bytes(is_encrypted);
        for (what, found) in [
            ("stored length", stored_bytes.saturating_sub(added)),
            ("decoded length", decoded_bytes),
        ] {
            if found > frame_bytes {
                return Err(reader.limit(what, u64::from(found), u64::from(frame_bytes)));
            }
        }
        let (position, stored_crc, decoded_crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let unsynced_bytes = reader.u32()?;
        reader.end()?;
        let frame = Self {
            position,
            codec,
            stored_bytes,
            decoded_bytes,
            stored_crc,
            decoded_crc,
            unsynced_bytes,
            is_encrypted,
        };
        match frame.fault() {
            Some(what) => Err(FormatError::Invalid {
                structure: STRUCTURE,
                what,
            }),
            None => Ok(frame),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        if self.decoded_bytes == 0 {
            return Some("a frame holds nothing");
        }
        if self
            .position
            .checked_add(u64::from(self.decoded_bytes))
            .is_none()
        {
            return Some("a frame ends beyond every log");
        }
        let Some(packed) = self
            .stored_bytes
            .checked_sub(added_bytes(self.is_encrypted))
        else {
            return Some("a frame is too short to be encrypted");
        };
        if self.is_encrypted && self.decoded_crc != 0 {
            return Some("an encrypted frame tells about its content");
        }
        let is_stored = match self.codec {
            Codec::Zero => packed == 0,
            Codec::None => packed == self.decoded_bytes,
            _ => packed > 0,
        };
        (!is_stored).then_some("the stored length does not go with the codec")
    }

    /// Everything before this position was durable when the frame was written.
    pub fn durable(&self) -> u64 {
        self.position.saturating_sub(u64::from(self.unsynced_bytes))
    }

    /// Position of the first byte behind the frame.
    pub fn end(&self) -> u64 {
        self.position.saturating_add(u64::from(self.decoded_bytes))
    }

    /// Checks the stored bytes, before a decoder sees them.
    pub fn check_stored(&self, stored: &[u8]) -> Result<(), FormatError> {
        check(stored, self.stored_crc)
    }

    /// Checks the decoded bytes of a frame that is not encrypted.
    pub fn check_decoded(&self, decoded: &[u8]) -> Result<(), FormatError> {
        check(decoded, self.decoded_crc)
    }
}

/// By how much a frame is longer for its encryption.
fn added_bytes(is_encrypted: bool) -> u32 {
    match is_encrypted {
        true => fitted(LOG_SEALED_BYTES),
        false => 0,
    }
}

pub(super) fn check(bytes: &[u8], expected: u32) -> Result<(), FormatError> {
    let found = crc32c(bytes);
    if expected == found {
        return Ok(());
    }
    Err(FormatError::FrameChecksum { expected, found })
}
