//! A window: from a start on the server to its stop, with the files that are read in between.
//!
//!   start --> scan --> read what is new or changed --> stop --> survey of the log
//!     ^                                                            |
//!     +-------------- another window, if replay would go wrong ----+
//!
//! The first window reads every file. If its log holds something that replay cannot get right,
//! another window follows at once. It keeps each file that has not changed since before it was
//! first read, and reads the other files again. The set is then a backup that began with the last
//! window. Its label and log are those of that window alone.
//!
//! Invariants
//! - A window keeps a file only if its inode, length and both times are as they were, and the times
//!   lie well before the scan that found it. So the copy is also what the file holds now.
//! - A set is sealed only after a window whose log replays correctly.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use windlass_engine::BackupRun;

use super::assembly::Assembly;
use super::log::{self, BackupLabel, FoundSegment, LogRange};
use super::running::{Backup, Begun};
use super::status::StatusSegments;
use super::survey::{Survey, survey, unlisted};
use crate::cluster::ask_tablespaces;
use crate::control::Control;
use crate::error::PostgresError;
use crate::facts::Tablespace;
use crate::hook::{Listed, PageCheck};
use crate::keeper::{self, FirstSegment};
use crate::layouts::{Catalogs, PageLayouts, Place};
use crate::listing::{Listing, Moment};
use crate::lsn::{Lsn, Segment, segment_of};
use crate::relations::files::CatalogForm;
use crate::scan::{ScanRules, scan};
use crate::session::Stopped;
use crate::tablespace::{TABLESPACE_LINKS, oids_of_map};
use crate::wal::WalRange;
use crate::warning::Warning;
use crate::windows::{EarlierWindow, WINDOWS_MAX, WindowCause};

/// How long a standby may take to replay a checkpoint behind a record. By default a primary makes a
/// checkpoint every five minutes.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(15 * 60);
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(2);

/// A finished window.
pub(super) struct Window {
    pub(super) start_lsn: Lsn,
    pub(super) start_time: String,
    pub(super) control: Control,
    pub(super) status: StatusSegments,
    pub(super) stopped: Stopped,
    pub(super) ranges: Vec<WalRange>,
    pub(super) tablespaces: Vec<Tablespace>,
    pub(super) warnings: Vec<Warning>,
}

/// The log of a window, and what the server said about it when it stopped.
type WindowLog<'a> = (
    &'a BackupLabel,
    &'a Stopped,
    &'a [WalRange],
    &'a [FoundSegment],
);

impl Backup<'_> {
    /// Reads files in as many windows as needed. Returns the last one, and the reasons for the
    /// earlier ones.
    pub(super) fn windows(
        &mut self,
        run: &mut BackupRun,
        assembly: &mut Assembly,
        check: Option<&PageCheck>,
        mut begun: Begun,
    ) -> Result<(Window, Vec<EarlierWindow>), PostgresError> {
        let mut earlier: Vec<EarlierWindow> = Vec::new();
        loop {
            let (window, cause) = self.window(run, assembly, check, begun)?;
            let Some(cause) = cause else {
                return Ok((window, earlier));
            };
            let behind = cause.lsn();
            earlier.push(EarlierWindow {
                start_lsn: window.start_lsn,
                stop_lsn: window.stopped.lsn,
                cause,
            });
            if earlier.len() == WINDOWS_MAX {
                return Err(PostgresError::WindowsEnded { earlier });
            }
            begun = self.begin_again(run, behind)?;
        }
    }

    fn window(
        &mut self,
        run: &mut BackupRun,
        assembly: &mut Assembly,
        check: Option<&PageCheck>,
        begun: Begun,
    ) -> Result<(Window, Option<WindowCause>), PostgresError> {
        let (start_lsn, start_time) = (begun.start_lsn, begun.time);
        let control = Control::read(&self.cluster.data_directory)?;
        let status = StatusSegments::of(&control, self.cluster.standby);
        let rules = self.scan_rules(&control, begun.known);
        if !assembly.has_files()
            && let Some(changes) = self.changes(run, &control, start_lsn)?
        {
            assembly.stand_on(changes, begun.moment);
        }
        let mut warnings = self.copy_files(run, assembly, check, (start_lsn, &rules))?;
        let source = (self.cluster, &mut *self.session);
        self.databases.settle(source, run, assembly)?;
        warnings.extend(status.gaps(self.session, assembly.listing())?);
        let control = Control::read(&self.cluster.data_directory)?;
        let stopped = self.stop(run)?;
        let tablespaces = self.tablespaces(assembly)?;
        let label = BackupLabel::parse(&stopped.label)?;
        assembly.check_start(&label)?;
        run.progress().set_phase("reading WAL");
        let ranges = log::plan_ranges(self.cluster, &label, stopped.lsn)?;
        let segments = log::find_segments(self.cluster, &ranges, &mut warnings)?;
        let log = (&label, &stopped, &ranges[..], &segments[..]);
        let cause = self.read_log(run, assembly, log, begun.moment);
        let mut cause = cause.map_err(|error| log::or_removed(error, self.cluster, &segments))?;
        if let Some(WindowCause::DatabaseCopied { database, name, .. }) = &mut cause {
            *name = self.databases.name(self.cluster, self.session, *database)?;
        }
        let window = Window {
            start_lsn,
            start_time,
            control,
            status,
            stopped,
            ranges,
            tablespaces,
            warnings,
        };
        Ok((window, cause))
    }

    /// Looks for records of the log that call for another window. If there are none, it copies the
    /// log.
    fn read_log(
        &mut self,
        run: &mut BackupRun,
        assembly: &mut Assembly,
        (label, stopped, ranges, segments): WindowLog<'_>,
        began: Moment,
    ) -> Result<Option<WindowCause>, PostgresError> {
        log::check_segments(self.cluster, segments)?;
        let range = LogRange {
            start: label.start,
            stop: stopped.lsn,
        };
        let named = oids_of_map(&stopped.tablespace_map);
        let cluster = self.cluster;
        let survey = |listing: &Listing| survey(cluster, listing, range, segments, began);
        let Survey { cause, switched } = survey(assembly.listing())?;
        let mut cause =
            cause.or_else(|| unlisted(&named, &assembly.tablespaces().into_keys().collect()));
        if cause.is_none() {
            // A standby's last segment goes on.
            let used = switched.filter(|_| !self.cluster.standby);
            self.copy_log(run, assembly, (label, stopped, used), (ranges, segments))?;
            if self.cluster.standby {
                // The last segment of the log is still being written, so its copy may hold
                // more than the first survey saw.
                cause = survey(assembly.listing())?.cause;
            }
        }
        Ok(cause)
    }

    /// The directories of the databases and tablespaces that the server has now.
    pub(super) fn known_directories(&mut self) -> Result<Vec<Vec<u8>>, PostgresError> {
        let mut known = Vec::new();
        for space in ask_tablespaces(self.session)? {
            known.push(format!("{TABLESPACE_LINKS}{}", space.oid).into_bytes());
            self.spaces.insert(space.oid, space);
        }
        known.extend(self.databases.directories(self.cluster, self.session)?);
        Ok(known)
    }

    fn scan_rules(&self, control: &Control, expected: Vec<Vec<u8>>) -> ScanRules {
        ScanRules {
            expected,
            catalogs: Some(CatalogForm::of(self.cluster.major(), control)),
            ..ScanRules::of(self.cluster)
        }
    }

    /// Lists all files except pg_control and the log. Copies those that the set does not yet hold
    /// in their present state.
    fn copy_files(
        &mut self,
        run: &mut BackupRun,
        assembly: &mut Assembly,
        check: Option<&PageCheck>,
        (start, rules): (Lsn, &ScanRules),
    ) -> Result<Vec<Warning>, PostgresError> {
        let again = assembly.has_files();
        run.progress().set_phase("listing files");
        let moment = Moment::now();
        let scanned = scan(rules)?;
        let listing = Arc::new(scanned.listing);
        let first = assembly.renew(Arc::clone(&listing), moment, run)?;
        if let Some(check) = check {
            check.add(Listed {
                layouts: layouts(run, rules, &listing),
                first,
                older: assembly.older_pages(),
                listing,
                start,
            });
        }
        let progress = run.progress();
        let total = progress.done().saturating_add(assembly.bytes_to_push());
        progress.set_total(if again {
            total
        } else {
            assembly.bytes_to_push()
        });
        progress.set_phase(if again {
            "reading changed files again"
        } else {
            "reading data files"
        });
        let first = self.first_segment(start);
        keeper::while_kept(self.session, &run.stopper(), first.as_ref(), || {
            assembly.push_listed(run)?;
            Ok(run.drain()?)
        })?;
        Ok(scanned.warnings)
    }

    /// The tablespaces in the set, as every window saw them. If one was dropped after it was
    /// listed, it is in the set, and replaying the log drops it. Users must know all of them to map
    /// them. One that was made in place after that is in the log alone.
    fn tablespaces(&mut self, assembly: &Assembly) -> Result<Vec<Tablespace>, PostgresError> {
        // If one is dropped later, the server no longer knows its name.
        let now = ask_tablespaces(self.session)?.into_iter();
        self.spaces.extend(now.map(|space| (space.oid, space)));
        let listed = assembly.tablespaces().into_iter();
        let known = |(oid, location): (u32, Vec<u8>)| match self.spaces.get(&oid) {
            Some(space) => space.clone(),
            // It came and went within this window, or it is the link that a server leaves when it
            // crashes in CREATE TABLESPACE.
            None => Tablespace {
                oid,
                name: oid.to_string(),
                location: String::from_utf8_lossy(&location).into_owned(),
            },
        };
        let mut found: Vec<Tablespace> = listed.map(known).collect();
        let is_found = |one: &Tablespace| found.iter().any(|other| other.oid == one.oid);
        let spaces = self.spaces.values();
        let in_log = spaces.filter(|one| one.is_in_place() && !is_found(one));
        let in_log: Vec<_> = in_log.cloned().collect();
        found.extend(in_log);
        Ok(found)
    }

    /// Starts the next window behind the record that made it necessary. A primary makes a
    /// checkpoint for it. A standby must wait until it has replayed one.
    fn begin_again(&mut self, run: &BackupRun, behind: Lsn) -> Result<Begun, PostgresError> {
        let (label, fast) = (&self.request.label, self.request.fast_checkpoint);
        let asked = Instant::now();
        run.progress().set_phase("waiting for a checkpoint");
        loop {
            let known = self.known_directories()?;
            let (time, moment) = (self.session.now()?, Moment::now());
            let start_lsn = self.session.start_backup(label, fast, run.cancel())?;
            if start_lsn > behind {
                return Ok(Begun {
                    start_lsn,
                    time,
                    moment,
                    known,
                });
            }
            self.session.stop_backup(run.cancel())?;
            if asked.elapsed() > CHECKPOINT_WAIT {
                return Err(PostgresError::StandbyBehind { lsn: behind });
            }
            run.cancel().check()?;
            sleep(CHECKPOINT_PAUSE);
        }
    }
    fn stop(&mut self, run: &BackupRun) -> Result<Stopped, PostgresError> {
        run.progress().set_phase("ending the backup on the server");
        // The server refuses too, but each version uses other words; programs can match this error.
        if self.session.in_recovery()? != self.cluster.standby {
            return Err(PostgresError::Promoted);
        }
        self.session.stop_backup(run.cancel())
    }

    /// Adds what is known only at the end of the backup: the log, backup_label and tablespace_map.
    fn copy_log(
        &mut self,
        run: &mut BackupRun,
        assembly: &mut Assembly,
        (label, stopped, used): (&BackupLabel, &Stopped, Option<Lsn>),
        (ranges, segments): (&[WalRange], &[FoundSegment]),
    ) -> Result<(), PostgresError> {
        for segment in segments {
            assembly.push_segment(run, segment, (self.cluster, used))?;
        }
        for (name, content) in log::history_files(self.cluster, label, ranges)? {
            assembly.push_bytes(run, format!("pg_wal/{name}").as_bytes(), content)?;
        }
        assembly.push_bytes(run, b"backup_label", stopped.label.as_slice())?;
        if !stopped.tablespace_map.is_empty() {
            assembly.push_bytes(run, b"tablespace_map", stopped.tablespace_map.as_slice())?;
        }
        run.drain()?;
        // Check again: if the server recycled a segment during the read, the segment is now gone or
        // another one.
        log::check_segments(self.cluster, segments)
    }

    /// The first segment of the log of a backup that began at `start`.
    fn first_segment(&self, start: Lsn) -> Option<FirstSegment> {
        let bytes = u64::from(self.cluster.wal_segment_bytes);
        let segment = Segment {
            timeline: self.cluster.timeline,
            number: segment_of(start, bytes),
        };
        let directory = self.cluster.data_directory.join("pg_wal");
        FirstSegment::new(directory, segment.name(bytes))
    }
}

/// How the pages of the listed relations are laid out, if the run wants to know.
fn layouts(run: &BackupRun, rules: &ScanRules, listing: &Listing) -> PageLayouts {
    match &rules.catalogs {
        Some(form) if run.takes_pages_apart() => {
            let catalogs = Catalogs {
                place: Place::Directory(&rules.root),
                version_directory: &rules.version_directory,
                form,
            };
            PageLayouts::read(&catalogs, listing)
        }
        _ => PageLayouts::default(),
    }
}
