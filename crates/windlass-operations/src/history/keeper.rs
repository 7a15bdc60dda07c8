//! Where runs are kept: the catalog of a state directory, opened when it is first needed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_lab::state_directory;
use windlass_repository::{CATALOG_FILE, Catalog, CatalogError};

/// Where runs are kept, if they are.
#[derive(Clone, Default)]
pub struct History(Option<Arc<Keeper>>);

/// The catalog of a state directory, opened when it is first needed.
struct Keeper {
    directory: PathBuf,
    opened: Mutex<Option<Catalog>>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.0.as_ref().map(|keeper| &keeper.directory);
        f.debug_tuple("History").field(&directory).finish()
    }
}

impl History {
    /// No run is kept.
    pub fn none() -> Self {
        Self(None)
    }

    /// Runs are kept in the state directory of this process.
    pub fn of_process() -> Self {
        Self(state_directory().map(|directory| {
            Arc::new(Keeper {
                directory,
                opened: Mutex::new(None),
            })
        }))
    }

    /// Opens the catalog before the process becomes another user. Whoever writes to it tells of an
    /// error.
    pub(crate) fn open(&self) {
        drop(self.with(|_| Ok(()), |_| {}));
    }

    /// Reads the catalog. None if no run is kept, or if there is none yet.
    pub(crate) fn with_existing<T>(
        &self,
        work: impl FnOnce(&mut Catalog) -> Result<T, CatalogError>,
    ) -> Option<Result<T, CatalogError>> {
        let keeper = self.0.as_ref()?;
        let is_there = keeper.directory.join(CATALOG_FILE).is_file();
        is_there.then(|| self.with(work, |_| {})).flatten()
    }

    /// Does something with the catalog; none if no run is kept. If the catalog was damaged, `tell`
    /// gets the place of the damaged file.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut Catalog) -> Result<T, CatalogError>,
        tell: impl FnOnce(&Path),
    ) -> Option<Result<T, CatalogError>> {
        let keeper = self.0.as_ref()?;
        let mut opened = keeper.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            match Catalog::open(&keeper.directory) {
                Err(error) => return Some(Err(error)),
                Ok(found) => {
                    if let Some(aside) = &found.damaged {
                        tell(aside);
                    }
                    *opened = Some(found.catalog);
                }
            }
        }
        Some(work(opened.as_mut()?))
    }
}
