//! The newest number that a state of a database got which a revert overwrote: a file in the place
//! of its snapshots.
//!
//! States are counted by looking at those that are there. A disk with some of them may not be
//! mounted, so this file has the newest number as long as a snapshot is elsewhere.

use std::io::ErrorKind;
use std::path::Path;

use windlass_engine::durable;

use crate::error::{Doing, SnapshotError};

/// It cannot be the name of a snapshot.
const NEWEST: &str = ".undo-newest";
const PRIVATE_MODE: u32 = 0o600;

/// The number after all others. `seen` is the newest of the states that are there. The place must
/// be locked.
pub(crate) fn next(home: &Path, seen: u32) -> Result<u32, SnapshotError> {
    let path = home.join(NEWEST);
    let noted = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        // Nobody should be kept from going back by what somebody else wrote there.
        text => text.doing("read", &path)?.trim().parse().unwrap_or(0),
    };
    let next = seen.max(noted).saturating_add(1);
    if has_links(home)? {
        let text = next.to_string();
        durable::write(&path, text.as_bytes(), PRIVATE_MODE).doing("write", &path)?;
    }
    Ok(next)
}

/// Whether a snapshot is elsewhere, so that it may be out of sight.
fn has_links(home: &Path) -> Result<bool, SnapshotError> {
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
