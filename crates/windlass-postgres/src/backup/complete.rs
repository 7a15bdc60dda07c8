//! The last look at a copy before it is sealed: could it be restored, and could a server start?
//!
//! Most files may vanish during a backup, because the server may drop what they belong to. So a
//! directory that somebody empties, or that the system shows as empty, looks like files that the
//! server removed. Some files the server never removes. Without them there is no backup.

use windlass_media::{Facts, FileTable};

use super::status::StatusSegments;
use crate::error::PostgresError;
use crate::restore::check_set;

/// Refuses a copy that no restore would take, or that has no status of transactions.
pub(super) fn check(
    facts: &Facts,
    files: &FileTable,
    status: &StatusSegments,
) -> Result<(), PostgresError> {
    check_set(facts, files).map_err(|error| match error {
        PostgresError::Set { what } => PostgresError::Incomplete { what },
        other => other,
    })?;
    status.check(files)
}
