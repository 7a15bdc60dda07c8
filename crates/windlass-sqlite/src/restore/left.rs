//! What a restore that was cut off left in its staging directory: nothing, or one file of a
//! database.
//!
//! Invariant: only what such a restore can have left is ever removed. Whatever else somebody put
//! there, and a link in the place of the directory, is refused before anything changes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use windlass_engine::Outputs;

use crate::error::{IoContext, SqliteError};
use crate::header::DATABASE_MAGIC;

/// Refuses a staging directory that is a link or a file.
pub(super) fn check_directory(root: &Path) -> Result<(), SqliteError> {
    let metadata = root.symlink_metadata().during("look at", root)?;
    match metadata.is_dir() {
        true => Ok(()),
        false => Err(foreign(root)),
    }
}

/// The file that a restore left in the directory, if there is one. Refuses everything else.
pub(super) fn found(root: &Path, outputs: &Outputs) -> Result<Option<PathBuf>, SqliteError> {
    check_directory(root)?;
    let mut left = None;
    for entry in std::fs::read_dir(root).during("list", root)? {
        let path = entry.during("list", root)?.path();
        outputs.check(&path)?;
        // A restore writes a single file.
        if left.is_some() || !is_of_restore(&path)? {
            return Err(foreign(&path));
        }
        left = Some(path);
    }
    Ok(left)
}

/// Whether a restore can have written this file. The first page need not be there yet.
fn is_of_restore(path: &Path) -> Result<bool, SqliteError> {
    let metadata = path.symlink_metadata().during("look at", path)?;
    if !metadata.is_file() {
        return Ok(false);
    }
    let mut beginning = Vec::new();
    let file = File::open(path).during("open", path)?;
    file.take(DATABASE_MAGIC.len() as u64)
        .read_to_end(&mut beginning)
        .during("read", path)?;
    let is_hole = beginning.iter().all(|byte| *byte == 0);
    Ok(is_hole || beginning == DATABASE_MAGIC)
}

fn foreign(path: &Path) -> SqliteError {
    SqliteError::StagingForeign {
        path: path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn only_what_a_restore_left_is_taken_for_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("a.db.windlass-restore");
        let found = || found(&root, &Outputs::new());
        std::fs::create_dir(&root).unwrap();
        assert_eq!(found().unwrap(), None);
        let file = root.join("a.db");
        for bytes in [&b""[..], &[0; 100], b"SQLite format 3\0and pages"] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(found().unwrap(), Some(file.clone()));
        }
        std::fs::write(&file, "precious").unwrap();
        let refused = |path: &Path| match found() {
            Err(SqliteError::StagingForeign { path: said }) => assert_eq!(said, path),
            other => panic!("{other:?}"),
        };
        refused(&file);
        std::fs::remove_file(&file).unwrap();
        symlink("/nonexistent", &file).unwrap();
        refused(&file);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        refused(&file);
        std::fs::remove_dir(&file).unwrap();
        let elsewhere = place.path().join("elsewhere");
        std::fs::rename(&root, &elsewhere).unwrap();
        symlink(&elsewhere, &root).unwrap();
        refused(&root);
    }

    #[test]
    fn two_files_are_not_of_one_restore() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("a.db.windlass-restore");
        std::fs::create_dir(&root).unwrap();
        drop(File::create(root.join("a.db")).unwrap());
        drop(File::create(root.join("b.db")).unwrap());
        assert!(found(&root, &Outputs::new()).is_err());
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 2);
    }
}
