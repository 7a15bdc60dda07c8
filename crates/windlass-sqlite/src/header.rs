//! The database header: the first 100 bytes of page 1, as SQLite's file format lays them down.
//!
//! All numbers are big-endian. See "The Database Header" in <https://sqlite.org/fileformat2.html>.

/// Length of the header in bytes.
pub const DATABASE_HEADER_BYTES: usize = 100;

/// The first 16 bytes of every database that is not empty.
pub const DATABASE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The fields of the database header that a backup needs or reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Page size in bytes: a power of two from 512 to 65536.
    pub page_bytes: u32,
    /// How many bytes at the end of each page are not SQLite's (extensions keep nonces there).
    pub reserved_bytes: u8,
    /// 2 when the database is in WAL mode, 1 when it uses a rollback journal.
    pub read_version: u8,
    /// Counts transactions in rollback mode; WAL mode leaves it alone.
    pub change_counter: u32,
    /// Size in pages, valid only when `change_counter` equals `valid_for`.
    pub page_count: u32,
    /// 1 UTF-8, 2 UTF-16 little-endian, 3 UTF-16 big-endian.
    pub encoding: u32,
    /// Set by `PRAGMA user_version`.
    pub user_version: i32,
    /// Set by `PRAGMA application_id`.
    pub application_id: i32,
    /// Whether the file can shrink by itself (`PRAGMA auto_vacuum`).
    pub auto_vacuum: bool,
    /// Change counter at which `page_count` and `sqlite_version` were stored.
    pub valid_for: u32,
    /// Version of SQLite that wrote last, as in `SQLITE_VERSION_NUMBER`.
    pub sqlite_version: u32,
}

impl DatabaseHeader {
    /// Reads a header; `Err` says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes = bytes
            .get(..DATABASE_HEADER_BYTES)
            .ok_or("it is shorter than its header")?;
        if !bytes.starts_with(DATABASE_MAGIC) {
            return Err("it does not start with SQLite's magic bytes");
        }
        let page_bytes = match u32::from(be16(bytes, 16)) {
            1 => 65536,
            bytes => bytes,
        };
        if !is_page_size(page_bytes) {
            return Err("its page size is not a power of two from 512 to 65536");
        }
        let read_version = bytes[19];
        if !(1..=2).contains(&read_version) {
            return Err("it needs a newer SQLite (its read version is neither 1 nor 2)");
        }
        Ok(Self {
            page_bytes,
            reserved_bytes: bytes[20],
            read_version,
            change_counter: be32(bytes, 24),
            page_count: be32(bytes, 28),
            encoding: be32(bytes, 56),
            user_version: be32(bytes, 60).cast_signed(),
            application_id: be32(bytes, 68).cast_signed(),
            auto_vacuum: be32(bytes, 52) != 0,
            valid_for: be32(bytes, 92),
            sqlite_version: be32(bytes, 96),
        })
    }

    /// The file's least length in bytes, as the header says. 0 if the last SQLite to write does not
    /// keep the page count (before 3.7.0).
    pub fn promised_bytes(&self) -> u64 {
        if self.change_counter == self.valid_for {
            u64::from(self.page_count) * u64::from(self.page_bytes)
        } else {
            0
        }
    }

    /// True if the database is in WAL mode and the SQLite that last wrote it has the WAL-reset bug.
    /// In rare cases that SQLite corrupts the database: one connection runs a checkpoint at the
    /// moment when another one commits and restarts the log. Versions 3.7.0 to 3.51.2 have the bug,
    /// except 3.50.7 and 3.44.6, which have the fix of 3.51.3. See "The WAL-Reset Bug" in
    /// <https://sqlite.org/wal.html>.
    pub fn has_wal_reset_bug(&self) -> bool {
        let version = self.sqlite_version;
        let affected = (3_007_000..3_051_003).contains(&version);
        let fixed =
            (3_050_007..3_051_000).contains(&version) || (3_044_006..3_045_000).contains(&version);
        self.is_wal() && affected && !fixed
    }

    /// Whether readers must look into a WAL.
    pub fn is_wal(&self) -> bool {
        self.read_version == 2
    }
}

/// Whether SQLite allows pages of this size.
pub(crate) fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (512..=65536).contains(&bytes)
}

/// The big-endian number at `offset`; the caller has checked the length.
pub(crate) fn be32(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_be_bytes(number)
}

fn be16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; DATABASE_HEADER_BYTES];
        bytes[..16].copy_from_slice(DATABASE_MAGIC);
        bytes[16..20].copy_from_slice(&[0x10, 0, 1, 1]);
        bytes
    }

    #[test]
    fn a_page_size_of_one_means_65536() {
        let mut bytes = sample();
        bytes[16..18].copy_from_slice(&[0, 1]);
        assert_eq!(
            DatabaseHeader::decode(&bytes).map(|header| header.page_bytes),
            Ok(65536)
        );
    }

    #[test]
    fn only_powers_of_two_from_512_to_65536_are_page_sizes() {
        for size in 0..=u16::MAX {
            let mut bytes = sample();
            bytes[16..18].copy_from_slice(&size.to_be_bytes());
            let allowed = size == 1 || (size >= 512 && size.is_power_of_two());
            assert_eq!(
                DatabaseHeader::decode(&bytes).is_ok(),
                allowed,
                "page size {size}"
            );
        }
    }

    #[test]
    fn versions_that_can_corrupt_a_database_in_wal_mode_are_known() {
        let affected = |version: u32, mode: u8| {
            let mut bytes = sample();
            bytes[18..20].copy_from_slice(&[mode, mode]);
            bytes[96..100].copy_from_slice(&version.to_be_bytes());
            DatabaseHeader::decode(&bytes).map(|header| header.has_wal_reset_bug())
        };
        for version in [
            3_007_000, 3_040_001, 3_044_005, 3_045_000, 3_050_006, 3_051_000, 3_051_002,
        ] {
            assert_eq!(affected(version, 2), Ok(true), "{version}");
            assert_eq!(affected(version, 1), Ok(false), "{version}, rollback mode");
        }
        for version in [
            0, 3_006_023, 3_044_006, 3_044_999, 3_050_007, 3_051_003, 3_054_001,
        ] {
            assert_eq!(affected(version, 2), Ok(false), "{version}");
        }
    }

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        let bytes = sample();
        for length in 0..DATABASE_HEADER_BYTES {
            assert!(
                DatabaseHeader::decode(&bytes[..length]).is_err(),
                "length {length}"
            );
        }
        assert!(DatabaseHeader::decode(&bytes).is_ok());
    }
}
