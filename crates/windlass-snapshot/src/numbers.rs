//! The newest number that a state of a database got which a revert overwrote: a file in the place
//! of its snapshots.
//!
//! States are counted by looking at those that are there, and at this file: a state that had the
//! newest number may have been removed, or be on a disk that is not mounted. If the data directory
//! was moved, the file may be in a place before. If nobody can know the newest number, the next one
//! is far greater (`beyond_all`). Counting begins anew when the last snapshot is gone.

use std::io::ErrorKind;
use std::path::Path;

use jiff::Timestamp;
use windlass_engine::{durable, read_regular_at_most};

use crate::error::{Doing, SnapshotError};

/// It cannot be the name of a snapshot.
const NEWEST: &str = ".undo-newest";
const PRIVATE_MODE: u32 = 0o600;
/// A longer file is not ours.
const BYTES_MAX: u64 = 32;
/// Nobody goes back so often.
const NUMBER_MAX: u32 = 1 << 30;

/// The newest number that is noted in a place; 0 if none is. `None` if what is there cannot be
/// read, or somebody else put it there.
pub(crate) fn noted(home: &Path) -> Option<u32> {
    let noted = match read_regular_at_most(home.join(NEWEST), BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(0),
        noted => noted.ok()?,
    };
    let text = str::from_utf8(&noted).ok()?;
    let noted: u32 = text.trim().parse().ok()?;
    (noted < NUMBER_MAX).then_some(noted)
}

/// A number that is greater than those of all states that are there: the minutes since 1970.
/// Numbers begin with 1, and nobody goes back once a minute. So what nobody sees now is older by
/// its number, too, once it is seen again.
pub(crate) fn beyond_all() -> u32 {
    let minutes = Timestamp::now().as_second() / 60;
    u32::try_from(minutes).map_or(0, |minutes| minutes.min(NUMBER_MAX / 2))
}

/// Notes the newest number, before a state has it. The place must be locked.
pub(crate) fn note(home: &Path, newest: u32) -> Result<(), SnapshotError> {
    let path = home.join(NEWEST);
    let text = newest.to_string();
    match durable::write(&path, text.as_bytes(), PRIVATE_MODE) {
        // Somebody else put it there. It has no number, so the next one is far greater.
        Err(_) if path.is_dir() => Ok(()),
        written => written.doing("write", &path),
    }
}

/// Notes the number of a state that is about to go, unless it is noted. States that an older
/// version of Windlass kept are not. Nobody is kept from removing one because the disk is full: the
/// number may be given again then. The place must be locked.
pub(crate) fn note_gone(home: &Path, number: u32) {
    if noted(home).is_some_and(|newest| newest < number) {
        note(home, number).unwrap_or_default();
    }
}

/// Notes in a place what is noted in another one that goes. Both must be locked.
pub(crate) fn carry(from: &Path, to: &Path) -> Result<(), SnapshotError> {
    let carried = noted(from).unwrap_or_else(beyond_all);
    match noted(to) {
        Some(newest) if carried > newest => note(to, carried),
        _ => Ok(()),
    }
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
