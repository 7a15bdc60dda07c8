//! Whether the log of a place is that of a set: where both have the same positions, they have the
//! same bytes. A set of a server that was restored, and the log of its source, are of one cluster,
//! and may be of one timeline; a server would replay one upon the other without a word.

use std::sync::Arc;

use windlass_engine::OpenSet;
use windlass_image::{SetImage, SetImageOptions};
use windlass_postgres::{DatabaseFacts, log_ends};
use windlass_repository::LogReader;

use super::RecoveryError;
use crate::as_cluster::AsCluster;
use crate::error::OperationError;

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
