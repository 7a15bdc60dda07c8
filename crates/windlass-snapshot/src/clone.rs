//! Method `clone` for SQLite: the file system copies the database file without its blocks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::FileNo;
use windlass_engine::{Cancel, Progress, durable};
use windlass_sqlite::{Database, SqliteError};

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
        room::check(into, left, 0)?;
        let data = image::make_data(into)?;
        let clone = image::file_in(into, FileNo(0));
        let check_room = |bytes| room::look(into, left, bytes);
        let cloned = self
            .database
            .clone_into(&clone, &check_room, progress, cancel);
        let outcome = cloned.map_err(|error| match error {
            // That of the snapshot.
            SqliteError::Io { path, source, .. } if durable::is_full(&source) => {
                SnapshotError::io("write", &path, source)
            }
            other => other.into(),
        })?;
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
