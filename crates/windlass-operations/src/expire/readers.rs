//! Who needs a set that goes, where readers cannot lock it: those who left a note, and backups that
//! ended while it was marked.
//!
//!   mark --> list of notes, list of sets --> somebody needs it: the mark goes, the set stays
//!
//! A reader leaves its note before it looks for the mark, and a backup gives its set a name before
//! it takes its note away. So whoever the lists do not show has seen the mark.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_engine::media::SetId;
use windlass_engine::{DeviceOperation, EngineError, SetEntry, SetList};

use super::steps::{base_of, bases, by_id, hiding_places};
use crate::devices::STORAGE;
use crate::error::OperationError;

/// The sets that somebody says to read.
pub(super) struct Readers(BTreeSet<SetId>);

impl Readers {
    /// Those in these places.
    pub(super) fn of(places: BTreeSet<&Path>) -> Result<Self, OperationError> {
        let mut read = BTreeSet::new();
        for place in places {
            let noted = STORAGE.noted(place);
            read.extend(noted.map_err(|source| EngineError::DeviceIo {
                operation: DeviceOperation::Read,
                device: place.display().to_string(),
                offset: 0,
                source,
            })?);
        }
        Ok(Self(read))
    }

    /// Whether somebody reads this set.
    pub(super) fn read(&self, set: SetId) -> bool {
        self.0.contains(&set)
    }
}

/// Whether a set of the list builds on this one.
pub(super) fn is_needed(list: &SetList, set: SetId) -> bool {
    list.sets.iter().any(|one| base_of(one) == Some(set))
}

/// Which of these sets, which are marked now, somebody needs after all. `before` is the list from
/// before, and `list` makes a new one.
pub(super) fn needed_after_all(
    (before, list): (&SetList, impl FnOnce() -> Result<SetList, OperationError>),
    due: &[&SetEntry],
) -> Result<BTreeSet<SetId>, OperationError> {
    let stripes: Vec<_> = due.iter().flat_map(|set| set.locations()).collect();
    let places = hiding_places(&stripes);
    if places.is_empty() {
        return Ok(BTreeSet::new());
    }
    let readers = Readers::of(places)?;
    let now = list()?;
    let all = by_id(&[before, &now]);
    let before = by_id(&[before]);
    let new = now.sets.iter();
    let new: Vec<_> = new
        .filter(|set| !before.contains_key(&set.set_id))
        .collect();
    // Nobody knows what it needs.
    let is_unclear = new.iter().any(|set| set.may_have_base);
    let mut needed: BTreeSet<SetId> = new.iter().flat_map(|set| bases(&all, set.set_id)).collect();
    let due = due.iter().map(|set| set.set_id);
    needed.extend(due.filter(|set| is_unclear || readers.read(*set)));
    Ok(needed)
}
