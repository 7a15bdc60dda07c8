//! How far the archived log of a place takes the sets that lie there.

use std::collections::BTreeSet;

use jiff::Timestamp;
use windlass_engine::media::SetId;
use windlass_engine::{SetEntry, SetState};
use windlass_postgres::{KIND, Lsn, RecoveryTimeline, Timeline, is_from_past, last_transaction};
use windlass_repository::{KnownLog, LogPath, LogPlace, LogReader, RepositoryError};

/// How many segments at the end of a log are searched for the end of a transaction.
const LOOKED_AT_MAX: u64 = 8;

/// A set of a cluster, as far as a list of sets describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSet {
    /// The set.
    pub id: SetId,
    /// What people call the cluster.
    pub name: String,
    /// The cluster.
    pub system: u64,
    /// The timeline on which the backup began.
    pub timeline: Timeline,
    /// Where its log begins.
    pub start: Lsn,
    /// From here on it is consistent.
    pub stop: Lsn,
    /// When that was, as RFC 3339.
    pub stop_time: String,
    /// Which restores its cluster comes from, as the set has them.
    pub restored: String,
    /// Whether it was taken from a standby.
    pub standby: bool,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl ClusterSet {
    /// A set of a list, if it can be restored and is of a cluster.
    pub fn of(set: &SetEntry) -> Option<Self> {
        let about = set.about.as_ref()?;
        let facts = &about.database;
        let word = |key: &str| facts[key].as_str();
        if word("kind") != Some(KIND) || !matches!(set.state, SetState::Sealed) {
            return None;
        }
        let number = |key: &str| facts[key].as_u64();
        let Ok(timeline) = u32::try_from(number("timeline")?) else {
            return None;
        };
        let Ok(system) = word("system_identifier")?.parse() else {
            return None;
        };
        Some(Self {
            id: set.set_id,
            name: word("name").unwrap_or_default().to_owned(),
            system,
            timeline: Timeline(timeline),
            start: Lsn::parse(word("start_lsn")?)?,
            stop: Lsn::parse(word("stop_lsn")?)?,
            stop_time: word("stop_time")?.to_owned(),
            restored: word("restored").unwrap_or_default().to_owned(),
            standby: facts["standby"].as_bool()?,
            segment_bytes: number("wal_segment_bytes").filter(|bytes| *bytes > 0)?,
        })
    }
}

/// How far a set gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The way through the timelines.
    pub path: LogPath,
    /// The log has everything up to here.
    pub end: Lsn,
    /// What is missing there, if the log goes on later, or did: its timeline, and where it goes on.
    pub gap: Option<(Timeline, Lsn)>,
}

impl Reach {
    /// How far a set gets on the way to a timeline, or to `up_to` on it. It fails if that timeline
    /// does not pass through the end of the set.
    pub fn of(
        log: &LogPlace,
        set: &ClusterSet,
        (to, up_to): (RecoveryTimeline, Option<Lsn>),
    ) -> Result<Self, RepositoryError> {
        Self::of_known(&KnownLog::of(log), set, (to, up_to))
    }

    fn of_known(
        log: &KnownLog<'_>,
        set: &ClusterSet,
        (to, up_to): (RecoveryTimeline, Option<Lsn>),
    ) -> Result<Self, RepositoryError> {
        let path = LogPath::find(log.place(), (set.timeline, set.start), to)?;
        let left = path.step_at(set.stop).and_then(|step| step.to);
        let from = needed_from((set.stop, set.standby), left, set.segment_bytes);
        let covered = path.covered(log, from, (set.segment_bytes, up_to));
        let (end, gap) = match covered {
            Ok(end) => (end, None),
            Err(RepositoryError::Gap { from, timeline, to }) => (from, Some((timeline, to))),
            Err(RepositoryError::LostEnd { lost, .. }) => {
                (lost.end, Some((lost.timeline, lost.up_to())))
            }
            Err(error) => return Err(error),
        };
        let end = if end <= from { set.stop } else { end };
        Ok(Self { path, end, gap })
    }
}

/// From where on the log must come from a place, for a set that ends at `stop`. A primary ends the
/// segment with the backup, so the set has all of it, unless the way leaves it before its end.
pub fn needed_from(
    (stop, is_of_standby): (Lsn, bool),
    left: Option<Lsn>,
    segment_bytes: u64,
) -> Lsn {
    let segment_end = Lsn(stop.0.saturating_sub(1) / segment_bytes * segment_bytes + segment_bytes);
    match is_of_standby || left.is_some_and(|to| to < segment_end) {
        true => stop,
        false => segment_end,
    }
}

/// Log that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The timeline.
    pub timeline: Timeline,
    /// The first missing byte.
    pub start: Lsn,
    /// Where the log goes on.
    pub end: Lsn,
}

/// What keeps sets from the log behind it; without sets every gap. A gap before the oldest set
/// harms nobody, and log that has expired is no gap.
pub fn gaps(log: &LogPlace, sets: &[ClusterSet]) -> Result<Vec<Missing>, RepositoryError> {
    let known = KnownLog::of(log);
    let expired = log.expired()?;
    let mut found = BTreeSet::new();
    for timeline in log.timelines()? {
        if sets.is_empty() {
            let of_timeline = known.timeline(timeline)?;
            found.extend(of_timeline.gaps().map(|gap| Missing {
                timeline,
                start: gap.start,
                end: gap.end,
            }));
        }
        for set in sets {
            let reach = Reach::of_known(&known, set, (RecoveryTimeline::Number(timeline), None));
            let Some(reach) = possible(reach)? else {
                continue;
            };
            found.extend(reach.gap.map(|(timeline, end)| Missing {
                timeline,
                start: reach.end,
                end,
            }));
        }
    }
    let unexpired = found.into_iter().filter_map(|gap| {
        let bound = expired.map_or(gap.start, |expired| expired.of_timeline(gap.timeline));
        let start = gap.start.max(bound);
        (start < gap.end).then_some(Missing { start, ..gap })
    });
    Ok(unexpired.collect())
}

/// Moments to which a cluster can be restored: from the end of a set to where the log ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The sets in it, oldest first. The window begins with the first one.
    pub sets: Vec<ClusterSet>,
    /// Where it ends.
    pub end: Lsn,
    /// When the last transaction in its log ended, if there is one.
    pub last: Option<Timestamp>,
}

/// The windows of a timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Restorable {
    /// The timeline.
    pub timeline: Timeline,
    /// Its windows, oldest first. What lies between two of them cannot be restored.
    pub windows: Vec<Window>,
}

/// To which moments the sets and the log of a cluster lead, for each timeline.
pub fn restorable(log: &LogPlace, sets: &[ClusterSet]) -> Result<Vec<Restorable>, RepositoryError> {
    let known = KnownLog::of(log);
    let timelines = log.timelines()?.into_iter();
    let timelines: BTreeSet<_> = timelines
        .chain(sets.iter().map(|set| set.timeline))
        .collect();
    let mut found = Vec::new();
    for timeline in timelines {
        let mut reaches = Vec::new();
        for set in sets {
            let to = (RecoveryTimeline::Number(timeline), None);
            let reach = possible(Reach::of_known(&known, set, to))?;
            reaches.extend(reach.map(|reach| (set, reach)));
        }
        reaches.sort_by_key(|(set, _)| set.stop);
        let windows = windows(log, &reaches)?;
        if !windows.is_empty() {
            found.push(Restorable { timeline, windows });
        }
    }
    Ok(found)
}

/// Joins what overlaps, unless the sets are of two servers: one that was restored and its source
/// have the same identity, and may have the same timeline.
fn windows(
    log: &LogPlace,
    reaches: &[(&ClusterSet, Reach)],
) -> Result<Vec<Window>, RepositoryError> {
    let mut joined: Vec<(Vec<ClusterSet>, &Reach)> = Vec::new();
    for (set, reach) in reaches {
        let fits = |(sets, last): &&mut (Vec<ClusterSet>, &Reach)| {
            set.stop <= last.end && sets.iter().all(|earlier| is_past_of(earlier, set))
        };
        match joined.iter_mut().rev().find(fits) {
            Some((sets, last)) => {
                sets.push((*set).clone());
                if reach.end > last.end {
                    *last = reach;
                }
            }
            None => joined.push((vec![(*set).clone()], reach)),
        }
    }
    let window = |(sets, reach): (Vec<ClusterSet>, &Reach)| {
        let last = last_moment(log, &sets, reach)?;
        let end = reach.end;
        Ok(Window { sets, end, last })
    };
    joined.into_iter().map(window).collect()
}

/// Whether the server of a set has been what an earlier set has.
fn is_past_of(earlier: &ClusterSet, set: &ClusterSet) -> bool {
    is_from_past((&earlier.restored, earlier.stop), &set.restored)
}

/// When the last transaction of a window ended. Only the end of its log is read.
fn last_moment(
    log: &LogPlace,
    sets: &[ClusterSet],
    reach: &Reach,
) -> Result<Option<Timestamp>, RepositoryError> {
    let Some(last) = sets.last().filter(|set| set.stop < reach.end) else {
        return Ok(None);
    };
    let bytes = last.segment_bytes;
    let to = reach.end.0.div_ceil(bytes);
    let from = (last.stop.0 / bytes).max(to.saturating_sub(LOOKED_AT_MAX));
    let mut reader = LogReader::new(log, &reach.path, bytes);
    Ok(last_transaction(&mut reader, bytes, (from, to))?)
}

/// A timeline that a set does not lead to is no failure.
fn possible(reach: Result<Reach, RepositoryError>) -> Result<Option<Reach>, RepositoryError> {
    match reach {
        Err(RepositoryError::Unrelated { .. } | RepositoryError::NoHistory { .. }) => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use windlass_repository::{LogStep, Place};

    use super::*;

    fn set(number: u8, stop: u64, restored: &str) -> ClusterSet {
        ClusterSet {
            id: SetId([number; 16]),
            name: "main".to_owned(),
            system: 7,
            timeline: Timeline(1),
            start: Lsn(stop - 10),
            stop: Lsn(stop),
            stop_time: String::new(),
            restored: restored.to_owned(),
            standby: false,
            segment_bytes: 1 << 20,
        }
    }

    /// Two servers write on one timeline: a source, and one that was restored from its first set.
    #[test]
    fn sets_of_two_servers_are_in_no_window_together() {
        let restored = format!("{}@0/64", "1".repeat(32));
        let sets = [
            set(1, 0x64, ""),
            set(2, 0xc8, ""),
            set(3, 0x96, &restored),
            set(4, 0x12c, ""),
            set(5, 0x12c, &restored),
        ];
        let place = LogPlace::new(&Place::directory("/nonexistent"), 7);
        let step = LogStep {
            timeline: Timeline(1),
            from: Lsn(0),
            to: None,
        };
        let reach = Reach {
            path: LogPath { steps: vec![step] },
            end: Lsn(0x12c),
            gap: None,
        };
        let mut reaches: Vec<_> = sets.iter().map(|set| (set, reach.clone())).collect();
        reaches.sort_by_key(|(set, _)| set.stop);
        let found = windows(&place, &reaches).unwrap();
        let ids = |window: &Window| {
            window
                .sets
                .iter()
                .map(|set| set.id.0[0])
                .collect::<Vec<_>>()
        };
        let found: Vec<_> = found.iter().map(ids).collect();
        assert_eq!(found, [vec![1, 3, 5], vec![2, 4]]);
    }
}
