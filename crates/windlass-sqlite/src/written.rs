//! Which pages can differ from those of an earlier state: what SQLite's log says of it, if nobody
//! wrote to the file since.
//!
//!   state then = file, with the frames of the log up to then over it
//!   state now  = file, with the frames of the log up to now over it
//!
//! The file is proven to be the same (`standing.rs`). Then the two differ at most in these pages:
//!
//! 1. If the log still has the commit of then, known by its salts and its checksum: those with
//!    frames behind it. The scan has checked each frame (`wal.rs`).
//! 2. If the file alone was the state then: those with frames, whatever log that is now.
//! 3. If the file alone is the state now, too: none.
//!
//! A checkpoint writes to the file, so this reaches back to the last one. A captured log reaches
//! further: it says which pages were written up to a later state, of which the same is asked.
//!
//! Invariant: when in doubt nothing is said, and the backup reads everything.

use std::ops::Range;

use crate::error::SqliteError;
use crate::facts::DatabaseFacts;
use crate::log_pages::LogPages;
use crate::standing::Standing;

/// The state of an earlier set.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    standing: Standing,
    /// Whether the file alone was the state.
    is_in_file: bool,
    /// A later state, and the pages that were written up to it, counted from 1, in order.
    later: Option<Box<(Written, Vec<u32>)>>,
}

impl Written {
    /// That of a set with these facts, if they say where it stands, and if it was made since the
    /// system was started: a power cut may take back the time of a write, and not the write.
    pub(crate) fn since(facts: &DatabaseFacts, booted_nanos: i64) -> Option<Self> {
        let standing = facts.standing.filter(|one| one.is_since(booted_nanos))?;
        Some(Self {
            is_in_file: facts.file_is_state || standing.has_empty_log(),
            standing,
            later: None,
        })
    }

    /// Says that only these pages were written up to a later state.
    pub(crate) fn set_later(&mut self, standing: Standing, pages: Vec<u32>) {
        let later = Self {
            is_in_file: standing.has_empty_log(),
            standing,
            later: None,
        };
        self.later = Some(Box::new((later, pages)));
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The pages that can differ in the state `now`, counted from 1, in order. `log` is what lies
    /// over the file now. `None` if nobody knows.
    pub(crate) fn pages(
        &self,
        now: &Standing,
        log: Option<&LogPages>,
    ) -> Result<Option<Vec<u32>>, SqliteError> {
        let own = self.pages_of_log(now, log)?;
        let (None, Some(later)) = (&own, &self.later) else {
            return Ok(own);
        };
        let (state, before) = later.as_ref();
        let behind = state.pages_of_log(now, log)?;
        Ok(behind.map(|mut pages| {
            pages.extend(before);
            pages.sort_unstable();
            pages.dedup();
            pages
        }))
    }

    /// Those that SQLite's own log names.
    fn pages_of_log(
        &self,
        now: &Standing,
        log: Option<&LogPages>,
    ) -> Result<Option<Vec<u32>>, SqliteError> {
        let (before, point) = (&self.standing.point, &now.point);
        if !now.file.proves_unchanged_since(&self.standing.file) {
            return Ok(None);
        }
        let Some(log) = log else {
            let is_same = self.is_in_file || point == before;
            return Ok(is_same.then(Vec::new));
        };
        let may_have = point.salts == before.salts && (1..=point.frame).contains(&before.frame);
        if may_have && log.sums_of(before.frame)? == Some(before.sums) {
            return Ok(Some(log.pages_behind(before.frame)));
        }
        Ok(self.is_in_file.then(|| log.pages_behind(0)))
    }
}

/// Where these pages are in a state of `bytes`, with everything from `known` on, where a page
/// begins or the state ends. The pages are counted from 1, in order.
pub(crate) fn parts(pages: &[u32], page_bytes: u64, (known, bytes): (u64, u64)) -> Vec<Range<u64>> {
    let starts = pages.iter().map(|page| (u64::from(*page) - 1) * page_bytes);
    let written = starts.map(|start| start..known.min(start.saturating_add(page_bytes)));
    let mut parts: Vec<Range<u64>> = Vec::new();
    for part in written.chain(std::iter::once(known..bytes)) {
        match parts.last_mut() {
            _ if part.start >= part.end => {}
            Some(last) if last.end == part.start => last.end = part.end,
            _ => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;
    use crate::standing::LogPoint;
    use crate::wal::{self, Checksum};

    /// A log of this generation with a transaction for each page, and its last commit.
    fn log(salt: u8, pages: &[u32]) -> (LogPages, LogPoint) {
        let begin = [0x377f_0682_u32, 3_007_000, 512, 0].map(u32::to_be_bytes);
        let mut content = begin.as_flattened().to_vec();
        content.extend([salt; 8]);
        let mut checksum = Checksum::new(false).over(&content);
        content.extend(checksum.sums.map(u32::to_be_bytes).as_flattened());
        for page in pages {
            let begin = [*page, 9].map(u32::to_be_bytes);
            let body = [salt; 512];
            checksum = checksum.over(begin.as_flattened()).over(&body);
            content.extend(begin.as_flattened());
            content.extend([salt; 8]);
            content.extend(checksum.sums.map(u32::to_be_bytes).as_flattened());
            content.extend(body);
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content).unwrap();
        let state = wal::scan(&file, u32::MAX).unwrap().unwrap();
        assert_eq!(state.frame_count as usize, pages.len());
        let point = LogPoint {
            salts: [salt; 8],
            frame: state.frame_count,
            sums: state.checksum.sums,
        };
        (
            LogPages::new(file, PathBuf::from("shop.db-wal"), state),
            point,
        )
    }

    /// A state at a commit, in a file that was changed at this moment.
    fn standing(point: LogPoint, changed: u32) -> Standing {
        let LogPoint { salts, frame, sums } = point;
        let (salts, [first, second]) = (u64::from_be_bytes(salts), sums);
        let text = format!("{salts} {frame} {first} {second} 1 2 4608 {changed} 5 1 {changed}");
        Standing::try_from(text).unwrap()
    }

    fn since(point: LogPoint, is_in_file: bool) -> Written {
        Written {
            standing: standing(point, 1000),
            is_in_file,
            later: None,
        }
    }

    #[test]
    fn only_pages_with_frames_behind_the_state_can_differ() {
        let (_, before) = log(7, &[3, 1]);
        let (now, point) = log(7, &[3, 1, 5, 2, 5]);
        let found = |written: &Written, changed| {
            let pages = written.pages(&standing(point, changed), Some(&now));
            pages.unwrap()
        };
        let written = since(before, false);
        assert_eq!(found(&written, 1000), Some(vec![2, 5]));
        // Somebody wrote to the file.
        assert_eq!(found(&written, 1001), None);
        assert_eq!(found(&since(before, true), 1000), Some(vec![2, 5]));
        assert_eq!(found(&since(point, false), 1000), Some(vec![]));
    }

    #[test]
    fn a_set_from_before_the_system_was_started_says_nothing() {
        let (_, point) = log(7, &[3]);
        let mut facts = DatabaseFacts::new(std::path::Path::new("/shop.db"), 4608, None);
        assert!(Written::since(&facts, 0).is_none());
        facts.standing = Some(standing(point, 1000));
        assert!(Written::since(&facts, 1000).is_some());
        assert!(Written::since(&facts, 1001).is_none());
    }

    #[test]
    fn a_log_with_another_past_says_nothing_unless_the_file_was_the_state() {
        // Other commits came after a power cut, or the log began again.
        for (past, pages) in [(7, &[3, 2][..]), (6, &[3, 1][..]), (7, &[3, 1, 5, 4][..])] {
            let (_, before) = log(past, pages);
            let (now, point) = log(7, &[3, 1, 5]);
            let now_at = standing(point, 1000);
            let pages = since(before, false).pages(&now_at, Some(&now)).unwrap();
            assert_eq!(pages, None, "{past} {pages:?}");
            let pages = since(before, true).pages(&now_at, Some(&now)).unwrap();
            assert_eq!(pages, Some(vec![1, 3, 5]));
        }
        let (_, before) = log(7, &[3]);
        let (_, other) = log(8, &[1]);
        let without_log = |is_in_file, point| {
            let written = since(before, is_in_file);
            written.pages(&standing(point, 1000), None).unwrap()
        };
        assert_eq!(without_log(false, other), None);
        assert_eq!(without_log(true, other), Some(vec![]));
        assert_eq!(without_log(false, before), Some(vec![]));
    }

    #[test]
    fn a_captured_log_leads_over_a_checkpoint() {
        let (_, before) = log(7, &[3]);
        let (_, end) = log(8, &[1]);
        let (now, point) = log(8, &[1, 5, 2]);
        let mut written = since(before, true);
        let found = |written: &Written, changed| {
            let pages = written.pages(&standing(point, changed), Some(&now));
            pages.unwrap()
        };
        // The file was written to after the first state, and not after the later one.
        assert_eq!(found(&written, 2000), None);
        written.set_later(standing(end, 2000), vec![2, 4]);
        assert_eq!(found(&written, 2000), Some(vec![2, 4, 5]));
        assert_eq!(found(&written, 2001), None);
        // Another transaction stands where the captured log ends.
        let (_, other) = log(8, &[4]);
        written.set_later(standing(other, 2000), vec![2, 4]);
        assert_eq!(found(&written, 2000), None);
    }

    #[test]
    fn what_the_earlier_state_did_not_have_is_read() {
        assert_eq!(parts(&[1, 2, 4, 9], 10, (60, 85)), [0..20, 30..40, 60..85]);
        assert!(parts(&[6], 10, (60, 85)).iter().eq([&(50..85)]));
        assert!(parts(&[2, 3], 10, (15, 15)).iter().eq([&(10..15)]));
        assert_eq!(parts(&[], 10, (60, 60)), []);
    }
}
