//! The two ends of a revert of a cluster: finished, or undone. Each can be cut off and begun again.

use std::path::{Path, PathBuf};

use windlass_engine::durable;
use windlass_postgres::Control;

use super::kept::{self, Kept};
use super::writing::Writing;
use super::{ASIDE, ClusterBack, LABEL, Settled, log, tree};
use crate::error::{Doing, SnapshotError};
use crate::hook::{self, Keeper};
use crate::overwritten;
use crate::place::{Entry, Place};

impl ClusterBack {
    pub(super) fn settle_alone(&self, place: &Place) -> Result<Option<Settled>, SnapshotError> {
        let is_cut_off = Self::is_cut_off(&self.data);
        let pending = pending_of(place, is_cut_off)?;
        if !is_cut_off {
            // What is left here was not needed, or not any more.
            pending
                .iter()
                .try_for_each(|path| overwritten::discard(path))?;
            return Ok(None);
        }
        let pending = pending.first().map(PathBuf::as_path);
        match self.control().exists() {
            true => self.finish(pending).map(|()| Some(Settled::Finished)),
            false => self.roll_back(pending).map(|()| Some(Settled::Undone)),
        }
    }

    /// Recovers, and makes what was overwritten the undo of its snapshot.
    pub(super) fn finish(&self, pending: Option<&Path>) -> Result<(), SnapshotError> {
        if let Some(pending) = pending.filter(|pending| pending.is_dir()) {
            if !self.is_recovered()? {
                self.server.recover(&pending.join("recovery.log"))?;
            }
            self.server.end_recovery()?;
            log::return_unarchived(&self.data, pending)?;
            log::forget_summaries(pending)?;
            tree::sync_all(&self.data)?;
            kept::finish(pending)?;
        }
        let aside = self.data.join(ASIDE);
        std::fs::remove_file(&aside).doing("remove", &aside)?;
        durable::sync_parent(&aside).doing("sync the directory of", &aside)
    }

    /// Whether the server has recovered. pg_control of a target is that of no clean shutdown, or
    /// asks for a recovery.
    fn is_recovered(&self) -> Result<bool, SnapshotError> {
        let asks = ["recovery.signal", LABEL];
        let asks = asks.iter().any(|name| self.data.join(name).exists());
        match self.server.running() {
            Some(process) if asks => Err(SnapshotError::ServerRuns {
                path: self.data.clone(),
                process,
            }),
            // Somebody started the server, and it recovered.
            Some(_) => Ok(true),
            None => Ok(!asks && Control::read(&self.data)?.is_shut_down()),
        }
    }

    /// Makes the directory what it was before the revert.
    pub(super) fn roll_back(&self, pending: Option<&Path>) -> Result<(), SnapshotError> {
        let (at, aside) = (self.control(), self.data.join(ASIDE));
        let bytes = std::fs::read(&aside).doing("read", &aside)?;
        let control = Control::parse(bytes.clone()).map_err(|_| SnapshotError::Damaged {
            path: aside.clone(),
            what: "it is no pg_control",
        })?;
        if let Some(pending) = pending.filter(|pending| pending.is_dir()) {
            // Without a complete list of what differs, nothing was changed.
            if let Some(kept) = Kept::open(pending, control.block_bytes)? {
                let version = tree::version_directory(&self.data, &control)?;
                let keeper = Keeper::open(&self.data)?;
                let mut writing = Writing::new(&self.data, keeper, control.block_bytes);
                writing.shape(&version, kept.tree())?;
                writing.write_back(&kept)?;
                log::put_back(&self.data, pending)?;
                let label = self.data.join(LABEL);
                if label.exists() {
                    std::fs::remove_file(&label).doing("remove", &label)?;
                }
                self.server.end_recovery()?;
                tree::sync_all(&self.data)?;
            }
            match Keeper::open(&self.data)? {
                Some(keeper) => keeper.note_control(&bytes)?,
                // The memory went with the power. The next server must not take these writes for
                // foreign ones, or it would lose the durable snapshots.
                None => hook::move_stamp(&self.data)?,
            }
        }
        pending.map_or(Ok(()), overwritten::discard)?;
        durable::rename(&aside, &at).doing("rename", &aside)
    }
}

/// What reverts that were cut off have kept. There is one at most while pg_control is aside. Then
/// every snapshot must be seen: what was kept may be in one whose disk is not mounted, and without
/// it nobody knows which pages were overwritten.
fn pending_of(place: &Place, is_cut_off: bool) -> Result<Vec<PathBuf>, SnapshotError> {
    if is_cut_off {
        place.check_seen()?;
    }
    let mut found = Vec::new();
    for entry in place.list()? {
        match entry {
            Entry::Snapshot(snapshot) => {
                let pending = snapshot.path().join(kept::PENDING);
                found.extend(pending.is_dir().then_some(pending));
            }
            Entry::Missing { name, path } if is_cut_off => {
                let name = name.to_string();
                return Err(SnapshotError::Missing { name, path });
            }
            Entry::Unreadable { error, .. } if is_cut_off => return Err(error),
            _ => {}
        }
    }
    if is_cut_off && found.is_empty() {
        place.check_there()?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Locked;
    use crate::record::tests::record;

    /// A revert that seems to have kept nothing has changed nothing: pg_control would get its name
    /// back over pages that were overwritten.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_revert_that_was_cut_off_waits_for_a_place_that_is_not_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (data, old) = (root.join("data"), root.join("old.windlass-snapshots"));
        for path in [&data, &old] {
            std::fs::create_dir(path).unwrap();
        }
        hook::note_home(&data, &old).unwrap();
        let place = Place::beside(&data).unwrap();
        assert!(pending_of(&place, true).unwrap().is_empty());
        std::fs::rename(&old, root.join("unmounted")).unwrap();
        let place = Place::beside(&data).unwrap();
        assert!(pending_of(&place, false).unwrap().is_empty());
        let error = pending_of(&place, true).unwrap_err();
        assert!(matches!(&error, SnapshotError::Moved { path } if *path == old));
        // There is one at most, so nobody waits if it is seen.
        let snapshot = place.home().join("one");
        std::fs::create_dir(place.home()).unwrap();
        drop(Locked::create(&snapshot).unwrap());
        record("one").write(&snapshot).unwrap();
        let pending = snapshot.join(kept::PENDING);
        std::fs::create_dir(&pending).unwrap();
        assert_eq!(pending_of(&place, true).unwrap(), [pending]);
    }
}
