//! The logs of places: which database's, from where to where, and what is missing between.

use std::path::{Path, PathBuf};

use windlass_engine::SetEntry;
use windlass_repository::{LogPlace, RepositoryError, TimelineLog, log_databases, log_systems};

use super::BaseFaults;
use crate::commits::{DatabaseLog, DatabaseSet};
use crate::reach::{self, ClusterSet, Restorable};
use crate::stored::log_at;

/// The log of a cluster in a place.
#[derive(Debug)]
pub struct LogInfo {
    /// The place.
    pub place: PathBuf,
    /// The cluster.
    pub system: u64,
    /// Its timelines, the oldest first.
    pub timelines: Vec<TimelineLog>,
    /// What people call the cluster, if a set says it.
    pub name: String,
    /// The moments to which the sets there and this log lead.
    pub restorable: Vec<Restorable>,
    /// Why it cannot be looked at.
    pub fault: Option<RepositoryError>,
}

impl LogInfo {
    /// Whether a growing object has lost log that was durable, of a timeline that goes on. On one
    /// that was left before, that is a gap.
    pub fn has_lost(&self) -> bool {
        let mut lost = self.timelines.iter().flat_map(|one| &one.lost);
        lost.any(|lost| !lost.is_left)
    }
}

/// The log of a SQLite database in a place.
#[derive(Debug)]
pub struct DatabaseLogInfo {
    /// The place.
    pub place: PathBuf,
    /// What is there.
    pub log: DatabaseLog,
    /// Why it cannot be looked at.
    pub fault: Option<RepositoryError>,
}

/// The logs of SQLite databases in these places.
pub(crate) fn databases_of(
    places: &[PathBuf],
    sets: &[SetEntry],
    faults: &BaseFaults,
) -> Vec<DatabaseLogInfo> {
    let sound = sets.iter().filter(|set| !faults.contains_key(&set.set_id));
    let sets: Vec<_> = sound.filter_map(DatabaseSet::of).collect();
    let mut found = Vec::new();
    for place in places {
        let at = log_at(place);
        // Whether the place can be read was seen when its sets were listed.
        for database in log_databases(&at).into_iter().flatten() {
            let log = LogPlace::of_database(&at, database);
            let (log, fault) = match DatabaseLog::of(&log, &sets) {
                Ok(log) => (log, None),
                Err(fault) => (DatabaseLog::default(), Some(fault)),
            };
            found.push(DatabaseLogInfo {
                place: place.clone(),
                log,
                fault,
            });
        }
    }
    found
}

/// The logs of clusters in these places.
pub(crate) fn logs_of(places: &[PathBuf], sets: &[SetEntry], faults: &BaseFaults) -> Vec<LogInfo> {
    let sound = sets.iter().filter(|set| !faults.contains_key(&set.set_id));
    let sets: Vec<_> = sound.filter_map(ClusterSet::of).collect();
    let mut found = Vec::new();
    for place in places {
        // Whether the place can be read was seen when its sets were listed.
        for system in log_systems(&log_at(place)).into_iter().flatten() {
            found.push(log_of(place, system, &sets));
        }
    }
    found
}

fn log_of(place: &Path, system: u64, sets: &[ClusterSet]) -> LogInfo {
    let sets = sets.iter().filter(|set| set.system == system);
    let sets: Vec<_> = sets.cloned().collect();
    let log = LogPlace::new(&log_at(place), system);
    let timelines = log.timelines().and_then(|timelines| {
        let each = timelines.into_iter().map(|one| TimelineLog::of(&log, one));
        each.collect::<Result<Vec<_>, _>>()
    });
    let (timelines, mut fault) = match timelines {
        Ok(timelines) => (timelines, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let restorable = match reach::restorable(&log, &sets) {
        Ok(found) => found,
        Err(error) => {
            fault = fault.or(Some(error));
            Vec::new()
        }
    };
    LogInfo {
        place: place.to_owned(),
        system,
        name: sets.last().map_or_else(String::new, |set| set.name.clone()),
        timelines,
        restorable,
        fault,
    }
}
