//! The snapshots of a database, as a list shows them.

use std::io::ErrorKind;
use std::path::PathBuf;

use windlass_snapshot::hook::{self, HookState, Orphans};
use windlass_snapshot::{Entry, Place, Record, Snapshot, SnapshotError, SnapshotName, State, Undo};

use super::SnapshotsOf;
use super::subject::Subject;
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
    /// How it grows; `None` if it was not made by the hook.
    pub growth: Option<HookState>,
    /// PostgreSQL: whether it is of another cluster, whose data directory this was before. It can
    /// be read, but not be gone back to.
    pub is_of_other_cluster: bool,
}

impl Listed {
    fn new(entry: Entry, place: &Place) -> Self {
        let entry = looked_at(entry, place);
        let disk_bytes = match &entry {
            // One that is dropped meanwhile takes nothing.
            Entry::Snapshot(snapshot) => snapshot.disk_bytes().ok(),
            _ => None,
        };
        let growth = match &entry {
            Entry::Snapshot(snapshot) => snapshot.growth(),
            _ => None,
        };
        let is_of_other_cluster = match &entry {
            Entry::Snapshot(snapshot) => place.is_of_other_cluster(snapshot),
            _ => false,
        };
        Self {
            entry,
            disk_bytes,
            growth,
            is_of_other_cluster,
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

/// An entry, after a look at the data: a snapshot without them cannot be read. One that is the copy
/// of another database's is none of this one.
fn looked_at(entry: Entry, place: &Place) -> Entry {
    let snapshot = match entry {
        Entry::Snapshot(snapshot) => snapshot,
        other => return other,
    };
    let path = snapshot.path().to_owned();
    let name = SnapshotName::parse(&snapshot.record().name);
    if let (Some(database), Ok(name)) = (place.owner_of(&snapshot), &name) {
        let (name, link) = (name.clone(), path.clone());
        let error = SnapshotError::OfAnother { link, database };
        return Entry::Unreadable { name, path, error };
    }
    match (snapshot.check_there(), name) {
        // One that is dropped meanwhile has lost nothing.
        (Err(error), Ok(name)) if error.is_damage() && Snapshot::is_at(&path) => {
            Entry::Unreadable { name, path, error }
        }
        _ => Entry::Snapshot(snapshot),
    }
}

/// The line of a state that a revert or an undo overwrote.
#[derive(Debug)]
pub struct ListedUndo {
    /// The state.
    pub undo: Undo,
    /// Why it cannot be read, if something is wrong with it: one look for the line, what is said of
    /// it, and how the list ends. It may be gone with the next.
    pub fault: Option<SnapshotError>,
}

impl ListedUndo {
    fn new(undo: Undo) -> Self {
        let fault = undo.fault();
        Self { undo, fault }
    }

    /// How a list ends that has this line.
    pub fn ending(&self) -> Ending {
        match &self.fault {
            None => Ending::Done,
            Some(fault) if fault.is_damage() => Ending::Damage,
            Some(_) => Ending::Warnings,
        }
    }
}

/// What a database can go back to.
#[derive(Debug)]
pub struct Listing {
    /// Its snapshots, the oldest first.
    pub snapshots: Vec<Listed>,
    /// The states that reverts and undos overwrote, the oldest first.
    pub undo: Vec<ListedUndo>,
    /// PostgreSQL: snapshots that the server still has, and whose directories are not there.
    pub missed: Orphans,
    /// Why there may be more: what could not be looked at.
    pub unseen: Vec<String>,
}

impl Listing {
    /// How the list ends.
    pub fn ending(&self) -> Ending {
        let missed = match self.missed.has_any() || !self.unseen.is_empty() {
            true => Ending::Warnings,
            false => Ending::Done,
        };
        let of_undo = self.undo.iter().map(ListedUndo::ending);
        let endings = self.snapshots.iter().map(Listed::ending).chain(of_undo);
        endings.fold(missed, worse)
    }
}

/// Damage is worse than a warning.
fn worse(one: Ending, other: Ending) -> Ending {
    match (one, other) {
        (Ending::Damage, _) | (_, Ending::Damage) => Ending::Damage,
        (Ending::Warnings, _) | (_, Ending::Warnings) => Ending::Warnings,
        _ => Ending::Done,
    }
}

/// The snapshots of a database, and what reverts to them overwrote.
pub fn list(caller: &Caller, of: &SnapshotsOf) -> Result<Listing, OperationError> {
    let subject = Subject::resolve(&of.database, of.name.as_deref())?;
    let (path, place) = super::found(caller, &subject)?;
    let mut unseen = Vec::new();
    match std::fs::read_dir(&path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            unseen.push(format!("read {}: {error}", path.display()));
        }
        _ => {
            super::settle(caller, &path, &place)?;
        }
    }
    let entries = place.list()?;
    unseen.extend(place.unseen().map(str::to_owned));
    let missed = hook::missed(&place.database(), place.home()).unwrap_or_else(|error| {
        unseen.push(error.to_string());
        Orphans::default()
    });
    unseen.dedup();
    let undo = windlass_snapshot::undo_states(&place)?.into_iter();
    Ok(Listing {
        missed,
        unseen,
        snapshots: entries
            .into_iter()
            .map(|entry| Listed::new(entry, &place))
            .collect(),
        undo: undo.map(ListedUndo::new).collect(),
    })
}
