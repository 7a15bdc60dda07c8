//! A running primary as the caller of a pause needs it: the log is pinned, the files can be listed,
//! and the log that a crash at this moment would replay can be found.
//!
//! Nothing here asks the server while it is paused, because it could not answer.
//!
//! Invariants
//! - The log from the last checkpoint on stays until the value is dropped.

use std::collections::HashSet;
use std::path::PathBuf;

use super::bracket::{BracketFiles, facts_of};
use crate::cluster::{Cluster, ask_tablespaces};
use crate::control::Control;
use crate::error::PostgresError;
use crate::facts::{ClusterFacts, DatabaseFacts, Tablespace};
use crate::lsn::{Lsn, Segment, segment_of};
use crate::scan::{ScanRules, scan, scan_changed};
use crate::session::Session;
use crate::wal::{WalRange, check_segment};
use crate::warning::Warning;

/// A primary whose log is pinned.
pub struct Pinned {
    cluster: ClusterFacts,
    spaces: Vec<Tablespace>,
    warnings: Vec<Warning>,
    time: String,
    lsn: Lsn,
    session: Session,
    /// The directories that were listed.
    directories: HashSet<Vec<u8>>,
}

/// What is at some paths now.
pub struct ChangedFiles {
    /// The paths below the data directory. What was known of them and of what is below them no
    /// longer holds.
    pub paths: Vec<Vec<u8>>,
    /// What is there.
    pub files: BracketFiles,
}

/// What a crash would leave.
pub struct CrashState {
    /// pg_control, as it is.
    pub control: Vec<u8>,
    /// Where replay begins.
    pub redo: Lsn,
    /// The segments from there on, oldest first: the name of each, and where it is.
    pub segments: Vec<(String, PathBuf)>,
}

impl ChangedFiles {
    pub(super) fn of<'p>(
        rules: &ScanRules,
        directories: &HashSet<Vec<u8>>,
        changed: impl Iterator<Item = &'p [u8]>,
    ) -> Result<Option<Self>, PostgresError> {
        let changed = scan_changed(rules, directories, changed)?;
        Ok(changed.map(|changed| Self {
            paths: changed.paths,
            files: BracketFiles::new(changed.listing, rules),
        }))
    }
}

impl Cluster {
    /// Pins the log of a primary. The session is closed with the value; whoever asks the cluster
    /// afterwards opens another one.
    pub fn pin(&mut self) -> Result<Pinned, PostgresError> {
        let mut session = self.take_session()?;
        let cluster = self.facts.clone();
        let mut warnings = super::foreseen::of_configuration(&cluster);
        if let Err(reason) = session.pin_wal() {
            warnings.push(Warning::WalNotPinned { reason });
        }
        let spaces = ask_tablespaces(&mut session)?;
        let lsn = log_end(&mut session)?;
        Ok(Pinned {
            time: session.now()?,
            cluster,
            spaces,
            warnings,
            lsn,
            session,
            directories: HashSet::new(),
        })
    }
}

const LOG_END: &str = "SELECT pg_current_wal_flush_lsn()::text";

fn log_end(session: &mut Session) -> Result<Lsn, PostgresError> {
    const DOING: &str = "ask for the log's end";
    let answer: String = session.value(DOING, LOG_END)?;
    Lsn::parse(&answer).ok_or(PostgresError::Answer {
        doing: DOING,
        answer,
    })
}

impl Pinned {
    /// The cluster.
    pub fn cluster(&self) -> &ClusterFacts {
        &self.cluster
    }

    /// Lists the files, except pg_control and the log.
    pub fn list(&mut self) -> Result<BracketFiles, PostgresError> {
        let rules = ScanRules::of(&self.cluster);
        let scanned = scan(&rules)?;
        self.directories = scanned.directories;
        Ok(BracketFiles::new(scanned.listing, &rules))
    }

    /// Looks again at what has changed since the files were listed. `changed` are all paths, as the
    /// server gave them to the system, that came, went, or lead to another file since then. `None`
    /// if that does not tell what is there now.
    pub fn list_changed<'p>(
        &self,
        changed: impl Iterator<Item = &'p [u8]>,
    ) -> Result<Option<ChangedFiles>, PostgresError> {
        ChangedFiles::of(&ScanRules::of(&self.cluster), &self.directories, changed)
    }

    /// Notes up to where the log is flushed now, and returns it. What a crash leaves from now on
    /// has all of it.
    pub fn note_end(&mut self) -> Result<Lsn, PostgresError> {
        self.lsn = log_end(&mut self.session)?;
        Ok(self.lsn)
    }

    /// What a crash would leave at this moment.
    pub fn crash_state(&self) -> Result<CrashState, PostgresError> {
        let root = &self.cluster.data_directory;
        let control = Control::read(root)?;
        let bytes = u64::from(control.wal_segment_bytes);
        let mut number = segment_of(control.redo, bytes);
        let mut segments = Vec::new();
        loop {
            let timeline = control.checkpoint_timeline;
            let segment = Segment { timeline, number };
            let name = segment.name(bytes);
            let path = root.join("pg_wal").join(&name);
            // The next one does not exist, or still has the content of an old one.
            if check_segment(&path, segment, bytes, control.system_identifier).is_err() {
                break;
            }
            segments.push((name, path));
            number += 1;
        }
        if segments.is_empty() {
            let timeline = control.checkpoint_timeline;
            return Err(PostgresError::WalMissing {
                segment: Segment { timeline, number }.name(bytes),
                directory: root.join("pg_wal"),
                slot_limit: None,
            });
        }
        Ok(CrashState {
            redo: control.redo,
            control: control.into_bytes(),
            segments,
        })
    }

    /// What the files are, as a set would say it. A server that opens them recovers from `redo`.
    pub fn facts(mut self, redo: Lsn, label: &str) -> Result<DatabaseFacts, PostgresError> {
        let stop_time = self.session.now()?;
        let stop = self.lsn.max(redo);
        // The server runs again, so this is behind everything that it wrote before the pause.
        let crash_lsn = Some(log_end(&mut self.session)?.max(stop));
        Ok(DatabaseFacts {
            crash_lsn,
            start_lsn: redo,
            stop_lsn: stop,
            start_time: self.time,
            stop_time,
            wal: vec![WalRange {
                timeline: self.cluster.timeline,
                start: redo,
                end: stop,
            }],
            tablespaces: self.spaces,
            warnings: self.warnings,
            ..facts_of(&self.cluster, label)
        })
    }
}
