//! The set being put together: what was listed, what was added since, and the file table of both.
//!
//! Invariants
//! - Numbers are given out in order: for each window first the listing's, then those of what is
//!   added. A number is never given out twice, so the same file has another one in each window that
//!   read it.
//! - Empty files are entries of the table and nothing else: no read can tell more of them.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::{BackupRun, FileContent, FileSpec, Missing};
use windlass_media::{FileEntry, FileFlags, FileKind, FileNo, FileTable, crc32c};

use super::databases::Directories;
use super::log::FoundSegment;
use crate::error::PostgresError;
use crate::facts::ClusterFacts;
use crate::listing::{Entry, Listing, Moment};
use crate::tablespace::oid_of_link;

/// Files without which no cluster, or no database, starts.
const ESSENTIAL_NAMES: [&[u8]; 2] = [b"PG_VERSION", b"pg_filenode.map"];

pub(super) struct Assembly {
    /// The files as the last window found them.
    listing: Arc<Listing>,
    /// The number of each of them: that of the window that read it.
    numbers: Vec<FileNo>,
    /// From this number on they are the last window's own.
    first: FileNo,
    /// When the listing was begun.
    listed: Moment,
    /// Copied by earlier windows, and not part of the set.
    superseded: HashSet<FileNo>,
    root: PathBuf,
    next: FileNo,
    /// Mode of files that are made here: as open to the group as the data directory is.
    mode: u32,
    /// Pushed since the listing; their CRC is known from the start or settled like the others'.
    added: Vec<FileEntry>,
    /// The table, from `settle` on.
    table: Vec<FileEntry>,
    databases: Directories,
    /// pg_control, and its bytes' entry: the last of the table.
    last: Option<FileEntry>,
}

impl Assembly {
    pub(super) fn new(root: PathBuf, group: bool) -> Self {
        Self {
            listing: Arc::default(),
            numbers: Vec::new(),
            first: FileNo(0),
            listed: Moment(i64::MIN),
            superseded: HashSet::new(),
            root,
            next: FileNo(0),
            mode: if group { 0o640 } else { 0o600 },
            added: Vec::new(),
            table: Vec::new(),
            databases: Directories::new(),
            last: None,
        }
    }

    /// True when a window has listed its files.
    pub(super) fn has_files(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Takes a window's listing, which was begun at `listed`. Files that are as an earlier window
    /// copied them keep their number; everything else that was pushed so far is no longer part of
    /// the set. Returns the number of the listing's first entry. The run is drained.
    pub(super) fn renew(
        &mut self,
        listing: Arc<Listing>,
        listed: Moment,
        run: &BackupRun,
    ) -> Result<FileNo, PostgresError> {
        let first = self.next;
        let count = u32::try_from(listing.len()).ok();
        let next = count.and_then(|count| first.0.checked_add(count));
        let next = next.ok_or_else(|| PostgresError::Path {
            path: self.root.clone(),
            what: "holds more files than a set may",
        })?;
        let before = self.listing.by_path();
        let mut kept = HashSet::new();
        let mut numbers = Vec::with_capacity(listing.len());
        for (number, entry) in (first.0..next).zip(listing.entries()) {
            let earlier = self.listing.find(&before, listing.path(entry));
            let earlier = earlier.and_then(|at| self.unchanged(at, entry, run));
            kept.extend(earlier);
            numbers.push(earlier.unwrap_or(FileNo(number)));
        }
        self.supersede(&kept, run);
        self.next = FileNo(next);
        (self.listing, self.numbers) = (listing, numbers);
        (self.first, self.listed) = (first, listed);
        Ok(first)
    }

    /// The number of an entry of the window before, when a file's copy there is what it holds now.
    fn unchanged(&self, at: u32, entry: &Entry, run: &BackupRun) -> Option<FileNo> {
        let before = self.listing.entries().get(at as usize)?;
        let number = *self.numbers.get(at as usize)?;
        if entry.kind != FileKind::File || !entry.is_unchanged_since(before, self.listed) {
            return None;
        }
        let outcome = run.outcome(number).unwrap_or_default();
        (!outcome.vanished && outcome.short_bytes == 0).then_some(number)
    }

    /// Takes what was pushed so far out of the set, all but the files that are kept.
    fn supersede(&mut self, kept: &HashSet<FileNo>, run: &BackupRun) {
        let listed = self.listing.entries().iter().zip(&self.numbers);
        let listed = listed.filter(|(entry, _)| entry.kind == FileKind::File && entry.bytes > 0);
        let listed = listed.map(|(_, number)| *number);
        let added = self.added.drain(..).filter(|entry| entry.bytes > 0);
        let copied = listed.chain(added.map(|entry| entry.file));
        let vanished = |file: &FileNo| run.outcome(*file).is_none_or(|outcome| outcome.vanished);
        self.superseded
            .extend(copied.filter(|file| !kept.contains(file) && !vanished(file)));
    }

    /// True for a file of the set as it is now.
    pub(super) fn counts(&self, file: FileNo) -> bool {
        !self.superseded.contains(&file)
    }

    /// The tablespaces whose links, or directories in place of links, are listed.
    pub(super) fn tablespaces(&self) -> BTreeSet<u32> {
        let entries = self.listing.entries().iter();
        entries
            .filter_map(|entry| oid_of_link(self.listing.path(entry)))
            .collect()
    }

    /// The listed entries that this window copies, with their numbers.
    fn to_push(&self) -> impl Iterator<Item = (FileNo, &Entry)> {
        let entries = self.numbers.iter().copied().zip(self.listing.entries());
        entries.filter(|(file, entry)| {
            *file >= self.first && entry.kind == FileKind::File && entry.bytes > 0
        })
    }

    /// How many bytes [`Assembly::push_listed`] pushes.
    pub(super) fn bytes_to_push(&self) -> u64 {
        self.to_push().map(|(_, entry)| entry.bytes).sum()
    }

    /// Pushes every listed file that has content and is not kept.
    pub(super) fn push_listed(&self, run: &mut BackupRun) -> Result<(), PostgresError> {
        for (file, entry) in self.to_push() {
            let content = FileContent::Path(self.listing.source_path(&self.root, entry));
            let missing = missing(self.listing.path(entry));
            run.push(FileSpec {
                file,
                content,
                bytes: entry.bytes,
                // A relation may be cut while it is read; replaying the log cuts it again.
                needed_bytes: 0,
                missing,
            })?;
        }
        Ok(())
    }

    /// Pushes a WAL segment, with the mark that keeps a restored server from archiving it again.
    pub(super) fn push_segment(
        &mut self,
        run: &mut BackupRun,
        segment: &FoundSegment,
        cluster: &ClusterFacts,
    ) -> Result<(), PostgresError> {
        let bytes = u64::from(cluster.wal_segment_bytes);
        let mut entry = self.new_entry(format!("pg_wal/{}", segment.name).as_bytes(), bytes);
        entry.mtime_nanos = segment.mtime_nanos;
        let content = FileContent::Path(segment.path.clone());
        run.push(FileSpec {
            file: entry.file,
            content,
            bytes,
            // A segment has its whole length from the moment it has its name.
            needed_bytes: bytes,
            missing: Missing::Fail,
        })?;
        self.added.push(entry);
        let mark = format!("pg_wal/archive_status/{}.done", segment.name);
        self.push_bytes(run, mark.as_bytes(), [])
    }

    /// Pushes a file of these bytes.
    pub(super) fn push_bytes(
        &mut self,
        run: &mut BackupRun,
        path: &[u8],
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<(), PostgresError> {
        let entry = self.push_entry(run, path, bytes.into())?;
        if self.table.is_empty() {
            self.added.push(entry);
        } else {
            self.table.push(entry);
        }
        Ok(())
    }

    /// Pushes the file that appears last on restore.
    pub(super) fn push_last(
        &mut self,
        run: &mut BackupRun,
        path: &[u8],
        bytes: Vec<u8>,
    ) -> Result<(), PostgresError> {
        let mut entry = self.push_entry(run, path, bytes.into())?;
        entry.flags.last = true;
        self.last = Some(entry);
        Ok(())
    }

    fn push_entry(
        &mut self,
        run: &mut BackupRun,
        path: &[u8],
        bytes: Arc<[u8]>,
    ) -> Result<FileEntry, PostgresError> {
        let mut entry = self.new_entry(path, bytes.len() as u64);
        entry.crc32c = crc32c(&bytes);
        entry.flags.crc_known = true;
        if !bytes.is_empty() {
            let (file, bytes, content) = (entry.file, entry.bytes, FileContent::Bytes(bytes));
            run.push(FileSpec {
                file,
                content,
                bytes,
                needed_bytes: bytes,
                missing: Missing::Fail,
            })?;
        }
        Ok(entry)
    }

    fn new_entry(&mut self, path: &[u8], bytes: u64) -> FileEntry {
        let file = self.next;
        self.next = FileNo(file.0 + 1);
        FileEntry {
            file,
            kind: FileKind::File,
            flags: FileFlags::default(),
            mode: self.mode,
            bytes,
            mtime_nanos: i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default(),
            crc32c: 0,
            path: path.to_vec(),
            link_target: Vec::new(),
        }
    }

    /// Makes the table of what was pushed and is there: files that vanished are not part of the
    /// set. Call it after the run is drained.
    pub(super) fn settle(&mut self, run: &mut BackupRun) -> Result<(), PostgresError> {
        run.supersede(self.superseded.iter().copied());
        let mut table = Vec::with_capacity(self.listing.len() + self.added.len() + 2);
        let entries = self.numbers.iter().copied().zip(self.listing.entries());
        for (file, entry) in entries {
            let mut made = self.listing.table_entry(file, entry);
            if settled(run, &mut made) {
                table.push(made);
            } else {
                self.check_vanished(entry)?;
            }
        }
        for mut entry in self.added.drain(..) {
            settled(run, &mut entry);
            table.push(entry);
        }
        self.table = table;
        Ok(())
    }

    /// Files of relations that end within a page, and still do: while a server makes a file longer
    /// its length may be anything.
    pub(super) fn partial_pages(&self, page_bytes: u32) -> Vec<String> {
        let page_bytes = u64::from(page_bytes);
        let listed = self.listing.entries().iter();
        let partial = listed.filter(|entry| {
            entry.segment.is_some()
                && !entry.bytes.is_multiple_of(page_bytes)
                && std::fs::metadata(self.listing.source_path(&self.root, entry))
                    .is_ok_and(|now| now.len() == entry.bytes)
        });
        let path = |entry| String::from_utf8_lossy(self.listing.path(entry)).into_owned();
        partial.map(path).collect()
    }

    /// Takes the directories of the databases that were there when the backup stopped.
    pub(super) fn know_databases(&mut self, databases: Directories) {
        self.databases = databases;
    }

    /// A database that is dropped or moved takes its essential files along; otherwise they may not
    /// vanish.
    fn check_vanished(&self, entry: &Entry) -> Result<(), PostgresError> {
        let path = self.listing.path(entry);
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (directory, name) = (&path[..slash], path.get(slash + 1..).unwrap_or_default());
        if ESSENTIAL_NAMES.contains(&name) && self.databases.contains(directory) {
            let path = self.listing.source_path(&self.root, entry);
            return Err(PostgresError::Vanished { path });
        }
        Ok(())
    }

    /// All entries, from `settle` on; pg_control's last.
    pub(super) fn entries(&self) -> impl Iterator<Item = &FileEntry> + Clone {
        self.table.iter().chain(&self.last)
    }

    /// The table for the set.
    pub(super) fn into_table(mut self) -> FileTable {
        self.table.extend(self.last);
        FileTable(self.table)
    }
}

/// Fills in what reading the file found; false when it vanished.
fn settled(run: &BackupRun, entry: &mut FileEntry) -> bool {
    if entry.kind != FileKind::File || entry.flags.crc_known {
        return true;
    }
    entry.flags.crc_known = true;
    if entry.bytes == 0 {
        return true;
    }
    let outcome = run.outcome(entry.file).unwrap_or_default();
    entry.crc32c = outcome.crc32c;
    !outcome.vanished
}

/// The files at the root without which there is no cluster must be there; any other may go: a
/// relation that is dropped, a log file that is rotated, a database with all it has.
fn missing(path: &[u8]) -> Missing {
    let essential = path == b"PG_VERSION" || path == b"global/pg_filenode.map";
    if essential {
        Missing::Fail
    } else {
        Missing::Skip
    }
}
