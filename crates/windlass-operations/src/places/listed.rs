//! The sets of directories, and how directories and sets are called in messages.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::{METADATA_LIMIT_DEFAULT, SetEntry, SetList, SetState, list_sets};
use windlass_object::is_in_bucket;
use windlass_repository::{RepositoryError, has_log};

use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::stored::log_at;

/// How often directories are listed in which something seems to be damaged.
const LISTS_MAX: u32 = 8;

/// The sets of these directories. What seems to be damaged may be a set that got its name, or went,
/// while it was looked at. So damage counts when two lists in a row show the same.
pub fn list(directories: &[PathBuf]) -> Result<SetList, OperationError> {
    let once = || list_sets(STORAGE, directories, METADATA_LIMIT_DEFAULT);
    let mut list = once()?;
    let mut doubtful = faults(&list);
    for _ in 1..LISTS_MAX {
        if doubtful.is_empty() {
            break;
        }
        list = once()?;
        let now = faults(&list);
        if now == doubtful {
            break;
        }
        doubtful = now;
    }
    for set in list.sets.iter_mut().chain(&mut list.hidden) {
        // The description has the time of every message. The header has that of its own making,
        // which may be in the second before.
        let started = set.about.as_ref().map(|about| about.started.parse());
        if let Some(Ok(started)) = started {
            let started: Timestamp = started;
            let nanos = i64::try_from(started.as_nanosecond());
            set.begun_nanos = nanos.unwrap_or(set.begun_nanos);
        }
    }
    for sets in [&mut list.sets, &mut list.hidden] {
        sets.sort_by_key(|set| (set.begun_nanos, set.set_id.0));
    }
    Ok(list)
}

/// What of a list cannot be used, and why. No time is part of it.
fn faults(list: &SetList) -> Vec<(String, String)> {
    let of_set = |set: &SetEntry| match &set.state {
        SetState::Damaged(fault) | SetState::Incomplete(fault) => {
            Some((set.set_id.to_string(), fault.to_string()))
        }
        _ => None,
    };
    let unknown = list.unknown.iter();
    let unknown = unknown.map(|one| {
        let file = one.file.location.display();
        (file.to_string(), one.fault.to_string())
    });
    list.sets.iter().filter_map(of_set).chain(unknown).collect()
}

/// Fails if a place has neither a set nor a log. Somebody who stores log without being watched must
/// not begin one in the empty mount point of a disk that is not there. Buckets are not mounted.
pub(crate) fn check_used(place: &Path) -> Result<(), OperationError> {
    if is_in_bucket(place) {
        return Ok(());
    }
    let is_used = has_log(&log_at(place))? || !list(&[place.to_owned()])?.sets.is_empty();
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
