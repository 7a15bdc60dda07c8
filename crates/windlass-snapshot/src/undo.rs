//! The pages that a revert overwrote, so that it can be undone: a file. What it says of a database
//! counts for a SQLite database; a cluster's pages are numbered by `kept.rs`.
//!
//!   [ page number 4 | crc32c 4 | page ] ... [ JSON ] [ its length 4 | crc32c 4 | "WLUNDO 1" ]
//!
//! It has each page in which the database differed from the snapshot. So the snapshot, with these
//! pages over it, is the database as it was. Pages come in ascending order. Numbers are
//! little-endian; pages are counted from 1. The checksum of a page covers its number, too.
//!
//! While the transaction of the revert is not committed, the file has another name (`PENDING`).
//! What it tells of the schema cookie decides later what became of the transaction.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use windlass_engine::media::{crc32c, crc32c_zeros_after};
use windlass_engine::{DirectFile, durable, open_regular};

use crate::behind::{Behind, Block, Memory};
use crate::directory;
use crate::error::{Doing, SnapshotError};

/// The pages of a cluster's state, in its directory.
pub(crate) const UNDO: &str = "undo";
/// Pages that are not complete, or whose transaction is not committed.
pub(crate) const PENDING: &str = "undo.pending";
/// Says that the pages of a SQLite database which are pending are those that an undo overwrites.
/// Without pending pages it means nothing.
pub(crate) const PENDING_BY_UNDO: &str = "undo.pending-by-undo";
/// The directory of a cluster's state while its revert is under way, or was cut off.
pub(crate) const PENDING_STATE: &str = "before.pending";
/// The list of a cluster's files, and its pg_control, in the directory of its state.
pub(crate) const LIST: &str = "files";
pub(crate) const CONTROL: &str = "control";
/// A longer list is none. An entry takes about a hundred bytes.
pub(crate) const LIST_BYTES_MAX: u64 = 1 << 30;
/// What a record says of a state that a revert overwrote, and of one that an undo did.
pub(crate) const BY_REVERT: &str = "revert";
pub(crate) const BY_UNDO: &str = "undo";
/// The end of the file.
const MAGIC: &[u8; 8] = b"WLUNDO 1";
/// Bytes in front of a page.
const HEAD_BYTES: usize = 8;
/// Length and checksum of the JSON document, and the magic.
const TAIL_BYTES: u64 = 16;
/// A longer document is none.
const JSON_BYTES_MAX: u32 = 1 << 16;
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// What is known about a state that was overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoRecord {
    /// The id of the snapshot that the pages go over.
    pub snapshot_id: String,
    /// Its number. Older versions of Windlass gave none.
    #[serde(default)]
    pub number: u32,
    /// The number of the state that was brought back, and goes for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brings_back: Option<u32>,
    /// RFC 3339 time at which the state was overwritten.
    pub at: String,
    /// What was written instead: `revert` or `undo`.
    pub by: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the state.
    pub page_count: u32,
    /// Pages that are kept here.
    pub kept_count: u32,
    /// The schema cookie of the transaction that overwrote the state.
    pub schema_cookie: u32,
    /// PostgreSQL: the checksum of the list of the state's files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files_crc32c: Option<u32>,
}

impl UndoRecord {
    /// The record at the end of a file. `None` if there is none.
    pub(crate) fn read(file: &Path) -> Result<Option<Self>, SnapshotError> {
        read_at(file).map(|found| found.map(|(_, record)| record))
    }
}

/// Gives the pending pages in a directory their name, durably.
pub(crate) fn finish(directory: &Path) -> Result<(), SnapshotError> {
    let (from, to) = (directory.join(PENDING), directory.join(UNDO));
    durable::rename(&from, &to).doing("rename", &from)
}

/// Removes the pages in a directory, durably, if there are some.
pub(crate) fn remove(directory: &Path) -> Result<(), SnapshotError> {
    let path = directory.join(UNDO);
    match durable::if_there(std::fs::remove_file(&path)).doing("remove", &path)? {
        Some(()) => directory::sync(directory),
        None => Ok(()),
    }
}

/// Reads the record of a file, and leaves the file open.
fn read_at(path: &Path) -> Result<Option<(File, UndoRecord)>, SnapshotError> {
    let file = match open_regular(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.doing("open", path)?,
    };
    let damaged = |what| SnapshotError::Damaged {
        path: path.to_owned(),
        what,
    };
    let bytes = file.metadata().doing("inspect", path)?.len();
    let tail_at = bytes.checked_sub(TAIL_BYTES);
    let tail_at = tail_at.ok_or_else(|| damaged("it is too short"))?;
    let mut tail = [0; 16];
    file.read_exact_at(&mut tail, tail_at).doing("read", path)?;
    if tail[8..] != *MAGIC {
        return Err(damaged("it does not end like what a revert keeps"));
    }
    let (length, sum) = (u32_at(&tail, 0), u32_at(&tail, 4));
    let json_at = tail_at.checked_sub(u64::from(length));
    let json_at = json_at
        .filter(|_| length <= JSON_BYTES_MAX)
        .ok_or_else(|| damaged("its record is too long"))?;
    let mut json = vec![0; length as usize];
    file.read_exact_at(&mut json, json_at).doing("read", path)?;
    if crc32c(&json) != sum {
        return Err(damaged("the checksum of its record is wrong"));
    }
    let record: UndoRecord = serde_json::from_slice(&json)
        .map_err(|_| damaged("its record is not the JSON document it should be"))?;
    let entry = HEAD_BYTES as u64 + u64::from(record.page_bytes);
    if entry * u64::from(record.kept_count) != json_at {
        return Err(damaged("its length is wrong"));
    }
    Ok(Some((file, record)))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(number)
}

/// The checksum of a page with its number.
fn checksum(page: u32, bytes: &[u8]) -> u32 {
    crc32c_zeros_after(crc32c(&page.to_le_bytes()), bytes.len() as u64) ^ crc32c(bytes)
}

/// Numbers of pages in ascending order, as ranges. They take a thousandth of the pages' room if
/// none has a neighbour.
#[derive(Debug, Default)]
pub(crate) struct PageRuns(Vec<Range<u32>>);

impl PageRuns {
    /// Adds a page with a larger number than all others.
    fn add(&mut self, page: u32) {
        match self.0.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => self.0.push(page..page + 1),
        }
    }

    /// The pages within a range.
    pub(crate) fn within(&self, range: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let first = self.0.partition_point(|run| run.end <= range.start);
        let runs = self.0[first..].iter();
        let runs = runs.take_while(move |run| run.start < range.end);
        runs.map(move |run| run.start.max(range.start)..run.end.min(range.end))
    }
}

/// Writes the pages that are overwritten. Dropping it before [`UndoWriter::complete`] leaves a file
/// that counts for nothing.
pub(crate) struct UndoWriter {
    path: Arc<Path>,
    /// Nobody reads soon what is kept, so it goes past the cache.
    file: Arc<DirectFile>,
    behind: Behind,
    /// What was not given to the thread that writes.
    block: Memory,
    /// How many bytes of it are filled.
    filled: usize,
    /// Where that goes.
    offset: u64,
    kept: u32,
    runs: PageRuns,
}

impl UndoWriter {
    /// A pending undo in the directory of a snapshot.
    pub(crate) fn create(directory: &Path) -> Result<Self, SnapshotError> {
        let path = directory.join(PENDING);
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path).doing("create", &path)?;
        let behind = Behind::start();
        Ok(Self {
            path: path.into(),
            file: Arc::new(DirectFile::open(file)),
            block: behind.memory()?,
            behind,
            filled: 0,
            offset: 0,
            kept: 0,
            runs: PageRuns::default(),
        })
    }

    /// Which pages were kept.
    pub(crate) fn take_runs(&mut self) -> PageRuns {
        std::mem::take(&mut self.runs)
    }

    /// Keeps a page. Each page has a larger number than the one before.
    pub(crate) fn keep(&mut self, page: u32, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.append(&page.to_le_bytes())?;
        self.append(&checksum(page, bytes).to_le_bytes())?;
        self.append(bytes)?;
        self.kept += 1;
        self.runs.add(page);
        Ok(())
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), SnapshotError> {
        while !bytes.is_empty() {
            let count = bytes.len().min(self.block.len() - self.filled);
            let (now, later) = bytes.split_at(count);
            self.block[self.filled..self.filled + count].copy_from_slice(now);
            self.filled += count;
            bytes = later;
            if self.filled == self.block.len() {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    /// Gives what has come to the thread that writes.
    fn hand_on(&mut self) -> Result<(), SnapshotError> {
        let mut bytes = std::mem::replace(&mut self.block, self.behind.memory()?);
        bytes.set_len(std::mem::take(&mut self.filled));
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.behind.write(Block {
            file: Arc::clone(&self.file),
            path: Arc::clone(&self.path),
            offset,
            bytes,
        })
    }

    /// Completes the file, durably. It is still pending. Returns the number of its pages.
    pub(crate) fn complete(mut self, mut record: UndoRecord) -> Result<u32, SnapshotError> {
        record.kept_count = self.kept;
        let json = serde_json::to_vec(&record).map_err(std::io::Error::from);
        let json = json.doing("encode", &self.path)?;
        let length = u32::try_from(json.len()).map_err(std::io::Error::other);
        let length = length.doing("encode", &self.path)?;
        self.append(&json)?;
        self.append(&length.to_le_bytes())?;
        self.append(&crc32c(&json).to_le_bytes())?;
        self.append(MAGIC)?;
        self.hand_on()?;
        self.behind.finish()?;
        self.file.file().sync_all().doing("write", &self.path)?;
        directory::sync(self.path.parent().unwrap_or(&self.path))?;
        Ok(self.kept)
    }

    /// Removes the file.
    pub(crate) fn discard(self) -> Result<(), SnapshotError> {
        drop(self.behind);
        std::fs::remove_file(&self.path).doing("remove", &self.path)?;
        forget_note(self.path.parent().unwrap_or(&self.path));
        Ok(())
    }
}

/// Removes the note of an undo that has ended. If it stays, the next revert removes it.
pub(crate) fn forget_note(directory: &Path) {
    std::fs::remove_file(directory.join(PENDING_BY_UNDO)).unwrap_or_default();
}

/// Reads the pages of an undo, in their order.
pub(crate) struct UndoReader {
    path: PathBuf,
    input: BufReader<File>,
    record: UndoRecord,
    left: u32,
    /// The next page.
    next: Option<(u32, Vec<u8>)>,
}

impl UndoReader {
    /// The pages in a file. `None` if there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, SnapshotError> {
        let Some((file, record)) = read_at(path)? else {
            return Ok(None);
        };
        let mut reader = Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(BUFFER_BYTES, file),
            left: record.kept_count,
            record,
            next: None,
        };
        reader.advance()?;
        Ok(Some(reader))
    }

    pub(crate) fn record(&self) -> &UndoRecord {
        &self.record
    }

    /// Whether a page below this one is still to come.
    pub(crate) fn has_below(&self, page: u32) -> bool {
        self.next.as_ref().is_some_and(|(next, _)| *next < page)
    }

    /// Passes over the pages below this one.
    pub(crate) fn skip_to(&mut self, page: u32) -> Result<(), SnapshotError> {
        while self.has_below(page) {
            self.advance()?;
        }
        Ok(())
    }

    /// The next page, if it is below this one.
    pub(crate) fn next_below(
        &mut self,
        page: u32,
    ) -> Result<Option<(u32, Vec<u8>)>, SnapshotError> {
        let next = self.next.take_if(|(next, _)| *next < page);
        if next.is_some() {
            self.advance()?;
        }
        Ok(next)
    }

    /// Puts the pages from `first` on over `block`, which begins with that page. Blocks must come
    /// in ascending order.
    pub(crate) fn lay_over(&mut self, first: u32, block: &mut [u8]) -> Result<(), SnapshotError> {
        let page_bytes = self.record.page_bytes as usize;
        for (page, into) in (first..).zip(block.chunks_exact_mut(page_bytes)) {
            while let Some((_, bytes)) = self.next.take_if(|(next, _)| *next <= page) {
                into.copy_from_slice(&bytes);
                self.advance()?;
            }
        }
        Ok(())
    }

    /// Reads the next page.
    fn advance(&mut self) -> Result<(), SnapshotError> {
        if self.left == 0 {
            self.next = None;
            return Ok(());
        }
        let mut head = [0; HEAD_BYTES];
        let mut bytes = vec![0; self.record.page_bytes as usize];
        let read = self.input.read_exact(&mut head);
        let read = read.and_then(|()| self.input.read_exact(&mut bytes));
        read.doing("read", &self.path)?;
        let page = u32_at(&head, 0);
        if checksum(page, &bytes) != u32_at(&head, 4) {
            return Err(SnapshotError::Damaged {
                path: self.path.clone(),
                what: "the checksum of a page is wrong",
            });
        }
        self.left -= 1;
        self.next = Some((page, bytes));
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> UndoRecord {
        UndoRecord {
            snapshot_id: "1".to_owned(),
            number: 1,
            brings_back: None,
            at: "2026-11-23T08:00:00Z".to_owned(),
            by: "revert".to_owned(),
            page_bytes: 512,
            page_count: 9,
            kept_count: 0,
            schema_cookie: 7,
            files_crc32c: None,
        }
    }

    pub(crate) fn written(directory: &Path) {
        let mut writer = UndoWriter::create(directory).unwrap();
        for page in [1_u32, 4, 9] {
            writer
                .keep(page, &[u8::try_from(page).unwrap(); 512])
                .unwrap();
        }
        assert_eq!(writer.complete(record()).unwrap(), 3);
    }

    /// All pages of the undo over zeros, in blocks of two.
    fn laid(directory: &Path) -> Result<Vec<u8>, SnapshotError> {
        let mut reader = UndoReader::open(&directory.join(UNDO))?.unwrap();
        let mut first_bytes = Vec::new();
        for first in (1..=9).step_by(2) {
            let mut block = [0; 1024];
            reader.lay_over(first, &mut block)?;
            first_bytes.extend([block[0], block[1023]]);
        }
        Ok(first_bytes)
    }

    #[test]
    fn pages_are_read_as_they_were_kept_and_no_changed_byte_is_taken() {
        let place = tempfile::tempdir().unwrap();
        written(place.path());
        let path = place.path().join(UNDO);
        assert_eq!(UndoRecord::read(&path).unwrap(), None);
        finish(place.path()).unwrap();
        let found = UndoRecord::read(&path).unwrap().unwrap();
        assert_eq!(
            found,
            UndoRecord {
                kept_count: 3,
                ..record()
            }
        );
        assert_eq!(laid(place.path()).unwrap(), [1, 0, 0, 4, 0, 0, 0, 0, 9, 0]);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
            std::fs::write(&path, changed).unwrap();
            assert!(laid(place.path()).is_err(), "byte {at}");
        }
        for length in [0, 15, bytes.len() - 1] {
            #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(laid(place.path()).is_err(), "length {length}");
        }
    }

    #[test]
    fn runs_have_the_pages_that_were_kept_and_no_others() {
        let mut runs = PageRuns::default();
        for page in [1, 2, 3, 7, 9, 10] {
            runs.add(page);
        }
        let within = |range| runs.within(range).collect::<Vec<_>>();
        assert_eq!(within(0..20), [1..4, 7..8, 9..11]);
        assert_eq!(within(2..10), [2..4, 7..8, 9..10]);
        assert_eq!(within(4..7), []);
        assert_eq!(within(11..12), []);
    }
}
