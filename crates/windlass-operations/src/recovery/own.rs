//! When a set ends with its own log, and whether the log of a place is that of a set: where both
//! have the same positions, they have the same bytes. A set of a server that was restored, and the
//! log of its source, are of one cluster, and may be of one timeline; a server would replay one
//! upon the other without a word.

use std::sync::Arc;

use windlass_engine::OpenSet;
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{DatabaseFacts, RecoveryPoint, log_ends, seek_within};
use windlass_repository::{LogReader, RepositoryError};

use super::{RecoveryError, RecoveryRequest};
use crate::as_cluster::AsCluster;
use crate::caller::Caller;
use crate::error::OperationError;
use crate::places::{LocatedSet, Named, SetRequest};

/// Whether a set was chosen and nothing behind it: who names a set gets that set.
pub(super) fn is_the_end(
    caller: &Caller,
    request: &SetRequest,
    recovery: &RecoveryRequest,
) -> Result<bool, OperationError> {
    let is_open = !recovery.needs_log && recovery.point == RecoveryPoint::Latest;
    Ok(is_open && !Named::new(caller, request)?.is_free())
}

/// Whether a set ends with itself, because the place has no log that goes on from it.
pub(super) fn has_no_log(error: &OperationError, recovery: &RecoveryRequest) -> bool {
    match error {
        _ if recovery.needs_log => false,
        OperationError::Repository(RepositoryError::NoLog { .. }) => true,
        OperationError::Recovery(
            RecoveryError::OtherLog { .. }
            | RecoveryError::NotLinked { .. }
            | RecoveryError::LogAway { .. }
            | RecoveryError::NoStanding,
        ) => recovery.point == RecoveryPoint::Latest,
        _ => false,
    }
}

/// Refuses a point that a server would find before it is consistent: within the backup.
pub(super) fn check_behind(
    found: &LocatedSet,
    facts: &DatabaseFacts,
    point: &RecoveryPoint,
) -> Result<(), OperationError> {
    let is_sought = matches!(
        point,
        RecoveryPoint::Name(_) | RecoveryPoint::Transaction(_)
    );
    if !is_sought {
        return Ok(());
    }
    let image = SetImage::open(Arc::new(found.open()?), &SetImageOptions::default())?;
    match seek_within(&AsCluster(&image), facts, point)? {
        Some(stop) => Err(RecoveryError::WithinBackup {
            target: point.to_string(),
            at: stop.at,
            from: facts.start_lsn,
            to: facts.stop_lsn,
        }
        .into()),
        None => Ok(()),
    }
}

/// Refuses log that differs from what the set has of it.
pub(super) fn check(
    set: OpenSet,
    facts: &DatabaseFacts,
    log: &mut LogReader<'_>,
) -> Result<(), OperationError> {
    let image = SetImage::open(Arc::new(set), &SetImageOptions::default())?;
    for (from, own) in log_ends(&AsCluster(&image), facts)? {
        let mut found = vec![0; own.len()];
        let count = log.read_at(from, &mut found)?;
        if found[..count] != own[..count] {
            return Err(RecoveryError::OtherLog { from }.into());
        }
    }
    Ok(())
}
