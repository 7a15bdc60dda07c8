//! States over snapshots that cannot be read, or whose disk is not there. Nobody can bring them
//! back now, and nobody may take an older state for the newest one because of that.

use crate::error::SnapshotError;
use crate::numbers;
use crate::overwritten::{UndoNumber, UndoState};
use crate::place::{Entry, Place};
use crate::undo::BY_REVERT;

/// The newest state over a snapshot that cannot be read, or is not there.
pub(super) struct Hidden {
    pub(super) number: UndoNumber,
    /// Why the snapshot cannot be read.
    pub(super) error: SnapshotError,
}

/// The newest state over each snapshot that cannot be read, the oldest first. Those that undos
/// overwrote do not count.
pub(super) fn hidden_states(place: &Place) -> Result<Vec<Hidden>, SnapshotError> {
    let mut found = Vec::new();
    for entry in place.list()? {
        let (path, error) = match entry {
            // Its states are another database's, too.
            Entry::Unreadable {
                error: SnapshotError::OfAnother { .. },
                ..
            } => continue,
            Entry::Unreadable { path, error, .. } => (path, error),
            _ => continue,
        };
        // Nobody knows what is in a directory that cannot be listed.
        let mut states = UndoState::list(&path).unwrap_or_default();
        states.retain(|state| match state.record() {
            Ok(record) => record.is_some_and(|record| record.by == BY_REVERT),
            Err(_) => true,
        });
        if let Some(newest) = states.last() {
            let number = newest.number();
            found.push(Hidden { number, error });
        }
    }
    found.sort_by_key(|hidden| hidden.number);
    Ok(found)
}

/// The newest state that has been, if a snapshot is not there that may have it: its number is
/// noted, and greater than those of all states that are seen.
pub(super) fn newest_away(
    place: &Place,
    seen: Option<UndoNumber>,
) -> Result<Option<Hidden>, SnapshotError> {
    let newest = place.homes().filter_map(numbers::noted).max().unwrap_or(0);
    if seen.map_or(0, |UndoNumber(seen)| seen) >= newest {
        return Ok(None);
    }
    let mut entries = place.list()?.into_iter();
    let away = entries.find_map(|entry| match entry {
        Entry::Missing { name, path } => Some(SnapshotError::Missing {
            name: name.to_string(),
            path,
        }),
        _ => None,
    });
    Ok(away.map(|error| Hidden {
        number: UndoNumber(newest),
        error,
    }))
}
