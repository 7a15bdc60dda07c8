//! What storages without locks need: the removal of all that a place has of a set at once, and a
//! clock.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use windlass_media::{SetId, saturated};

/// What goes of a place, when a set goes.
#[derive(Clone, Copy, Debug)]
pub struct Going<'a> {
    /// The place.
    pub place: &'a Path,
    /// The set.
    pub set: SetId,
    /// Its stripes there, as far as a list shows them.
    pub stripes: &'a [PathBuf],
    /// Documents beside them, which go after them.
    pub beside: &'a [PathBuf],
}

/// What could not be removed.
#[derive(Debug)]
pub struct NotRemoved {
    /// What it is.
    pub location: PathBuf,
    /// Why.
    pub source: io::Error,
    /// Whether something of the set is gone.
    pub is_begun: bool,
}

impl Going<'_> {
    /// Removes one after another.
    pub(super) fn remove_each(
        &self,
        remove: &dyn Fn(&Path) -> io::Result<()>,
    ) -> Result<(), NotRemoved> {
        let mut is_begun = false;
        for location in self.stripes.iter().chain(self.beside) {
            remove(location).map_err(|source| NotRemoved {
                location: location.clone(),
                source,
                is_begun,
            })?;
            is_begun = true;
        }
        Ok(())
    }
}

/// What the clock of this machine says.
pub(super) fn own_clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    saturated(now.unwrap_or_default().as_nanos())
}
