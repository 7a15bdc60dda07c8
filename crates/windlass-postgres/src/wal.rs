//! The write-ahead log of a backup: its ranges, its segments, and whether these hold what they
//! should.
//!
//! A primary stays on one timeline. A standby may follow its primary over a switch during the
//! backup. Then the log has one range for each timeline. The ranges join at the switch points that
//! the history file of the last timeline names.

pub(crate) mod effects;
pub(crate) mod ends;
pub(crate) mod head;
pub(crate) mod moments;
pub(crate) mod outside;
mod pages;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "numbers of a test are small"
)]
mod reading_tests;
pub(crate) mod records;
pub(crate) mod source;
pub(crate) mod written;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_engine::durable;

use crate::error::{IoContext, PostgresError};
use crate::lsn::{Lsn, Segment, Timeline, segment_before, segment_of};
use pages::LONG_HEADER_BYTES;
pub use pages::LogEnd;

/// Flag of xlp_info: the page has a long header.
const LONG_HEADER: u16 = 2;

/// A part of the log on one timeline; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalRange {
    /// The timeline.
    pub timeline: Timeline,
    /// First byte.
    pub start: Lsn,
    /// First byte behind the range.
    pub end: Lsn,
}

/// A segment of a backup's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeededSegment {
    pub(crate) segment: Segment,
    /// False for the end of an older timeline: the next timeline's segment repeats its bytes.
    pub(crate) required: bool,
}

/// The timelines before one, and where each was left, as pg_wal of a data directory has them.
/// `None` if the file that says so is not there.
pub fn timelines_before(
    data: &Path,
    timeline: Timeline,
) -> Result<Option<Vec<(Timeline, Lsn)>>, PostgresError> {
    if timeline.0 <= 1 {
        return Ok(Some(Vec::new()));
    }
    let name = timeline.history_name();
    let path = data.join("pg_wal").join(&name);
    let text = durable::if_there(std::fs::read_to_string(&path)).doing("read", &path)?;
    text.map(|text| parse_history(&name, &text)).transpose()
}

/// Reads a history file: each ancestor, and where the history left it.
pub fn parse_history(name: &str, text: &str) -> Result<Vec<(Timeline, Lsn)>, PostgresError> {
    let malformed = || PostgresError::Document {
        document: name.into(),
        what: "a line is not `timeline switch-point reason`",
    };
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let timeline = fields.next()?.parse().ok()?;
        Some((Timeline(timeline), Lsn::parse(fields.next()?)?))
    };
    lines
        .map(|line| parse(line).ok_or_else(malformed))
        .collect()
}

/// The ranges from a backup's start to its stop. `history` is the one of `stop_timeline`, which is
/// the newest timeline of this machine's log.
pub(crate) fn ranges(
    (start_timeline, start): (Timeline, Lsn),
    (stop_timeline, stop): (Timeline, Lsn),
    history: &[(Timeline, Lsn)],
) -> Result<Vec<WalRange>, PostgresError> {
    let foreign = || PostgresError::Timeline {
        start,
        start_timeline,
        stop_timeline,
    };
    let passed = history
        .iter()
        .skip_while(|(timeline, _)| *timeline != start_timeline);
    let passed = passed
        .copied()
        .take_while(|_| start_timeline != stop_timeline);
    let mut steps: Vec<(Timeline, Lsn)> = passed.collect();
    if start_timeline != stop_timeline && steps.is_empty() {
        return Err(foreign());
    }
    steps.push((stop_timeline, Lsn(u64::MAX)));
    let mut ranges = Vec::new();
    let mut from = start;
    for (timeline, left_at) in steps {
        let end = left_at.min(stop);
        if end < from {
            return Err(foreign());
        }
        ranges.push(WalRange {
            timeline,
            start: from,
            end,
        });
        // The standby may have replayed the switch after the backup's stop. Then it is not part of
        // the backup.
        if stop <= left_at {
            break;
        }
        from = end;
    }
    Ok(ranges)
}

/// The segments that hold the ranges, oldest first.
pub(crate) fn segments(ranges: &[WalRange], segment_bytes: u64) -> Vec<NeededSegment> {
    let mut needed = Vec::new();
    for (index, range) in ranges.iter().enumerate() {
        let next = ranges
            .get(index + 1)
            .map(|next| segment_of(next.start, segment_bytes));
        let first = segment_of(range.start, segment_bytes);
        // A range may be empty, but recovery still opens the segment in which it begins.
        let last = segment_before(range.end, segment_bytes).max(first);
        needed.extend((first..=last).map(|number| NeededSegment {
            segment: Segment {
                timeline: range.timeline,
                number,
            },
            required: next != Some(number),
        }));
    }
    needed
}

/// Checks the first page header of a segment file. A segment that was recycled under another name,
/// or that comes from another cluster, must not pass for the one in the backup's range.
pub(crate) fn check_segment(
    path: &Path,
    segment: Segment,
    segment_bytes: u64,
    system_identifier: u64,
) -> Result<(), PostgresError> {
    let mut header = [0; LONG_HEADER_BYTES];
    let file = File::open(path).doing("open", path)?;
    file.read_exact_at(&mut header, 0).doing("read", path)?;
    let length = file.metadata().doing("examine", path)?.len();
    let fault = if length != segment_bytes {
        Some("is not as long as a segment")
    } else {
        header_fault(&header, segment.start(segment_bytes), system_identifier)
    };
    match fault {
        Some(what) => Err(PostgresError::WalContent {
            segment: segment.name(segment_bytes),
            what,
        }),
        None => Ok(()),
    }
}

fn header_fault(
    header: &[u8; LONG_HEADER_BYTES],
    start: Lsn,
    system_identifier: u64,
) -> Option<&'static str> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&header[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    if u16::from_le_bytes([header[2], header[3]]) & LONG_HEADER == 0 {
        return Some("does not begin with a segment's first page");
    }
    if word(8) != start.0 {
        return Some("begins at another position of the log");
    }
    if word(24) != system_identifier {
        return Some("is of another cluster");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: u64 = 16 << 20;

    fn names(ranges: &[WalRange]) -> Vec<(String, bool)> {
        let needed = segments(ranges, SEGMENT);
        needed
            .iter()
            .map(|one| (one.segment.name(SEGMENT), one.required))
            .collect()
    }

    fn at(segment: u64, offset: u64) -> Lsn {
        Lsn(segment * SEGMENT + offset)
    }

    #[test]
    fn one_timeline_is_one_range_from_start_to_stop() {
        let one = (Timeline(1), at(2, 40));
        let found = ranges(one, (Timeline(1), at(4, 0)), &[]).unwrap();
        assert_eq!(
            found,
            [WalRange {
                timeline: Timeline(1),
                start: at(2, 40),
                end: at(4, 0)
            }]
        );
        let expected = ["000000010000000000000002", "000000010000000000000003"];
        assert_eq!(names(&found), expected.map(|name| (name.to_owned(), true)));
    }

    #[test]
    fn a_switch_joins_two_ranges_and_spares_the_segment_that_is_there_twice() {
        let history = parse_history("x", "1\t0/3000100\tno recovery target\n\n").unwrap();
        let found = ranges(
            (Timeline(1), at(2, 40)),
            (Timeline(2), at(3, 900)),
            &history,
        )
        .unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].end, found[1].start),
            (Lsn(0x300_0100), Lsn(0x300_0100))
        );
        let expected = [
            ("000000010000000000000002".to_owned(), true),
            ("000000010000000000000003".to_owned(), false),
            ("000000020000000000000003".to_owned(), true),
        ];
        assert_eq!(names(&found), expected);
    }

    #[test]
    fn a_switch_on_a_boundary_needs_the_old_timelines_last_segment() {
        let history = [(Timeline(1), at(3, 0))];
        let found = ranges(
            (Timeline(1), at(2, 40)),
            (Timeline(2), at(3, 900)),
            &history,
        )
        .unwrap();
        assert!(names(&found).iter().all(|(_, required)| *required));
    }

    #[test]
    fn a_switch_after_the_stop_is_not_part_of_the_backup() {
        let history = [(Timeline(1), at(5, 0)), (Timeline(2), at(6, 0))];
        let found = ranges((Timeline(1), at(2, 40)), (Timeline(3), at(4, 7)), &history).unwrap();
        let expected = WalRange {
            timeline: Timeline(1),
            start: at(2, 40),
            end: at(4, 7),
        };
        assert_eq!(found, [expected]);
        let found = ranges((Timeline(1), at(2, 40)), (Timeline(3), at(5, 7)), &history).unwrap();
        assert_eq!(found.last().unwrap().timeline, Timeline(2));
    }

    #[test]
    fn a_history_that_does_not_pass_through_the_start_is_refused() {
        let start = (Timeline(1), at(2, 40));
        for history in [
            vec![],
            vec![(Timeline(7), at(9, 0))],
            vec![(Timeline(1), at(1, 0))],
        ] {
            let error = ranges(start, (Timeline(2), at(3, 0)), &history).unwrap_err();
            assert!(matches!(error, PostgresError::Timeline { .. }));
        }
        assert!(parse_history("x", "one 0/1 reason").is_err());
    }
}
