//! A window for whoever takes the files in another way than by reading all of them: a snapshot.
//!
//!   begin: start, pin WAL --> list --> take the files --> end: pg_control, stop, survey --> log
//!
//! The same rules hold as for a backup: pg_control is read after every other file, and the log from
//! start to stop belongs to the result. If the log holds something that replay would get wrong, the
//! caller begins again.
//!
//! Invariants
//! - The session is open from start to stop. Dropping a bracket ends its window on the server.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use windlass_engine::{Cancel, Progress};
use windlass_media::{FileEntry, FileNo, fitted};

use super::databases;
use super::log::{self, BackupLabel, FoundSegment, LogRange};
use super::paused::ChangedFiles;
use super::status::StatusSegments;
use super::survey::{survey, unlisted};
use super::{owner_name, start_pinned};
use crate::cluster::{Cluster, ask_tablespaces};
use crate::control::Control;
use crate::error::PostgresError;
use crate::facts::{ChecksumFacts, ClusterFacts, DatabaseFacts, KIND, Tablespace};
use crate::listing::{Listing, Moment};
use crate::lsn::Lsn;
use crate::relations::catalog::Layout;
use crate::relations::files::CatalogForm;
use crate::scan::{ScanRules, scan, scan_at_most};
use crate::session::Session;
use crate::tablespace::{TABLESPACE_LINKS, oid_of_link, oids_of_map};
use crate::warning::Warning;
use crate::windows::WindowCause;

/// A window that has begun.
pub struct Bracket {
    cluster: ClusterFacts,
    session: Session,
    /// Pins the log, unless the other one does.
    pin: Option<Session>,
    label: String,
    start_lsn: Lsn,
    start_time: String,
    began: Moment,
    spaces: Vec<Tablespace>,
    rules: ScanRules,
    status: StatusSegments,
    warnings: Vec<Warning>,
    /// The directories that were listed.
    directories: HashSet<Vec<u8>>,
}

/// The files of a window.
pub struct BracketFiles {
    listing: Listing,
    root: PathBuf,
}

/// A window that has ended.
pub struct BracketEnd {
    /// What the files are, as a set would say it.
    pub facts: DatabaseFacts,
    /// backup_label.
    pub label: Vec<u8>,
    /// tablespace_map; empty if there are no tablespaces.
    pub tablespace_map: Vec<u8>,
    /// pg_control, without the address of a checkpoint: no server starts with it unless it has the
    /// label.
    pub control: Vec<u8>,
    /// The history files of the log, by name.
    pub history: Vec<(String, Vec<u8>)>,
    /// Why replay would go wrong. The files are then of no use, and another window must follow.
    pub cause: Option<WindowCause>,
    segments: Vec<FoundSegment>,
    /// Behind this position there are only zeros in its segment.
    switched: Option<Lsn>,
    cluster: ClusterFacts,
    /// They keep the log until it has been copied.
    _sessions: (Session, Option<Session>),
}

/// A segment of the log of a window.
#[derive(Clone, Copy, Debug)]
pub struct BracketSegment<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is.
    pub path: &'a Path,
    /// Its length.
    pub bytes: u64,
    /// How much of it counts. The server ended the last segment early, and what follows there is
    /// nothing: zeros do as well.
    pub used_bytes: u64,
}

impl Cluster {
    /// Begins a window. It waits for a checkpoint, which is made at once if it is `fast`, and else
    /// spares the disks. The session is closed with the window's end; whoever asks the cluster
    /// meanwhile or afterwards opens another one. What it does is a phase each, and the wait for
    /// the server's checkpoint is one of its own.
    pub fn begin_bracket(
        &mut self,
        (label, fast): (&str, bool),
        (progress, cancel): (&Progress, &Cancel),
    ) -> Result<Bracket, PostgresError> {
        progress.set_phase("beginning the backup on the server");
        let mut session = self.take_session()?;
        let cluster = self.facts.clone();
        let mut warnings = super::foreseen::of_configuration(&cluster);
        let spaces = ask_tablespaces(&mut session)?;
        let links = spaces.iter();
        let links = links.map(|space| format!("{TABLESPACE_LINKS}{}", space.oid).into_bytes());
        let mut known: Vec<_> = links.collect();
        known.extend(databases::directories(&cluster, &mut session)?);
        let (start_time, began) = (session.now()?, Moment::now());
        progress.set_phase("waiting for the start checkpoint");
        let started = || progress.set_phase("pinning the log");
        let sessions = (&mut session, &self.conninfo);
        let (start_lsn, pin) = start_pinned(sessions, (label, fast), cancel, started)?;
        let pin = pin.unwrap_or_else(|reason| {
            warnings.push(Warning::WalNotPinned { reason });
            None
        });
        let control = Control::read(&cluster.data_directory)?;
        let rules = ScanRules {
            expected: known,
            catalogs: Some(CatalogForm {
                layout: Layout::new(cluster.major(), control.name_bytes as usize),
                page_bytes: control.block_bytes,
                segment_pages: control.relation_segment_blocks,
            }),
            ..ScanRules::of(&cluster)
        };
        Ok(Bracket {
            status: StatusSegments::of(&control, cluster.standby),
            label: label.to_owned(),
            cluster,
            session,
            pin,
            start_lsn,
            start_time,
            began,
            spaces,
            rules,
            warnings,
            directories: HashSet::new(),
        })
    }
}

impl Bracket {
    /// The cluster, as it was when the window began.
    pub fn cluster(&self) -> &ClusterFacts {
        &self.cluster
    }

    /// Where the log begins.
    pub fn start_lsn(&self) -> Lsn {
        self.start_lsn
    }

    /// Lists the files, except pg_control and the log.
    pub fn list(&mut self) -> Result<BracketFiles, PostgresError> {
        let scanned = scan(&self.rules)?;
        self.warnings.extend(scanned.warnings);
        self.directories = scanned.directories;
        Ok(BracketFiles::new(scanned.listing, &self.rules))
    }

    /// Looks again at what has changed since the files were listed, as
    /// [`Pinned::list_changed`](super::paused::Pinned::list_changed) does. Replay makes what came:
    /// a caller who took it, too, would have files that the window's end knows nothing of.
    pub fn list_changed<'p>(
        &self,
        changed: impl Iterator<Item = &'p [u8]>,
    ) -> Result<Option<ChangedFiles>, PostgresError> {
        ChangedFiles::of(&self.rules, &self.directories, changed)
    }

    /// Ends the window. Every file must have been taken.
    pub fn end(
        mut self,
        files: &BracketFiles,
        cancel: &Cancel,
    ) -> Result<BracketEnd, PostgresError> {
        self.warnings
            .extend(self.status.gaps(&mut self.session, &files.listing)?);
        let control = Control::read(&self.cluster.data_directory)?;
        if self.session.in_recovery()? != self.cluster.standby {
            return Err(PostgresError::Promoted);
        }
        let stopped = self.session.stop_backup(cancel)?;
        let label = BackupLabel::parse(&stopped.label)?;
        let ranges = log::plan_ranges(&self.cluster, &label, stopped.lsn)?;
        let segments = log::find_segments(&self.cluster, &ranges, &mut self.warnings)?;
        log::check_segments(&self.cluster, &segments)?;
        let range = LogRange {
            start: label.start,
            stop: stopped.lsn,
        };
        let linked = files.tablespaces();
        let named = oids_of_map(&stopped.tablespace_map);
        let found = survey(&self.cluster, &files.listing, range, &segments, self.began)?;
        let is_unlisted = || unlisted(&named, &linked.iter().copied().collect());
        let cause = found.cause.or_else(is_unlisted);
        let history = log::history_files(&self.cluster, &label, &ranges)?;
        let tablespaces = self.tablespaces(&linked)?;
        let timeline = ranges.first().map(|range| range.timeline);
        let facts = DatabaseFacts {
            timeline: timeline.unwrap_or(self.cluster.timeline),
            start_lsn: self.start_lsn,
            stop_lsn: stopped.lsn,
            start_time: self.start_time,
            stop_time: stopped.time,
            wal: ranges,
            tablespaces,
            warnings: self.warnings,
            log_surveyed: true,
            ..facts_of(&self.cluster, &self.label)
        };
        Ok(BracketEnd {
            facts,
            label: stopped.label,
            tablespace_map: stopped.tablespace_map,
            control: control.without_checkpoint(),
            history,
            cause,
            segments,
            // A standby's last segment goes on.
            switched: found.switched.filter(|_| !self.cluster.standby),
            cluster: self.cluster,
            _sessions: (self.session, self.pin),
        })
    }

    /// The tablespaces of the listing, as the server knew them at the start or knows them now.
    fn tablespaces(&mut self, linked: &[u32]) -> Result<Vec<Tablespace>, PostgresError> {
        if linked.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = ask_tablespaces(&mut self.session)?;
        known.append(&mut self.spaces);
        known.retain(|space| linked.contains(&space.oid));
        known.sort_by_key(|space| space.oid);
        known.dedup_by_key(|space| space.oid);
        Ok(known)
    }
}

/// What is known of a cluster before anything of it is copied.
pub(super) fn facts_of(cluster: &ClusterFacts, label: &str) -> DatabaseFacts {
    let outside = cluster.configuration_outside.iter();
    DatabaseFacts {
        kind: KIND.into(),
        name: cluster.name.clone(),
        version: cluster.version.clone(),
        version_number: cluster.version_number,
        system_identifier: cluster.system_identifier.to_string(),
        timeline: cluster.timeline,
        start_lsn: Lsn(0),
        stop_lsn: Lsn(0),
        start_time: String::new(),
        stop_time: String::new(),
        wal: Vec::new(),
        wal_segment_bytes: cluster.wal_segment_bytes,
        block_bytes: cluster.block_bytes,
        label: label.to_owned(),
        standby: cluster.standby,
        tablespaces: Vec::new(),
        checksums: ChecksumFacts {
            enabled: cluster.data_checksums,
            ..ChecksumFacts::default()
        },
        owner: owner_name(),
        group_access: cluster.group_access(),
        data_directory: cluster.data_directory.display().to_string(),
        configuration_outside: outside.map(|path| path.display().to_string()).collect(),
        outgoing: cluster.outgoing.clone(),
        warnings: Vec::new(),
        earlier_windows: Vec::new(),
        hints_logged: cluster.data_checksums,
        restored: cluster.restored.clone(),
        log_surveyed: false,
        crash_lsn: None,
        change_mark: None,
        changes_from: None,
    }
}

impl BracketFiles {
    /// What a scan by these rules has listed.
    pub(super) fn new(listing: Listing, rules: &ScanRules) -> Self {
        let root = rules.root.clone();
        Self { listing, root }
    }

    /// The files of a cluster, outside of any window. `None` if there are more than this: files,
    /// directories and links, with those of unlogged relations. They are not all listed then.
    pub fn at_most(
        cluster: &ClusterFacts,
        entries_max: usize,
    ) -> Result<Option<Self>, PostgresError> {
        let rules = ScanRules::of(cluster);
        let scanned = scan_at_most(&rules, entries_max)?;
        Ok(scanned.map(|scanned| Self::new(scanned.listing, &rules)))
    }

    /// How many there are: files, directories and links.
    pub fn count(&self) -> usize {
        self.listing.entries().len()
    }

    /// Every file, directory and link, numbered in order from 0; and where each is.
    pub fn entries(&self) -> impl Iterator<Item = (FileEntry, PathBuf)> {
        self.found().map(|(entry, source, _)| (entry, source))
    }

    /// The same, each with the numbers of the device and the inode that it had when it was listed.
    pub fn found(&self) -> impl Iterator<Item = (FileEntry, PathBuf, (u64, u64))> {
        let entries = (0_usize..).zip(self.listing.entries());
        entries.map(|(number, entry)| {
            let made = self.listing.table_entry(FileNo(fitted(number)), entry);
            let source = self.listing.source_path(&self.root, entry);
            (made, source, entry.identity())
        })
    }

    fn tablespaces(&self) -> Vec<u32> {
        let entries = self.listing.entries().iter();
        let oids = entries.filter_map(|entry| oid_of_link(self.listing.path(entry)));
        oids.collect()
    }
}

impl BracketEnd {
    /// The segments of the log. They must be copied, because the server uses their files again for
    /// later segments.
    pub fn segments(&self) -> impl Iterator<Item = BracketSegment<'_>> {
        let bytes = u64::from(self.cluster.wal_segment_bytes);
        self.segments.iter().map(move |found| BracketSegment {
            name: &found.name,
            path: &found.path,
            bytes,
            used_bytes: found.used_bytes(bytes, self.switched),
        })
    }

    /// Fails if a segment was used again while it was copied. Call it after copying them.
    pub fn check_log(&self) -> Result<(), PostgresError> {
        log::check_segments(&self.cluster, &self.segments)
    }
}
