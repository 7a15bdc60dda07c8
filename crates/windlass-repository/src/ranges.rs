//! Which log of a timeline a place has, and what is missing between.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use windlass_engine::Reading;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, LostEnd, RepositoryError};
use crate::place::{LogPlace, ObjectName};

/// A run of log without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// Position of its first byte.
    pub start: Lsn,
    /// Position of the first byte behind it.
    pub end: Lsn,
}

/// The log of one timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineLog {
    /// The timeline.
    pub timeline: Timeline,
    /// Its runs of log, oldest first. Between two of them is a gap.
    pub spans: Vec<LogSpan>,
    /// What growing objects have lost of their ends, and no other object has.
    pub lost: Vec<LostEnd>,
    /// How many objects hold it.
    pub objects: u64,
    /// Their bytes.
    pub stored_bytes: u64,
}

impl TimelineLog {
    /// Looks at the names of all objects of a timeline, and into those that grow.
    pub fn of(place: &LogPlace, timeline: Timeline) -> Result<Self, RepositoryError> {
        let objects = place.objects(timeline)?;
        let mut stored_bytes = 0;
        let mut spans = Vec::new();
        let mut lost = Vec::new();
        for name in &objects {
            stored_bytes += place.stored_bytes(name).doing("examine", &name.path)?;
            let (span, end) = span(place, timeline, name)?;
            spans.extend(span);
            lost.extend(end);
        }
        let spans = merged(spans);
        let mut lost = place.known_lost(timeline, lost)?;
        // Another object may have the same log.
        lost.retain(|one| !spans.iter().any(|span| has_lost(span, one)));
        Ok(Self {
            timeline,
            spans,
            lost,
            objects: objects.len() as u64,
            stored_bytes,
        })
    }

    /// The missing parts between runs of log, and what was durable behind the last one. Of that the
    /// first byte, if nobody knows how much it was.
    pub fn gaps(&self) -> impl Iterator<Item = LogSpan> {
        let between = self.spans.windows(2).map(|pair| LogSpan {
            start: pair[0].end,
            end: pair[1].start,
        });
        let end = self.spans.last().map(|span| span.end);
        let end = end.or_else(|| self.lost.iter().map(|lost| lost.end).min());
        between.chain(end.and_then(|end| self.lost_behind(end)))
    }

    /// What was durable from a position on behind the last run of log, and is lost.
    fn lost_behind(&self, from: Lsn) -> Option<LogSpan> {
        let last = self.spans.last().map_or(Lsn(0), |span| span.end);
        let start = from.max(last);
        let is_there = |lost: &&LostEnd| match lost.limit() {
            Some(limit) => start < limit,
            None => last <= lost.end,
        };
        let first_byte = |lost: &LostEnd| Lsn(start.max(lost.end).0.saturating_add(1));
        let ends = self.lost.iter().filter(is_there);
        let end = ends.map(|lost| lost.durable.unwrap_or_else(|| first_byte(lost)));
        end.max().map(|end| LogSpan { start, end })
    }

    /// Whether an object has lost log at a position or behind it. If nobody knows how much at most,
    /// it goes up to the next run of log.
    pub(crate) fn is_lost_behind(&self, lost: &LostEnd, at: Lsn) -> bool {
        let is_between = |span: &LogSpan| lost.end < span.end && span.start <= at;
        let is_bounded = lost.limit().is_none() && self.spans.iter().any(is_between);
        lost.is_behind(at) && !is_bounded
    }

    /// How far the log goes from a position without a gap. That position itself if it is not there.
    pub fn covered_from(&self, from: Lsn) -> Lsn {
        let holds = |span: &&LogSpan| span.start <= from && from < span.end;
        self.spans.iter().find(holds).map_or(from, |span| span.end)
    }

    /// The first missing part at a position or behind it, if log follows it, or was durable.
    pub fn gap_after(&self, from: Lsn) -> Option<LogSpan> {
        let start = self.covered_from(from);
        let end = match self.spans.iter().find(|span| span.start > start) {
            Some(next) => next.start,
            None => self.lost_behind(start)?.end,
        };
        (start < end).then_some(LogSpan { start, end })
    }

    /// The error for log that is missing from a position on. `goes_on` says whether later log is
    /// needed, whether this timeline has it or another one.
    pub(crate) fn missing(&self, (from, to): (Lsn, Lsn), goes_on: bool) -> RepositoryError {
        let goes_on = goes_on || self.spans.last().is_some_and(|last| last.start > from);
        let is_at = |lost: &&LostEnd| lost.end <= from && self.is_lost_behind(lost, from);
        match self.lost.iter().find(is_at) {
            Some(lost) => RepositoryError::LostEnd {
                lost: LostEnd {
                    end: from,
                    ..lost.clone()
                },
                goes_on,
            },
            None => RepositoryError::Gap {
                timeline: self.timeline,
                from,
                to,
            },
        }
    }
}

/// The log of each timeline, looked at once.
#[derive(Debug)]
pub struct KnownLog<'a> {
    place: &'a LogPlace,
    found: RefCell<BTreeMap<Timeline, Rc<TimelineLog>>>,
}

impl<'a> KnownLog<'a> {
    /// That of a place.
    pub fn of(place: &'a LogPlace) -> Self {
        Self {
            place,
            found: RefCell::default(),
        }
    }

    /// The place.
    pub fn place(&self) -> &'a LogPlace {
        self.place
    }

    /// The log of a timeline.
    pub fn timeline(&self, timeline: Timeline) -> Result<Rc<TimelineLog>, RepositoryError> {
        if let Some(known) = self.found.borrow().get(&timeline) {
            return Ok(Rc::clone(known));
        }
        let found = Rc::new(TimelineLog::of(self.place, timeline)?);
        let known = Rc::clone(&found);
        self.found.borrow_mut().insert(timeline, known);
        Ok(found)
    }
}

/// What an object holds, and what it has lost.
fn span(
    place: &LogPlace,
    timeline: Timeline,
    name: &ObjectName,
) -> Result<(Option<LogSpan>, Option<LostEnd>), RepositoryError> {
    let start = name.start;
    let (end, lost) = match name.end {
        Some(end) => (end, None),
        None => match place.open_object(timeline, name, Reading::Whole) {
            Ok(object) => (Lsn(object.end()), object.lost),
            Err(RepositoryError::LostEnd { lost, .. }) => (start, Some(lost)),
            Err(error) => return Err(error),
        },
    };
    Ok(((start < end).then_some(LogSpan { start, end }), lost))
}

/// Whether a run of log has what an object has lost.
pub(crate) fn has_lost(span: &LogSpan, lost: &LostEnd) -> bool {
    let goes_on = match lost.limit() {
        Some(limit) => limit <= span.end,
        None => lost.end < span.end,
    };
    span.start <= lost.end && goes_on
}

/// Joins what touches or overlaps.
pub(crate) fn merged(mut spans: Vec<LogSpan>) -> Vec<LogSpan> {
    spans.sort_by_key(|span| (span.start, span.end));
    let mut joined: Vec<LogSpan> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(start: u64, end: u64) -> LogSpan {
        LogSpan {
            start: Lsn(start),
            end: Lsn(end),
        }
    }

    proptest! {
        #[test]
        fn joined_runs_hold_what_their_parts_hold(
            parts in proptest::collection::vec((0_u64..100, 1_u64..20), 0..30),
        ) {
            let parts = parts.iter().map(|(start, length)| span(*start, start + length));
            let parts: Vec<_> = parts.collect();
            let joined = merged(parts.clone());
            let holds = |spans: &[LogSpan], at: u64| {
                spans.iter().any(|span| span.start.0 <= at && at < span.end.0)
            };
            for at in 0..130 {
                prop_assert_eq!(holds(&joined, at), holds(&parts, at));
            }
            prop_assert!(joined.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
}
