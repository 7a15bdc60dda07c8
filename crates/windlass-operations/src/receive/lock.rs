//! The lock of a receiver in a bucket, where nothing can be locked: a note, as readers of sets
//! leave them. It names the cluster.
//!
//! Invariant: a note is left before the receiver looks for others. Of two that begin at once, one
//! sees the other, and perhaps both do.

use std::collections::BTreeSet;
use std::io;

use windlass_engine::Kept;
use windlass_engine::media::SetId;
use windlass_object::RECEIVER;
use windlass_repository::{Place, RepositoryError};

use crate::devices::STORAGE;

/// Where the part of a note begins that each receiver has for itself.
const OWN_AT: usize = 12;

/// Makes this process the only receiver of a cluster's log in a place, as long as the value lives.
/// In a directory, objects that grow are locked instead.
pub(super) fn lock(place: &Place, system: u64) -> Result<Option<Kept>, RepositoryError> {
    let path = place.path();
    if !STORAGE.hides(path) {
        return Ok(None);
    }
    let io = |source: io::Error| RepositoryError::Io {
        doing: "leave a note in",
        path: path.to_owned(),
        source,
    };
    let own = note(system);
    let kept = STORAGE.note(path, &BTreeSet::from([own])).map_err(io)?;
    let noted = STORAGE.noted(path).map_err(io)?;
    let is_other = |one: &&SetId| one.0[..OWN_AT] == own.0[..OWN_AT] && **one != own;
    match noted.iter().find(is_other) {
        None => Ok(Some(kept)),
        Some(_) => Err(RepositoryError::Locked {
            path: path.to_owned(),
        }),
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
