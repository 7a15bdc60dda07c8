//! Finds a set in the log of its database: by where its state stands.
//!
//! - A state that stands at a commit is the one behind this commit in the log.
//! - A state with an empty log stands where the log says so, or in front of the first transaction
//!   of that generation.
//! - A state without any log stands where the file is the same, by its change time.
//!
//! Salts are random, so a commit of another database or another time does not have them.

use windlass_media::LogRecord;
use windlass_postgres::Timeline;
use windlass_sqlite::{LogPoint, Standing};

use super::reader::{CommitReader, Record};
use crate::error::RepositoryError;
use crate::place::LogPlace;

/// Where a state is in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The timeline.
    pub timeline: Timeline,
    /// The object from which on its later transactions are, counted from 0.
    pub object: usize,
    /// How many transactions of the timeline it has.
    pub number: u64,
}

/// Finds a state in a log; the newest timeline counts first.
pub fn link(place: &LogPlace, state: &Standing) -> Result<Option<Linked>, RepositoryError> {
    for timeline in place.timelines()?.into_iter().rev() {
        if let Some(found) = link_in(place, timeline, state)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn link_in(
    place: &LogPlace,
    timeline: Timeline,
    state: &Standing,
) -> Result<Option<Linked>, RepositoryError> {
    let mut reader = CommitReader::new(place, timeline)?;
    let mut starts = Vec::new();
    for object in 0..reader.objects() {
        reader.seek(object);
        starts.push(reader.next_of_object()?.map(|record| record.point()));
    }
    for object in 0..starts.len() {
        let (from, to) = (starts[object], starts.get(object + 1).copied().flatten());
        if !from.is_some_and(|from| may_hold(&from, to.as_ref(), &state.point)) {
            continue;
        }
        reader.seek(object);
        let mut found = None;
        while let Some(record) = reader.next_of_object()? {
            found = number_at(&record, state).or(found);
            if found.is_some() {
                break;
            }
        }
        if let Some(number) = found {
            return Ok(Some(Linked {
                timeline,
                object,
                number,
            }));
        }
    }
    Ok(None)
}

/// Whether a state may stand between two others. Each time a log begins again, its first salt is
/// one more.
fn may_hold(from: &LogPoint, to: Option<&LogPoint>, state: &LogPoint) -> bool {
    let first = |point: &LogPoint| {
        let [one, two, three, four, ..] = point.salts;
        u32::from_be_bytes([one, two, three, four])
    };
    let has_log = |point: &LogPoint| point.salts != [0; 8];
    match to {
        Some(to) if has_log(from) && has_log(to) && has_log(state) => {
            let since = |point: &LogPoint| first(point).wrapping_sub(first(from));
            since(state) <= since(to)
        }
        _ => true,
    }
}

/// How many transactions the state has, if this record shows it.
fn number_at(record: &Record, state: &Standing) -> Option<u64> {
    let (point, head) = (record.point(), record.head());
    let has_log = state.point.salts != [0; 8];
    match record {
        _ if has_log && point == state.point => Some(head.number),
        Record::Stand(_, about) if !has_log => {
            let own = Standing {
                point,
                file: about.standing.file,
            };
            let is_same = own.proves_unchanged_since(state) || state.proves_unchanged_since(&own);
            is_same.then_some(head.number)
        }
        Record::Commit(_) if has_log && is_first_behind(head, state) => Some(head.number - 1),
        _ => None,
    }
}

/// Whether a transaction is the first of the generation whose empty log the state has.
fn is_first_behind(head: &LogRecord, state: &Standing) -> bool {
    state.point.frame == 0 && head.salts == state.point.salts && head.count == head.frame
}
