//! The room that a new snapshot leaves on the disk of its database.
//!
//! A database must be able to go on. A server that can make no file for its log stops, and so does
//! one that gets no block for what a clone shares with it.

use std::io::{Error, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use windlass_engine::free_bytes;

use crate::error::{Doing, SnapshotError};

/// This part of the database's own disk stays free, but never more than so many bytes.
const LEFT_PART: u64 = 20;
const LEFT_BYTES_MAX: u64 = 1 << 30;
/// Two files of a server's log.
const LOG_BYTES: u64 = 32 << 20;

/// How much of the disk of a snapshot stays free for the server on this data directory.
pub(crate) fn left_for_server(data: &Path, into: &Path) -> Result<u64, SnapshotError> {
    left_for(&[data, &data.join("pg_wal")], into, LOG_BYTES)
}

/// The same for this SQLite database.
pub(crate) fn left_for_file(database: &Path, into: &Path) -> Result<u64, SnapshotError> {
    left_for(&[database], into, 0)
}

/// How much of a disk stays free for what grows on it, if a database has files there.
fn left_for(database: &[&Path], into: &Path, least: u64) -> Result<u64, SnapshotError> {
    let device = |path: &Path| Some(std::fs::metadata(path).ok()?.dev());
    let own = device(into);
    if !database.iter().any(|path| device(path) == own) {
        return Ok(0);
    }
    let disk = rustix::fs::statvfs(into).map_err(Error::from);
    let disk = disk.doing("examine", into)?;
    let part = disk.f_blocks.saturating_mul(disk.f_frsize) / LEFT_PART;
    Ok(part.min(LEFT_BYTES_MAX).max(least))
}

/// Fails if less would stay free on the disk of a snapshot, with so many bytes more in it.
pub(crate) fn check(into: &Path, left: u64, bytes: u64) -> Result<(), SnapshotError> {
    look(into, left, bytes).doing("write", into)
}

/// The same, for one who says where.
pub(crate) fn look(into: &Path, left: u64, bytes: u64) -> Result<(), Error> {
    if left == 0 {
        return Ok(());
    }
    // If nobody can tell, there is enough.
    let free = free_bytes(into).unwrap_or(u64::MAX);
    match free < left.saturating_add(bytes) {
        true => {
            let said = format!("{free} bytes are free, and {left} must stay so");
            Err(Error::new(ErrorKind::StorageFull, said))
        }
        false => Ok(()),
    }
}
