//! How far the log of a SQLite database takes the sets that lie in a place.
//!
//! A timeline of such a log has every transaction from its first moment to its last, unless objects
//! of it are missing. A set that stands in it leads to each of them behind the set, up to the first
//! that is missing. Between two timelines something may be lost.

use std::ops::Range;

use jiff::Timestamp;
use windlass_engine::media::{LogRecord, SetId};
use windlass_engine::{SetEntry, SetState};
use windlass_postgres::{Lsn, Timeline};
use windlass_repository::{
    CommitReader, Linked, Links, LogPlace, LostEnd, Record, RepositoryError, TimelineLog, link,
};
use windlass_sqlite::{DatabaseKey, KIND, Standing};

/// A set of a SQLite database, as far as a list of sets describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSet {
    /// The set.
    pub id: SetId,
    /// The database.
    pub key: DatabaseKey,
    /// Where its state stands.
    pub standing: Option<Standing>,
    /// When the backup began, as RFC 3339.
    pub started: String,
    /// The same, in nanoseconds since 1970.
    pub begun_nanos: i64,
}

impl DatabaseSet {
    /// A set of a list, if it can be restored and is of a SQLite database.
    pub fn of(set: &SetEntry) -> Option<Self> {
        let about = set.about.as_ref()?;
        let facts = &about.database;
        if facts["kind"].as_str() != Some(KIND) || !matches!(set.state, SetState::Sealed) {
            return None;
        }
        let begun = Timestamp::from_nanosecond(set.begun_nanos.into()).ok();
        Some(Self {
            id: set.set_id,
            key: DatabaseKey::of_facts(facts),
            standing: serde_json::from_value(facts["standing"].clone())
                .ok()
                .flatten(),
            started: begun.map_or_else(String::new, |begun| begun.to_string()),
            begun_nanos: set.begun_nanos,
        })
    }
}

/// Transactions that follow each other, and the sets that lead to them.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitRun {
    /// When it begins, in nanoseconds since 1970.
    pub start_nanos: i64,
    /// Up to when it has every transaction.
    pub end_nanos: i64,
    /// How many transactions of the timeline come before it, and how many before its end.
    numbers: Range<u64>,
    /// Where its first object begins, and where the first one behind it does.
    positions: Range<Lsn>,
    /// The sets that stand in it, oldest first.
    pub sets: Vec<DatabaseSet>,
    /// The first moment to which one of them leads, in nanoseconds since 1970.
    pub first_nanos: Option<i64>,
}

/// Transactions of a timeline that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitGap {
    /// The last moment before, in nanoseconds since 1970; none at the beginning of the timeline.
    pub after_nanos: Option<i64>,
    /// The moment at which the log goes on.
    pub by_nanos: i64,
    /// How many there were.
    pub commits: u64,
}

/// A timeline of a log, and the sets that lead into it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitTimeline {
    /// The timeline.
    pub timeline: Timeline,
    /// Its transactions, oldest first. Between two runs some are missing. None if nothing of it can
    /// be read.
    pub runs: Vec<CommitRun>,
    /// How many objects it has.
    pub objects: u64,
    /// Bytes of the objects.
    pub stored_bytes: u64,
    /// Why it begins, if something before it may be lost.
    pub lost: Option<String>,
    /// What is gone from its end, although it was durable.
    pub lost_end: Option<LostEnd>,
    /// Whether its beginning has expired.
    is_cut: bool,
}

impl CommitTimeline {
    /// How many transactions it has.
    pub fn commits(&self) -> u64 {
        let counts = self.runs.iter();
        counts.map(|run| run.numbers.end - run.numbers.start).sum()
    }

    /// The transactions that are missing between those that it has.
    pub fn gaps(&self) -> impl Iterator<Item = CommitGap> {
        let before = self.runs.iter().map(Some);
        let pairs = std::iter::once(None).chain(before).zip(&self.runs);
        let missing = pairs.map(|(before, run)| CommitGap {
            after_nanos: before.map(|before| before.end_nanos),
            by_nanos: run.start_nanos,
            commits: run.numbers.start - before.map_or(0, |before| before.numbers.end),
        });
        let is_gap = |gap: &CommitGap| match gap.after_nanos {
            None => gap.commits > 0 && !self.is_cut,
            Some(_) => true,
        };
        missing.filter(is_gap)
    }

    /// The sets that stand in it, oldest first.
    pub fn sets(&self) -> impl Iterator<Item = &DatabaseSet> {
        self.runs.iter().flat_map(|run| &run.sets)
    }
}

/// What a place has of the log of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatabaseLog {
    /// The database.
    pub key: DatabaseKey,
    /// Its timelines, oldest first.
    pub timelines: Vec<CommitTimeline>,
    /// The sets that do not stand in it, oldest first: a restore of them gets no further.
    pub outside: Vec<DatabaseSet>,
}

impl DatabaseLog {
    /// Looks at the log of a database. Of each run, only its first and its last object are read,
    /// and those that may have a set.
    pub fn of(place: &LogPlace, sets: &[DatabaseSet]) -> Result<Self, RepositoryError> {
        let mut found = Self::default();
        for timeline in place.timelines()? {
            found
                .timelines
                .extend(found_in(place, timeline, &mut found.key)?);
        }
        let links = Links::of(place)?;
        let key = found.key.clone();
        for set in sets.iter().filter(|set| set.key == key) {
            let linked = set.standing.as_ref().map(|state| links.find(state));
            let linked = linked.transpose()?.flatten();
            match linked.and_then(|at| Some((found.run_of(at)?, at.since_nanos))) {
                Some((run, since)) => {
                    run.sets.push(set.clone());
                    run.first_nanos = Some(run.first_nanos.map_or(since, |one| one.min(since)));
                }
                None => found.outside.push(set.clone()),
            }
        }
        Ok(found)
    }

    fn run_of(&mut self, at: Linked) -> Option<&mut CommitRun> {
        let timelines = self.timelines.iter_mut();
        let of = timelines.filter(|one| one.timeline == at.timeline);
        let mut runs = of.flat_map(|one| &mut one.runs);
        runs.find(|run| run.positions.contains(&at.start))
    }

    /// The same, as far as it says whose log it is.
    pub(crate) fn without_timelines(self) -> Self {
        Self {
            key: self.key,
            ..Self::default()
        }
    }

    /// The sets that were made while the log was kept, and do not stand in it.
    pub fn not_linked(&self) -> impl Iterator<Item = &DatabaseSet> {
        let runs = || self.timelines.iter().flat_map(|one| &one.runs);
        let is_within = move |set: &&DatabaseSet| {
            runs().any(|run| (run.start_nanos..=run.end_nanos).contains(&set.begun_nanos))
        };
        self.outside.iter().filter(is_within)
    }
}

fn found_in(
    place: &LogPlace,
    timeline: Timeline,
    key: &mut DatabaseKey,
) -> Result<Option<CommitTimeline>, RepositoryError> {
    let stored = TimelineLog::of(place, timeline)?;
    let mut reader = CommitReader::new(place, timeline)?;
    let (mut runs, mut lost) = (Vec::new(), None);
    let first = stored.spans.first().map(|span| span.start);
    let bound = place
        .expired()?
        .map(|expired| expired.of_timeline(timeline));
    for objects in reader.runs() {
        reader.seek(objects.start);
        let Some(Record::Stand(first, about)) = reader.next_of_object()? else {
            continue;
        };
        *key = about.key;
        lost = about.lost.or(lost);
        let last = last_of(&mut reader, &objects)?.unwrap_or(first);
        let start_of = |object| reader.start_of(object).unwrap_or(Lsn(u64::MAX));
        runs.push(CommitRun {
            start_nanos: first.by_nanos,
            end_nanos: last.by_nanos,
            numbers: first.number..last.number,
            positions: start_of(objects.start)..start_of(objects.end),
            sets: Vec::new(),
            first_nanos: None,
        });
    }
    let cut = first.zip(bound);
    let is_cut = cut.is_some_and(|(first, bound)| first <= bound);
    // One of which nothing can be read still tells what is lost.
    let is_there = !runs.is_empty() || !stored.lost.is_empty();
    Ok(is_there.then_some(CommitTimeline {
        timeline,
        runs,
        objects: stored.objects,
        stored_bytes: stored.stored_bytes,
        // What came before has expired, so nobody lacks what was lost there.
        lost: lost.filter(|_| !is_cut),
        lost_end: stored.lost.into_iter().next_back(),
        is_cut,
    }))
}

/// The last record of these objects. One that a kill left may have none.
fn last_of(
    reader: &mut CommitReader,
    objects: &Range<usize>,
) -> Result<Option<LogRecord>, RepositoryError> {
    let mut last = None;
    for object in objects.clone().rev() {
        reader.seek(object);
        while let Some(record) = reader.next_of_object()? {
            last = Some(*record.head());
        }
        if last.is_some() {
            break;
        }
    }
    Ok(last)
}

/// The sets of a database, among those of a list, oldest first.
pub(crate) fn sets_of(list: &[&SetEntry], key: &DatabaseKey) -> Vec<DatabaseSet> {
    let sets = list.iter().filter_map(|set| DatabaseSet::of(set));
    sets.filter(|set| set.key == *key).collect()
}

/// Where a set stands in a log, if it says so and the log has it.
pub(crate) fn linked(
    place: &LogPlace,
    set: &DatabaseSet,
) -> Result<Option<Linked>, RepositoryError> {
    match &set.standing {
        Some(standing) => link(place, standing),
        None => Ok(None),
    }
}
