//! The set being put together: what was listed, what was added since, and the file table of both.
//!
//! Invariants
//! - Numbers are given out in order: first the listing's, then those of what is added.
//! - Empty files are entries of the table and nothing else: no read can tell more of them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{BackupRun, FileContent, FileSpec, Missing};
use windlass_media::{FileEntry, FileFlags, FileKind, FileNo, FileTable, crc32c};

use super::log::FoundSegment;
use crate::error::PostgresError;
use crate::facts::ClusterFacts;
use crate::listing::{Entry, Listing};

/// Files without which no cluster, or no database, starts.
const ESSENTIAL_NAMES: [&[u8]; 2] = [b"PG_VERSION", b"pg_filenode.map"];

pub(super) struct Assembly {
    listing: Arc<Listing>,
    root: PathBuf,
    next: FileNo,
    /// Mode of files that are made here: as open to the group as the data directory is.
    mode: u32,
    /// Pushed since the listing; their CRC is known from the start or settled like the others'.
    added: Vec<FileEntry>,
    /// The table, from `settle` on.
    table: Vec<FileEntry>,
    /// pg_control, and its bytes' entry: the last of the table.
    last: Option<FileEntry>,
}

impl Assembly {
    pub(super) fn new(
        listing: Arc<Listing>,
        root: PathBuf,
        group: bool,
    ) -> Result<Self, PostgresError> {
        let next = u32::try_from(listing.len()).map_err(|_| PostgresError::Path {
            path: root.clone(),
            what: "holds more files than a set may",
        })?;
        Ok(Self {
            listing,
            root,
            next: FileNo(next),
            mode: if group { 0o640 } else { 0o600 },
            added: Vec::new(),
            table: Vec::new(),
            last: None,
        })
    }

    /// Pushes every listed file that has content; calls `between` before each.
    pub(super) fn push_listed(
        &self,
        run: &mut BackupRun,
        mut between: impl FnMut() -> Result<(), PostgresError>,
    ) -> Result<(), PostgresError> {
        for (file, entry) in self.listing.numbered() {
            if entry.kind != FileKind::File || entry.bytes == 0 {
                continue;
            }
            between()?;
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
    pub(super) fn settle(&mut self, run: &BackupRun) -> Result<(), PostgresError> {
        let mut table = Vec::with_capacity(self.listing.len() + self.added.len() + 2);
        for (file, entry) in self.listing.numbered() {
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

    /// A database that is dropped takes its essential files along; otherwise they may not vanish.
    fn check_vanished(&self, entry: &Entry) -> Result<(), PostgresError> {
        let path = self.listing.source_path(&self.root, entry);
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        let directory_is_there = path.parent().is_some_and(Path::exists);
        if ESSENTIAL_NAMES.contains(&name) && directory_is_there {
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
