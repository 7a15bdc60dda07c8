//! Where the log of a set is.

use std::path::{Path, PathBuf};

use windlass_engine::{OpenSet, OpenStripe};

use super::request::RecoveryRequest;
use crate::error::OperationError;
use crate::stored::absolute;

/// Where the log is: where somebody says, or else beside the set.
pub(super) fn log_place(
    set: &OpenSet,
    request: &RecoveryRequest,
) -> Result<PathBuf, OperationError> {
    let own = set.stripes().first().map(OpenStripe::location);
    let own = own.and_then(Path::parent).unwrap_or(Path::new("."));
    let place = request.log.as_deref().unwrap_or(own);
    Ok(absolute(place).unwrap_or_else(|_| place.to_owned()))
}
