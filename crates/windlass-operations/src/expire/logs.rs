//! Which log of a database goes: what lies before everything that the log of a set that stays
//! needs.
//!
//! A set needs no log to be consistent: it has its own. So the log counts for sets from which each
//! later moment is to be reached, and goes before the oldest of them. A cluster's positions grow
//! along every way from a set, over all timelines: an object that ends before a set begins is on
//! none of its ways.
//!
//! In a bucket sets are hidden before they are removed. As long as they are, their log stays, too.

use std::path::PathBuf;

use windlass_engine::SetEntry;
use windlass_engine::media::SetId;
use windlass_postgres::{Lsn, RecoveryTimeline};
use windlass_repository::retention::KeptSets;
use windlass_repository::{
    Expired, ExpiredLog, LogPath, LogPlace, RepositoryError, database_number, log_databases,
    log_systems,
};

use crate::commits::{DatabaseSet, linked};
use crate::error::OperationError;
use crate::places::Identity;
use crate::reach::ClusterSet;
use crate::stored::log_at;

/// Log that goes.
#[derive(Clone, Debug)]
pub struct LogExpiry {
    /// The log.
    pub log: LogPlace,
    /// Up to where.
    pub up_to: Expired,
    /// The objects.
    pub gone: ExpiredLog,
}

/// The logs of a database, with what its sets have to do with them.
pub(super) enum DatabaseLogs {
    /// Those of a cluster.
    Cluster(Vec<ClusterLog>),
    /// Those of a SQLite database.
    Database(Vec<LogPlace>),
}

/// A log of a cluster.
pub(super) struct ClusterLog {
    log: LogPlace,
    /// The newest set that leads to its newest timeline.
    newest: Option<SetId>,
}

impl DatabaseLogs {
    /// Those in these places.
    pub(super) fn of(
        places: &[PathBuf],
        of: &Identity,
        sets: &[&SetEntry],
    ) -> Result<Self, OperationError> {
        if of.is_cluster() {
            let sets: Vec<_> = sets.iter().filter_map(|set| ClusterSet::of(set)).collect();
            let system = of.key().parse().ok();
            let mut logs = Vec::new();
            for place in places {
                let systems = log_systems(&log_at(place))?;
                if let Some(system) = system.filter(|system| systems.contains(system)) {
                    let log = LogPlace::new(&log_at(place), system);
                    let newest = newest_of(&log, &sets)?;
                    logs.push(ClusterLog { log, newest });
                }
            }
            return Ok(Self::Cluster(logs));
        }
        let number = database_number(of.file());
        let mut logs = Vec::new();
        for place in places {
            if log_databases(&log_at(place))?.contains(&number) {
                logs.push(LogPlace::of_database(&log_at(place), number));
            }
        }
        Ok(Self::Database(logs))
    }

    /// Whether without this set the newest timeline could not be reached.
    pub(super) fn leads_to_newest(&self, set: SetId) -> bool {
        match self {
            Self::Cluster(logs) => logs.iter().any(|log| log.newest == Some(set)),
            Self::Database(_) => false,
        }
    }

    /// What goes of them if these sets stay. Those that linger go later: somebody may read one of
    /// them now, with log that is still there.
    pub(super) fn expiring(
        &self,
        sets: &[&SetEntry],
        kept: &KeptSets,
        lingering: &[&SetEntry],
    ) -> Result<Vec<LogExpiry>, OperationError> {
        let keeps_log = |set: &&&SetEntry| {
            let rules = kept.get(&set.set_id);
            rules.is_some_and(|rules| rules.iter().any(|rule| rule.keeps_log()))
        };
        let sets: Vec<_> = sets.iter().filter(keeps_log).copied().collect();
        let bounds: Vec<_> = match self {
            Self::Cluster(logs) => {
                let mut bounds = Vec::new();
                for one in logs.iter().filter(|one| one.newest.is_some()) {
                    let reading = one.log.read_from()?;
                    let gone = one.log.expired()?.map_or(Lsn(0), |gone| gone.position());
                    let has_log =
                        |set: &&&SetEntry| ClusterSet::of(set).is_some_and(|set| set.start >= gone);
                    let lingering = lingering.iter().filter(has_log);
                    let sets: Vec<_> = sets.iter().chain(lingering).copied().collect();
                    let bound = bound_of_cluster(&sets, reading);
                    bounds.extend(bound.map(|bound| (&one.log, bound)));
                }
                bounds
            }
            Self::Database(logs) => {
                let mut bounds = Vec::new();
                for log in logs {
                    let mut sets = sets.clone();
                    for set in lingering {
                        let found = DatabaseSet::of(set).map(|set| linked(log, &set));
                        if found.transpose()?.flatten().is_some() {
                            sets.push(set);
                        }
                    }
                    bounds.extend(bound_of_database(log, &sets)?.map(|bound| (log, bound)));
                }
                bounds
            }
        };
        let mut expiring = Vec::new();
        for (log, up_to) in bounds {
            let gone = log.expiring(up_to)?;
            if !gone.objects.is_empty() {
                let log = log.clone();
                expiring.push(LogExpiry { log, up_to, gone });
            }
        }
        Ok(expiring)
    }
}

/// Where the oldest of these sets begins to read log, at the beginning of a segment; or where a
/// server reads that recovers now.
fn bound_of_cluster(sets: &[&SetEntry], reading: Option<Lsn>) -> Option<Expired> {
    let known: Option<Vec<_>> = sets.iter().map(|set| ClusterSet::of(set)).collect();
    let first = known?.into_iter().map(|set| {
        let bytes = set.segment_bytes;
        let from = reading.map_or(set.start, |reading| reading.min(set.start));
        Lsn(from.0 / bytes * bytes)
    });
    first.min().map(Expired::before)
}

/// The newest set that leads to the newest timeline of a log.
fn newest_of(log: &LogPlace, sets: &[ClusterSet]) -> Result<Option<SetId>, RepositoryError> {
    let Some(newest) = log.timelines()?.pop() else {
        return Ok(None);
    };
    for set in sets.iter().rev() {
        let to = RecoveryTimeline::Number(newest);
        match LogPath::find(log, (set.timeline, set.start), to) {
            Ok(_) => return Ok(Some(set.id)),
            Err(RepositoryError::Unrelated { .. } | RepositoryError::NoHistory { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Where the oldest of these sets stands in the log of a SQLite database. None if one of them
/// should be in the log and is not: its place may show later.
fn bound_of_database(
    log: &LogPlace,
    sets: &[&SetEntry],
) -> Result<Option<Expired>, OperationError> {
    let mut first = None;
    let sets = sets.iter().filter_map(|set| DatabaseSet::of(set));
    for set in sets.filter(|set| set.standing.is_some()) {
        let Some(found) = linked(log, &set)? else {
            return Ok(None);
        };
        let at = (found.timeline, found.start);
        first = Some(first.map_or(at, |first| at.min(first)));
    }
    Ok(first.map(|(timeline, start)| Expired::before_in(timeline, start)))
}
