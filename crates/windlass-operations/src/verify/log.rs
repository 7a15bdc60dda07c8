//! Verifies the logs of some places: of clusters, and of SQLite databases.

use std::collections::BTreeSet;

use windlass_engine::{Cancel, SetEntry};
use windlass_repository::{
    CheckDepth, LogCheck, LogPlace, RepositoryError, database_number, log_databases, log_systems,
};

use super::outcome::VerifiedLog;
use crate::commits::{CommitTimeline, DatabaseLog, DatabaseSet};
use crate::error::OperationError;
use crate::places::Named;
use crate::reach::{ClusterSet, Missing, gaps};
use crate::stored::log_at;

/// A log to verify.
pub(super) struct Log {
    pub(super) place: LogPlace,
    pub(super) is_of_cluster: bool,
}

/// The logs that are verified: all of the places, or those of the sets that were chosen.
pub(super) fn logs(named: &Named, sets: &[&SetEntry]) -> Result<Vec<Log>, OperationError> {
    let clusters = sets.iter().filter_map(|set| ClusterSet::of(set));
    let clusters: BTreeSet<_> = clusters.map(|set| set.system).collect();
    let databases = sets.iter().filter_map(|set| DatabaseSet::of(set));
    let databases = databases.map(|set| database_number(&set.key));
    let databases: BTreeSet<_> = databases.collect();
    let is_chosen = |of: &BTreeSet<u64>, one: &u64| !named.chooses_database() || of.contains(one);
    let mut found = Vec::new();
    for place in &named.paths {
        let place = log_at(place);
        for system in log_systems(&place)? {
            found.extend(is_chosen(&clusters, &system).then(|| Log {
                place: LogPlace::new(&place, system),
                is_of_cluster: true,
            }));
        }
        for database in log_databases(&place)? {
            found.extend(is_chosen(&databases, &database).then(|| Log {
                place: LogPlace::of_database(&place, database),
                is_of_cluster: false,
            }));
        }
    }
    Ok(found)
}

/// Verifies a log.
pub(super) fn verify(
    (is_quick, cancel): (bool, &Cancel),
    Log {
        place: log,
        is_of_cluster,
    }: &Log,
    sets: &[&SetEntry],
) -> Result<VerifiedLog, OperationError> {
    let depth = match is_quick {
        true => CheckDepth::Indexes,
        false => CheckDepth::Everything,
    };
    let checked = log.verify(depth, cancel);
    cancel.check()?;
    let (check, mut error) = match checked {
        Ok(check) => (check, None),
        Err(error) => (LogCheck::default(), Some(error)),
    };
    let mut found = VerifiedLog {
        place: log.place().to_owned(),
        system: log.system(),
        database: None,
        is_quick,
        check,
        gaps: Vec::new(),
        error: None,
    };
    if !is_of_cluster {
        let sets: Vec<_> = sets.iter().filter_map(|set| DatabaseSet::of(set)).collect();
        match DatabaseLog::of(log, &sets) {
            Ok(log) => found.database = Some(log),
            // What is damaged, or cannot be read without a key, is known already.
            Err(fault) => {
                let is_new = found.check.faults.is_empty() && !fault.is_without_key();
                error = error.or(Some(fault).filter(|_| is_new));
            }
        }
        found.error = error;
        return Ok(found);
    }
    let sets = sets.iter().filter_map(|set| ClusterSet::of(set));
    let sets: Vec<_> = sets.filter(|set| set.system == log.system()).collect();
    found.gaps = match gaps(log, &sets) {
        Ok(gaps) => gaps,
        // A damaged object is known already.
        Err(fault) => {
            error = error.or(Some(fault).filter(|fault| !fault.is_damage()));
            Vec::new()
        }
    };
    name_left(&mut found);
    found.error = error;
    Ok(found)
}

/// Names what is lost of timelines that were left before, also if no set leads there.
fn name_left(found: &mut VerifiedLog) {
    for lost in &found.check.left {
        let gap = Missing {
            timeline: lost.timeline,
            start: lost.end,
            end: lost.up_to(),
        };
        let has_it = |one: &Missing| {
            one.timeline == gap.timeline && (one.start..one.end).contains(&gap.start)
        };
        if !found.gaps.iter().any(has_it) {
            found.gaps.push(gap);
        }
    }
}

impl VerifiedLog {
    /// Whether bytes of it are wrong.
    pub fn is_damaged(&self) -> bool {
        self.faults().any(RepositoryError::is_damage)
    }

    /// Whether something of it could not be looked at.
    pub fn is_unknown(&self) -> bool {
        self.faults().any(|fault| !fault.is_damage())
    }

    /// Whether a part of it was not read, because it is encrypted and there is no key.
    pub fn is_unread(&self) -> bool {
        self.check.unread > 0
    }

    /// Whether all that is there is right, and something is not there.
    pub fn has_gaps(&self) -> bool {
        let timelines = self.database.iter().flat_map(|log| &log.timelines);
        let is_lost = |one: &CommitTimeline| one.lost.is_some() || one.gaps().next().is_some();
        timelines.into_iter().any(is_lost)
            || !self.gaps.is_empty()
            || !self.check.without_history.is_empty()
            || self
                .database
                .iter()
                .any(|log| log.not_linked().next().is_some())
    }

    /// What is wrong.
    pub fn faults(&self) -> impl Iterator<Item = &RepositoryError> {
        self.check.faults.iter().chain(&self.error)
    }
}
