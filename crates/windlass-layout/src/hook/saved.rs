//! What of a durable snapshot is on disk beside its pages, so that the hook finds it again when the
//! system starts after a power cut: its index, and where its links and its store are.
//!
//!   saved   header | directories of links | the words of the index
//!   header  magic | version | number | tag 2 | records | cells | limits 3 | page bytes |
//!           directories | CRC-32C of all behind the header |
//!           data directory: device, inode 2 | path of the store | CRC-32C
//!   stamp   magic | pg_control before its last write | after it | when 2 | did the server end? |
//!           CRC-32C
//!   places  paths with a zero behind each: the directories that have the directories of links
//!
//! The map is not saved: the entries of the store say which block each slot holds. A saved snapshot
//! that must not come back is unlinked, before anything of it becomes wrong.

use super::memory::SNAPSHOTS_MAX;
use super::snapshot::{FileKey, Limits};
use super::times::Moment;
use crate::crc::crc32c;

/// Where these files are, below the data directory.
pub const SAVED_DIRECTORY: &str = "pg_subtrans/windlass";
/// Where they are beside the directory of the server's version in a tablespace.
pub const SAVED_IN_TABLESPACE: &str = "windlass";
/// The directories of a cluster that have files of pages. Those of tablespaces are behind links.
pub const PAGED_DIRECTORIES: [&str; 6] = [
    "base",
    "global",
    "pg_xact",
    "pg_multixact",
    "pg_commit_ts",
    "pg_tblspc",
];
/// How deep these are: pg_tblspc/TABLESPACE/VERSION/DATABASE.
pub const PAGED_DEPTH_MAX: u32 = 5;
/// The name of the stamp in [`SAVED_DIRECTORY`].
pub const STAMP_NAME: &str = "stamp";
/// The name of the list of places there. It is there while any snapshot exists.
pub const PLACES_NAME: &str = "places";
/// So many bytes of pg_control tell whether it changed: from its beginning to whether pages have
/// checksums. The file has a CRC-32C of its own behind them, and the CRC-32C of bytes with their
/// CRC-32C is always the same.
pub const CONTROL_TOLD_BYTES: usize = 256;
/// Bytes of the header.
pub const SAVED_HEADER_BYTES: usize = 8192;
/// Bytes of a directory of links.
pub const SAVED_DIRECTORY_BYTES: usize = 4096;
/// How many directories of links there can be.
pub const SAVED_DIRECTORIES_MAX: u32 = 1024;
/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 28;

const MAGIC: u32 = u32::from_le_bytes(*b"WLSV");
const STAMP: u32 = u32::from_le_bytes(*b"WLS2");
const VERSION: u32 = 2;
const INODE_AT: usize = 14 * 4;
const PATH_AT: usize = 64;
const PATH_BYTES: usize = 4096;
const CRC_AT: usize = SAVED_HEADER_BYTES - 4;

/// The name of the file with the snapshot at this place of the table.
pub fn saved_name(index: u32) -> [u8; 10] {
    let mut name = *b"durable-00";
    let [low, ..] = (index % SNAPSHOTS_MAX.min(100)).to_le_bytes();
    name[8] = b'0' + low / 10;
    name[9] = b'0' + low % 10;
    name
}

/// The beginning of a saved snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedHeader {
    /// The snapshot's number.
    pub number: u32,
    /// What tells it from every other.
    pub tag: u64,
    /// Records of its index.
    pub records: u32,
    /// Cells of its map.
    pub cells: u32,
    /// When it ends.
    pub limits: Limits,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// How many directories of links follow.
    pub directories: u32,
    /// The CRC-32C of everything behind the header.
    pub body_crc: u32,
    /// The data directory. A copy of it is another one, and the store is not its own.
    pub data: FileKey,
    /// The path of the store, with zeros behind it.
    pub store: [u8; PATH_BYTES],
}

impl SavedHeader {
    /// A path with zeros behind it; `None` if it is too long.
    pub fn path(path: &[u8]) -> Option<[u8; PATH_BYTES]> {
        let mut padded = [0; PATH_BYTES];
        padded.get_mut(..path.len())?.copy_from_slice(path);
        (path.len() < PATH_BYTES).then_some(padded)
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; SAVED_HEADER_BYTES] {
        let mut bytes = [0; SAVED_HEADER_BYTES];
        let [low, high] = [self.tag & u64::from(u32::MAX), self.tag >> 32].map(word_of);
        let words = [
            MAGIC,
            VERSION,
            self.number,
            low,
            high,
            self.records,
            self.cells,
            self.limits.pages,
            self.limits.until,
            self.limits.free_mib,
            self.page_bytes,
            self.directories,
            self.body_crc,
            self.data.device,
        ];
        put(&mut bytes, &words);
        let [low, high] = [self.data.inode & u64::from(u32::MAX), self.data.inode >> 32];
        put(&mut bytes[INODE_AT..], &[low, high].map(word_of));
        bytes[PATH_AT..PATH_AT + PATH_BYTES].copy_from_slice(&self.store);
        let crc = crc32c(&bytes[..CRC_AT]);
        put(&mut bytes[CRC_AT..], &[crc]);
        bytes
    }

    /// Reads a header; `None` if it is none, or a damaged one.
    pub fn decode(bytes: &[u8; SAVED_HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| word_at(bytes, at * 4);
        let is_whole = word_at(bytes, CRC_AT) == crc32c(&bytes[..CRC_AT]);
        if !is_whole || word(0) != MAGIC || word(1) != VERSION {
            return None;
        }
        let mut store = [0; PATH_BYTES];
        store.copy_from_slice(&bytes[PATH_AT..PATH_AT + PATH_BYTES]);
        Some(Self {
            number: word(2),
            tag: u64::from(word(3)) | u64::from(word(4)) << 32,
            records: word(5),
            cells: word(6),
            limits: Limits {
                pages: word(7),
                until: word(8),
                free_mib: word(9),
            },
            page_bytes: word(10),
            directories: word(11),
            body_crc: word(12),
            data: FileKey {
                device: word(13),
                inode: u64::from(word(14)) | u64::from(word(15)) << 32,
            },
            store,
        })
    }
}

/// A directory of links, and the device that the files of the records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedDirectory {
    /// The device, as in [`FileKey`](super::FileKey).
    pub device: u32,
    /// The path, with zeros behind it.
    pub path: [u8; SAVED_DIRECTORY_BYTES - 4],
}

impl SavedDirectory {
    /// A directory; `None` if its path is too long.
    pub fn new(device: u32, path: &[u8]) -> Option<Self> {
        let mut padded = [0; SAVED_DIRECTORY_BYTES - 4];
        padded.get_mut(..path.len())?.copy_from_slice(path);
        let is_ended = path.len() < padded.len();
        is_ended.then_some(Self {
            device,
            path: padded,
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; SAVED_DIRECTORY_BYTES] {
        let mut bytes = [0; SAVED_DIRECTORY_BYTES];
        put(&mut bytes, &[self.device]);
        bytes[4..].copy_from_slice(&self.path);
        bytes
    }

    /// Reads one.
    pub fn decode(bytes: &[u8; SAVED_DIRECTORY_BYTES]) -> Self {
        let mut path = [0; SAVED_DIRECTORY_BYTES - 4];
        path.copy_from_slice(&bytes[4..]);
        Self {
            device: word_at(bytes, 0),
            path,
        }
    }
}

/// What pg_control was before the server wrote it last, and what it became: CRC-32Cs. After a power
/// cut it is one of the two, or somebody else wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Before.
    pub before: u32,
    /// After.
    pub after: u32,
    /// When it was written.
    pub at: Moment,
    /// Whether the server had ended then: nobody who takes part changed a file later.
    pub is_last: bool,
}

impl Stamp {
    /// Its bytes.
    pub fn encode(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        let (at, is_last) = (self.at, u32::from(self.is_last));
        let (seconds, nanos) = (at.seconds, at.nanos);
        let words = [STAMP, self.before, self.after, seconds, nanos, is_last];
        put(&mut bytes, &words);
        let crc = crc32c(&bytes[..STAMP_BYTES - 4]);
        put(&mut bytes[STAMP_BYTES - 4..], &[crc]);
        bytes
    }

    /// Reads one; `None` if it is damaged.
    pub fn decode(bytes: &[u8; STAMP_BYTES]) -> Option<Self> {
        let crc = crc32c(&bytes[..STAMP_BYTES - 4]);
        let is_whole = word_at(bytes, STAMP_BYTES - 4) == crc && word_at(bytes, 0) == STAMP;
        is_whole.then(|| Self {
            before: word_at(bytes, 4),
            after: word_at(bytes, 8),
            at: Moment {
                seconds: word_at(bytes, 12),
                nanos: word_at(bytes, 16),
            },
            is_last: word_at(bytes, 20) == 1,
        })
    }

    /// The last moment at which somebody who takes part can have changed a file, after a start of
    /// the system that was `up` ago. If the server did not end in order, that is the start.
    pub fn last_change(self, now: Moment, up: Moment) -> Moment {
        let seconds = now.seconds.saturating_sub(up.seconds);
        let start = Moment { seconds, nanos: 0 };
        match (self.is_last, start > self.at) {
            (true, _) => self.at,
            (false, true) => start,
            // The clock was not right, or the system did not start again. Nobody can tell.
            (false, false) => Moment::NEVER,
        }
    }
}

fn word_of(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn put(bytes: &mut [u8], words: &[u32]) {
    for (four, word) in bytes.chunks_exact_mut(4).zip(words) {
        four.copy_from_slice(&word.to_le_bytes());
    }
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_read_back_and_every_flipped_bit_is_found() {
        let header = SavedHeader {
            number: 7,
            tag: 0x1234_5678_9ABC_DEF0,
            records: 16,
            cells: 900,
            limits: Limits {
                pages: 1,
                until: 2,
                free_mib: 3,
            },
            page_bytes: 8192,
            directories: 2,
            body_crc: 0xFFFF_0001,
            data: FileKey {
                device: 5,
                inode: 1 << 40 | 3,
            },
            store: SavedHeader::path(b"/disk/store").unwrap(),
        };
        assert_eq!(SavedHeader::decode(&header.encode()), Some(header));
        for at in (0..SAVED_HEADER_BYTES).step_by(61) {
            let mut bytes = header.encode();
            bytes[at] ^= 16;
            assert_eq!(SavedHeader::decode(&bytes), None, "byte {at}");
        }
        let stamp = Stamp {
            before: 3,
            after: u32::MAX,
            at: Moment::new(1 << 31, 999_999_999),
            is_last: true,
        };
        assert_eq!(Stamp::decode(&stamp.encode()), Some(stamp));
        for bit in 0..STAMP_BYTES * 8 {
            let mut bytes = stamp.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::decode(&bytes), None, "bit {bit}");
        }
        let directory = SavedDirectory::new(9, b"/data/links").unwrap();
        assert_eq!(SavedDirectory::decode(&directory.encode()), directory);
        assert_eq!(SavedDirectory::new(9, &[1; SAVED_DIRECTORY_BYTES]), None);
        assert_eq!(SavedHeader::path(&[1; PATH_BYTES]), None);
        assert_eq!(&saved_name(63), b"durable-63");
    }
    #[test]
    fn after_a_start_of_the_system_nothing_may_be_newer_than_the_end_of_the_server_or_that_start() {
        let (now, up) = (Moment::new(9000, 1), Moment::new(1000, 0));
        let stamp = |seconds, is_last| Stamp {
            before: 1,
            after: 2,
            at: Moment::new(seconds, 3),
            is_last,
        };
        let last = |seconds, is_last| stamp(seconds, is_last).last_change(now, up);
        assert_eq!(last(500, true), Moment::new(500, 3));
        assert_eq!(last(500, false), Moment::new(8000, 0));
        assert_eq!(last(8500, false), Moment::NEVER, "the clock was wrong");
    }
}
