//! Tablespaces that replay creates again, most of them at their paths in the source.
//!
//! A backup of this version ends with a window whose log has no such record. But a set of an older
//! version, a copy that another tool made, or a directory restored from either may have one. Replay
//! then changes the mode of that path, makes a directory in it and links to it. On the source's own
//! machine this is the path of the live cluster.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::effects::{Effect, MANAGERS, next_effect};
use super::records::Records;
use super::source::{ImageSegments, LogSource, SegmentFiles, segment_of_name};
use crate::cluster_files::ClusterFiles;
use crate::error::{IoContext, PostgresError};
use crate::facts::DatabaseFacts;
use crate::lsn::Lsn;
use crate::restore::make_directory;

/// A tablespace that replay of a log creates again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedTablespace {
    /// Its number.
    pub oid: u32,
    /// Its path in the source, at which replay would create it. It is empty if the tablespace is a
    /// directory in pg_tblspc.
    pub location: PathBuf,
    /// Where the log says so.
    pub lsn: Lsn,
}

/// The tablespaces that the log of a set creates again. If the log was searched when the set was
/// made, there are none, and this reads nothing.
pub fn replayed_tablespaces(
    files: &dyn ClusterFiles,
    facts: &DatabaseFacts,
) -> Result<Vec<ReplayedTablespace>, PostgresError> {
    if facts.log_surveyed {
        return Ok(Vec::new());
    }
    let segment_bytes = u64::from(facts.wal_segment_bytes);
    let mut segments = ImageSegments::new(files, segment_bytes);
    let mut created = created_in(&mut segments, segment_bytes, (facts.start_lsn, None))?;
    created.retain(|space| !space.is_in_place());
    Ok(created)
}

/// The same for a data directory that a server is to recover from `start`. Tablespaces that are
/// created in place are among them.
pub(crate) fn replayed_in(
    data: &Path,
    segment_bytes: u64,
    start: Lsn,
) -> Result<Vec<ReplayedTablespace>, PostgresError> {
    let directory = data.join("pg_wal");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
        let name = entry.doing("list", &directory)?.file_name();
        if let Some((timeline, number)) = segment_of_name(&name.into_vec(), segment_bytes) {
            found.push((timeline, number));
        }
    }
    found.sort_unstable();
    let path = |(timeline, number): (u32, u64)| {
        let segment = crate::lsn::Segment {
            timeline: crate::lsn::Timeline(timeline),
            number,
        };
        (number, directory.join(segment.name(segment_bytes)))
    };
    let mut segments = SegmentFiles::new(found.into_iter().map(path));
    created_in(&mut segments, segment_bytes, (start, None))
}

/// Refuses a log that creates a tablespace at its path in the source. `from` is where a record
/// begins, and `up_to` where replay ends, if that is known.
pub fn check_log_inside(
    source: &mut dyn LogSource,
    segment_bytes: u64,
    (from, up_to): (Lsn, Option<Lsn>),
) -> Result<(), PostgresError> {
    let replayed = created_in(source, segment_bytes, (from, up_to))?;
    let outside = replayed.into_iter().find(|space| !space.is_in_place());
    outside.map_or(Ok(()), |space| Err(space.refused_inside()))
}

/// Reads a log as far as it can be read, because a server replays no more than that.
fn created_in(
    source: &mut dyn LogSource,
    segment_bytes: u64,
    (start, up_to): (Lsn, Option<Lsn>),
) -> Result<Vec<ReplayedTablespace>, PostgresError> {
    let mut records = match Records::open(source, segment_bytes, start, &MANAGERS) {
        // A server cannot begin here either, and its own error says more about the reason.
        Err(PostgresError::WalRecord { .. }) => return Ok(Vec::new()),
        other => other?,
    };
    let mut created = Vec::new();
    while let Some((record, effect)) = next_effect(&mut records)? {
        if up_to.is_some_and(|end| record.start >= end) {
            break;
        }
        if let Effect::TablespaceCreated { tablespace, path } = effect {
            created.push(ReplayedTablespace {
                oid: tablespace,
                location: std::ffi::OsString::from_vec(path).into(),
                lsn: record.start,
            });
        }
    }
    Ok(created)
}

impl ReplayedTablespace {
    /// True if replay creates it as a directory in pg_tblspc.
    pub(crate) fn is_in_place(&self) -> bool {
        self.location.as_os_str().is_empty()
    }

    /// Why a server that may write only into its own directory cannot replay the log.
    pub(crate) fn refused_inside(self) -> PostgresError {
        PostgresError::ReplaysOutside {
            oid: self.oid,
            location: self.location,
            what: "an opened server may write only into its own directory",
        }
    }

    /// Makes the directory; without it the server would not recover.
    pub fn prepare(&self) -> Result<(), PostgresError> {
        make_directory(&self.location, 0o700)
    }

    /// Fails if something already exists where the server would write, or if the user maps the
    /// tablespace to another place.
    pub fn check(&self, map: &[(PathBuf, PathBuf)]) -> Result<(), PostgresError> {
        let refuse = |what| {
            Err(PostgresError::ReplaysOutside {
                oid: self.oid,
                location: self.location.clone(),
                what,
            })
        };
        let mapped = |(was, becomes): &(PathBuf, PathBuf)| *was == self.location && was != becomes;
        if map.iter().any(mapped) {
            return refuse("the log names this path, so it cannot be mapped");
        }
        match std::fs::symlink_metadata(&self.location) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            _ => refuse("this path exists"),
        }
    }
}
