//! The index and the end of a sealed log object: where each frame is, and that nothing is missing.

use crate::codec::crc32c;
use crate::error::{FormatError, Structure};
use crate::log::{LOG_FRAMES_MAX, LOG_VERSION, check_version};
use crate::wire::{Reader, check_crc, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLLEND";
const STRUCTURE: Structure = Structure::LogEnd;
/// Bytes of the end.
pub const LOG_END_BYTES: usize = 96;
const ENTRY_BYTES: usize = 16;

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIndexEntry {
    /// Position of the frame's first decoded byte.
    pub position: u64,
    /// Where the frame's header begins in the object.
    pub offset: u64,
}

/// The last 96 bytes of a sealed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// How many frames there are.
    pub frames: u32,
    /// Position of the first byte behind the last frame.
    pub end: u64,
    /// Where the index begins. It has 16 bytes for each frame, and the end follows it.
    pub index_offset: u64,
    /// CRC-32C of the index.
    pub index_crc: u32,
    /// BLAKE3 of everything before the index.
    pub content_hash: [u8; 32],
}

impl LogEnd {
    /// The bytes of the end.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LOG_END_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.frames.to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
        bytes.extend_from_slice(&self.index_offset.to_le_bytes());
        bytes.extend_from_slice(&self.object_bytes().to_le_bytes());
        bytes.extend_from_slice(&self.index_crc.to_le_bytes());
        bytes.extend_from_slice(&self.content_hash);
        seal_with_crc(&mut bytes, LOG_END_BYTES);
        bytes
    }

    /// Reads the end of an object that is `object_bytes` long.
    pub fn decode(bytes: &[u8], object_bytes: u64) -> Result<Self, FormatError> {
        if bytes.len() != LOG_END_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        Reader::new(bytes, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        check_version(&mut reader, STRUCTURE, 0)?;
        let frames = reader.u32()?;
        if frames == 0 || frames > LOG_FRAMES_MAX {
            let limit = u64::from(LOG_FRAMES_MAX);
            return Err(reader.limit("number of frames", u64::from(frames), limit));
        }
        let (end, index_offset, stated_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let found = Self {
            frames,
            end,
            index_offset,
            index_crc: reader.u32()?,
            content_hash: reader.array()?,
        };
        reader.padding()?;
        if stated_bytes != object_bytes || found.object_bytes() != object_bytes {
            return Err(FormatError::Invalid {
                structure: STRUCTURE,
                what: "the object is not as long as its end says",
            });
        }
        Ok(found)
    }

    /// Length of the index in bytes.
    pub fn index_bytes(&self) -> usize {
        self.frames as usize * ENTRY_BYTES
    }

    fn object_bytes(&self) -> u64 {
        let behind = self.index_bytes() as u64 + LOG_END_BYTES as u64;
        self.index_offset.saturating_add(behind)
    }
}

/// The bytes of an index.
pub fn encode_log_index(entries: &[LogIndexEntry]) -> Vec<u8> {
    let bytes =
        |entry: &LogIndexEntry| [entry.position.to_le_bytes(), entry.offset.to_le_bytes()].concat();
    entries.iter().flat_map(bytes).collect()
}

/// Reads the index of an object that begins at `start`. Its frames ascend, in position and place.
pub fn decode_log_index(
    bytes: &[u8],
    end: &LogEnd,
    start: u64,
) -> Result<Vec<LogIndexEntry>, FormatError> {
    let structure = Structure::LogIndex;
    let found = crc32c(bytes);
    if bytes.len() != end.index_bytes() {
        return Err(FormatError::Truncated(structure));
    }
    if found != end.index_crc {
        let expected = end.index_crc;
        return Err(FormatError::Checksum {
            structure,
            expected,
            found,
        });
    }
    let mut reader = Reader::new(bytes, structure);
    let mut entries = Vec::with_capacity(end.frames as usize);
    for _ in 0..end.frames {
        let (position, offset) = (reader.u64()?, reader.u64()?);
        entries.push(LogIndexEntry { position, offset });
    }
    reader.end()?;
    let ascend = entries
        .windows(2)
        .all(|pair| pair[0].position < pair[1].position && pair[0].offset < pair[1].offset);
    let first = entries.first().map(|entry| entry.position);
    let last = entries.last();
    let fits = last.is_some_and(|last| last.position < end.end && last.offset < end.index_offset);
    if !ascend || first != Some(start) || !fits {
        return Err(FormatError::Invalid {
            structure,
            what: "its frames are out of order",
        });
    }
    Ok(entries)
}
