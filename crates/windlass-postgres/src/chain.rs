//! What a backup builds on: an earlier set of the same cluster, and what keeps it from that.
//!
//! Invariants
//! - A base is of the same cluster, and the server's timeline passes through the base's log.
//! - Files are paired by path. That is right only together with a proof of what changed since the
//!   base began: files come and go under the same name.

pub(crate) mod fault;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_engine::OpenSet;
use windlass_engine::media::{
    BackupType, Base, FileKind, FileNo, Inherited, InheritedFiles, SetId,
};

use crate::cluster_files::ClusterFiles;
use crate::error::{IoContext, PostgresError};
use crate::facts::{ClusterFacts, DatabaseFacts};
use crate::lsn::{Lsn, Segment, Timeline};
use crate::origin::is_from_past;
use crate::wal::ends::log_ends;
use crate::wal::{WalRange, parse_history, ranges};
use crate::witness::ChangeMark;
pub use fault::ChainFault;

/// An earlier set on which a backup can build.
#[derive(Debug)]
pub struct ChainBase {
    /// The set, without files.
    base: Base,
    /// Its id, and those of the sets below it.
    ids: Vec<String>,
    backup_type: BackupType,
    facts: DatabaseFacts,
    files: HashMap<Box<[u8]>, BaseFile>,
}

/// A file of the base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseFile {
    pub(crate) file: FileNo,
    pub(crate) bytes: u64,
    pub(crate) mtime_nanos: i64,
}

impl ChainBase {
    /// Takes a set as a base.
    pub fn of_set(set: &OpenSet) -> Result<Self, PostgresError> {
        let about = set.description();
        let entries = about.files.0.iter();
        let files = entries.filter(|entry| entry.kind == FileKind::File);
        let file = |entry: &windlass_engine::media::FileEntry| {
            let file = BaseFile {
                file: entry.file,
                bytes: entry.bytes,
                mtime_nanos: entry.mtime_nanos,
            };
            (entry.path.clone().into_boxed_slice(), file)
        };
        Ok(Self {
            base: set.as_base(),
            ids: set.links().map(|set| set.set_id().to_string()).collect(),
            backup_type: about.facts.backup_type,
            facts: DatabaseFacts::of_set(&about.facts.database)?,
            files: files.map(file).collect(),
        })
    }

    /// The id of the set.
    pub fn set_id(&self) -> SetId {
        self.base.set
    }

    /// What kind of set it is.
    pub fn backup_type(&self) -> BackupType {
        self.backup_type
    }

    /// The ids of the set and of those below it.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.ids.clone()
    }

    /// Where its log begins. What changed since then may differ from what it holds.
    pub(crate) fn start(&self) -> Lsn {
        self.facts.start_lsn
    }

    /// Whether hint bits were logged when it was made.
    pub(crate) fn hints_logged(&self) -> bool {
        self.facts.hints_logged || self.facts.checksums.enabled
    }

    /// The point since which somebody may have seen all writes.
    pub(crate) fn change_mark(&self) -> Option<&ChangeMark> {
        self.facts.change_mark.as_ref()
    }

    pub(crate) fn file(&self, path: &[u8]) -> Option<&BaseFile> {
        self.files.get(path)
    }

    /// What a set says of its base, from which it takes these files.
    pub(crate) fn with_files(&self, files: Vec<Inherited>) -> Base {
        Base {
            files: InheritedFiles::new(files),
            ..self.base.clone()
        }
    }

    /// Whether a backup of this cluster can build on the set, as far as that is known before it
    /// begins.
    pub fn check(&self, cluster: &ClusterFacts) -> Result<(), ChainFault> {
        if self.facts.system_identifier != cluster.system_identifier.to_string() {
            return Err(ChainFault::OtherCluster {
                found: self.facts.system_identifier.clone(),
                expected: cluster.system_identifier,
            });
        }
        if self.facts.checksums.enabled != cluster.data_checksums {
            return Err(ChainFault::Checksums);
        }
        // The backup begins here, or behind it.
        let now = (cluster.timeline, cluster.reached);
        self.path_to(&cluster.data_directory, now)?;
        let base = (self.facts.restored.as_str(), self.facts.stop_lsn);
        match is_from_past(base, &cluster.restored) {
            true => Ok(()),
            false => Err(ChainFault::Apart),
        }
    }

    /// Compares the log of the base, which is in its set, with what the server still has of it. A
    /// copy that was started as a primary has the server's identity, and maybe its timeline.
    pub fn check_log(
        &self,
        cluster: &ClusterFacts,
        set: &dyn ClusterFiles,
    ) -> Result<(), PostgresError> {
        let segment_bytes = u64::from(self.facts.wal_segment_bytes);
        let timeline = self.facts.wal.last();
        let timeline = timeline.map_or(self.facts.timeline, |range| range.timeline);
        for (from, own) in log_ends(set, &self.facts)? {
            let number = from.0 / segment_bytes;
            let name = Segment { timeline, number }.name(segment_bytes);
            let path = cluster.data_directory.join("pg_wal").join(name);
            let differs = || {
                let mut found = vec![0; own.len()];
                let read = File::open(&path)
                    .and_then(|file| file.read_exact_at(&mut found, from.0 % segment_bytes));
                read.is_ok() && found != own
            };
            // The server removes its log when it likes, and uses the file again under another name.
            if differs() && differs() {
                return Err(PostgresError::Chain(ChainFault::Apart));
            }
        }
        Ok(())
    }

    /// The log from the start of the base to a position of the server.
    pub(crate) fn path_to(
        &self,
        data_directory: &Path,
        (timeline, lsn): (Timeline, Lsn),
    ) -> Result<Vec<WalRange>, ChainFault> {
        let (first, start, stop) = (self.facts.timeline, self.start(), self.facts.stop_lsn);
        let last = self.facts.wal.last().map_or(first, |range| range.timeline);
        let off_path = || ChainFault::OtherTimeline {
            timeline: last,
            lsn: stop,
            now: timeline,
        };
        let history = match (first, last) == (timeline, timeline) {
            true => Vec::new(),
            false => history_of(data_directory, timeline).map_err(|_| off_path())?,
        };
        let left = history.iter().find(|(passed, _)| *passed == last);
        if last != timeline && left.is_none_or(|(_, at)| *at < stop) {
            return Err(off_path());
        }
        if lsn < stop {
            return Err(ChainFault::NotBehind { start: lsn, stop });
        }
        ranges((first, start), (timeline, lsn), &history).map_err(|_| off_path())
    }
}

/// The timelines that a timeline of the server comes from, and where each was left.
fn history_of(
    data_directory: &Path,
    timeline: Timeline,
) -> Result<Vec<(Timeline, Lsn)>, PostgresError> {
    let name = timeline.history_name();
    let path = data_directory.join("pg_wal").join(&name);
    let text = std::fs::read_to_string(&path).doing("read", &path)?;
    parse_history(&name, &text)
}
