//! Tells others that a set is read, where readers cannot keep it in another way.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use windlass_media::SetId;

use super::FoundSet;
use crate::error::{EngineError, read_error};
use crate::storage::{Kept, Storage};

/// Says in each place of a set, and of those that it builds on, that they are read.
pub(crate) fn note_all(storage: &dyn Storage, set: &FoundSet) -> Result<Vec<Kept>, EngineError> {
    let mut places: BTreeMap<&Path, BTreeSet<SetId>> = BTreeMap::new();
    for link in set.links() {
        for stripe in link.stripes() {
            let place = stripe.location().parent().unwrap_or(Path::new(""));
            places.entry(place).or_default().insert(link.set_id());
        }
    }
    let places = places.into_iter();
    let noted = places.map(|(place, sets)| {
        let noted = storage.note(place, &sets);
        noted.map_err(|source| read_error(place, 0, source))
    });
    noted.collect()
}
