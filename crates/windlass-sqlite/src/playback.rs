//! Whether a rollback would make the database whole. SQLite rolls a hot journal back as soon as
//! somebody reads the database. If the file was cut off before that, SQLite makes it as long as it
//! was and leaves zeros where the journal has no page. Then nothing shows that pages are lost. So
//! this module reads the journal as SQLite would (`pager_playback` in its pager.c). It changes
//! nothing.
//!
//!   journal   [ header: N pages ][ page 7 ][ page 2 ] ... [ header ][ page 9 ] ... [ super ]
//!   file      [ page 1 ] ... [ page M ]   lost: what is behind M, up to N, and not in the journal
//!
//! A crash alone loses nothing. SQLite cuts a file in mid-transaction only when the journal has the
//! pages that it cuts off (VACUUM with a smaller page size, and old versions in other cases).

use std::ffi::{OsStr, c_char};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_engine::open_regular;
use windlass_media::fitted;

use crate::error::{IoContext, SqliteError};
use crate::header::{DATABASE_HEADER_BYTES, DatabaseHeader, be32, is_page_size};
use crate::journal::{JOURNAL_MAGIC, journal_header};
use crate::lock::PENDING_OFFSET;
use crate::view::beside;
use crate::wal::ReadAt;

/// How often to look again while writers begin and end transactions.
const LOOKS_MAX: u32 = 3;

/// The limits that SQLite has for the sector size in a journal. It takes no shorter journal than
/// a sector of 512 bytes.
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 32..=65536;
const JOURNAL_BYTES_MIN: u64 = 512;

/// The record count of a journal that its writer does not sync: records up to the end of the file.
const COUNT_UNKNOWN: u32 = u32::MAX;

/// Length of the longest name of a super-journal that SQLite reads.
const SUPER_NAME_BYTES_MAX: u32 = 512;

/// Fails if a rollback would leave zeros in the database, now or when its writer dies.
///
/// It takes no lock. The random number in the journal's header shows that one transaction was open
/// from the first look to the last. The file is measured before the journal is read: a writer that
/// cuts the file has put the pages into the journal before.
pub(crate) fn check_rollback(path: &Path, file: &File) -> Result<(), SqliteError> {
    for _ in 0..LOOKS_MAX {
        let Some(header) = journal_header(path) else {
            return Ok(());
        };
        let file_bytes = file.metadata().during("inspect", path)?.len();
        let lost = match Journal::open(path, &header).during("read", &beside(path, "-journal"))? {
            Some(journal) => needed_beyond(&journal, path, file, file_bytes)?,
            None => None,
        };
        let Some(needed_bytes) = lost else {
            return Ok(());
        };
        // The writer itself changes the count of records, which comes before the random number.
        let is_same = |now: [u8; 28]| now[12..] == header[12..];
        if journal_header(path).is_some_and(is_same) {
            return Err(SqliteError::CutOff {
                path: path.to_path_buf(),
                found_bytes: file_bytes,
                needed_bytes,
            });
        }
    }
    Ok(())
}

/// How long the database is after the rollback, if a part of it beyond `file_bytes` is lost.
fn needed_beyond(
    journal: &Journal,
    path: &Path,
    file: &File,
    file_bytes: u64,
) -> Result<Option<u64>, SqliteError> {
    let pages = file_bytes / journal.page_bytes;
    if pages >= journal.page_count {
        return Ok(None);
    }
    let during_read = |read: io::Result<Brought>| read.during("read", &beside(path, "-journal"));
    let brought = during_read(journal.walk(pages))?;
    let first = match brought.first {
        Some(first) => Some(first),
        None => {
            let mut first = [0; DATABASE_HEADER_BYTES];
            file.read_full_at(&mut first, 0).during("read", path)?;
            DatabaseHeader::decode(&first).ok()
        }
    };
    // What lies behind the length that the header gives is no part of the database: the journal
    // counts the pages of the file.
    let promised = first.map_or(0, |first| first.promised_bytes()) / journal.page_bytes;
    let needed = match promised {
        0 => journal.page_count,
        promised => promised.min(journal.page_count),
    };
    let lock_page = PENDING_OFFSET / journal.page_bytes;
    let is_lost = |page: u64| page != lock_page && !brought.has(page);
    let lost = (pages..needed).any(is_lost);
    Ok(lost.then_some(needed * journal.page_bytes))
}

/// A journal that SQLite would play back.
struct Journal {
    file: File,
    bytes: u64,
    page_bytes: u64,
    /// The journal's headers begin at multiples of this.
    sector_bytes: u64,
    /// Pages of the file before the transaction.
    page_count: u64,
}

/// What a journal brings back of the pages behind the end of the file. Pages count from 0.
struct Brought {
    from: u64,
    /// One bit for each page from `from` on.
    pages: Vec<u64>,
    /// The header in the first page, if the journal has that page.
    first: Option<DatabaseHeader>,
}

impl Brought {
    fn has(&self, page: u64) -> bool {
        let (word, bit) = self.place(page);
        self.pages.get(word).is_some_and(|word| word & bit != 0)
    }

    fn add(&mut self, page: u64) {
        let (word, bit) = self.place(page);
        if let Some(word) = self.pages.get_mut(word) {
            *word |= bit;
        }
    }

    fn place(&self, page: u64) -> (usize, u64) {
        let index = page - self.from;
        (fitted(index / 64), 1 << (index % 64))
    }
}

impl Journal {
    /// Opens the journal of a database. `None` if SQLite would not play it back: it has no valid
    /// header, or its super-journal is gone, so that its transaction has ended.
    fn open(database: &Path, header: &[u8; 28]) -> io::Result<Option<Self>> {
        let file = match open_regular(&beside(database, "-journal")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let bytes = file.metadata()?.len();
        let (sector_bytes, page_bytes) = (be32(header, 20), be32(header, 24));
        let is_valid = header.starts_with(&JOURNAL_MAGIC)
            && bytes >= JOURNAL_BYTES_MIN
            && sector_bytes.is_power_of_two()
            && SECTOR_BYTES.contains(&sector_bytes)
            && is_page_size(page_bytes);
        if !is_valid || super_journal(&file, bytes)?.is_some_and(|path| !exists(&path)) {
            return Ok(None);
        }
        Ok(Some(Self {
            file,
            bytes,
            page_bytes: page_bytes.into(),
            sector_bytes: sector_bytes.into(),
            page_count: be32(header, 16).into(),
        }))
    }

    /// Reads all records as a rollback would, and notes the pages from number `from` on.
    fn walk(&self, from: u64) -> io::Result<Brought> {
        // No more pages than the journal has records, whatever its header says.
        let pages = (self.page_count - from).min(self.bytes / self.record_bytes());
        let mut brought = Brought {
            from,
            pages: vec![0; fitted(pages.div_ceil(64))],
            first: None,
        };
        let mut record = vec![0; fitted(self.record_bytes())];
        let mut offset = 0;
        while let Some((checksum, count)) = self.header_at(offset)? {
            offset += self.sector_bytes;
            for _ in 0..count {
                let found = self.file.read_full_at(&mut record, offset)?;
                if found < record.len() || !self.take(&record, checksum, &mut brought) {
                    return Ok(brought);
                }
                offset += self.record_bytes();
            }
            offset = offset.next_multiple_of(self.sector_bytes);
        }
        Ok(brought)
    }

    /// A record: the page's number, the page, a checksum.
    fn record_bytes(&self) -> u64 {
        self.page_bytes + 8
    }

    /// The start of the checksums behind the header at `offset`, and the number of records.
    fn header_at(&self, offset: u64) -> io::Result<Option<(u32, u64)>> {
        let mut header = [0; 16];
        let found = self.file.read_full_at(&mut header, offset)?;
        if found < header.len()
            || !header.starts_with(&JOURNAL_MAGIC)
            || offset + self.sector_bytes > self.bytes
        {
            return Ok(None);
        }
        let count = match be32(&header, 8) {
            COUNT_UNKNOWN => (self.bytes - self.sector_bytes) / self.record_bytes(),
            count => count.into(),
        };
        Ok(Some((be32(&header, 12), count)))
    }

    /// Notes the page of a record. False if SQLite ends the rollback at this record.
    fn take(&self, record: &[u8], checksum: u32, brought: &mut Brought) -> bool {
        let Some(page) = u64::from(be32(record, 0)).checked_sub(1) else {
            return false;
        };
        let content = &record[4..record.len() - 4];
        if page == PENDING_OFFSET / self.page_bytes {
            return false;
        }
        if page >= self.page_count {
            return true;
        }
        // Every 200th byte, counted from the end, but never the first.
        let sampled = content[1..]
            .rchunks_exact(200)
            .map(|chunk| u32::from(chunk[0]));
        let sum = sampled.fold(checksum, u32::wrapping_add);
        if sum != be32(record, record.len() - 4) {
            return false;
        }
        if page == 0 {
            brought.first = DatabaseHeader::decode(content).ok();
        }
        if page >= brought.from {
            brought.add(page);
        }
        true
    }
}

/// The name of the super-journal at the end of a journal: of a transaction over several databases.
/// `None` if there is none, or if SQLite would not accept the name.
fn super_journal(journal: &File, bytes: u64) -> io::Result<Option<PathBuf>> {
    let mut end = [0; 16];
    let Some(end_offset) = bytes.checked_sub(end.len() as u64) else {
        return Ok(None);
    };
    journal.read_full_at(&mut end, end_offset)?;
    let length = be32(&end, 0);
    let (is_named, bytes) = (end.ends_with(&JOURNAL_MAGIC), u64::from(length));
    if !is_named || !(1..=SUPER_NAME_BYTES_MAX).contains(&length) || bytes > end_offset {
        return Ok(None);
    }
    let mut name = vec![0; fitted(bytes)];
    journal.read_full_at(&mut name, end_offset - bytes)?;
    // SQLite adds up C's characters, which have a sign on some machines.
    let sum = name.iter().fold(0_u32, |sum, byte| {
        let character = i32::from(c_char::from_le_bytes([*byte]));
        sum.wrapping_add_signed(character)
    });
    let is_right = sum == be32(&end, 4) && is_super_name(&name);
    Ok(is_right.then(|| PathBuf::from(OsStr::from_bytes(&name))))
}

/// Whether a name ends as SQLite lets super-journals end: `-mj`, six hexadecimal digits, a 9, and
/// two more digits.
fn is_super_name(name: &[u8]) -> bool {
    let Some(suffix) = name.len().checked_sub(12).map(|start| &name[start..]) else {
        return false;
    };
    suffix.starts_with(b"-mj") && suffix[9] == b'9' && suffix[3..].iter().all(u8::is_ascii_hexdigit)
}

/// Whether a file exists for SQLite: an empty one does not.
fn exists(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| !file.is_file() || file.len() > 0)
}
