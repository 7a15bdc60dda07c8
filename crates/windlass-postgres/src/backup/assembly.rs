//! Puts the set together: what the scan listed, what was added later, and the file table of both.
//!
//! Invariants
//! - Numbers are given out in order. Each window first numbers the files of its listing, then those
//!   that it adds. A number is never used twice. So a file has another number in each window that
//!   read it.
//! - Empty files only have an entry in the table, because reading them would tell nothing more.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::{BackupRun, FileContent, FileSpec, Missing};
use windlass_media::{
    Base, FileEntry, FileFlags, FileKind, FileNo, FileTable, Inherited, crc32c, fitted,
};

use super::beginning::Beginning;
use super::changes::{Changes, Share};
use super::foreseen;
use super::log::{BackupLabel, FoundSegment};
use crate::error::PostgresError;
use crate::facts::ClusterFacts;
use crate::hook::OlderPages;
use crate::listing::{Entry, Listing, Moment};
use crate::lsn::Lsn;
use crate::tablespace::oid_of_link;
use crate::warning::Warning;

/// No cluster, or no database, starts without these files.
const ESSENTIAL_NAMES: [&[u8]; 2] = [b"PG_VERSION", b"pg_filenode.map"];

/// The directories of the databases that were there when the backup stopped.
type Directories = HashSet<Vec<u8>>;

pub(super) struct Assembly {
    /// The files as the latest window found them.
    listing: Arc<Listing>,
    /// The number of each listed file, given by the window that read it.
    numbers: Vec<FileNo>,
    /// Numbers from this one on belong to the latest window.
    first: FileNo,
    /// When the scan for the listing began.
    listed: Moment,
    /// What changed since the base, if the set builds on one. Only the first window leaves out what
    /// the base has. A later one reads few files, and these whole.
    changes: Option<Changes>,
    /// What the base has of the files that were pushed in part.
    inherited: HashMap<FileNo, Inherited>,
    /// Files that earlier windows copied and that are no longer part of the set.
    superseded: HashSet<FileNo>,
    root: PathBuf,
    next: FileNo,
    /// Mode of files that this module makes: open to the group if the data directory is.
    mode: u32,
    /// Files pushed since the listing. Their CRC is known at once, or `settle` fills it in as for
    /// the listed files.
    added: Vec<FileEntry>,
    /// The table; filled by `settle`.
    table: Vec<FileEntry>,
    databases: Directories,
    /// The entry of pg_control, which is the last of the table.
    last: Option<FileEntry>,
}

impl Assembly {
    pub(super) fn new(root: PathBuf, group: bool) -> Self {
        Self {
            listing: Arc::default(),
            numbers: Vec::new(),
            first: FileNo(0),
            listed: Moment(i64::MIN),
            changes: None,
            inherited: HashMap::new(),
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

    /// Builds on a base. The first window began at `moment`.
    pub(super) fn stand_on(&mut self, changes: Changes, moment: Moment) {
        self.listed = moment;
        self.changes = Some(changes);
    }

    /// Fails if the first window began on another timeline than the changes were looked for.
    pub(super) fn check_start(&self, label: &BackupLabel) -> Result<(), PostgresError> {
        match &self.changes {
            Some(changes) if changes.timeline != label.timeline => Err(PostgresError::Timeline {
                start: label.start,
                start_timeline: changes.timeline,
                stop_timeline: label.timeline,
            }),
            _ => Ok(()),
        }
    }

    /// True when a window has listed its files.
    pub(super) fn has_files(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Takes a window's listing; its scan began at `listed`. A file keeps its number if it has not
    /// changed since an earlier window copied it. Everything else that was pushed so far is no
    /// longer part of the set. Returns the number of the listing's first entry. Drain the run
    /// before this call.
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
        (self.listing, self.numbers, self.first) = (listing, numbers, first);
        // What the base has is right for a file only if nobody has touched it since before the
        // window began: the changes are those up to there.
        if self.changes.is_none() || !self.is_first_window() {
            self.listed = listed;
        } else if let Some(changes) = &mut self.changes {
            changes.look_at(&self.listing);
        }
        Ok(first)
    }

    /// The number that a file had in the previous window, if the copy made then is what the file
    /// holds now.
    fn unchanged(&self, at: u32, entry: &Entry, run: &BackupRun) -> Option<FileNo> {
        let before = self.listing.entries().get(at as usize)?;
        let number = *self.numbers.get(at as usize)?;
        if entry.kind != FileKind::File || !entry.is_unchanged_since(before, self.listed) {
            return None;
        }
        let outcome = run.outcome(number).unwrap_or_default();
        (!outcome.vanished && outcome.short_bytes == 0).then_some(number)
    }

    /// Takes everything that was pushed so far out of the set, except the files that are kept.
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

    /// True if the file is part of the set as it is now.
    pub(super) fn counts(&self, file: FileNo) -> bool {
        !self.superseded.contains(&file)
    }

    /// The tablespaces in the listing, each with its location: what its link points to or, for a
    /// directory in place of a link, the path of that directory.
    pub(super) fn tablespaces(&self) -> BTreeMap<u32, Vec<u8>> {
        let entries = self.listing.entries().iter();
        let space = |entry| {
            let oid = oid_of_link(self.listing.path(entry))?;
            let made = self.listing.table_entry(FileNo(0), entry);
            let location = match made.kind {
                FileKind::Symlink => made.link_target,
                _ => made.path,
            };
            Some((oid, location))
        };
        entries.filter_map(space).collect()
    }

    /// The files as the latest window found them.
    pub(super) fn listing(&self) -> &Listing {
        &self.listing
    }

    fn is_first_window(&self) -> bool {
        self.first == FileNo(0)
    }

    /// What of a listed file this window reads.
    fn share(&self, entry: &Entry) -> Share {
        let changes = self.changes.as_ref().filter(|_| self.is_first_window());
        changes.map_or(Share::Whole, |changes| {
            changes.share(self.listing.path(entry), entry)
        })
    }

    /// From which position on the pages of this window's listing go into the set, and up to which
    /// offset of each file older ones do not. Nothing if all pages go there.
    pub(super) fn older_pages(&self) -> Option<OlderPages> {
        let changes = self.changes.as_ref().filter(|_| self.is_first_window())?;
        let limit = |entry: &Entry| match self.share(entry) {
            Share::Scanned { limit, .. } => limit,
            _ => 0,
        };
        Some(OlderPages {
            since: changes.scans_since()?,
            limits: self.listing.entries().iter().map(limit).collect(),
        })
    }

    /// The listed entries that this window copies, with their numbers.
    fn to_push(&self) -> impl Iterator<Item = (FileNo, &Entry)> {
        let entries = self.numbers.iter().copied().zip(self.listing.entries());
        entries.filter(|(file, entry)| {
            *file >= self.first && entry.kind == FileKind::File && entry.bytes > 0
        })
    }

    /// How many bytes [`Assembly::push_listed`] will push.
    pub(super) fn bytes_to_push(&self) -> u64 {
        let read = |(_, entry): (FileNo, &Entry)| self.share(entry).bytes(entry.bytes);
        self.to_push().map(read).sum()
    }

    /// Pushes every listed file that has content and must be copied.
    pub(super) fn push_listed(&mut self, run: &mut BackupRun) -> Result<(), PostgresError> {
        let mut inherited = Vec::new();
        for (file, entry) in self.to_push() {
            let content = FileContent::Path(self.listing.source_path(&self.root, entry));
            let missing = missing(self.listing.path(entry));
            let spec = FileSpec {
                file,
                content,
                bytes: entry.bytes,
                // The server may truncate a relation while it is read; replaying the log truncates
                // it again.
                needed_bytes: 0,
                missing,
            };
            match self.share(entry) {
                Share::Whole => run.push(spec)?,
                Share::Scanned { base_file, limit } => {
                    run.push(spec)?;
                    inherited.push(Inherited {
                        file,
                        base_file,
                        bytes: limit,
                    });
                }
                Share::Parts {
                    base_file,
                    limit,
                    ranges,
                } => {
                    run.push_parts(spec, ranges)?;
                    inherited.push(Inherited {
                        file,
                        base_file,
                        bytes: limit,
                    });
                }
            }
        }
        let inherited = inherited.into_iter().map(|one| (one.file, one));
        self.inherited.extend(inherited);
        Ok(())
    }

    /// What the set says of its base, if it builds on one. Valid after `settle`.
    pub(super) fn base(&self) -> Option<Base> {
        let base = &self.changes.as_ref()?.base;
        let files = self.table.iter();
        let files = files.filter_map(|entry| self.inherited.get(&entry.file).copied());
        Some(base.with_files(files.collect()))
    }

    /// Pushes a WAL segment, and the mark that keeps a restored server from archiving it again. If
    /// the server ended its last segment at a position, what follows there is not read.
    pub(super) fn push_segment(
        &mut self,
        run: &mut BackupRun,
        segment: &FoundSegment,
        (cluster, used): (&ClusterFacts, Option<Lsn>),
    ) -> Result<(), PostgresError> {
        let bytes = u64::from(cluster.wal_segment_bytes);
        let used_bytes = segment.used_bytes(bytes, used);
        let mut entry = self.new_entry(format!("pg_wal/{}", segment.name).as_bytes(), bytes);
        entry.mtime_nanos = segment.mtime_nanos;
        let content = match used_bytes < bytes {
            true => FileContent::At(Beginning::open(&segment.path, used_bytes)?),
            false => FileContent::Path(segment.path.clone()),
        };
        let progress = run.progress();
        progress.set_total(progress.total().saturating_add(used_bytes));
        run.push(FileSpec {
            file: entry.file,
            content,
            bytes,
            // A segment has its full length as soon as it has its name.
            needed_bytes: used_bytes,
            missing: Missing::Fail,
        })?;
        self.added.push(entry);
        let mark = format!("pg_wal/archive_status/{}.done", segment.name);
        self.push_bytes(run, mark.as_bytes(), [])
    }

    /// Pushes a file with these bytes as its content.
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

    /// Pushes the file that a restore makes appear last.
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
            mtime_nanos: fitted(jiff::Timestamp::now().as_nanosecond()),
            crc32c: 0,
            path: path.to_vec(),
            link_target: Vec::new(),
        }
    }

    /// Makes the table of the files that were pushed and still existed. Files that vanished are not
    /// part of the set. Call it after the run is drained.
    pub(super) fn settle(&mut self, run: &mut BackupRun) -> Result<(), PostgresError> {
        run.supersede(self.superseded.iter().copied());
        let mut table = Vec::with_capacity(self.listing.len() + self.added.len() + 2);
        let entries = self.numbers.iter().copied().zip(self.listing.entries());
        for (file, entry) in entries {
            let mut made = self.listing.table_entry(file, entry);
            let is_there = settled(run, &mut made);
            if run
                .outcome(file)
                .is_none_or(|outcome| outcome.dropped_bytes == 0)
            {
                self.inherited.remove(&file);
            }
            // Nobody has read the whole of a file with bytes of the base.
            made.flags.crc_known &= !self.inherited.contains_key(&file);
            made.crc32c *= u32::from(made.flags.crc_known);
            if is_there {
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

    /// The warning about relation files that end within a page.
    pub(super) fn partial_pages(&self, page_bytes: u32) -> Option<Warning> {
        foreseen::of_partial_pages(&self.listing, &self.root, page_bytes)
    }

    /// Takes the directories of the databases that were there when the backup stopped.
    pub(super) fn know_databases(&mut self, databases: Directories) {
        self.databases = databases;
    }

    /// Fails if an essential file vanished although its database still exists. When the server
    /// drops or moves a database, these files go with it.
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

    /// All entries, with pg_control's as the last. Valid after `settle`.
    pub(super) fn entries(&self) -> impl Iterator<Item = &FileEntry> + Clone {
        self.table.iter().chain(&self.last)
    }

    /// The table for the set.
    pub(super) fn into_table(mut self) -> FileTable {
        self.table.extend(self.last);
        FileTable(self.table)
    }
}

/// Fills in what the run learned by reading the file. Returns false if the file vanished.
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

/// Two files must exist, because there is no cluster without them. Any other file may vanish: the
/// server may drop a relation, rotate a log file, or drop a database with all its files.
fn missing(path: &[u8]) -> Missing {
    let essential = path == b"PG_VERSION" || path == b"global/pg_filenode.map";
    if essential {
        Missing::Fail
    } else {
        Missing::Skip
    }
}
