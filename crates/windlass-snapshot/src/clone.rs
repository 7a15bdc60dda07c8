//! Method `clone` for SQLite: the file system copies the database file without its blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::FileNo;
use windlass_engine::{Cancel, Progress};
use windlass_sqlite::Database;

use crate::error::SnapshotError;
use crate::image;
use crate::maker::{Made, Maker};
use crate::method::Method;
use crate::obstacle::Obstacle;
use crate::record::Survives;
use crate::{copy, directory, room};

/// The file with which cloning is tried.
const TRIAL: &str = "trial";

/// Clones a SQLite database.
pub struct SqliteClone {
    path: PathBuf,
    database: Database,
}

impl SqliteClone {
    /// Of this database.
    pub fn new(database: Database) -> Self {
        let path = PathBuf::from(&database.facts().path);
        Self { path, database }
    }

    /// The length of its log, whose pages are written over the clone.
    fn log_bytes(&self) -> u64 {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        std::fs::metadata(log).map_or(0, |found| found.len())
    }
}

impl Maker for SqliteClone {
    fn method(&self) -> Method {
        Method::Clone
    }

    fn obstacle(&self, into: &Path) -> Result<Option<Obstacle>, SnapshotError> {
        let fault = self.database.clone_fault(&into.join(TRIAL))?;
        Ok(fault.map(|error| Obstacle::no_clones(&self.path, into, &error)))
    }

    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError> {
        let left = room::left_for_file(&self.path, into)?;
        room::check(into, left, self.log_bytes())?;
        let data = image::make_data(into)?;
        let clone = image::file_in(into, FileNo(0));
        let outcome = self.database.clone_into(&clone, progress, cancel)?;
        directory::sync(&data)?;
        Ok(Made {
            facts: outcome.facts,
            files: Some(outcome.files),
            as_of: outcome.as_of,
            lsn: None,
            writers_stopped: outcome.writers_stopped,
            survives: Survives::PowerCut,
            warnings: copy::sqlite_warnings(&outcome.warnings),
        })
    }
}
