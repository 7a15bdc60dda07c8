//! Drops what has an entry in a place.
//!
//! Never does: remove what is not a snapshot of this database. Of what is not there, only the entry
//! goes.

use std::path::Path;

use windlass_engine::durable;

use super::leftover::{has_lost_record, pending};
use super::{Entry, Place, real};
use crate::directory::{self, Locked};
use crate::error::{Doing, SnapshotError};
use crate::hook;
use crate::name::SnapshotName;
use crate::numbers;
use crate::overwritten::UndoState;
use crate::undo::PENDING_STATE;

impl Place {
    /// Drops the snapshot of this name. Also removes what killed processes left.
    pub fn remove(
        &self,
        name: &SnapshotName,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<(), SnapshotError> {
        let has_own = self.has_own(name)?;
        let holder = match self.holder(name)? {
            Some(holder) if !has_own => holder,
            _ => self,
        };
        let gone = holder.remove_for(self, name, removed);
        self.leave_before();
        gone
    }

    /// Drops the snapshot of this name, which is here, for the database with this place.
    fn remove_for(
        &self,
        today: &Self,
        name: &SnapshotName,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<(), SnapshotError> {
        if !self.home.is_dir() {
            return Err(self.unknown(name));
        }
        let lock = self.make()?;
        let link = self.path(name);
        let is_known = self.has_own(name)? || pending(&link).is_symlink();
        let gone = self.clean(today, removed).and_then(|()| {
            match is_known && !self.has_own(name)? {
                // It was what a killed process left.
                true => Ok(()),
                false => self.remove_alone(today, name),
            }
        });
        today.leave(self);
        drop(lock);
        gone
    }

    fn remove_alone(&self, today: &Self, name: &SnapshotName) -> Result<(), SnapshotError> {
        let link = self.path(name);
        match self.entry_if_there(name)? {
            None => Err(self.unknown(name)),
            Some(Entry::Missing { .. }) => {
                // Only the entry is here, and perhaps what the server keeps for it.
                self.remove_link(&link)?;
                today.take_out_missing();
                Ok(())
            }
            Some(_) if today.is_other_name(&link) => self.remove_link(&link),
            Some(Entry::Unfinished { path, .. }) => Err(match directory::is_marked(&path) {
                true => SnapshotError::InUse { path },
                false => SnapshotError::NotASnapshot { path },
            }),
            Some(Entry::Unreadable {
                error: error @ SnapshotError::OfAnother { .. },
                ..
            }) => Err(error),
            Some(Entry::Snapshot(_) | Entry::Unreadable { .. }) => {
                let path = real(&link)?;
                if path.join(PENDING_STATE).symlink_metadata().is_ok() {
                    return Err(SnapshotError::NeededToUndo { path });
                }
                let directory = Locked::alone(&path)?.ok_or(SnapshotError::InUse { path })?;
                directory.check_removable()?;
                directory::check_changeable(&self.home)?;
                self.end(today, directory, &link)
            }
        }
    }

    /// Removes a directory and its entry, for the database with the place of today. Killed in
    /// between, it is finished by the next: the record has another name first, and a link is
    /// pending until the directory is gone.
    pub(super) fn end(
        &self,
        today: &Self,
        directory: Locked,
        entry: &Path,
    ) -> Result<(), SnapshotError> {
        // Once it has begun, the original may be out of sight.
        let is_copy = directory.ends_as_copy()
            || today.is_copy(directory.path())
            || today.is_served_elsewhere(directory.path());
        self.note_states(directory.path());
        directory.unmake(is_copy, has_lost_record(directory.path()))?;
        if is_copy {
            directory.leave_original()?;
        }
        let is_unknown = directory.disbelieve()?;
        let link = entry.is_symlink().then(|| pending(entry));
        if let Some(pending) = link.as_ref().filter(|pending| *pending != entry) {
            durable::rename(entry, pending).doing("rename", entry)?;
        }
        directory.empty()?;
        directory.remove()?;
        if let Some(pending) = link {
            self.remove_link(&pending)?;
        }
        if is_unknown {
            today.take_out_missing();
        }
        Ok(())
    }

    /// Notes the newest number of the states that go with a snapshot. What cannot be listed has
    /// none that anybody was shown.
    fn note_states(&self, directory: &Path) {
        let states = UndoState::list(directory).unwrap_or_default();
        if let Some(newest) = states.last() {
            numbers::note_gone(&self.home, newest.number().0);
        }
    }

    /// Takes out of the server what has no entry any more.
    fn take_out_missing(&self) {
        // The snapshot is gone. What the server cannot give up now, the next creation takes.
        hook::take_out_missing(&self.database(), &self.home).unwrap_or_default();
    }

    pub(super) fn remove_link(&self, link: &Path) -> Result<(), SnapshotError> {
        let is_link = |found: std::fs::Metadata| found.is_symlink();
        if link.symlink_metadata().is_ok_and(is_link) {
            std::fs::remove_file(link).doing("remove", link)?;
            directory::sync(&self.home)?;
        }
        Ok(())
    }
}
