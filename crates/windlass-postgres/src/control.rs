//! pg_control: what a cluster says about itself before it runs.
//!
//! The file's layout grows with PostgreSQL's versions, so this module does not count fields from
//! start to end. The first fields have not moved since 8.0. The build constants follow a known
//! double. The CRC stands at the place where the CRC-32C of all bytes before it matches.
//!
//! Invariants
//! - A `Control` is always parsed from bytes whose CRC-32C matches, so a torn read is never used.

use std::path::Path;
use std::time::Duration;

use windlass_media::crc32c;

use crate::error::{IoContext, PostgresError};
use crate::lsn::{Lsn, Timeline};

/// Size of the file. PostgreSQL pads it so that an older server never reads too few bytes.
pub const CONTROL_BYTES: usize = 8192;
/// Where the file lies below the data directory.
pub const CONTROL_PATH: &str = "global/pg_control";
const WRONG_LENGTH: &str = "is not 8192 bytes long";
const NO_CRC: &str = "has no CRC-32C that holds";

/// PostgreSQL keeps the meaningful part within one disk sector, so that the disk writes it as a
/// whole.
const SAFE_BYTES: usize = 512;
const CHECKPOINT_AT: usize = 32;
const REDO_AT: usize = 40;
const CHECKPOINT_TIMELINE_AT: usize = 48;
/// nextXid of the copy of the last checkpoint; in 19 another field stands before it.
const NEXT_TRANSACTION_AT: usize = 64;
const NEXT_TRANSACTION_AT_19: usize = 72;
/// nextMulti and nextMultiOffset stand this far behind it. In 19 the second has eight bytes.
const NEXT_MULTIXACT_BEHIND: usize = 12;
const NEXT_MEMBER_BEHIND: usize = 16;
/// `FLOATFORMAT_VALUE` of pg_control.h; the build constants follow it.
const FLOAT_FORMAT: f64 = 1_234_567.0;
/// minRecoveryPointTLI stands this far before the double, in 14 to 19.
const MIN_RECOVERY_TIMELINE_BEFORE: usize = 64;
/// The state of the cluster (`DBState`), and its value if the server was shut down.
const STATE_AT: usize = 16;
const SHUT_DOWN: u32 = 1;
/// wal_level stands this far before the double, in 14 to 19.
const LOG_LEVEL_BEFORE: usize = 36;
/// The settings that a standby must match begin this far before the double, in 14 to 19.
const CONNECTIONS_BEFORE: usize = 28;
const PREPARED_TRANSACTIONS_BEFORE: usize = 16;
const LOCKS_BEFORE: usize = 12;
const COMMIT_TIMESTAMPS_BEFORE: usize = 8;
/// From this layout on (PostgreSQL 19) the build constants include the pages of an SLRU segment,
/// behind those of a relation's segment.
const SLRU_PAGES_SINCE: u32 = 1900;
/// The length of mock_authentication_nonce, the last field before the CRC.
const NONCE_BYTES: usize = 32;
/// From this layout on (PostgreSQL 18) it does not begin at a multiple of four.
const UNALIGNED_NONCE_SINCE: u32 = 1800;
/// Pages of an SLRU segment before that.
const SLRU_PAGES: u32 = 32;
/// An address that no checkpoint can have: WAL begins in segment 1 or later.
const CHECKPOINT_INVALID: u64 = 0xDEAD;
const READS_MAX: u32 = 100;
const READ_PAUSE: Duration = Duration::from_millis(10);

/// Whether data pages have checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// No page has one.
    Off,
    /// Every page has one.
    On,
    /// The server is switching them on or off while it runs, as development versions of PostgreSQL
    /// 19 can. Some pages have a checksum; a page without one proves nothing.
    Changing,
}

/// The content of pg_control, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Identity of the cluster, made by initdb.
    pub system_identifier: u64,
    /// Version of the file's layout.
    pub control_version: u32,
    /// Version of the system catalogs; part of tablespace directory names.
    pub catalog_version: u32,
    /// Position of the last checkpoint record.
    pub checkpoint: Lsn,
    /// Where replay after a crash begins.
    pub redo: Lsn,
    /// Timeline of the last checkpoint.
    pub checkpoint_timeline: Timeline,
    /// The number that the next transaction would have had at the last checkpoint; the upper half
    /// is the epoch.
    pub next_transaction: u64,
    /// The number that the next multixact would have had then.
    pub next_multixact: u32,
    /// The number that its first member would have had.
    pub next_member: u64,
    /// On a standby, the timeline of the minimum recovery point; otherwise 0.
    pub min_recovery_timeline: Timeline,
    /// Bytes of a data page.
    pub block_bytes: u32,
    /// Pages in one segment file of a relation.
    pub relation_segment_blocks: u32,
    /// Pages in one segment file of pg_xact.
    pub slru_segment_pages: u32,
    /// Bytes of a WAL page.
    pub wal_block_bytes: u32,
    /// Bytes of a WAL segment.
    pub wal_segment_bytes: u32,
    /// Bytes of a name in the catalogs: 64 unless somebody built the server with another size.
    pub name_bytes: u32,
    /// Version of the data page checksums; 0 if there are none. [`Control::checksums`] interprets
    /// it.
    pub checksum_version: u32,
    /// max_connections of the server that wrote the log.
    pub connections_max: u32,
    /// Its max_prepared_transactions.
    pub prepared_transactions_max: u32,
    /// Its max_locks_per_transaction.
    pub locks_per_transaction_max: u32,
    /// Its track_commit_timestamp.
    pub commit_timestamps: bool,
    bytes: Vec<u8>,
    crc_at: usize,
}

/// The name of a cluster's directory in each of its tablespaces.
pub(crate) fn version_directory(major: u32, catalog_version: u32) -> String {
    format!("PG_{major}_{catalog_version}")
}

impl Control {
    /// Reads `global/pg_control` below `data_directory`. Repeats the read while the CRC does not
    /// match: the server rewrites the file in place, and a read may overlap a write.
    pub fn read(data_directory: &Path) -> Result<Self, PostgresError> {
        let path = data_directory.join(CONTROL_PATH);
        let mut fault = "is empty";
        for attempt in 0..READS_MAX {
            if attempt > 0 {
                std::thread::sleep(READ_PAUSE);
            }
            let bytes = std::fs::read(&path).doing("read", &path)?;
            match Self::parse(bytes) {
                Ok(control) => return Ok(control),
                Err(what) => fault = what,
            }
        }
        Err(PostgresError::Control { path, what: fault })
    }

    /// Whether this error of [`Control::parse`] says that the bytes are not what a server wrote.
    pub(crate) fn is_damage(what: &str) -> bool {
        [WRONG_LENGTH, NO_CRC].contains(&what)
    }

    /// Parses the file's bytes. The error says what is wrong with them.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, &'static str> {
        if bytes.len() != CONTROL_BYTES {
            return Err(WRONG_LENGTH);
        }
        let crc_at = find_crc(&bytes).ok_or(NO_CRC)?;
        let float_at = find_float(&bytes[..crc_at]).ok_or("has an unknown layout")?;
        let constants = float_at + 8;
        let slru_pages = u32_at(&bytes, 8) >= SLRU_PAGES_SINCE;
        let next_at = if slru_pages {
            NEXT_TRANSACTION_AT_19
        } else {
            NEXT_TRANSACTION_AT
        };
        let next_member_at = next_at + NEXT_MEMBER_BEHIND;
        let later = constants + if slru_pages { 4 } else { 0 };
        let control = Self {
            system_identifier: u64_at(&bytes, 0),
            control_version: u32_at(&bytes, 8),
            catalog_version: u32_at(&bytes, 12),
            checkpoint: Lsn(u64_at(&bytes, CHECKPOINT_AT)),
            redo: Lsn(u64_at(&bytes, REDO_AT)),
            checkpoint_timeline: Timeline(u32_at(&bytes, CHECKPOINT_TIMELINE_AT)),
            next_transaction: u64_at(&bytes, next_at),
            next_multixact: u32_at(&bytes, next_at + NEXT_MULTIXACT_BEHIND),
            next_member: if slru_pages {
                u64_at(&bytes, next_member_at)
            } else {
                u64::from(u32_at(&bytes, next_member_at))
            },
            min_recovery_timeline: Timeline(u32_at(
                &bytes,
                float_at - MIN_RECOVERY_TIMELINE_BEFORE,
            )),
            block_bytes: u32_at(&bytes, constants),
            relation_segment_blocks: u32_at(&bytes, constants + 4),
            slru_segment_pages: if slru_pages {
                u32_at(&bytes, constants + 8)
            } else {
                SLRU_PAGES
            },
            wal_block_bytes: u32_at(&bytes, later + 8),
            wal_segment_bytes: u32_at(&bytes, later + 12),
            name_bytes: u32_at(&bytes, later + 16),
            checksum_version: u32_at(&bytes, later + 36),
            connections_max: u32_at(&bytes, float_at - CONNECTIONS_BEFORE),
            prepared_transactions_max: u32_at(&bytes, float_at - PREPARED_TRANSACTIONS_BEFORE),
            locks_per_transaction_max: u32_at(&bytes, float_at - LOCKS_BEFORE),
            commit_timestamps: bytes[float_at - COMMIT_TIMESTAMPS_BEFORE] != 0,
            bytes,
            crc_at,
        };
        control.check_sizes()?;
        Ok(control)
    }

    /// The name of the cluster's directory in a tablespace, for a server of this major version.
    pub(crate) fn version_directory(&self, major: u32) -> String {
        version_directory(major, self.catalog_version)
    }

    /// Whether members of multixacts have numbers of eight bytes, as in 19.
    pub(crate) fn has_wide_members(&self) -> bool {
        self.control_version >= SLRU_PAGES_SINCE
    }

    /// Whether data pages have checksums that can be checked.
    pub fn checksums(&self) -> Checksums {
        match self.checksum_version {
            0 => Checksums::Off,
            1 => Checksums::On,
            // 2 means being switched off, 3 being switched on.
            _ => Checksums::Changing,
        }
    }

    fn check_sizes(&self) -> Result<(), &'static str> {
        let size = |bytes: u32, min: u32, max: u32| {
            bytes.is_power_of_two() && (min..=max).contains(&bytes)
        };
        if !size(self.block_bytes, 1 << 10, 1 << 15) {
            return Err("states a block size that PostgreSQL cannot have");
        }
        if !size(self.wal_segment_bytes, 1 << 20, 1 << 30) {
            return Err("states a WAL segment size that PostgreSQL cannot have");
        }
        if self.relation_segment_blocks == 0 {
            return Err("states a relation segment of no blocks");
        }
        Ok(())
    }

    /// The file's bytes with an invalid address of the last checkpoint, and a new CRC.
    ///
    /// A server that finds backup_label takes the address from there and overwrites this one.
    /// Without the label (bad advice tells people to delete it) a server would start from this
    /// address, skip WAL that it needs, and silently corrupt its data. With the invalid address it
    /// refuses to start.
    pub fn without_checkpoint(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[CHECKPOINT_AT..CHECKPOINT_AT + 8].copy_from_slice(&CHECKPOINT_INVALID.to_le_bytes());
        let crc = crc32c(&bytes[..self.crc_at]);
        bytes[self.crc_at..self.crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether the server was shut down, and everything is on disk. That of a standby is not.
    pub fn is_shut_down(&self) -> bool {
        u32_at(&self.bytes, STATE_AT) == SHUT_DOWN
    }

    /// Whether the log has only what a crash needs (wal_level = minimal). No archive can have it.
    pub fn is_log_minimal(&self) -> bool {
        find_float(&self.bytes[..self.crc_at])
            .is_some_and(|at| u32_at(&self.bytes, at - LOG_LEVEL_BEFORE) == 0)
    }

    /// Random bytes that initdb made (mock_authentication_nonce), and that only whoever may read
    /// the data directory knows. They stay the same for the life of the cluster and all its
    /// standbys.
    pub fn secret(&self) -> Option<&[u8]> {
        // From 18 on a bool stands before them, so three bytes of padding follow them.
        let padding = match self.control_version {
            UNALIGNED_NONCE_SINCE.. => 3,
            _ => 0,
        };
        let end = self.crc_at - padding;
        let secret = &self.bytes[end - NONCE_BYTES..end];
        // pg_resetwal writes zeros if it has to guess.
        secret.iter().any(|byte| *byte != 0).then_some(secret)
    }

    /// The file's bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The newest timeline of this cluster's log on this machine.
    pub fn newest_timeline(&self) -> Timeline {
        self.min_recovery_timeline.max(self.checkpoint_timeline)
    }
}

fn find_crc(bytes: &[u8]) -> Option<usize> {
    // The meaningful part is at least 200 bytes in every version; the rest is zero padding.
    (200..=SAFE_BYTES - 4)
        .step_by(4)
        .find(|at| u32_at(bytes, *at) != 0 && crc32c(&bytes[..*at]) == u32_at(bytes, *at))
}

fn find_float(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(8 + 44)?;
    let found = |at: &usize| u64_at(bytes, *at) == FLOAT_FORMAT.to_bits();
    (MIN_RECOVERY_TIMELINE_BEFORE..=last)
        .step_by(8)
        .find(|at| at.is_multiple_of(8) && found(at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_crc(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        bytes.resize(CONTROL_BYTES, 0);
        let crc = crc32c(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn files_of_another_length_or_without_a_crc_are_refused() {
        assert_eq!(Control::parse(vec![1; 8191]), Err("is not 8192 bytes long"));
        assert_eq!(
            Control::parse(vec![0; CONTROL_BYTES]),
            Err("has no CRC-32C that holds")
        );
        let unknown = with_crc(vec![7; 280], 280);
        assert_eq!(Control::parse(unknown), Err("has an unknown layout"));
    }

    proptest! {
        /// A matching CRC proves who wrote the bytes, not that they make sense.
        #[test]
        fn no_content_breaks_the_parser(
            content in proptest::collection::vec(any::<u8>(), SAFE_BYTES),
            crc_at in 50_usize..127,
            float_at in 0_usize..60,
        ) {
            let mut content = content;
            content[float_at * 8..float_at * 8 + 8].copy_from_slice(&FLOAT_FORMAT.to_le_bytes());
            drop(Control::parse(with_crc(content, crc_at * 4)));
        }
    }
}
