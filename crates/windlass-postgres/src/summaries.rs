//! The server's WAL summaries (17 and newer): which blocks its log has changed.
//!
//!   pg_wal/summaries/<timeline><start><end>.summary --> `ChangedBlocks`
//!
//! Windlass reads the files itself, so a role needs no further right. The names say which part of
//! the log each file covers. A summary that reaches further than it was asked for names more blocks
//! than needed, and never fewer.
//!
//! Invariants
//! - A list of changed blocks is used only if the summaries cover every byte of the log from the
//!   base's start on, on each timeline.
//! - No byte of a summary counts before its CRC was checked.

pub(crate) mod blocks;
mod file;

use std::path::{Path, PathBuf};

use crate::error::{IoContext, PostgresError};
use crate::lsn::{Lsn, Timeline};
use crate::wal::WalRange;
use blocks::ChangedBlocks;

/// Where they are, below the data directory.
const DIRECTORY: &str = "pg_wal/summaries";
const ENDING: &str = ".summary";
/// Timeline, start and end in hexadecimal digits.
const DIGITS: usize = 8 + 16 + 16;

/// One summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    range: WalRange,
    path: PathBuf,
}

/// A position that no summary covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncovered {
    pub(crate) timeline: Timeline,
    pub(crate) at: Lsn,
    /// Where the next summary of that timeline begins; `None` if the server may still write it.
    pub(crate) next: Option<Lsn>,
}

/// The summaries that there are now.
pub(crate) fn list(data_directory: &Path) -> Result<Vec<Summary>, PostgresError> {
    let directory = data_directory.join(DIRECTORY);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
        let path = entry.doing("list", &directory)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(range) = name.and_then(range_of) {
            found.push(Summary { range, path });
        }
    }
    found.sort_by_key(|one| (one.range.timeline, one.range.start, one.range.end));
    Ok(found)
}

/// The part of the log that a summary of this name covers.
fn range_of(name: &str) -> Option<WalRange> {
    let digits = name.strip_suffix(ENDING)?;
    let is_upper = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    if digits.len() != DIGITS || !digits.bytes().all(is_upper) {
        return None;
    }
    let position = |digits: &str| u64::from_str_radix(digits, 16).ok().map(Lsn);
    Some(WalRange {
        timeline: Timeline(u32::from_str_radix(&digits[..8], 16).ok()?),
        start: position(&digits[8..24])?,
        end: position(&digits[24..])?,
    })
}

/// The summaries that cover these ranges, oldest first, or the first position that none covers.
pub(crate) fn covering<'a>(
    all: &'a [Summary],
    ranges: &[WalRange],
) -> Result<Vec<&'a Summary>, Uncovered> {
    let mut chosen = Vec::new();
    for wanted in ranges {
        let mut at = wanted.start;
        let of_timeline = all
            .iter()
            .filter(|one| one.range.timeline == wanted.timeline && one.range.end > wanted.start);
        for one in of_timeline {
            if at >= wanted.end {
                break;
            }
            if one.range.start > at {
                return Err(Uncovered {
                    timeline: wanted.timeline,
                    at,
                    next: Some(one.range.start),
                });
            }
            at = at.max(one.range.end);
            chosen.push(one);
        }
        if at < wanted.end {
            return Err(Uncovered {
                timeline: wanted.timeline,
                at,
                next: None,
            });
        }
    }
    Ok(chosen)
}

/// What these summaries say together. They are in the order of the log.
pub(crate) fn read(summaries: &[&Summary]) -> Result<ChangedBlocks, PostgresError> {
    let mut changed = ChangedBlocks::default();
    for summary in summaries {
        file::read(&summary.path, &mut changed)?;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(timeline: u32, start: u64, end: u64) -> Summary {
        let name = format!("{timeline:08X}{start:016X}{end:016X}{ENDING}");
        let range = range_of(&name).unwrap();
        let path = PathBuf::from(name);
        Summary { range, path }
    }

    fn range(timeline: u32, start: u64, end: u64) -> WalRange {
        WalRange {
            timeline: Timeline(timeline),
            start: Lsn(start),
            end: Lsn(end),
        }
    }

    fn ends(found: &[&Summary]) -> Vec<u64> {
        found.iter().map(|one| one.range.end.0).collect()
    }

    #[test]
    fn only_the_names_of_summaries_are_summaries() {
        assert_eq!(summary(3, 0x28, 0x1_0000_0000).range.timeline, Timeline(3));
        for name in [
            "temp.summary",
            "00000001000000000100002800000000020000280.summary",
            "0000000100000000010000280000000002000028.summar",
            "000000010000000001000028000000000200002g.summary",
            "000000010000000001000028000000000200002a.summary",
            "",
        ] {
            assert_eq!(range_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_range_is_covered_if_the_summaries_leave_no_gap() {
        let all = [summary(1, 10, 20), summary(1, 20, 30), summary(1, 30, 40)];
        assert_eq!(
            ends(&covering(&all, &[range(1, 12, 30)]).unwrap()),
            [20, 30]
        );
        assert_eq!(ends(&covering(&all, &[range(1, 20, 21)]).unwrap()), [30]);
        assert!(covering(&all, &[range(1, 20, 20)]).unwrap().is_empty());
        let missing = |range| covering(&all, &[range]).unwrap_err();
        assert_eq!(
            (missing(range(1, 12, 41)).at, missing(range(1, 12, 41)).next),
            (Lsn(40), None)
        );
        assert_eq!(missing(range(1, 9, 12)).next, Some(Lsn(10)));
        assert_eq!(missing(range(2, 12, 14)).at, Lsn(12));
        let gap = [summary(1, 10, 20), summary(1, 21, 30)];
        let found = covering(&gap, &[range(1, 12, 30)]).unwrap_err();
        assert_eq!((found.at, found.next), (Lsn(20), Some(Lsn(21))));
    }

    #[test]
    fn each_timeline_is_covered_by_its_own_summaries_up_to_where_it_was_left() {
        let all = [
            summary(1, 10, 20),
            summary(1, 20, 25),
            summary(2, 25, 30),
            summary(2, 30, 40),
        ];
        let ranges = [range(1, 12, 25), range(2, 25, 40)];
        assert_eq!(ends(&covering(&all, &ranges).unwrap()), [20, 25, 30, 40]);
        let found = covering(&all[..1], &ranges).unwrap_err();
        assert_eq!((found.timeline, found.at), (Timeline(1), Lsn(20)));
    }
}
