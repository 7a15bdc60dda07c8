//! Finds a set in the log of its database: by where its state stands.
//!
//! - A state that stands at a commit is the one behind this commit in the log. Salts are random, so
//!   a commit of another database or another time does not have them.
//! - A state with an empty log is the file alone. It stands in front of the first transaction of
//!   its generation, if the log has that, or at a stand with an empty log and the same file.
//!
//! A file is the same if its change time proves it. Right after a write, and on some file systems,
//! that proves nothing, because a change within one step of the clock does not show in it. Then the
//! time decides which of the stands with such a file it is: the one whose transactions the capture
//! had seen a step before the set's state was pinned, if it saw the next one only afterwards. If
//! the state was pinned within that step, it is the one between two stands with the same
//! transactions. Where clocks were set, the change time still has to be the same. A state with an
//! empty log is looked for only in objects of its time. A power cut may take back a change time, so
//! the file of a state is not that of a stand if the system was started in between.

use std::sync::atomic::{AtomicUsize, Ordering};

use windlass_media::LogRecord;
use windlass_postgres::{Lsn, Timeline};
use windlass_sqlite::{LogPoint, Standing};

use super::reader::{CommitReader, Record};
use super::stand::point_of;
use crate::error::RepositoryError;
use crate::place::{LogPlace, ObjectName};

/// More often than this no log begins again while an object of it is written.
const RESTARTS_MAX: u32 = 1 << 16;

/// How many objects of a bucket are read at once: each waits for its requests most of the time, and
/// takes at most 4 MiB of memory (an object that is not long, and a frame as it is stored, in clear
/// and decoded).
const READS_MAX: usize = 16;

/// Where a state is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The timeline.
    pub timeline: Timeline,
    /// The object from which on its later transactions are, counted from 0 in the list in which it
    /// was found.
    object: usize,
    /// Where that object begins. In a bucket the list may be another one by now, and this position
    /// may lie in an object that took its place.
    pub start: Lsn,
    /// How many transactions of the timeline it has.
    pub number: u64,
    /// When the capture had seen the last of these, in nanoseconds since 1970: the first moment to
    /// which it can be taken.
    pub since_nanos: i64,
}

/// Finds a state in a log; the newest timeline counts first.
pub fn link(place: &LogPlace, state: &Standing) -> Result<Option<Linked>, RepositoryError> {
    Links::of(place)?.find(state)
}

/// A log in which states can be found: the first record of each object.
pub struct Links {
    place: LogPlace,
    timelines: Vec<Starts>,
}

/// A timeline, its objects, and the first record of each.
struct Starts {
    timeline: Timeline,
    objects: Vec<ObjectName>,
    records: Vec<Option<LogRecord>>,
}

impl Links {
    /// Reads the beginning of each object, in a bucket of many at once.
    pub fn of(place: &LogPlace) -> Result<Self, RepositoryError> {
        let mut timelines = Vec::new();
        for timeline in place.timelines()? {
            let objects = CommitReader::new(place, timeline)?.into_objects();
            timelines.push(Starts {
                records: first_records(place, timeline, &objects)?,
                timeline,
                objects,
            });
        }
        let place = place.clone();
        Ok(Self { place, timelines })
    }

    /// Finds a state; the newest timeline counts first.
    pub fn find(&self, state: &Standing) -> Result<Option<Linked>, RepositoryError> {
        for starts in self.timelines.iter().rev() {
            let found = self.find_in(starts, state)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn find_in(&self, of: &Starts, state: &Standing) -> Result<Option<Linked>, RepositoryError> {
        let starts = &of.records;
        let mut reader = CommitReader::over(&self.place, of.timeline, of.objects.clone());
        let mut search = Search::new(of.timeline, state);
        for object in 0..starts.len() {
            let next = starts.get(object + 1).copied().flatten();
            let previous = object.checked_sub(1).and_then(|before| starts[before]);
            let may_hold = match starts[object] {
                Some(start) if state.has_empty_log() => {
                    may_hold_at((previous, start, next), state.seen_nanos())
                }
                Some(start) => may_hold(&start, next.as_ref(), &state.point),
                None => false,
            };
            if !may_hold {
                continue;
            }
            reader.seek(object);
            let start = reader.start_of(object).unwrap_or_default();
            while let Some(record) = reader.next_of_object()? {
                if search.ends_at(&record, (object, start)) {
                    return Ok(search.found);
                }
            }
        }
        Ok(search.found)
    }
}

/// The first record of each object. If one cannot be read, the first of those is the error.
fn first_records(
    place: &LogPlace,
    timeline: Timeline,
    objects: &[ObjectName],
) -> Result<Vec<Option<LogRecord>>, RepositoryError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut read = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(object) = objects.get(number) else {
                return read;
            };
            let record = first_record(place, timeline, object);
            if record.is_err() {
                // All before it are being read. Nobody needs those behind it.
                next.store(objects.len(), Ordering::Relaxed);
            }
            read.push((number, record));
        }
    };
    let threads = match place.at().is_directory() {
        true => 1,
        false => READS_MAX.min(objects.len()),
    };
    let mut read = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut read = work();
        for other in others {
            let mut of_other = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.append(&mut of_other);
        }
        read
    });
    read.sort_unstable_by_key(|(number, _)| *number);
    read.into_iter().map(|(_, record)| record).collect()
}

fn first_record(
    place: &LogPlace,
    timeline: Timeline,
    object: &ObjectName,
) -> Result<Option<LogRecord>, RepositoryError> {
    let reader = CommitReader::over(place, timeline, vec![object.clone()]);
    let record = reader.reading_ends().next_of_object()?;
    Ok(record.map(|record| *record.head()))
}

/// The search for a state, record after record.
struct Search<'a> {
    timeline: Timeline,
    state: &'a Standing,
    found: Option<Linked>,
    /// Where the last record is: which object, after how many transactions, and when they were
    /// first seen.
    last: Option<Linked>,
}

impl<'a> Search<'a> {
    fn new(timeline: Timeline, state: &'a Standing) -> Self {
        Self {
            timeline,
            state,
            found: None,
            last: None,
        }
    }

    /// Looks at the next record. True if the search is over.
    fn ends_at(&mut self, record: &Record, (object, start): (usize, Lsn)) -> bool {
        let head = record.head();
        let before = self.last;
        let here = Linked {
            timeline: self.timeline,
            object,
            start,
            number: head.number,
            since_nanos: head.by_nanos,
        };
        let is_same = |one: &Linked| (one.object, one.number) == (object, head.number);
        let here = before.filter(is_same).unwrap_or(here);
        self.last = Some(here);
        let seen = self.state.seen_nanos();
        let point = point_of(head);
        match record {
            _ if self.state.point.salts != [0; 8] && point == self.state.point => {
                self.found = Some(here);
                true
            }
            Record::Stand(_, about) => {
                let file = about.standing.file;
                let own = Standing { point, file };
                let is_since = about.booted_nanos.is_none_or(|booted| booted <= seen);
                let is_proven = is_since && own.is_same_file_as(self.state);
                let since = here.since_nanos;
                let is_within = since <= seen && seen <= head.by_nanos;
                let was_seen = is_within || since.saturating_add(self.state.step_nanos()) <= seen;
                if is_proven || is_since && was_seen && own.looks_like(self.state) {
                    self.found = Some(here);
                }
                is_proven
            }
            Record::Commit(_) if is_first_behind(head, self.state) => {
                self.found = before.filter(|before| before.object == object);
                self.found.is_some()
            }
            Record::Commit(_) if head.by_nanos < seen => {
                // The state is a later one, and this one only looks the same.
                self.found = None;
                false
            }
            Record::Commit(_) => self.found.is_some(),
        }
    }
}

/// Whether an object may hold a state by its salts. Mostly the first salt is one more each time a
/// log begins again. If it is much more, a connection drew it anew.
fn may_hold(from: &LogRecord, to: Option<&LogRecord>, state: &LogPoint) -> bool {
    let first = |salts: &[u8; 8]| {
        let [one, two, three, four, ..] = *salts;
        u32::from_be_bytes([one, two, three, four])
    };
    let since = |salts: &[u8; 8]| first(salts).wrapping_sub(first(&from.salts));
    match to {
        Some(to) if from.frame > 0 && to.frame > 0 => {
            since(&state.salts) <= since(&to.salts) || since(&to.salts) > RESTARTS_MAX
        }
        _ => true,
    }
}

/// Whether an object may hold a state by its time, or the one before it may: where that ends, the
/// next one may say more.
fn may_hold_at(
    (previous, start, next): (Option<LogRecord>, LogRecord, Option<LogRecord>),
    seen_nanos: i64,
) -> bool {
    let begins_early = |record: LogRecord| record.by_nanos <= seen_nanos;
    let ends_late = next.is_none_or(|next| next.by_nanos >= seen_nanos);
    match begins_early(start) {
        true => ends_late,
        false => previous.is_none_or(begins_early),
    }
}

/// Whether a transaction is the first of the generation whose empty log the state has.
fn is_first_behind(head: &LogRecord, state: &Standing) -> bool {
    let salts = state.point.salts;
    salts != [0; 8] && state.has_empty_log() && head.salts == salts && head.count == head.frame
}
