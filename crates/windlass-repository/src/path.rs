//! The way through the timelines from a set to a target, and how far the log goes on it.
//!
//!   timeline 1 ------+----------->          (goes on elsewhere)
//!                     \
//!   timeline 2         +------+----->
//!                              \
//!   timeline 3                  +------->   the target
//!
//! On each step the next timeline begins in the middle of a segment. Its first segment repeats what
//! the older timeline wrote of that segment, so the older segment is not needed.

use windlass_postgres::{Lsn, RecoveryTimeline, Timeline};

use crate::error::{LostEnd, RepositoryError};
use crate::history::Histories;
use crate::place::LogPlace;
use crate::ranges::KnownLog;

/// The part of the way on one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStep {
    /// The timeline.
    pub timeline: Timeline,
    /// Where it begins to count.
    pub from: Lsn,
    /// Where the next one goes on; `None` on the last.
    pub to: Option<Lsn>,
}

/// The way to a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPath {
    /// Its steps, oldest first.
    pub steps: Vec<LogStep>,
}

impl LogPath {
    /// The way from a position of a timeline to the timeline that a recovery follows.
    pub fn find(
        place: &LogPlace,
        (from, at): (Timeline, Lsn),
        to: RecoveryTimeline,
    ) -> Result<Self, RepositoryError> {
        let histories = Histories::of(place);
        let target = match to {
            RecoveryTimeline::Current => from,
            RecoveryTimeline::Latest => histories.newest_from(from)?,
            RecoveryTimeline::Number(number) => number,
        };
        if target == from {
            let step = LogStep {
                timeline: from,
                from: at,
                to: None,
            };
            return Ok(Self { steps: vec![step] });
        }
        let Some(history) = histories.of_timeline(target)? else {
            return Err(RepositoryError::NoHistory { timeline: target });
        };
        Self::of_history(&history, (from, at), target)
    }

    fn of_history(
        history: &[(Timeline, Lsn)],
        (from, at): (Timeline, Lsn),
        target: Timeline,
    ) -> Result<Self, RepositoryError> {
        let passed = history.iter().skip_while(|(timeline, _)| *timeline != from);
        let mut begin = at;
        let mut steps = Vec::new();
        for (timeline, left_at) in passed {
            if *left_at < begin {
                break;
            }
            steps.push(LogStep {
                timeline: *timeline,
                from: begin,
                to: Some(*left_at),
            });
            begin = *left_at;
        }
        let is_through = history.last().map(|last| last.1) == Some(begin) && !steps.is_empty();
        if !is_through {
            return Err(RepositoryError::Unrelated {
                timeline: target,
                from,
                at,
            });
        }
        steps.push(LogStep {
            timeline: target,
            from: begin,
            to: None,
        });
        Ok(Self { steps })
    }

    /// The timeline at its end.
    pub fn timeline(&self) -> Timeline {
        self.steps.last().map_or(Timeline(1), |step| step.timeline)
    }

    /// The step that has a position.
    pub fn step_at(&self, at: Lsn) -> Option<&LogStep> {
        self.steps
            .iter()
            .find(|step| step.to.is_none_or(|to| at < to))
    }

    /// How far the log goes on this way without a gap, from `from` on. It fails if a gap is on the
    /// way to `up_to`, or to the end of what there is.
    pub fn covered(
        &self,
        known: &KnownLog<'_>,
        from: Lsn,
        (segment_bytes, up_to): (u64, Option<Lsn>),
    ) -> Result<Lsn, RepositoryError> {
        let mut at = from;
        for (number, step) in self.steps.iter().enumerate() {
            let log = known.timeline(step.timeline)?;
            let needed = self.needed(known, (number, step), segment_bytes)?;
            if needed.is_some_and(|needed| needed <= at) {
                continue;
            }
            let bound = up_to.into_iter().chain(needed).min();
            at = log.covered_from(at);
            if let Some(bound) = bound.filter(|bound| *bound > at) {
                let gap = log.gap_after(at);
                let to = gap.map_or(bound, |gap| gap.end);
                return match step.to.is_none() && gap.is_none() {
                    true => Ok(at),
                    false => Err(log.missing((at, to), step.to.is_some())),
                };
            }
            if step.to.is_none() {
                return match log.gap_after(at).filter(|_| up_to.is_none()) {
                    Some(gap) => Err(log.missing((gap.start, gap.end), false)),
                    None => Ok(at),
                };
            }
            if up_to.is_some_and(|up_to| up_to <= at) {
                return Ok(at);
            }
            at = needed.unwrap_or(at);
        }
        Ok(at)
    }

    /// Up to where a step's own log is needed. The first segment of the next timeline repeats the
    /// older one's part of it.
    fn needed(
        &self,
        known: &KnownLog<'_>,
        (number, step): (usize, &LogStep),
        segment_bytes: u64,
    ) -> Result<Option<Lsn>, RepositoryError> {
        let (Some(to), Some(next)) = (step.to, self.steps.get(number + 1)) else {
            return Ok(step.to);
        };
        let repeated = Lsn(to.0 / segment_bytes * segment_bytes);
        let next = known.timeline(next.timeline)?;
        Ok(Some(match next.covered_from(repeated) > repeated {
            true => repeated,
            false => to,
        }))
    }

    /// Where the first object of this way ends that has lost log which is needed from `from` on.
    pub fn lost_from(
        &self,
        known: &KnownLog<'_>,
        (from, segment_bytes): (Lsn, u64),
    ) -> Result<Option<Lsn>, RepositoryError> {
        let (mut first, mut begin) = (None, from);
        for (number, step) in self.steps.iter().enumerate() {
            let to = self.needed(known, (number, step), segment_bytes)?;
            if to.is_some_and(|to| to <= begin) {
                continue;
            }
            let log = known.timeline(step.timeline)?;
            let is_needed = |lost: &&LostEnd| {
                to.is_none_or(|to| lost.end < to) && log.is_lost_behind(lost, begin)
            };
            let ends = log.lost.iter().filter(is_needed).map(|lost| lost.end);
            first = first.into_iter().chain(ends).min();
            begin = to.unwrap_or(begin);
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_passes_through_each_timeline_and_no_other() {
        let history = [(Timeline(1), Lsn(100)), (Timeline(2), Lsn(200))];
        let of = |from, at| LogPath::of_history(&history, (Timeline(from), Lsn(at)), Timeline(4));
        let step = |timeline, from, to: Option<u64>| LogStep {
            timeline: Timeline(timeline),
            from: Lsn(from),
            to: to.map(Lsn),
        };
        let whole = of(1, 50).unwrap();
        let expected = [
            step(1, 50, Some(100)),
            step(2, 100, Some(200)),
            step(4, 200, None),
        ];
        assert_eq!(whole.steps, expected);
        assert_eq!(whole.step_at(Lsn(99)), Some(&expected[0]));
        assert_eq!(whole.step_at(Lsn(100)), Some(&expected[1]));
        assert_eq!(whole.timeline(), Timeline(4));
        let second = of(2, 150).unwrap();
        assert_eq!(second.steps, [step(2, 150, Some(200)), step(4, 200, None)]);
        for (from, at) in [(1, 101), (2, 201), (3, 0)] {
            assert!(of(from, at).is_err(), "{from} {at}");
        }
    }
}
