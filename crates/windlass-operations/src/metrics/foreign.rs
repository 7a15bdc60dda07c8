//! A file of metrics that only another user may replace.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thiserror::Error;
use windlass_postgres::user_shown;

/// A file of another user in a directory where only the owner of a file may replace it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "It belongs to {}, and only its owner may replace a file in that directory",
    user_shown(*owner)
)]
pub struct ForeignFile {
    /// The owner.
    pub owner: u32,
}

/// The old file, if this user may not put a new one in its place although the directory can be
/// written to: in a directory like /tmp only the owner of a file may do that.
pub fn unreplaceable(path: &Path) -> Option<ForeignFile> {
    const STICKY: u32 = 0o1000;
    let path = path.canonicalize().ok()?;
    let (file, directory) = (path.metadata().ok()?, path.parent()?.metadata().ok()?);
    let us = rustix::process::geteuid().as_raw();
    let is_sticky = directory.mode() & STICKY != 0;
    let may = us == 0 || us == file.uid() || us == directory.uid();
    (is_sticky && !may).then(|| ForeignFile { owner: file.uid() })
}
