//! All states of a database that reverts and undos overwrote: which there are, which is brought
//! back next, and which go when there are too many.
//!
//! Each is the difference to one of the database's snapshots, in whose directory it lies, and goes
//! with that. So they are looked for in all of them.
//!
//! Invariants
//! - The newest [`STATES_KEPT`] stay. A revert that is typed twice takes nothing away.

use crate::error::SnapshotError;
use crate::overwritten::{UndoNumber, UndoState};
use crate::place::{Entry, Place};
use crate::snapshot::Snapshot;
use crate::undo::{BY_REVERT, UndoRecord};

/// So many states are kept of a database, the newest ones.
pub const STATES_KEPT: usize = 3;

/// A state that can be brought back.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The snapshot that it is the difference to.
    pub snapshot: Snapshot,
    /// Its number.
    pub number: UndoNumber,
    /// What is known about it. `None` if that is damaged.
    pub record: Option<UndoRecord>,
    state: UndoState,
}

impl Undo {
    /// Bytes that it takes on disk.
    pub fn disk_bytes(&self) -> Result<u64, SnapshotError> {
        self.state.disk_bytes()
    }

    /// What is known about it, or why nothing is.
    pub fn known(&self) -> Result<UndoRecord, SnapshotError> {
        let unknown = || SnapshotError::NoState {
            name: self.number.to_string(),
            known: Vec::new(),
        };
        self.state.record()?.ok_or_else(unknown)
    }

    /// Whether a revert overwrote it. One whose record is damaged counts, so that nobody takes an
    /// older one for the newest.
    fn is_by_revert(&self) -> bool {
        let record = self.record.as_ref();
        record.is_none_or(|record| record.by == BY_REVERT)
    }
}

/// All states of a database, the oldest first.
pub fn undo_states(place: &Place) -> Result<Vec<Undo>, SnapshotError> {
    let mut found = Vec::new();
    for snapshot in snapshots(place)? {
        for state in UndoState::list(snapshot.path())? {
            let record = match state.record() {
                // A process was killed while it removed this one.
                Ok(None) => continue,
                record => record.unwrap_or_default(),
            };
            found.push(Undo {
                snapshot: snapshot.clone(),
                number: state.number(),
                record,
                state,
            });
        }
    }
    let at = |undo: &Undo| undo.record.as_ref().map(|record| record.at.clone());
    found.sort_by_key(|undo| (undo.number, at(undo)));
    Ok(found)
}

/// The state with this number. Without one, the newest that a revert overwrote and that was not
/// brought back since.
pub fn find_undo(place: &Place, number: Option<UndoNumber>) -> Result<Undo, SnapshotError> {
    let mut all = undo_states(place)?;
    let found = all.iter().rposition(|undo| match number {
        Some(number) => undo.number == number,
        None => undo.is_by_revert(),
    });
    if let Some(found) = found {
        return Ok(all.swap_remove(found));
    }
    let known: Vec<_> = all.iter().map(|undo| undo.number.to_string()).collect();
    Err(match number {
        Some(number) => SnapshotError::NoState {
            name: number.to_string(),
            known,
        },
        None => SnapshotError::NoUndo {
            place: place.home().to_owned(),
            known,
        },
    })
}

/// Removes a state.
pub fn remove_undo(place: &Place, number: UndoNumber) -> Result<(), SnapshotError> {
    let _alone = place.lock()?;
    find_undo(place, Some(number))?.state.discard()
}

/// The states that go when one more is kept for the state that is brought back, if one is.
pub fn leaving(all: &[Undo], brought_back: Option<UndoNumber>) -> Vec<UndoNumber> {
    let numbers = all.iter().map(|undo| undo.number);
    let mut numbers: Vec<_> = numbers.filter(|it| Some(*it) != brought_back).collect();
    numbers.truncate((numbers.len() + 1).saturating_sub(STATES_KEPT));
    numbers
}

/// The number for the next state. The place must be locked.
pub(crate) fn next_number(place: &Place) -> Result<UndoNumber, SnapshotError> {
    let mut last = 0;
    for snapshot in snapshots(place)? {
        let states = UndoState::list(snapshot.path())?;
        last = states.iter().map(|it| it.number().0).fold(last, u32::max);
    }
    Ok(UndoNumber(last.saturating_add(1)))
}

/// Removes all but the newest states, and what is left of some that were removed. Returns their
/// numbers. The place must be locked.
pub(crate) fn trim(place: &Place) -> Result<Vec<UndoNumber>, SnapshotError> {
    for snapshot in snapshots(place)? {
        let states = UndoState::list(snapshot.path())?.into_iter();
        let mut partial = states.filter(|state| matches!(state.record(), Ok(None)));
        partial.try_for_each(|state| state.discard())?;
    }
    let mut gone = undo_states(place)?;
    gone.truncate(gone.len().saturating_sub(STATES_KEPT));
    gone.iter().try_for_each(|undo| undo.state.discard())?;
    Ok(gone.iter().map(|undo| undo.number).collect())
}

fn snapshots(place: &Place) -> Result<Vec<Snapshot>, SnapshotError> {
    let entries = place.list()?.into_iter();
    let snapshots = entries.filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(*snapshot),
        _ => None,
    });
    Ok(snapshots.collect())
}
