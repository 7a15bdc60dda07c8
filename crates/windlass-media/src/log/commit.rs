//! What the log of a SQLite database consists of: records, one after the other.
//!
//!   record = [head 72][what the kind says]
//!   stand  = [head][JSON object]                       which state this is, where it stands
//!   commit = [head][page number 4][page] ...           the pages that a transaction wrote

use crate::error::{FormatError, Structure};
use crate::wire::{Reader, check_crc, seal_with_crc};

/// `WLCM`.
const MAGIC: u32 = 0x4D43_4C57;
const STRUCTURE: Structure = Structure::LogRecord;
/// Bytes of the head of a record.
pub const LOG_RECORD_BYTES: usize = 72;
/// The longest JSON object of a stand.
pub const LOG_STAND_BYTES_MAX: u32 = 64 << 10;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Says where the state stands that the records before lead to. Objects begin with one.
    Stand,
    /// A transaction.
    Commit,
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// What it is.
    pub kind: RecordKind,
    /// Bytes of a page of the database; 0 if it is empty.
    pub page_bytes: u32,
    /// Pages of the database after the record; 0 if the length of the file says it.
    pub page_count: u32,
    /// How many pages follow; of a stand how many bytes.
    pub count: u32,
    /// The last frame of the transaction in the database's own log, from 1; 0 if that log is empty.
    pub frame: u32,
    /// The salts of the database's own log there.
    pub salts: [u8; 8],
    /// The checksum of that frame.
    pub sums: [u32; 2],
    /// How many transactions there are on the timeline, with this one.
    pub number: u64,
    /// The transaction was not there at this moment: nanoseconds since 1970 UTC.
    pub after_nanos: i64,
    /// It was there at this moment, at the latest.
    pub by_nanos: i64,
}

impl LogRecord {
    /// The bytes of the head.
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            RecordKind::Stand => 0,
            RecordKind::Commit => 1,
        };
        let mut bytes = Vec::with_capacity(LOG_RECORD_BYTES);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[kind, 0, 0, 0]);
        for number in [self.page_bytes, self.page_count, self.count, self.frame] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.salts);
        bytes.extend_from_slice(&self.sums[0].to_le_bytes());
        bytes.extend_from_slice(&self.sums[1].to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.after_nanos.to_le_bytes());
        bytes.extend_from_slice(&self.by_nanos.to_le_bytes());
        seal_with_crc(&mut bytes, LOG_RECORD_BYTES);
        bytes
    }

    /// Reads a head.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        if bytes.len() != LOG_RECORD_BYTES {
            return Err(FormatError::Truncated(STRUCTURE));
        }
        let mut reader = Reader::new(check_crc(bytes, STRUCTURE)?, STRUCTURE);
        if reader.u32()? != MAGIC {
            return Err(FormatError::Magic(STRUCTURE));
        }
        let kind = match reader.array::<4>()? {
            [0, 0, 0, 0] => RecordKind::Stand,
            [1, 0, 0, 0] => RecordKind::Commit,
            _ => return Err(reader.invalid("an unknown kind of record")),
        };
        let found = Self {
            kind,
            page_bytes: reader.u32()?,
            page_count: reader.u32()?,
            count: reader.u32()?,
            frame: reader.u32()?,
            salts: reader.array()?,
            sums: [reader.u32()?, reader.u32()?],
            number: reader.u64()?,
            after_nanos: reader.i64()?,
            by_nanos: reader.i64()?,
        };
        let fault = found.fault();
        let invalid = fault.map(|what| reader.invalid(what));
        reader.padding()?;
        invalid.map_or(Ok(found), Err)
    }

    fn fault(&self) -> Option<&'static str> {
        let is_page_size =
            self.page_bytes.is_power_of_two() && (512..=65536).contains(&self.page_bytes);
        match self.kind {
            RecordKind::Stand if self.count > LOG_STAND_BYTES_MAX => Some("a stand is too long"),
            RecordKind::Stand => None,
            RecordKind::Commit if !is_page_size => Some("SQLite has no such page size"),
            RecordKind::Commit if self.count == 0 || self.count > self.frame => {
                Some("the number of pages does not go with the frame")
            }
            RecordKind::Commit if self.page_count == 0 => Some("a database without pages"),
            RecordKind::Commit => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_and_every_flipped_bit_is_found() {
        for kind in [RecordKind::Stand, RecordKind::Commit] {
            let record = LogRecord {
                kind,
                page_bytes: 4096,
                page_count: 255,
                count: 3,
                frame: 7,
                salts: *b"saltSALT",
                sums: [5, 6],
                number: 9,
                after_nanos: -1,
                by_nanos: 1_790_000_000_000_000_000,
            };
            let mut bytes = record.encode();
            assert_eq!(LogRecord::decode(&bytes).unwrap(), record);
            for at in 0..bytes.len() * 8 {
                bytes[at / 8] ^= 1 << (at % 8);
                assert!(LogRecord::decode(&bytes).is_err(), "bit {at}");
                bytes[at / 8] ^= 1 << (at % 8);
            }
        }
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let good = LogRecord {
            kind: RecordKind::Commit,
            page_bytes: 512,
            page_count: 1,
            count: 1,
            frame: 1,
            salts: [0; 8],
            sums: [0; 2],
            number: 1,
            after_nanos: 0,
            by_nanos: 0,
        };
        let refused =
            |bad: LogRecord| assert!(LogRecord::decode(&bad.encode()).is_err(), "{bad:?}");
        assert!(LogRecord::decode(&good.encode()).is_ok());
        refused(LogRecord {
            page_bytes: 0,
            ..good
        });
        refused(LogRecord {
            page_bytes: 513,
            ..good
        });
        refused(LogRecord { count: 0, ..good });
        refused(LogRecord { count: 2, ..good });
        refused(LogRecord {
            page_count: 0,
            ..good
        });
        let kind = RecordKind::Stand;
        refused(LogRecord {
            kind,
            count: LOG_STAND_BYTES_MAX + 1,
            ..good
        });
    }
}
