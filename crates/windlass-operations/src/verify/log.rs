//! Verifies the archived logs of some places.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windlass_engine::{Cancel, SetEntry};
use windlass_repository::{CheckDepth, LogPlace, RepositoryError, log_systems};

use super::outcome::VerifiedLog;
use crate::error::OperationError;
use crate::places::Named;
use crate::reach::{ClusterSet, gaps};

/// The clusters whose logs are verified: all of the places, or those of the sets that were chosen.
pub(super) fn clusters(
    named: &Named,
    sets: &[&SetEntry],
) -> Result<Vec<(PathBuf, u64)>, OperationError> {
    let chosen = sets.iter().filter_map(|set| ClusterSet::of(set));
    let chosen: BTreeSet<_> = chosen.map(|set| set.system).collect();
    let mut found = Vec::new();
    for place in &named.paths {
        for system in log_systems(place)? {
            if !named.chooses_database() || chosen.contains(&system) {
                found.push((place.clone(), system));
            }
        }
    }
    Ok(found)
}

/// Verifies the log of a cluster.
pub(super) fn verify(
    (is_quick, cancel): (bool, &Cancel),
    (place, system): (&Path, u64),
    sets: &[&SetEntry],
) -> Result<VerifiedLog, OperationError> {
    let log = LogPlace::new(place, system);
    let depth = match is_quick {
        true => CheckDepth::Indexes,
        false => CheckDepth::Everything,
    };
    let checked = log.verify(depth, cancel);
    cancel.check()?;
    let (check, mut error) = match checked {
        Ok(check) => (check, None),
        Err(error) => (Default::default(), Some(error)),
    };
    let sets = sets.iter().filter_map(|set| ClusterSet::of(set));
    let sets: Vec<_> = sets.filter(|set| set.system == system).collect();
    let gaps = match gaps(&log, &sets) {
        Ok(gaps) => gaps,
        // A damaged object is known already.
        Err(fault) => {
            error = error.or(Some(fault).filter(|fault| !fault.is_damage()));
            Vec::new()
        }
    };
    Ok(VerifiedLog {
        place: place.to_owned(),
        system,
        is_quick,
        check,
        gaps,
        error,
    })
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

    /// Whether all that is there is right, and something is not there.
    pub fn has_gaps(&self) -> bool {
        !self.gaps.is_empty() || !self.check.without_history.is_empty()
    }

    /// What is wrong.
    pub fn faults(&self) -> impl Iterator<Item = &RepositoryError> {
        self.check.faults.iter().chain(&self.error)
    }
}
