//! Where the log of a set is.

use std::path::{Path, PathBuf};

use windlass_engine::{OpenSet, OpenStripe};
use windlass_object::is_in_bucket;
use windlass_repository::RepositoryError;

use super::request::RecoveryRequest;
use crate::error::OperationError;

/// Where the log is: where somebody says, or else beside the set. A bucket has none.
pub(super) fn log_place(
    set: &OpenSet,
    request: &RecoveryRequest,
    system: Option<u64>,
) -> Result<PathBuf, OperationError> {
    let own = set.stripes().first().map(OpenStripe::location);
    let own = own.and_then(Path::parent).unwrap_or(Path::new("."));
    let place = request.log.as_deref().unwrap_or(own);
    if is_in_bucket(place) {
        let place = place.to_owned();
        return Err(RepositoryError::NoLog { place, system }.into());
    }
    Ok(std::path::absolute(place).unwrap_or_else(|_| place.to_owned()))
}
