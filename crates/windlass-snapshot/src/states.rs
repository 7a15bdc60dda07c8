//! All states of a database that reverts and undos overwrote: which there are, which is brought
//! back next, and which go when there are too many.
//!
//! Each is the difference to one of the database's snapshots, in whose directory it lies, and goes
//! with that. So they are looked for in all of them.
//!
//! Invariants
//! - The newest [`STATES_KEPT`] that can be brought back stay. A revert that is typed twice takes
//!   nothing away. One that is lost with its snapshot goes with that, and takes no other's room.
//! - No number is given twice as long as the database has a snapshot (`numbers.rs`): not when the
//!   newest state was removed, nor while a disk with some of the snapshots is not mounted, or while
//!   a snapshot or a place before cannot be read.

mod hidden;

use std::io::ErrorKind;

use jiff::Timestamp;

use crate::error::{Older, SnapshotError};
use crate::numbers;
use crate::overwritten::{UndoNumber, UndoState};
use crate::place::{Entry, Place};
use crate::record::State;
use crate::snapshot::Snapshot;
use crate::undo::{BY_REVERT, UndoRecord};
use hidden::{hidden_states, newest_away};

/// So many states are kept of a database, the newest ones that can be brought back.
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

    /// What is damaged of it, as far as that is seen without a look at its pages.
    pub fn fault(&self) -> Option<SnapshotError> {
        self.state.check().err()
    }

    /// Whether it cannot be brought back, because its snapshot is lost. One that outlives a start
    /// of the system may come back.
    fn is_lost(&self) -> bool {
        self.snapshot.record().state != State::Kept
    }

    /// Why it cannot be brought back; `None` if it can.
    fn why_unusable(&self) -> Option<String> {
        match (&self.snapshot.record().state, self.known()) {
            (State::Lost { why }, _) => {
                let snapshot = &self.snapshot.record().name;
                Some(format!("its snapshot {snapshot} is lost: {why}"))
            }
            (State::Kept, Err(error)) => Some(error.to_string()),
            (State::Kept, Ok(_)) => None,
        }
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
        for state in states_over(&snapshot)? {
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
    // Older versions of Windlass may have given a number twice.
    let at = |undo: &Undo| undo.record.as_ref()?.at.parse::<Timestamp>().ok();
    found.sort_by_key(|undo| (undo.number, at(undo)));
    Ok(found)
}

/// Whether a snapshot has states that reverts or undos overwrote.
pub fn has_undo(snapshot: &Snapshot) -> Result<bool, SnapshotError> {
    let mut states = states_over(snapshot)?.into_iter();
    // A process was killed while it removed one without a record.
    Ok(states.any(|state| !matches!(state.record(), Ok(None))))
}

/// The states in the directory of a snapshot. One that was dropped since it was listed has none: to
/// read what all snapshots are may take a while, and a rotation drops some meanwhile.
fn states_over(snapshot: &Snapshot) -> Result<Vec<UndoState>, SnapshotError> {
    match UndoState::list(snapshot.path()) {
        Err(SnapshotError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(Vec::new())
        }
        states => states,
    }
}

/// The state with this number.
pub fn find_undo(place: &Place, number: UndoNumber) -> Result<Undo, SnapshotError> {
    let mut all = undo_states(place)?;
    if let Some(found) = all.iter().rposition(|undo| undo.number == number) {
        return Ok(all.swap_remove(found));
    }
    let mut hidden = hidden_states(place)?.into_iter();
    match hidden.find(|hidden| hidden.number == number) {
        Some(hidden) => Err(hidden.error),
        None => Err(SnapshotError::NoState {
            name: number.to_string(),
            known: names(&all),
        }),
    }
}

/// The newest state that a revert overwrote and that was not brought back since. If it cannot be
/// brought back, or may be on a disk that is not there, an older one is another state of the whole
/// database than the caller expects, so this only names that.
pub fn newest_undo(place: &Place) -> Result<Undo, SnapshotError> {
    let all = undo_states(place)?;
    let known = names(&all);
    let away = newest_away(place, all.last().map(|undo| undo.number))?;
    let mut by_reverts = all;
    by_reverts.retain(Undo::is_by_revert);
    let newest_seen = by_reverts.last().map(|undo| undo.number);
    let hidden = away.into_iter().chain(hidden_states(place)?);
    if let Some(hidden) = hidden.max_by_key(|hidden| hidden.number)
        && newest_seen.is_none_or(|seen| seen < hidden.number)
    {
        return Err(SnapshotError::NewestLost {
            name: hidden.number.to_string(),
            why: hidden.error.to_string(),
            is_damaged: hidden.error.is_damage(),
            older: older(place, &by_reverts),
        });
    }
    let Some(newest) = by_reverts.pop() else {
        let place = place.home().to_owned();
        return Err(SnapshotError::NoUndo { place, known });
    };
    let Some(why) = newest.why_unusable() else {
        return Ok(newest);
    };
    Err(SnapshotError::NewestLost {
        name: newest.number.to_string(),
        why,
        is_damaged: newest.known().is_err_and(|error| error.is_damage()),
        older: older(place, &by_reverts),
    })
}

/// The newest of these states that can be brought back.
fn older(place: &Place, states: &[Undo]) -> Option<Box<Older>> {
    let mut usable = states.iter().rev();
    let newest = usable.find(|undo| undo.why_unusable().is_none())?;
    let record = newest.record.as_ref();
    Some(Box::new(Older {
        name: newest.number.to_string(),
        at: record.map(|it| it.at.clone()).unwrap_or_default(),
        database: place.database(),
    }))
}

fn names(states: &[Undo]) -> Vec<String> {
    let names = states.iter().map(|undo| undo.number.to_string());
    names.collect()
}

/// Removes a state.
pub fn remove_undo(place: &Place, number: UndoNumber) -> Result<(), SnapshotError> {
    let _alone = place.lock()?;
    let found = find_undo(place, number)?;
    numbers::note_gone(place.home(), number.0);
    found.state.discard()
}

/// The states that go when one more is kept for the state that is brought back, if one is.
pub fn leaving(all: &[Undo], brought_back: Option<UndoNumber>) -> Vec<UndoNumber> {
    let can_be_brought_back = all.iter().filter(|undo| !undo.is_lost());
    let numbers = can_be_brought_back.map(|undo| undo.number);
    let mut numbers: Vec<_> = numbers.filter(|it| Some(*it) != brought_back).collect();
    numbers.truncate((numbers.len() + 1).saturating_sub(STATES_KEPT));
    numbers
}

/// The number for the next state. The place must be locked until it is noted. Nobody is kept from
/// going back because a state may be where nobody can look, or because the note is damaged: then
/// the number is one that no other state can have.
pub(crate) fn next_number(place: &Place) -> Result<UndoNumber, SnapshotError> {
    let mut is_known = place.unseen().is_none() && place.check_there().is_ok();
    let mut seen = 0;
    for entry in place.list()? {
        let directory = match entry {
            Entry::Snapshot(snapshot) => snapshot.path().to_owned(),
            // Its states have their names, whatever its record says.
            Entry::Unfinished { path, .. } | Entry::Unreadable { path, .. } => path,
            // Its newest number is noted.
            Entry::Missing { .. } => continue,
        };
        // Somebody may have put a file there, which is no snapshot.
        if !directory.is_dir() {
            continue;
        }
        match UndoState::list(&directory) {
            Ok(states) => seen = states.iter().map(|it| it.number().0).fold(seen, u32::max),
            Err(_) => is_known = false,
        }
    }
    for home in place.homes() {
        match numbers::noted(home) {
            Some(noted) => seen = seen.max(noted),
            None => is_known = false,
        }
    }
    if !is_known {
        seen = seen.max(numbers::beyond_all());
    }
    Ok(UndoNumber(seen.saturating_add(1)))
}

/// Notes the number of a state that is about to have it. The place must be locked.
pub(crate) fn note_number(place: &Place, number: UndoNumber) -> Result<(), SnapshotError> {
    numbers::note(place.home(), number.0)
}

/// Removes all but the newest states that can be brought back, and what is left of some that were
/// removed. Those that are lost stay. Returns their numbers. The place must be locked.
pub(crate) fn trim(place: &Place) -> Result<Vec<UndoNumber>, SnapshotError> {
    for snapshot in snapshots(place)? {
        let states = UndoState::list(snapshot.path())?.into_iter();
        let mut partial = states.filter(|state| matches!(state.record(), Ok(None)));
        partial.try_for_each(|state| state.discard())?;
    }
    let mut gone = undo_states(place)?;
    gone.retain(|undo| !undo.is_lost());
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

#[cfg(test)]
mod tests;
