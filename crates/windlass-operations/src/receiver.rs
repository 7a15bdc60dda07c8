//! The lock of a receiver in a bucket, where nothing can be locked: a note, as readers of sets
//! leave them. It names the cluster, or the SQLite database.
//!
//! Invariants
//! - A note is left before the receiver looks for others. Of two that begin at once, one sees the
//!   other, and perhaps both do.
//! - A receiver that slept until its note counted no more stores nothing before it has left one and
//!   looked again: the log asks for the note before each object (`held_by`).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::Keep;
use windlass_engine::media::SetId;
use windlass_object::{RECEIVER, is_of_same_log};
use windlass_repository::{Place, RepositoryError};

use crate::devices::STORAGE;

/// What makes this process the only one that receives a log into a bucket.
pub(crate) type Note = Arc<dyn Keep>;

/// Makes this process the only one that receives the log of a cluster or of a SQLite database into
/// a place, as long as the value lives. In a directory, the log or its growing objects are locked
/// instead.
pub(crate) fn lock(place: &Place, system: u64) -> Result<Option<Note>, RepositoryError> {
    let path = place.path();
    if !STORAGE.hides(path) {
        return Ok(None);
    }
    let io = |source: io::Error| failed("leave a note in", path, source);
    let own = note(system);
    let kept = STORAGE.note(path, &BTreeSet::from([own])).map_err(io)?;
    let noted = STORAGE.noted(path).map_err(io)?;
    let is_other = |one: &&SetId| is_of_same_log(one, &own) && **one != own;
    match noted.iter().find(is_other) {
        None => Ok(Some(Arc::from(kept))),
        Some(_) => Err(RepositoryError::Locked {
            path: path.to_owned(),
        }),
    }
}

/// Whether somebody receives this log into a place in a bucket.
pub(crate) fn is_there(place: &Path, system: u64) -> Result<bool, RepositoryError> {
    let own = note(system);
    let noted = STORAGE.noted(place);
    let noted = noted.map_err(|source| failed("look for notes in", place, source))?;
    Ok(noted.iter().any(|one| is_of_same_log(one, &own)))
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> RepositoryError {
    RepositoryError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// What a receiver notes: no set has this id.
fn note(system: u64) -> SetId {
    let mut id = *uuid::Uuid::new_v4().as_bytes();
    let (receiver, rest) = id.split_at_mut(RECEIVER.len());
    receiver.copy_from_slice(&RECEIVER);
    rest[..8].copy_from_slice(&system.to_le_bytes());
    SetId(id)
}
