//! Method `copy`: a full backup into the snapshot's directory, so the snapshot is a sealed set.
//!
//! Everything that can be done with a set can be done with such a snapshot, and each of its frames
//! has a checksum. The codec is lz4: it costs little, and saves room and writing.

use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use windlass_engine::media::{Codec, Facts, SEAL_BYTES, Seal, SetId, fitted};
use windlass_engine::{
    BackupOptions, BackupRun, BufferPlan, BufferRequest, Cancel, Device, EngineError, FileDevice,
    FileDeviceOptions, METADATA_LIMIT_DEFAULT, OpenSet, Progress, durable, open_regular,
};
use windlass_postgres::{BackupRequest, Cluster, PostgresError};
use windlass_sqlite::{Database, JournalMode, SqliteError, Warning};

use crate::error::{Doing, SnapshotError};
use crate::image::GONE;
use crate::maker::{Made, Maker};
use crate::method::Method;
use crate::record::Survives;
use crate::{cluster, room};

/// The stripe of the set.
const STRIPE: &str = "snapshot.windlass";

/// Copies a SQLite database.
pub struct SqliteCopy {
    database: Database,
}

/// Copies a PostgreSQL cluster.
pub struct PostgresCopy {
    cluster: Cluster,
    request: BackupRequest,
}

impl SqliteCopy {
    /// Of this database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }
}

impl PostgresCopy {
    /// Of this cluster.
    pub fn new(cluster: Cluster, request: BackupRequest) -> Self {
        Self { cluster, request }
    }
}

/// The stripes of a snapshot that is a set.
pub(crate) fn stripes(directory: &Path) -> Vec<PathBuf> {
    vec![directory.join(STRIPE)]
}

/// Fails if the set in a directory is gone, or does not end as one that is complete.
pub(crate) fn check_there(directory: &Path) -> Result<(), SnapshotError> {
    let path = directory.join(STRIPE);
    let file = match open_regular(&path) {
        Err(error) if durable::is_absent(&error) => {
            return Err(SnapshotError::Damaged { path, what: GONE });
        }
        opened => opened.doing("open", &path)?,
    };
    let length = file.metadata().doing("inspect", &path)?.len();
    let mut end = [0; SEAL_BYTES];
    let at = length.saturating_sub(SEAL_BYTES as u64);
    let is_whole = match file.read_exact_at(&mut end, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
        read => {
            read.doing("read", &path)?;
            Seal::decode(&end, length).is_ok()
        }
    };
    match is_whole {
        true => Ok(()),
        false => Err(SnapshotError::Damaged {
            path,
            what: "it does not end like a complete set",
        }),
    }
}

/// Fails if the set in a directory is that of another snapshot than these facts are of. What is
/// wrong with one that cannot be opened, whoever reads it says.
pub(crate) fn check_own(directory: &Path, facts: &Facts) -> Result<(), SnapshotError> {
    let path = directory.join(STRIPE);
    if path
        .symlink_metadata()
        .is_err_and(|error| durable::is_absent(&error))
    {
        return Err(SnapshotError::Damaged { path, what: GONE });
    }
    let Ok(set) = OpenSet::open(&stripes(directory), METADATA_LIMIT_DEFAULT) else {
        return Ok(());
    };
    let found = &set.description().facts;
    // No two are begun and ended in the same nanoseconds.
    match (&found.started, &found.finished) == (&facts.started, &facts.finished) {
        true => Ok(()),
        false => Err(SnapshotError::Damaged {
            path,
            what: "it is the set of another snapshot",
        }),
    }
}

/// The names of warnings, and their words.
pub(crate) fn sqlite_warnings(warnings: &[Warning]) -> Vec<(String, String)> {
    let named = |one: &Warning| (one.name().to_owned(), one.to_string());
    warnings.iter().map(named).collect()
}

impl Maker for SqliteCopy {
    fn method(&self) -> Method {
        Method::Copy
    }

    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError> {
        let leave_free = room::left_for_file(Path::new(&self.database.facts().path), into)?;
        let run = start(into, (1, leave_free), progress, cancel)?;
        let outcome = self.database.backup(run).map_err(|error| match error {
            SqliteError::Engine(error) => of_run(error),
            error => error.into(),
        })?;
        let waits = outcome.facts.journal_mode == JournalMode::Rollback;
        Ok(Made {
            facts: facts(into)?,
            files: None,
            as_of: outcome.as_of,
            lsn: None,
            writers_stopped: match waits {
                true => outcome.lock_held,
                false => Duration::ZERO,
            },
            survives: Survives::PowerCut,
            warnings: sqlite_warnings(&outcome.warnings),
        })
    }
}

impl Maker for PostgresCopy {
    fn method(&self) -> Method {
        Method::Copy
    }

    fn make(
        &mut self,
        into: &Path,
        progress: &Arc<Progress>,
        cancel: &Cancel,
    ) -> Result<Made, SnapshotError> {
        let volumes = self.cluster.scan_volumes()?;
        let leave_free = room::left_for_server(&self.cluster.facts().data_directory, into)?;
        let run = start(into, (volumes, leave_free), progress, cancel)?;
        let outcome = self.cluster.backup(&self.request, run);
        let outcome = outcome.map_err(|error| match error {
            PostgresError::Engine(error) => of_run(error),
            error => error.into(),
        })?;
        Ok(Made {
            facts: facts(into)?,
            files: None,
            as_of: cluster::server_time(&outcome.facts.stop_time),
            lsn: Some(outcome.facts.stop_lsn.to_string()),
            writers_stopped: Duration::ZERO,
            survives: Survives::PowerCut,
            warnings: cluster::warnings(&outcome.facts),
        })
    }
}

/// What a run said. A snapshot has one device, so a full disk is that of the snapshot.
fn of_run(error: EngineError) -> SnapshotError {
    match error {
        EngineError::DeviceIo { device, source, .. } if durable::is_full(&source) => {
            SnapshotError::io("write", Path::new(&device), source)
        }
        error => error.into(),
    }
}

/// Starts a run with one stripe in this directory.
fn start(
    into: &Path,
    (volumes, leave_free): (usize, u64),
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<BackupRun, SnapshotError> {
    let plan = BufferRequest::default().plan(1, volumes)?;
    let options = FileDeviceOptions {
        alignment: plan.alignment,
        depth: plan.write_depth_max(),
        leave_free,
        ..FileDeviceOptions::default()
    };
    let device = FileDevice::create(&into.join(STRIPE), options)?;
    let devices: Vec<Box<dyn Device>> = vec![Box::new(device)];
    let created = fitted(jiff::Timestamp::now().as_nanosecond());
    let set_id = SetId(*uuid::Uuid::new_v4().as_bytes());
    let (progress, cancel) = (Arc::clone(progress), cancel.clone());
    let options = options_of(plan);
    Ok(BackupRun::start(
        set_id, created, options, devices, progress, cancel,
    )?)
}

fn options_of(plan: BufferPlan) -> BackupOptions {
    BackupOptions {
        plan,
        codec: Codec::Lz4,
        range: None,
        source_rate: None,
        device_rate: None,
        ring: true,
        pacing: None,
        page_frames: false,
        frame_proof: true,
        encryption: None,
        parities: 0,
    }
}

/// The facts of the set that was made.
fn facts(into: &Path) -> Result<Facts, SnapshotError> {
    let set = OpenSet::open(&stripes(into), METADATA_LIMIT_DEFAULT)?;
    Ok(set.description().facts.clone())
}
