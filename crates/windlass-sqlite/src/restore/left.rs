//! What earlier restores left in their staging directory: a database that could not be put in its
//! place, in a directory of its own what a restore had written that was cut off, and in another one
//! the side files of the database that was to be replaced.
//!
//! Invariant: only what such a restore can have left is ever removed. Whatever else somebody put
//! there, and a link in the place of the directory, is refused before anything changes.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use windlass_engine::{Outputs, durable};

use super::UNFINISHED;
use crate::error::{IoContext, SqliteError};
use crate::header::DATABASE_MAGIC;
use crate::sides::{SIDE_FILE, SIDE_SUFFIXES};

/// What lies in a staging directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// A restored database. The restore could not put it in its place.
    pub(super) database: Option<PathBuf>,
    /// The directory of a restore that was cut off.
    unfinished: Option<PathBuf>,
    /// What that restore had written.
    written: Option<PathBuf>,
    /// The directory of the side files of the database that was to be replaced.
    pub(super) replaced: Option<PathBuf>,
    /// A name that was reserved for a database, which then did not get it.
    reserved: Option<PathBuf>,
}

impl Found {
    /// Removes what was not complete.
    pub(super) fn remove_unfinished(&self) -> Result<(), SqliteError> {
        for path in self.written.iter().chain(&self.reserved) {
            std::fs::remove_file(path).during("remove", path)?;
        }
        match &self.unfinished {
            Some(path) => std::fs::remove_dir(path).during("remove", path),
            None => Ok(()),
        }
    }
}

/// The directory in a staging directory for the side files of the database that is replaced. After
/// a crash they stay there until another restore to this target is complete.
pub(super) const REPLACED: &str = "replaced";

/// Removes the side files of a database that was replaced.
pub(super) fn remove_replaced(staging: &Path) -> std::io::Result<()> {
    let directory = staging.join(REPLACED);
    for suffix in SIDE_SUFFIXES {
        let side = directory.join(format!("database{suffix}"));
        durable::if_there(std::fs::remove_file(side))?;
    }
    durable::if_there(std::fs::remove_dir(directory)).map(|_| ())
}

/// Refuses a staging directory that is a link or a file.
pub(super) fn check_directory(root: &Path) -> Result<(), SqliteError> {
    let metadata = root.symlink_metadata().during("look at", root)?;
    match metadata.is_dir() {
        true => Ok(()),
        false => Err(foreign(root)),
    }
}

/// What restores left in the directory. Refuses everything else.
pub(super) fn found(staging: &Path, outputs: &Outputs) -> Result<Found, SqliteError> {
    check_directory(staging)?;
    let mut found = Found::default();
    for entry in std::fs::read_dir(staging).during("list", staging)? {
        let path = entry.during("list", staging)?.path();
        outputs.check(&path)?;
        let metadata = path.symlink_metadata().during("look at", &path)?;
        if metadata.is_dir() && path.ends_with(UNFINISHED) {
            found.written = only_file(&path, outputs)?;
            found.unfinished = Some(path);
        } else if metadata.is_dir() && path.ends_with(REPLACED) {
            check_replaced(&path, outputs)?;
            found.replaced = Some(path);
        } else if durable::reserved_for(&path).is_some() {
            found.reserved = Some(path);
        } else if found.database.is_none() && is_of_restore(&path)? {
            found.database = Some(path);
        } else {
            return Err(foreign(&path));
        }
    }
    Ok(found)
}

/// Refuses everything but side files in the directory for them.
fn check_replaced(directory: &Path, outputs: &Outputs) -> Result<(), SqliteError> {
    for entry in std::fs::read_dir(directory).during("list", directory)? {
        let path = entry.during("list", directory)?.path();
        let mut names = SIDE_SUFFIXES
            .iter()
            .map(|suffix| format!("database{suffix}"));
        if !names.any(|name| path.ends_with(name)) {
            return Err(foreign(&path));
        }
        outputs.check_kind(&path, &SIDE_FILE)?;
    }
    Ok(())
}

/// The file in the directory of a restore that was cut off. A restore writes a single one.
fn only_file(unfinished: &Path, outputs: &Outputs) -> Result<Option<PathBuf>, SqliteError> {
    let mut only = None;
    for entry in std::fs::read_dir(unfinished).during("list", unfinished)? {
        let path = entry.during("list", unfinished)?.path();
        outputs.check(&path)?;
        if only.is_some() || !is_of_restore(&path)? {
            return Err(foreign(&path));
        }
        only = Some(path);
    }
    Ok(only)
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
        let unfinished = root.join(UNFINISHED);
        let found = || found(&root, &Outputs::new());
        let refused = |path: &Path| match found() {
            Err(SqliteError::StagingForeign { path: said }) => assert_eq!(said, path),
            other => panic!("{other:?}"),
        };
        std::fs::create_dir_all(&unfinished).unwrap();
        assert_eq!(found().unwrap().written, None);
        for file in [root.join("a.db"), unfinished.join("a.db")] {
            for bytes in [&b""[..], &[0; 100], b"SQLite format 3\0and pages"] {
                std::fs::write(&file, bytes).unwrap();
                let found = found().unwrap();
                assert_eq!(found.database.or(found.written), Some(file.clone()));
            }
            std::fs::write(&file, "precious").unwrap();
            refused(&file);
            std::fs::remove_file(&file).unwrap();
            symlink("/nonexistent", &file).unwrap();
            refused(&file);
            std::fs::remove_file(&file).unwrap();
            std::fs::create_dir(&file).unwrap();
            refused(&file);
            std::fs::remove_dir(&file).unwrap();
        }
        let elsewhere = place.path().join("elsewhere");
        for link in [&unfinished, &root] {
            std::fs::rename(link, &elsewhere).unwrap();
            symlink(&elsewhere, link).unwrap();
            refused(link);
            std::fs::remove_file(link).unwrap();
            std::fs::rename(&elsewhere, link).unwrap();
        }
    }

    #[test]
    fn two_files_are_not_of_one_restore() {
        for below in ["", UNFINISHED] {
            let place = tempfile::tempdir().unwrap();
            let root = place.path().join("a.db.windlass-restore");
            let within = root.join(below);
            std::fs::create_dir_all(&within).unwrap();
            drop(File::create(within.join("a.db")).unwrap());
            drop(File::create(within.join("b.db")).unwrap());
            assert!(found(&root, &Outputs::new()).is_err());
            assert_eq!(std::fs::read_dir(&within).unwrap().count(), 2);
        }
    }
}
