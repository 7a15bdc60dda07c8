//! Snapshots of live databases: makes, lists and drops them, goes back to them, and prepares a
//! server for them.
//!
//!   DATABASE --[subject]--> place beside it --+--> create: reserve, choose a method, make
//!                                             +--> list, drop, rotate, enable, disable
//!                                             +--> back: plan, run
//!
//! A snapshot that is made or dropped belongs to the owner of the database, whoever began it.

mod away;
mod back;
mod create;
mod enable;
mod image;
mod kind;
mod listed;
mod named;
mod rotate;
mod subject;
mod word;

use std::path::{Path, PathBuf};

use windlass_snapshot::{Place, SnapshotName};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::recorded;
use crate::kept;
use crate::notice::Notice;
use crate::privilege::as_typed;

pub use back::{BackOutcome, BackPlan, Undoing, plan_revert, plan_undo};
pub use create::{CreateOutcome, CreateRequest, SnapshotWarning, create, method_of};
pub(crate) use enable::find as find_library;
pub use enable::{EnableRequest, Enabled, LIBRARY, disable, enable};
pub use image::SnapshotImage;
pub use listed::{Listed, ListedUndo, Listing, list};
pub(crate) use named::find as find_named;
pub use rotate::{RotateOutcome, WithUndo, rotate};
pub use subject::Subject;
pub use windlass_snapshot::hook::{HookError, HookLimits, HookStart, HookState, Orphans, is_limit};
pub use windlass_snapshot::{
    ClusterBack, Entry, Left, Method, Obstacle, Older, PassedOver, Record, Reverted, STATES_KEPT,
    Settled, Snapshot, SnapshotError, State, Step, Survives, Undo, UndoNumber, UndoRecord,
};
pub(crate) use word::divided;
pub use word::with_name;

/// Which database's snapshots are meant.
#[derive(Clone, Debug, Default)]
pub struct SnapshotsOf {
    /// The database: a SQLite file, a connection string, or a data directory.
    pub database: String,
    /// What the configuration calls it.
    pub name: Option<String>,
}

/// What the history calls a snapshot, and its database.
fn names(of: &SnapshotsOf, name: &str) -> (String, String) {
    let guessed = DatabaseName::guess(&of.database);
    let configured = |other: String| of.name.clone().unwrap_or(other);
    let subject = format!("{}@{name}", configured(guessed.short_name()));
    (subject, configured(guessed.place()))
}

/// What went with a snapshot that was dropped, and what did not.
#[derive(Debug, Default)]
pub struct Removed {
    /// The states that went with it.
    pub undo: Vec<UndoNumber>,
    /// Its directory, if that was not there: a disk may not be mounted. Only its entry is gone.
    pub away: Option<PathBuf>,
}

impl Removed {
    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        match self.away {
            None => Ending::Done,
            Some(_) => Ending::Warnings,
        }
    }
}

/// Drops a snapshot, or a state that a revert overwrote. What is kept open of a snapshot is closed
/// first.
pub fn remove(caller: &Caller, of: &SnapshotsOf, name: &str) -> Result<Removed, OperationError> {
    let names = names(of, name);
    recorded(caller, "snapshot drop", names, || {
        let removed = drop_it(caller, of, name)?;
        let ending = removed.ending();
        Ok((removed, ending))
    })
}

fn drop_it(caller: &Caller, of: &SnapshotsOf, name: &str) -> Result<Removed, OperationError> {
    if let Some(state) = UndoNumber::parse(name) {
        windlass_snapshot::remove_undo(&place(caller, of)?, state)?;
        return Ok(Removed::default());
    }
    let name = SnapshotName::parse(name)?;
    let subject = Subject::resolve(&of.database, of.name.as_deref())?;
    close_kept(caller, &subject, &name)?;
    let place = place_of(caller, &subject)?;
    let states = windlass_snapshot::undo_states(&place)?.into_iter();
    let over_it = states.filter(|undo| undo.snapshot.record().name == name.as_str());
    let undo = over_it.map(|undo| undo.number).collect();
    let away = match place.find(&name) {
        Err(SnapshotError::Missing { path, .. }) => Some(path),
        // Whoever drops it says what is wrong with it.
        _ => None,
    };
    place.remove(&name, &mut tell_removed(caller))?;
    subject.sweep_memories();
    Ok(Removed { undo, away })
}

/// Closes what is kept open of a snapshot. The process must not have become the owner of the
/// database yet: root may have opened the snapshot.
fn close_kept(
    caller: &Caller,
    subject: &Subject,
    name: &SnapshotName,
) -> Result<(), OperationError> {
    match named::place(caller, subject)?.find(name) {
        Ok(snapshot) => kept::close_all_of(snapshot.path()),
        // Whoever drops it says what is wrong with it.
        Err(_) => Ok(()),
    }
}

/// The place of a database's snapshots. The process becomes the owner of the database.
fn place(caller: &Caller, of: &SnapshotsOf) -> Result<Place, OperationError> {
    place_of(caller, &Subject::resolve(&of.database, of.name.as_deref())?)
}

fn place_of(caller: &Caller, subject: &Subject) -> Result<Place, OperationError> {
    let (path, place) = found(caller, subject)?;
    settle(caller, &path, &place)?;
    Ok(place)
}

/// The database, and the place of its snapshots. The process becomes the owner of the database.
fn found(caller: &Caller, subject: &Subject) -> Result<(PathBuf, Place), OperationError> {
    subject.become_owner(caller)?;
    let path = subject.path()?;
    let place = Place::beside(&path)?;
    if let Subject::Gone(path) = subject {
        caller.tell(&Notice::DatabaseGone(path));
    }
    Ok((path, place))
}

/// Finishes or undoes a revert of a cluster that was cut off. `None` if there is none.
fn settle(caller: &Caller, data: &Path, place: &Place) -> Result<Option<Settled>, OperationError> {
    if !ClusterBack::is_cut_off(data) {
        return Ok(None);
    }
    let cluster = ClusterBack::new(data)?;
    let settled = cluster.settle(place)?;
    if let Some(settled) = settled {
        let start = as_typed(&cluster.server().start_command());
        caller.tell(&Notice::RevertSettled {
            settled,
            data,
            start: (!cluster.server().was_running()).then_some(start.as_str()),
        });
    }
    Ok(settled)
}

/// Says what was removed that killed processes left.
fn tell_removed(caller: &Caller) -> impl FnMut(&Path) {
    |path| {
        caller.tell(&Notice::SnapshotRemoved(path));
    }
}
