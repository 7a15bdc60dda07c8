//! Putting a SQLite database back whose file is not there: somebody deleted it, or moved it away.
//!
//!   snapshot --[clone, or copy]--> temporary file beside the database --> its name
//!
//! Invariants
//! - The file gets its name when it is complete and durable, and never takes the place of another.
//! - No log or journal of the old file lies beside it: SQLite would write that into the new one.
//! - No program that can be seen has the old file open, or it would share these with the new one.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::ioctl_ficlone;
use windlass_engine::media::{FileNo, fitted};
use windlass_engine::{Cancel, DirectFile, Progress, durable};
use windlass_sqlite::{KIND, files_of, left_open};

use crate::behind::{BLOCK_BYTES, Behind, Block};
use crate::error::{Doing, SnapshotError};
use crate::place::Place;
use crate::revert::{Reverted, State, clone_of, image_of};
use crate::snapshot::Snapshot;

/// What SQLite can do without: it makes the index of a log anew.
const INDEX_SUFFIX: &str = "-shm";

/// Makes the file that is not there what its snapshot is. If its name is a link, it comes where
/// that leads.
pub fn put_back(
    place: &Place,
    snapshot: &Snapshot,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<Reverted, SnapshotError> {
    let _alone = place.lock()?;
    let _hold = snapshot.hold()?;
    let database = place.database();
    let database = database.as_path();
    if snapshot.record().source.kind != KIND {
        return Err(SnapshotError::NotPutBack {
            path: database.to_owned(),
        });
    }
    check_free(database)?;
    progress.set_phase("opening the snapshot");
    let state = State::open(image_of(snapshot)?, snapshot)?;
    progress.set_phase("writing the database");
    let began = Instant::now();
    durable::remove_left(database);
    let mode = state.mode().unwrap_or(0o600);
    let made = durable::create_temporary(database, mode).doing("create", database)?;
    let named = write(&made.0, (&state, snapshot), &made.1, cancel).and_then(|()| {
        // A program may have written to the old file meanwhile.
        check_free(database)?;
        let named = durable::name_new(&made.0, &made.1, database);
        named.doing("create", database)
    });
    if let Err(error) = named {
        // The error to show is why the file is not there.
        std::fs::remove_file(&made.1).unwrap_or_default();
        return Err(error);
    }
    Ok(Reverted {
        page_count: state.page_count(),
        written_count: state.page_count(),
        locked: began.elapsed(),
        ..Reverted::nothing(state.page_bytes())
    })
}

/// Refuses a name whose old file somebody has open, or has left something of.
fn check_free(database: &Path) -> Result<(), SnapshotError> {
    check_left_open(database)?;
    for path in files_of(database).doing("find", database)? {
        let is_index = path.to_string_lossy().ends_with(INDEX_SUFFIX);
        let has_bytes = path.symlink_metadata().is_ok_and(|found| found.len() > 0);
        if has_bytes && !is_index {
            return Err(SnapshotError::Beside { path });
        }
    }
    Ok(())
}

/// Refuses a database that is not there if a program still has it open that this process can see.
pub fn check_left_open(database: &Path) -> Result<(), SnapshotError> {
    match left_open(database).doing("find who has open", database)? {
        Some(found) => Err(SnapshotError::LeftOpen {
            process: found.process,
            name: found.program,
            path: found.path,
        }),
        None => Ok(()),
    }
}

fn write(
    file: &File,
    (state, snapshot): (&State, &Snapshot),
    path: &Path,
    cancel: &Cancel,
) -> Result<(), SnapshotError> {
    let clone = clone_of(snapshot)?;
    let is_cloned = clone.is_some_and(|clone| ioctl_ficlone(file, &clone).is_ok());
    if !is_cloned {
        copy(file, state, path, cancel)?;
    }
    file.sync_all().doing("sync", path)
}

fn copy(file: &File, state: &State, path: &Path, cancel: &Cancel) -> Result<(), SnapshotError> {
    let bytes = u64::from(state.page_count()) * u64::from(state.page_bytes());
    let file = file.try_clone().doing("open", path)?;
    let file = Arc::new(DirectFile::cached(file));
    let path: Arc<Path> = path.into();
    let mut behind = Behind::start();
    let mut offset = 0;
    while offset < bytes {
        cancel.check()?;
        let count = (bytes - offset).min(BLOCK_BYTES as u64);
        let mut block = behind.memory()?;
        block.set_len(fitted(count));
        let found = state.image().read(FileNo(0), offset, &mut block)?;
        block[found..].fill(0);
        behind.write(Block {
            file: Arc::clone(&file),
            path: Arc::clone(&path),
            offset,
            bytes: block,
        })?;
        offset += count;
    }
    behind.finish()
}
