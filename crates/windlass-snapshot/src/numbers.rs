//! The newest number that a state of a database got which a revert overwrote: a file in the place
//! of its snapshots.
//!
//! States are counted by looking at those that are there. A disk with some of them may not be
//! mounted, so this file has the newest number as long as a snapshot is elsewhere. If the data
//! directory was moved, that snapshot may have its entry in a place before.

use std::path::Path;

use windlass_engine::{durable, read_regular_at_most};

use crate::error::{Doing, SnapshotError};

/// It cannot be the name of a snapshot.
const NEWEST: &str = ".undo-newest";
const PRIVATE_MODE: u32 = 0o600;
/// A longer file is not ours.
const BYTES_MAX: u64 = 32;
/// Nobody goes back so often.
const NUMBER_MAX: u32 = 1 << 30;

/// The newest number that is noted in a place; 0 if none is.
pub(crate) fn noted(home: &Path) -> u32 {
    // Nobody should be kept from going back by what somebody else put there.
    let noted = read_regular_at_most(home.join(NEWEST), BYTES_MAX).unwrap_or_default();
    let noted = str::from_utf8(&noted)
        .ok()
        .and_then(|text| text.trim().parse().ok());
    noted.filter(|noted: &u32| *noted < NUMBER_MAX).unwrap_or(0)
}

/// The number after all others. `seen` is the newest of those that are there or noted. It is noted
/// if a snapshot may be out of sight. The place must be locked.
pub(crate) fn next(home: &Path, seen: u32, is_noted: bool) -> Result<u32, SnapshotError> {
    let next = seen.saturating_add(1);
    if is_noted {
        let path = home.join(NEWEST);
        let text = next.to_string();
        durable::write(&path, text.as_bytes(), PRIVATE_MODE).doing("write", &path)?;
    }
    Ok(next)
}

/// Whether a snapshot is elsewhere, so that it may be out of sight.
pub(crate) fn has_links(home: &Path) -> Result<bool, SnapshotError> {
    for entry in std::fs::read_dir(home).doing("list", home)? {
        let entry = entry.doing("list", home)?;
        if entry.file_type().doing("inspect", home)?.is_symlink() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the file if nothing else is in the place.
pub(crate) fn forget_if_alone(home: &Path) {
    let path = home.join(NEWEST);
    durable::remove_left(&path);
    let has_others = std::fs::read_dir(home).map(|listed| {
        let mut paths = listed.map(|entry| entry.map(|entry| entry.path()));
        paths.any(|found| found.map_or(true, |found| found != path))
    });
    if matches!(has_others, Ok(false)) {
        // If it stays, it does no harm.
        std::fs::remove_file(&path).unwrap_or_default();
    }
}
