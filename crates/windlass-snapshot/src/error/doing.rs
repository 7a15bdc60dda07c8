//! What was being done when a system call failed.

use std::io;
use std::path::Path;

use windlass_engine::durable;

use super::SnapshotError;

/// What failed when something was done with a file to make another one of it. A full disk is that
/// of the new one, and whoever reads the path of the first frees room on the wrong disk.
pub(crate) fn failed_at<'a>(
    error: &io::Error,
    (action, from): (&'static str, &'a Path),
    to: &'a Path,
) -> (&'static str, &'a Path) {
    match durable::is_full(error) {
        true => ("write", to),
        false => (action, from),
    }
}

/// Says what was being done when a system call failed.
pub(crate) trait Doing<T> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SnapshotError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SnapshotError> {
        self.map_err(|source| SnapshotError::io(action, path, source.into()))
    }
}
