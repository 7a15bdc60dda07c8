//! The end of a backup: what its label says, which log it needs, and where to find that log.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_engine::EngineError;

use crate::control::Control;
use crate::error::{IoContext, PostgresError};
use crate::facts::ClusterFacts;
use crate::lsn::{Lsn, Segment, Timeline, segment_before};
use crate::wal::{WalRange, check_segment, parse_history, ranges, segments};
use crate::warning::Warning;

/// The largest block of the log that a server can be built with.
const LOG_BLOCK_BYTES_MAX: u64 = 64 << 10;

/// The lines of backup_label that the backup itself needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackupLabel {
    /// START WAL LOCATION: the redo position of the start checkpoint.
    pub(crate) start: Lsn,
    /// START TIMELINE.
    pub(crate) timeline: Timeline,
}

/// A segment of the backup's log, found in pg_wal.
#[derive(Clone, Debug)]
pub(super) struct FoundSegment {
    segment: Segment,
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) mtime_nanos: i64,
}

/// The part of the log that a backup needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogRange {
    pub(super) start: Lsn,
    /// Recovery has to reach this position.
    pub(super) stop: Lsn,
}

impl FoundSegment {
    pub(super) fn number(&self) -> u64 {
        self.segment.number
    }

    /// How many bytes of the segment the server used, if it ended its last one at a position.
    pub(super) fn used_bytes(&self, segment_bytes: u64, switched: Option<Lsn>) -> u64 {
        let last = switched.filter(|end| segment_before(*end, segment_bytes) == self.number());
        let used = last.map(|end| end.0 - self.number() * segment_bytes);
        let used = used.map(|used| used.next_multiple_of(LOG_BLOCK_BYTES_MAX));
        used.map_or(segment_bytes, |used| used.min(segment_bytes))
    }
}

impl BackupLabel {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, PostgresError> {
        // Other lines may hold the user's label, in any encoding.
        let text = String::from_utf8_lossy(bytes);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let start = field("START WAL LOCATION: ").and_then(|rest| rest.split(' ').next());
        let start = start.and_then(Lsn::parse);
        let timeline = field("START TIMELINE: ").and_then(|rest| rest.trim().parse().ok());
        match (start, timeline) {
            (Some(start), Some(timeline)) => Ok(Self {
                start,
                timeline: Timeline(timeline),
            }),
            _ => Err(PostgresError::Document {
                document: "backup_label".into(),
                what: "names no start position or no timeline",
            }),
        }
    }
}

/// The ranges of the log that the backup needs. A primary stays on its timeline. For a standby,
/// pg_control says on which timeline it has replayed up to the stop position.
pub(super) fn plan_ranges(
    cluster: &ClusterFacts,
    label: &BackupLabel,
    stop: Lsn,
) -> Result<Vec<WalRange>, PostgresError> {
    let start = (label.timeline, label.start);
    if !cluster.standby {
        return ranges(start, (label.timeline, stop), &[]);
    }
    let last = Control::read(&cluster.data_directory)?.newest_timeline();
    if last == label.timeline {
        return ranges(start, (last, stop), &[]);
    }
    let path = wal_directory(cluster).join(last.history_name());
    let text = std::fs::read_to_string(&path).doing("read", &path)?;
    ranges(
        start,
        (last, stop),
        &parse_history(&last.history_name(), &text)?,
    )
}

/// Finds the segments of the ranges in pg_wal.
pub(super) fn find_segments(
    cluster: &ClusterFacts,
    ranges: &[WalRange],
    warnings: &mut Vec<Warning>,
) -> Result<Vec<FoundSegment>, PostgresError> {
    let (directory, bytes) = (wal_directory(cluster), u64::from(cluster.wal_segment_bytes));
    let mut found = Vec::new();
    for needed in segments(ranges, bytes) {
        let name = needed.segment.name(bytes);
        let path = directory.join(&name);
        match std::fs::metadata(&path) {
            Ok(metadata) => {
                let seconds = metadata.mtime().saturating_mul(1_000_000_000);
                let mtime_nanos = seconds.saturating_add(metadata.mtime_nsec());
                found.push(FoundSegment {
                    segment: needed.segment,
                    name,
                    path,
                    mtime_nanos,
                });
            }
            Err(_) if needed.required => return Err(missing(&name, &directory)),
            Err(_) => warnings.push(Warning::WalTailMissing { segment: name }),
        }
    }
    Ok(found)
}

/// Checks that each segment is still there and is what its name says.
pub(super) fn check_segments(
    cluster: &ClusterFacts,
    segments: &[FoundSegment],
) -> Result<(), PostgresError> {
    let (bytes, identifier) = (
        u64::from(cluster.wal_segment_bytes),
        cluster.system_identifier,
    );
    for found in segments {
        if !found.path.exists() {
            return Err(missing(&found.name, &wal_directory(cluster)));
        }
        check_segment(&found.path, found.segment, bytes, identifier)?;
    }
    Ok(())
}

/// The same error, or its cause if the server has removed one of the segments meanwhile. Whoever
/// reads it then fails in words of his own.
pub(super) fn or_removed(
    error: PostgresError,
    cluster: &ClusterFacts,
    segments: &[FoundSegment],
) -> PostgresError {
    let removed = segments.iter().find(|found| !found.path.exists());
    match removed {
        Some(found) if !matches!(error, PostgresError::Engine(EngineError::Cancelled)) => {
            missing(&found.name, &wal_directory(cluster))
        }
        _ => error,
    }
}

/// The history files of the timelines from the start's to the last one, with their content. The
/// first timeline has no history file. The file of an older timeline is needed only if the backup
/// passed a switch.
pub(super) fn history_files(
    cluster: &ClusterFacts,
    label: &BackupLabel,
    ranges: &[WalRange],
) -> Result<Vec<(String, Vec<u8>)>, PostgresError> {
    let directory = wal_directory(cluster);
    let mut files = Vec::new();
    for timeline in ranges
        .iter()
        .map(|range| range.timeline)
        .filter(|one| one.0 > 1)
    {
        let name = timeline.history_name();
        let path = directory.join(&name);
        if timeline == label.timeline && !path.exists() {
            continue;
        }
        let content = std::fs::read(&path).doing("read", &path)?;
        files.push((name, content));
    }
    Ok(files)
}

fn wal_directory(cluster: &ClusterFacts) -> PathBuf {
    cluster.data_directory.join("pg_wal")
}

fn missing(name: &str, directory: &Path) -> PostgresError {
    PostgresError::WalMissing {
        segment: name.into(),
        directory: directory.into(),
        slot_limit: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_gives_position_and_timeline() {
        let text = b"START WAL LOCATION: 0/2000028 (file 000000010000000000000002)\n\
            CHECKPOINT LOCATION: 0/2000060\nBACKUP METHOD: streamed\nBACKUP FROM: primary\n\
            START TIME: 2026-11-21 09:00:00 UTC\nLABEL: \xff\nSTART TIMELINE: 3\n";
        let expected = BackupLabel {
            start: Lsn(0x200_0028),
            timeline: Timeline(3),
        };
        assert_eq!(BackupLabel::parse(text).unwrap(), expected);
        assert!(BackupLabel::parse(b"LABEL: x\n").is_err());
    }
}
