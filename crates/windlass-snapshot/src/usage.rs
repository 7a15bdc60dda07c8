//! How much room a snapshot takes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Doing, SnapshotError};

/// A block of `st_blocks`, whatever the file system's own blocks are (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Bytes that a file takes on disk, or a directory with everything in it.
pub(crate) fn disk_bytes_of(path: &Path) -> Result<u64, SnapshotError> {
    let found = path.metadata().doing("inspect", path)?;
    match found.is_dir() {
        true => disk_bytes(path),
        false => Ok(found.blocks().saturating_mul(BLOCK_BYTES)),
    }
}

/// Bytes that a directory takes on disk, with everything in it.
pub(crate) fn disk_bytes(directory: &Path) -> Result<u64, SnapshotError> {
    let mut waiting = vec![directory.to_owned()];
    let mut bytes: u64 = 0;
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).doing("list", &directory)? {
            let entry = entry.doing("list", &directory)?;
            let metadata = entry.metadata().doing("inspect", &entry.path())?;
            let blocks = metadata.blocks().saturating_mul(BLOCK_BYTES);
            bytes = bytes.saturating_add(blocks);
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    Ok(bytes)
}
