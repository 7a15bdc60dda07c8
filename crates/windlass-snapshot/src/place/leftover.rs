//! What killed processes left in a place: directories that are no snapshots, and links that were
//! pending.
//!
//! Never does: remove a directory that has no mark and is not empty. It is somebody else's.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Entry, Place};
use crate::directory::{self, Locked};
use crate::error::{Doing, SnapshotError};
use crate::overwritten::UndoState;
use crate::undo::{PENDING as PENDING_FILE, PENDING_STATE};

/// What the name of a link begins with whose directory comes or goes. It cannot be the name of a
/// snapshot.
const PENDING: &str = ".pending-";

impl Place {
    /// Removes what killed processes left here, for the database with the place of today.
    pub(super) fn clean(
        &self,
        today: &Self,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<(), SnapshotError> {
        self.clean_pending(today, removed)?;
        for name in self.names()? {
            let link = self.path(&name);
            if let Entry::Unfinished { path, .. } = self.entry(name)? {
                self.clean_one((&path, &link), today, removed)?;
            }
        }
        Ok(())
    }

    fn clean_one(
        &self,
        (path, entry): (&Path, &Path),
        today: &Self,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<(), SnapshotError> {
        if !directory::is_marked(path) {
            // A process was killed before it made the mark, or after it removed it; or somebody
            // else's directory has files.
            if std::fs::remove_dir(path).is_ok() {
                self.remove_link(entry)?;
                removed(path);
            }
            return Ok(());
        }
        let Some(directory) = Locked::alone(path)? else {
            return Ok(());
        };
        // Its maker may have completed it just before it let go.
        if directory::is_complete(path) || has_lost_record(path) {
            return Ok(());
        }
        self.end(today, directory, entry)?;
        removed(path);
        Ok(())
    }

    /// Finishes what was pending when its process was killed.
    fn clean_pending(
        &self,
        today: &Self,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<(), SnapshotError> {
        for link in self.links_pending()? {
            let path = std::fs::read_link(&link).doing("read", &link)?;
            if path.is_dir() {
                self.clean_one((&path, &link), today, removed)?;
            }
            // Whoever made a link is done with it, so nothing is there, or nothing of ours.
            self.remove_link(&link)?;
        }
        Ok(())
    }

    fn links_pending(&self) -> Result<Vec<PathBuf>, SnapshotError> {
        let mut links = Vec::new();
        for entry in std::fs::read_dir(&self.home).doing("list", &self.home)? {
            let entry = entry.doing("list", &self.home)?;
            let name = entry.file_name();
            let is_pending = name.as_bytes().starts_with(PENDING.as_bytes());
            if is_pending && entry.path().is_symlink() {
                links.push(entry.path());
            }
        }
        Ok(links)
    }
}

/// Whether a directory without a record is a snapshot that has lost it: a revert kept something in
/// it, so the snapshot was complete, and nobody began to drop it.
pub(super) fn has_lost_record(path: &Path) -> bool {
    let is_kept = || {
        let states = UndoState::list(path).unwrap_or_default();
        let pending = [PENDING_FILE, PENDING_STATE].map(|name| path.join(name));
        !states.is_empty() || pending.iter().any(|path| path.symlink_metadata().is_ok())
    };
    // In this order: what is dropped meanwhile is ending, or has nothing any more.
    directory::is_marked(path)
        && !directory::is_complete(path)
        && !directory::is_ending(path)
        && is_kept()
}

/// The name of an entry's link while its directory comes or goes.
pub(super) fn pending(entry: &Path) -> PathBuf {
    let name = entry.file_name().unwrap_or_default();
    if name.as_bytes().starts_with(PENDING.as_bytes()) {
        return entry.to_owned();
    }
    let mut pending = OsString::from(PENDING);
    pending.push(name);
    entry.with_file_name(pending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;
    use crate::name::SnapshotName;
    use crate::record::Record;
    use crate::record::tests::record;

    /// Whoever came after one that was killed in between would find a snapshot that is damaged.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn the_record_goes_before_what_says_which_snapshot_of_its_server_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let place = Place::at(root.join("main.windlass-snapshots"));
        std::fs::create_dir(place.home()).unwrap();
        let path = place.home().join("one");
        drop(Locked::create(&path).unwrap());
        let record = Record {
            method: Method::Hook,
            ..record("one")
        };
        record.write(&path).unwrap();
        let document = path.join("hook/hook.json");
        std::fs::create_dir(path.join("hook")).unwrap();
        std::fs::write(&document, "nothing to believe").unwrap();
        // So the record cannot get its other name.
        std::fs::create_dir(path.join("dropped")).unwrap();
        let name = SnapshotName::parse("one").unwrap();
        place.remove(&name, &mut |_| {}).unwrap_err();
        assert!(document.exists());
        std::fs::remove_dir(path.join("dropped")).unwrap();
        place.remove(&name, &mut |_| {}).unwrap();
        assert!(!path.exists());
    }

    /// A list reads the names first, and then each entry.
    #[test]
    fn an_entry_that_is_dropped_while_a_list_is_made_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("shop.db.windlass-snapshots"));
        let entry = || place.entry(SnapshotName::parse("gone").unwrap()).unwrap();
        assert!(matches!(entry(), Entry::Unfinished { path, .. } if !path.exists()));
        std::fs::create_dir(place.home()).unwrap();
        assert!(matches!(entry(), Entry::Unfinished { path, .. } if !path.exists()));
        std::os::unix::fs::symlink("nowhere", place.home().join("gone")).unwrap();
        assert!(matches!(entry(), Entry::Missing { .. }));
    }
}
