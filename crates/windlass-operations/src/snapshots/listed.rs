//! The snapshots of a database, as a list shows them.

use std::path::PathBuf;

use windlass_snapshot::hook::HookState;
use windlass_snapshot::{Entry, Record, SnapshotError, State, UndoRecord};

use super::SnapshotsOf;
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;

/// A line of the list.
#[derive(Debug)]
pub struct Listed {
    /// What is there.
    pub entry: Entry,
    /// Bytes that it takes on disk, if they can be counted.
    pub disk_bytes: Option<u64>,
    /// What a revert overwrote, if that can be brought back.
    pub undo: Option<UndoRecord>,
    /// How it grows; `None` if it was not made by the hook.
    pub growth: Option<HookState>,
}

impl Listed {
    fn new(entry: Entry) -> Self {
        let disk_bytes = match &entry {
            // One that is dropped meanwhile takes nothing.
            Entry::Snapshot(snapshot) => snapshot.disk_bytes().ok(),
            _ => None,
        };
        let undo = match &entry {
            // A damaged one cannot be brought back. Whoever tries that learns why.
            Entry::Snapshot(snapshot) => snapshot.undo().ok().flatten(),
            _ => None,
        };
        let growth = match &entry {
            Entry::Snapshot(snapshot) => snapshot.growth(),
            _ => None,
        };
        Self {
            entry,
            disk_bytes,
            undo,
            growth,
        }
    }

    /// What is known about the snapshot, if it is one.
    pub fn record(&self) -> Option<&Record> {
        match &self.entry {
            Entry::Snapshot(snapshot) => Some(snapshot.record()),
            _ => None,
        }
    }

    /// Its directory.
    pub fn path(&self) -> PathBuf {
        match &self.entry {
            Entry::Snapshot(snapshot) => snapshot.path().to_owned(),
            Entry::Unfinished { path, .. }
            | Entry::Missing { path, .. }
            | Entry::Unreadable { path, .. } => path.clone(),
        }
    }

    /// How a list ends that has this line.
    pub fn ending(&self) -> Ending {
        match &self.entry {
            Entry::Unreadable { error, .. } if error.is_damage() => Ending::Damage,
            Entry::Unreadable { .. } | Entry::Missing { .. } => Ending::Warnings,
            // Somebody counts on it.
            Entry::Snapshot(snapshot) if snapshot.record().state != State::Kept => Ending::Warnings,
            _ => Ending::Done,
        }
    }

    /// Why it cannot be used, if something is wrong with it.
    pub fn fault(&self) -> Option<&SnapshotError> {
        match &self.entry {
            Entry::Unreadable { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// The snapshots of a database, the oldest first.
pub fn list(caller: &Caller, of: &SnapshotsOf) -> Result<Vec<Listed>, OperationError> {
    let entries = super::place(caller, of)?.list()?;
    Ok(entries.into_iter().map(Listed::new).collect())
}
