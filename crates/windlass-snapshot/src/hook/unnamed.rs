//! Snapshots that were dropped without a word which ones of the server they were, while others were
//! out of sight: a note in the data directory, with a line for each.
//!
//! The server still has them, because nobody can tell them from those that are out of sight. If it
//! has more snapshots later than there are directories, the note says that nobody removed one by
//! hand.
//!
//! Invariants
//! - The note goes as soon as all directories are in sight, and with the last snapshot
//!   (`durable::sweep`).
//! - It only says what is told. What is taken out of the server does not depend on it.

use std::path::{Path, PathBuf};

use windlass_engine::durable;
use windlass_image::layout::hook::SAVED_DIRECTORY;

use super::error::{HookError, HookIo};

const NAME: &str = "unnamed";
const PRIVATE_MODE: u32 = 0o600;
/// More lines are not written.
const LINES_MAX: usize = 1000;

/// The note of the cluster in a data directory.
pub(crate) fn path_of(data: &Path) -> PathBuf {
    data.join(SAVED_DIRECTORY).join(NAME)
}

/// How many there are.
pub(crate) fn count(data: &Path) -> Result<usize, HookError> {
    let path = path_of(data);
    let found = durable::if_there(path.symlink_metadata()).doing("examine", &path)?;
    Ok(found.map_or(0, |found| {
        usize::try_from(found.len()).map_or(LINES_MAX, |lines| lines.min(LINES_MAX))
    }))
}

/// Notes one more. Call it under the lock of the memory.
pub(crate) fn add(data: &Path) -> Result<(), HookError> {
    let path = path_of(data);
    let lines = vec![b'\n'; count(data)? + 1];
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).doing("create", parent)?;
    }
    durable::write(&path, &lines, PRIVATE_MODE).doing("write", &path)
}

/// Forgets all of them: every directory was in sight.
pub(crate) fn forget(data: &Path) -> Result<(), HookError> {
    let path = path_of(data);
    let removed = durable::if_there(std::fs::remove_file(&path));
    removed.doing("remove", &path).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_until_all_are_forgotten() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(count(data.path()).unwrap(), 0);
        forget(data.path()).unwrap();
        for number in 1..=3 {
            add(data.path()).unwrap();
            assert_eq!(count(data.path()).unwrap(), number);
        }
        forget(data.path()).unwrap();
        assert_eq!(count(data.path()).unwrap(), 0);
    }
}
