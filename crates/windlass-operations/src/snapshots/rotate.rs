//! Rolling snapshots: makes a new one, and then drops the oldest of its kind.
//!
//! The kind is the beginning of the name. Windlass gives the rest: `hourly-20261123T160000Z`. So a
//! snapshot that somebody else named is never dropped.

use windlass_engine::Cancel;
use windlass_snapshot::{Entry, Place, SnapshotError, SnapshotName};

use super::create::{CreateOutcome, CreateRequest, create};
use super::tell_removed;
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;

/// How a moment is written in a name.
const MOMENT: &str = "%Y%m%dT%H%M%SZ";
/// How many snapshots of one kind may be made in a second.
const TRIES_MAX: u32 = 100;

/// What a rotation did.
#[derive(Debug)]
pub struct RotateOutcome {
    /// The new snapshot.
    pub created: CreateOutcome,
    /// The snapshots of its kind that were dropped, the oldest first.
    pub dropped: Vec<String>,
    /// Those that should have been dropped, and are in use.
    pub in_use: Vec<String>,
    /// Those that should have been dropped, and have states that reverts overwrote.
    pub with_undo: Vec<String>,
}

impl RotateOutcome {
    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        match self.in_use.is_empty() && self.with_undo.is_empty() {
            true => self.created.ending(),
            false => Ending::Warnings,
        }
    }
}

/// Makes a snapshot whose name begins like `request.name`, and drops all but the newest `keep` of
/// this kind. If the snapshot cannot be made, nothing is dropped.
pub fn rotate(
    caller: &Caller,
    request: &CreateRequest,
    keep: u32,
    cancel: &Cancel,
) -> Result<RotateOutcome, OperationError> {
    let kind = &request.name;
    SnapshotName::parse(&format!(
        "{kind}-{}",
        jiff::Timestamp::now().strftime(MOMENT)
    ))?;
    let created = create_named(caller, request, cancel)?;
    let place = super::place(caller, &request.of)?;
    let (mut dropped, mut in_use, mut with_undo) = (Vec::new(), Vec::new(), Vec::new());
    let states = windlass_snapshot::undo_states(&place)?;
    let has_undo = |name: &SnapshotName| {
        let mut over = states.iter().map(|undo| &undo.snapshot.record().name);
        over.any(|over| over == name.as_str())
    };
    for name in surplus(&place, kind, keep)? {
        // Nobody who makes snapshots by the hour expects that to take away what a revert kept.
        if has_undo(&name) {
            with_undo.push(name.to_string());
            continue;
        }
        match place.remove(&name, &mut tell_removed(caller)) {
            Ok(()) => dropped.push(name.to_string()),
            Err(SnapshotError::InUse { .. }) => in_use.push(name.to_string()),
            // Another rotation was faster.
            Err(SnapshotError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(RotateOutcome {
        created,
        dropped,
        in_use,
        with_undo,
    })
}

/// Makes a snapshot with the moment in its name, and a number if the name is taken.
fn create_named(
    caller: &Caller,
    request: &CreateRequest,
    cancel: &Cancel,
) -> Result<CreateOutcome, OperationError> {
    let moment = jiff::Timestamp::now().strftime(MOMENT).to_string();
    let mut tries = 1..TRIES_MAX;
    loop {
        let name = match tries.next() {
            None | Some(1) => format!("{}-{moment}", request.name),
            Some(number) => format!("{}-{moment}-{number}", request.name),
        };
        let request = CreateRequest {
            name,
            ..request.clone()
        };
        match create(caller, &request, cancel) {
            Err(OperationError::Snapshot(SnapshotError::Taken { .. })) if !tries.is_empty() => {}
            created => return created,
        }
    }
}

/// The snapshots of this kind beyond the newest `keep`, the oldest first.
fn surplus(place: &Place, kind: &str, keep: u32) -> Result<Vec<SnapshotName>, OperationError> {
    // The list has the oldest first. One that cannot be read, or whose disk is not there, stays.
    let snapshots = place.list()?.into_iter().filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let names = snapshots.map(|snapshot| snapshot.record().name.clone());
    let names = names.filter(|name| is_of_kind(name, kind));
    let names = names.map(|name| SnapshotName::parse(&name));
    let mut names: Vec<SnapshotName> = names.collect::<Result<_, _>>()?;
    let surplus = names.len().saturating_sub(keep as usize);
    names.truncate(surplus);
    Ok(names)
}

/// Whether a rotation of this kind gave this name.
fn is_of_kind(name: &str, kind: &str) -> bool {
    let rest = name
        .strip_prefix(kind)
        .and_then(|rest| rest.strip_prefix('-'));
    let Some(rest) = rest else {
        return false;
    };
    let (moment, number) = rest.split_once('-').unwrap_or((rest, "2"));
    let is_moment = jiff::civil::DateTime::strptime(MOMENT, moment).is_ok();
    is_moment && number.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_a_rotation_gave_are_of_its_kind() {
        for name in ["hourly-20261123T160000Z", "hourly-20261123T160000Z-2"] {
            assert!(is_of_kind(name, "hourly"), "{name}");
            assert!(!is_of_kind(name, "hour"), "{name}");
        }
        for name in [
            "hourly",
            "hourly-",
            "hourly-before-upgrade",
            "hourly-2026",
            "hourly-20261323T160000Z",
            "hourly-20261123T160000Z-x",
            "before-hourly-20261123T160000Z",
        ] {
            assert!(!is_of_kind(name, "hourly"), "{name}");
        }
    }
}
