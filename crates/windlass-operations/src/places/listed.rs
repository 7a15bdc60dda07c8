//! The sets of directories, and how directories and sets are called in messages.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::{METADATA_LIMIT_DEFAULT, SetEntry, SetList, list_sets};
use windlass_repository::{RepositoryError, has_log};

use crate::devices::STORAGE;
use crate::error::OperationError;

/// The sets of these directories.
pub fn list(directories: &[PathBuf]) -> Result<SetList, OperationError> {
    let mut list = list_sets(STORAGE, directories, METADATA_LIMIT_DEFAULT)?;
    for set in &mut list.sets {
        // The description has the time of every message. The header has that of its own making,
        // which may be in the second before.
        let started = set.about.as_ref().map(|about| about.started.parse());
        if let Some(Ok(started)) = started {
            let started: Timestamp = started;
            let nanos = i64::try_from(started.as_nanosecond());
            set.begun_nanos = nanos.unwrap_or(set.begun_nanos);
        }
    }
    list.sets.sort_by_key(|set| (set.begun_nanos, set.set_id.0));
    Ok(list)
}

/// Fails if a place has neither a set nor a log. Somebody who stores log without being watched must
/// not begin one in the empty mount point of a disk that is not there.
pub(crate) fn check_used(place: &Path) -> Result<(), OperationError> {
    let is_used = has_log(place)? || !list(&[place.to_owned()])?.sets.is_empty();
    match is_used {
        true => Ok(()),
        false => {
            let place = place.to_owned();
            Err(RepositoryError::Unused { place }.into())
        }
    }
}

/// Places, as part of a sentence.
pub fn names(words: &[PathBuf]) -> String {
    let names: Vec<_> = words
        .iter()
        .map(|word| word.display().to_string())
        .collect();
    names.join(", ")
}

/// The first eight digits of a set's id.
pub fn short_id(set: &SetEntry) -> String {
    set.set_id.to_string()[..8].to_owned()
}
