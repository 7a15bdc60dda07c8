//! The one interface of all methods.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{Facts, FileTable};
use windlass_engine::{Cancel, Progress};

use crate::error::SnapshotError;
use crate::method::Method;
use crate::obstacle::Obstacle;
use crate::record::Survives;

/// Makes snapshots of one database by one method.
pub trait Maker {
    /// The method.
    fn method(&self) -> Method;

    /// Finds out whether the method can make a snapshot of this database in this directory, by
    /// trying it. Leaves nothing in the directory. A copy has no obstacle.
    fn obstacle(&self, _into: &Path) -> Result<Option<Obstacle>, SnapshotError> {
        Ok(None)
    }

    /// Makes the content of a snapshot in a directory that has none. All of it is durable when this
    /// returns. The phases of `progress` are the steps that are shown.
    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError>;
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct Made {
    /// What is known about the database in it.
    pub facts: Facts,
    /// Its files, if they lie in the directory by their numbers; none if it is a set.
    pub files: Option<FileTable>,
    /// As of when the data are.
    pub as_of: jiff::Timestamp,
    /// PostgreSQL: where in the log that is.
    pub lsn: Option<String>,
    /// How long nobody could commit.
    pub writers_stopped: Duration,
    /// What it survives.
    pub survives: Survives,
    /// What the user should know: the name of each warning, and its words.
    pub warnings: Vec<(String, String)>,
}
