//! Where the log of a set is: where somebody says, or else beside one of its devices.
//!
//!   places of the devices --> which of them have log of the database? --> several: the one that
//!   leads furthest from the set, and has no other bytes where the set has log
//!
//! Invariants
//! - A place that cannot be read is a failure, and never a place without log.
//! - Where a device is lost, its place may be gone, and the log with it. If no other place has the
//!   log, that is said: no restore ends with its set there without a word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windlass_engine::OpenSet;
use windlass_postgres::DatabaseFacts;
use windlass_repository::{CommitReader, LogPlace, RepositoryError, link, log_databases};
use windlass_sqlite::Standing;

use super::error::RecoveryError;
use super::own;
use super::request::RecoveryRequest;
use super::way::Way;
use crate::error::OperationError;
use crate::places::LocatedSet;
use crate::stored::{absolute, is_place, log_at};

/// Where the log of a set of a cluster is.
pub(super) fn of_cluster(
    of: (&LocatedSet, &OpenSet),
    facts: &DatabaseFacts,
    request: &RecoveryRequest,
) -> Result<PathBuf, OperationError> {
    let system = facts.system_identifier.parse().ok();
    let log_of = |place: &Path| LogPlace::open(&log_at(place), system);
    let has = |place: &Path| match log_of(place) {
        Ok(_) => Ok(true),
        Err(RepositoryError::NoLog { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    let leads = |place: &Path| -> Result<_, OperationError> {
        let log = log_of(place)?;
        let way = match Way::new(facts, &log, request) {
            Err(OperationError::Repository(
                RepositoryError::Unrelated { .. } | RepositoryError::NoHistory { .. },
            )) => return Ok(None),
            way => way?,
        };
        // Another server of this cluster wrote on from there, whatever its positions say.
        match own::check(of.0.open()?, facts, &mut way.reader()) {
            Err(OperationError::Recovery(RecoveryError::OtherLog { .. })) => return Ok(None),
            checked => checked?,
        }
        let end = match way.covered(None) {
            Ok(end) => end,
            Err(gap) => match gap.missing_from() {
                Some(from) => from,
                None => return Err(gap.into()),
            },
        };
        Ok(Some((way.path.timeline(), end)))
    };
    choose(of, request, has, leads)
}

/// Where the log of a set of a SQLite database is. The database comes with its number.
pub(super) fn of_database(
    of: (&LocatedSet, &OpenSet),
    (standing, database): (&Standing, u64),
    request: &RecoveryRequest,
) -> Result<PathBuf, OperationError> {
    let log_of = |place: &Path| LogPlace::of_database(&log_at(place), database);
    let has = |place: &Path| -> Result<_, RepositoryError> {
        // Fails if the place is not there.
        log_databases(&log_at(place))?;
        Ok(!log_of(place).timelines()?.is_empty())
    };
    let leads = |place: &Path| -> Result<_, OperationError> {
        let log = log_of(place);
        let Some(from) = link(&log, standing)? else {
            return Ok(None);
        };
        let mut reader = CommitReader::new(&log, from.timeline)?;
        reader.seek_to(from.start)?;
        let mut last = from.since_nanos;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => last = last.max(record.head().by_nanos),
                Ok(None) => return Ok(Some(last)),
                Err(error) if error.missing_from().is_some() => return Ok(Some(last)),
                Err(error) => return Err(error.into()),
            }
        }
    };
    choose(of, request, has, leads)
}

/// The place that has log and leads furthest. If none has log, the place of the first device.
fn choose<R: Ord>(
    (found, set): (&LocatedSet, &OpenSet),
    request: &RecoveryRequest,
    has: impl Fn(&Path) -> Result<bool, RepositoryError>,
    leads: impl Fn(&Path) -> Result<R, OperationError>,
) -> Result<PathBuf, OperationError> {
    if let Some(log) = &request.log {
        return Ok(absolute(log).unwrap_or_else(|_| log.clone()));
    }
    let places = Places::of(found, set);
    let there = &places.there;
    let first = there.first().cloned().unwrap_or_else(|| PathBuf::from("."));
    if there.len() == 1 && places.lost.is_empty() {
        return Ok(first);
    }
    let mut with_log = Vec::new();
    for place in there {
        if has(place)? {
            with_log.push(place);
        }
    }
    if with_log.is_empty() {
        let mut away = None;
        for place in &places.lost {
            match has(place) {
                Ok(true) => with_log.push(place),
                Ok(false) => {}
                Err(_) => away = away.or(Some(place)),
            }
        }
        if let (Some(place), true) = (away, with_log.is_empty()) {
            let place = place.clone();
            return Err(RecoveryError::LogAway { place }.into());
        }
    }
    if with_log.len() < 2 {
        return Ok(with_log.pop().cloned().unwrap_or(first));
    }
    let mut best: Option<(R, &PathBuf)> = None;
    for place in with_log {
        let end = leads(place)?;
        if best.as_ref().is_none_or(|(other, _)| *other < end) {
            best = Some((end, place));
        }
    }
    Ok(best.map_or(first, |(_, place)| place.clone()))
}

/// Where log may be, each place once.
struct Places {
    /// Beside the devices of the set.
    there: Vec<PathBuf>,
    /// If devices are lost: where they were written, and may be now.
    lost: Vec<PathBuf>,
}

impl Places {
    fn of(found: &LocatedSet, set: &OpenSet) -> Self {
        let own = set.locations();
        let mut lost = set.devices();
        lost.retain(|device| !own.contains(device));
        let named = found.places.iter().filter(|place| is_place(place));
        let named = named.filter(|_| !lost.is_empty());
        let named = named.map(|place| rooted(place));
        let mut seen = BTreeSet::new();
        let mut is_new = |place: &PathBuf| seen.insert(place.clone());
        let beside = |device: &PathBuf| rooted(device.parent().unwrap_or(Path::new(".")));
        let there = own.iter().map(beside).filter(&mut is_new).collect();
        let lost = named.chain(lost.iter().map(beside)).filter(&mut is_new);
        Self {
            there,
            lost: lost.collect(),
        }
    }
}

/// A place, whatever the working directory is.
fn rooted(place: &Path) -> PathBuf {
    let place = match place.as_os_str().is_empty() {
        true => Path::new("."),
        false => place,
    };
    absolute(place).unwrap_or_else(|_| place.to_owned())
}
