//! Making a snapshot: from a reserved name to a record.

use std::sync::Arc;
use std::time::Instant;

use windlass_engine::{Cancel, Progress};

use crate::error::SnapshotError;
use crate::maker::Maker;
use crate::method::Method;
use crate::place::Reserved;
use crate::record::{Record, Source, State, Step};
use crate::snapshot::Snapshot;
use crate::{hook, image};

/// A snapshot that was just made.
#[derive(Debug)]
pub struct Created {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// What the user should know: the name of each warning, and its words.
    pub warnings: Vec<(String, String)>,
}

/// Makes a snapshot. If that fails, the name is free again and nothing is left.
pub fn create(
    reserved: Reserved,
    maker: &mut dyn Maker,
    source: Source,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<Created, SnapshotError> {
    match record(&reserved, maker, source, progress, cancel) {
        Ok((record, warnings)) => Ok(Created {
            snapshot: reserved.complete(record)?,
            warnings,
        }),
        Err(error) => {
            // The error to show is why the snapshot was not made. What stays, the next one removes.
            reserved.take_back().unwrap_or_default();
            Err(error)
        }
    }
}

fn record(
    reserved: &Reserved,
    maker: &mut dyn Maker,
    source: Source,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<(Record, Vec<(String, String)>), SnapshotError> {
    let (created, began) = (jiff::Timestamp::now(), Instant::now());
    let directory = reserved.directory();
    let made = maker.make(directory, progress, cancel)?;
    cancel.check()?;
    progress.set_phase("publishing");
    let files_crc32c = match (&made.files, maker.method()) {
        (Some(files), _) => Some(image::write_list(directory, files)?),
        (None, Method::Hook) => hook::Document::checksum(&directory.join(hook::CONTENT))?,
        (None, _) => None,
    };
    let record = Record {
        name: reserved.name().to_string(),
        id: uuid::Uuid::new_v4().simple().to_string(),
        method: maker.method(),
        source,
        created: created.to_string(),
        as_of: made.as_of.to_string(),
        lsn: made.lsn,
        seconds: began.elapsed().as_secs_f64(),
        writers_stopped_seconds: made.writers_stopped.as_secs_f64(),
        survives: made.survives,
        state: State::Kept,
        steps: Step::of_phases(progress.phase_times()),
        facts: made.facts,
        files_crc32c,
    };
    Ok((record, made.warnings))
}
