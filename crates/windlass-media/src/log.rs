//! A log object: a run of a database's log on one timeline, or a file that belongs to the log.
//!
//!   sealed object  = [header][frame][frame] ... [index][end]
//!   growing object = [header][frame][frame] ...
//!
//! An encrypted object has a lock behind its header, and each of its frames is encrypted.
//!
//! Each frame has a header of its own, so that an object can be read while it grows, or after its
//! writer was killed. The index and the end make it quick to find a position in a sealed object,
//! and prove that it is whole.

mod cipher;
mod commit;
mod end;
mod frame;
mod lock;
mod mark;

pub use cipher::{CONTENT_TOKEN_BYTES, LOG_SEALED_BYTES, LogCipher, LogEncryption};
pub use commit::{LOG_RECORD_BYTES, LOG_STAND_BYTES_MAX, LogRecord, RecordKind};
pub use end::{LOG_END_BYTES, LogEnd, LogIndexEntry, decode_log_index, encode_log_index};
pub use frame::{LOG_FRAME_HEADER_BYTES, LogFrame};
pub use lock::{LOG_LOCK_HEAD_BYTES, LogLock};
pub use mark::{LOG_MARK_BYTES, LOG_MARK_UNKNOWN, LogMark};

use crate::error::{FormatError, Structure};
use crate::limits::FRAME_BYTES_MAX;
use crate::wire::{Reader, check_crc, seal_with_crc};

const MAGIC: &[u8; 8] = b"WNDLLOG\x01";
const STRUCTURE: Structure = Structure::LogHeader;
/// The version of log objects that this crate writes, and the newest that it reads.
pub const LOG_VERSION: u16 = 1;
/// The feature of an object whose frames are encrypted.
const ENCRYPTED: u16 = 1;
/// Bytes of the header.
pub const LOG_HEADER_BYTES: usize = 128;
/// Most frames in one object. This bounds the memory for its index to 1 MiB.
pub const LOG_FRAMES_MAX: u32 = 65_536;
/// Longest name of a file that belongs to the log (PostgreSQL's MAX_XFN_CHARS and more).
pub const LOG_NAME_BYTES_MAX: usize = 64;

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogContent {
    /// Bytes of the log. Positions of frames are positions of the log.
    Log,
    /// A file of this name. Positions of frames are positions in the file.
    File(String),
    /// Transactions of a SQLite database. Positions of frames are positions among the records.
    Commits,
}

/// The first 128 bytes of a log object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The cluster whose log it is; for a SQLite database a hash of its path.
    pub system: u64,
    /// The timeline. For a file that belongs to no timeline it is 0.
    pub timeline: u32,
    /// Bytes of a segment of this log.
    pub segment_bytes: u32,
    /// Position of the first byte; 0 for a file.
    pub start: u64,
    /// When the object was begun, nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// Longest frame, decoded.
    pub frame_bytes: u32,
    /// What it holds.
    pub content: LogContent,
    /// Whether its frames are encrypted. Then a lock follows the header.
    pub is_encrypted: bool,
}

impl LogHeader {
    /// The header's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let (kind, name): (u8, &[u8]) = match &self.content {
            LogContent::Log => (0, b""),
            LogContent::File(name) => (1, name.as_bytes()),
            LogContent::Commits => (2, b""),
        };
        let length = match u8::try_from(name.len()) {
            Ok(length) if name.len() <= LOG_NAME_BYTES_MAX => length,
            _ => {
                return Err(FormatError::Limit {
                    structure: STRUCTURE,
                    what: "length of the name",
                    found: name.len() as u64,
                    limit: LOG_NAME_BYTES_MAX as u64,
                });
            }
        };
        let mut bytes = Vec::with_capacity(LOG_HEADER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&LOG_VERSION.to_le_bytes());
        bytes.extend_from_slice(&u16::from(self.is_encrypted).to_le_bytes());
        bytes.extend_from_slice(&self.frame_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.system.to_le_bytes());
        bytes.extend_from_slice(&self.timeline.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.start.to_le_bytes());
        bytes.extend_from_slice(&self.begun_nanos.to_le_bytes());
        bytes.extend_from_slice(&[kind, length, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(name);
        seal_with_crc(&mut bytes, LOG_HEADER_BYTES);
        Ok(bytes)
    }

    /// Reads the header from the first [`LOG_HEADER_BYTES`] bytes of an object.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() != LOG_HEADER_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        Reader::new(bytes, STRUCTURE).magic(MAGIC)?;
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        reader.magic(MAGIC)?;
        let is_encrypted = check_version(&mut reader, STRUCTURE, ENCRYPTED)? == ENCRYPTED;
        let frame_bytes = reader.u32()?;
        if frame_bytes == 0 || frame_bytes > FRAME_BYTES_MAX {
            let (found, limit) = (u64::from(frame_bytes), u64::from(FRAME_BYTES_MAX));
            return Err(reader.limit("frame size", found, limit));
        }
        let (system, timeline, segment_bytes) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (start, begun_nanos) = (reader.u64()?, reader.i64()?);
        let (kind, length) = (reader.u8()?, usize::from(reader.u8()?));
        if reader.array::<6>()? != [0; 6] {
            return Err(reader.invalid("reserved bytes are not zero"));
        }
        if length > LOG_NAME_BYTES_MAX {
            return Err(reader.limit("length of the name", length as u64, 64));
        }
        let name = reader.bytes(length)?;
        let content = match (kind, name) {
            (0, b"") => LogContent::Log,
            (1, name) if is_name(name) => {
                LogContent::File(String::from_utf8_lossy(name).into_owned())
            }
            (2, b"") => LogContent::Commits,
            (0..=2, _) => return Err(reader.invalid("the name is not one of a file of a log")),
            _ => return Err(reader.invalid("an unknown kind of content")),
        };
        reader.padding()?;
        if !segment_bytes.is_power_of_two() || !((1 << 20)..=(1 << 30)).contains(&segment_bytes) {
            return Err(FormatError::Invalid {
                structure: STRUCTURE,
                what: "the segment size is not one that PostgreSQL knows",
            });
        }
        Ok(Self {
            system,
            timeline,
            segment_bytes,
            start,
            begun_nanos,
            frame_bytes,
            content,
            is_encrypted,
        })
    }
}

/// Letters of PostgreSQL's own names, so that no name leads to another directory.
fn is_name(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
    !name.is_empty() && name[0] != b'.' && name.iter().all(is_letter)
}

/// Reads version and features. The version must be that of this build, the features among `known`.
fn check_version(
    reader: &mut Reader<'_>,
    structure: Structure,
    known: u16,
) -> Result<u16, FormatError> {
    reader.version(LOG_VERSION)?;
    match reader.u16()? {
        features if features & !known == 0 => Ok(features),
        features => Err(FormatError::Feature {
            structure,
            found: u32::from(features),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use proptest::prelude::*;

    fn header(content: LogContent) -> LogHeader {
        LogHeader {
            system: 7_394_857_204_857,
            timeline: 3,
            segment_bytes: 16 << 20,
            start: 0x1_0300_0000,
            begun_nanos: 1_790_000_000_000_000_000,
            frame_bytes: 1 << 20,
            content,
            is_encrypted: false,
        }
    }

    fn each_flip_is_found(bytes: &[u8], is_read: impl Fn(&[u8]) -> bool) {
        assert!(is_read(bytes));
        let mut flipped = bytes.to_vec();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                flipped[at] ^= 1 << bit;
                assert!(!is_read(&flipped), "bit {bit} of byte {at}");
                flipped[at] ^= 1 << bit;
            }
        }
    }

    #[test]
    fn each_structure_reads_back_and_every_flipped_bit_is_found() {
        let file = LogContent::File("00000003.history".into());
        for content in [LogContent::Log, file, LogContent::Commits] {
            let one = header(content);
            let bytes = one.encode().unwrap();
            assert_eq!(LogHeader::decode(&bytes).unwrap(), one);
            each_flip_is_found(&bytes, |bytes| LogHeader::decode(bytes).is_ok());
            let locked = LogHeader {
                is_encrypted: true,
                ..one
            };
            let bytes = locked.encode().unwrap();
            assert_eq!(LogHeader::decode(&bytes).unwrap(), locked);
        }
        let frame = LogFrame {
            position: 0x1_0300_0000,
            codec: Codec::Zstd(0),
            stored_bytes: 17,
            decoded_bytes: 1 << 20,
            stored_crc: 5,
            decoded_crc: 6,
            unsynced_bytes: 7,
            is_encrypted: false,
        };
        let bytes = frame.encode();
        assert_eq!(LogFrame::decode(&bytes, 1 << 20).unwrap(), frame);
        assert!(LogFrame::decode(&bytes, (1 << 20) - 1).is_err());
        each_flip_is_found(&bytes, |bytes| LogFrame::decode(bytes, 1 << 20).is_ok());
    }

    #[test]
    fn an_end_and_its_index_read_back_and_every_flipped_bit_is_found() {
        let frame = |position, offset| LogIndexEntry { position, offset };
        let index = encode_log_index(&[frame(4096, 128), frame(8192, 200)]);
        let end = LogEnd {
            frames: 2,
            end: 9000,
            index_offset: 300,
            index_crc: crate::codec::crc32c(&index),
            content_hash: [9; 32],
        };
        let bytes = end.encode();
        let length = 300 + index.len() as u64 + LOG_END_BYTES as u64;
        assert_eq!(LogEnd::decode(&bytes, length).unwrap(), end);
        assert!(LogEnd::decode(&bytes, length + 1).is_err());
        each_flip_is_found(&bytes, |bytes| LogEnd::decode(bytes, length).is_ok());
        let entries = decode_log_index(&index, &end, 4096).unwrap();
        assert_eq!(entries, [frame(4096, 128), frame(8192, 200)]);
        each_flip_is_found(&index, |bytes| decode_log_index(bytes, &end, 4096).is_ok());
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        for name in ["../x", "a/b", "", ".x", "a\0"] {
            let bytes = header(LogContent::File(name.into())).encode().unwrap();
            assert!(LogHeader::decode(&bytes).is_err(), "{name:?}");
        }
        let long = LogContent::File("x".repeat(LOG_NAME_BYTES_MAX + 1));
        assert!(header(long).encode().is_err());
    }

    proptest! {
        /// A matching checksum proves who wrote the bytes, not that they make sense.
        #[test]
        fn no_content_breaks_a_parser(
            bytes in proptest::collection::vec(any::<u8>(), LOG_HEADER_BYTES - 4),
            magic in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if magic {
                bytes[..12].copy_from_slice(b"WNDLLOG\x01\x01\0\0\0");
            }
            for length in [LOG_HEADER_BYTES, LOG_FRAME_HEADER_BYTES, LOG_END_BYTES] {
                let mut sealed = bytes[..length - 4].to_vec();
                seal_with_crc(&mut sealed, length);
                drop(LogHeader::decode(&sealed));
                drop(LogLock::decode(&sealed));
                drop(LogFrame::decode(&sealed, 1 << 20));
                drop(LogEnd::decode(&sealed, 1 << 30));
            }
        }
    }
}
