//! The two ends of a revert of a cluster: finished, or undone. Each can be cut off and begun again.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use windlass_engine::{durable, read_regular_at_most};
use windlass_postgres::{Control, PostgresError, ServerEnd};

use super::kept::{self, Kept};
use super::tree::{self, LABEL};
use super::writing::Writing;
use super::{ClusterBack, log};
use crate::cluster::{CONTROL_ASIDE, PRIVATE_MODE};
use crate::error::{Doing, SnapshotError};
use crate::hook::{self, Keeper};
use crate::overwritten::{self, Settled};
use crate::place::{Entry, Place};
use crate::revert::Back;

/// Says that a revert overwrites the cluster, and where it keeps what was there. It comes before
/// the first page is overwritten, and goes when what was kept is not needed any more. Its name
/// begins as that of pg_control, so no revert takes it for a file of the cluster.
const OVERWRITES: &str = "global/pg_control.windlass-revert-overwrites";
/// Says that what is under way is an undo. It comes before pg_control goes aside, and goes after it
/// is back. Without that it means nothing.
const UNDOES: &str = "global/pg_control.windlass-revert-undoes";
/// No path is longer.
const PATH_BYTES_MAX: u64 = 4096;

impl ClusterBack {
    pub(super) fn settle_alone(&self, place: &Place) -> Result<Option<Settled>, SnapshotError> {
        let is_cut_off = Self::is_cut_off(&self.data);
        let pending = pending_of(place, is_cut_off)?;
        if !is_cut_off {
            // What is left here was not needed, or not any more.
            pending
                .iter()
                .try_for_each(|path| overwritten::discard(path))?;
            forget(&self.data, OVERWRITES)?;
            forget(&self.data, UNDOES)?;
            return Ok(None);
        }
        self.wait_for_recovery()?;
        let is_undo = is_undo(&self.data);
        let pending = chosen(&self.data, pending)?;
        let pending = pending.as_deref();
        let is_finished = self.control().exists();
        match is_finished {
            true => self.finish(pending)?,
            false => self.roll_back(pending)?,
        }
        Ok(Some(Settled {
            is_undo,
            is_finished,
        }))
    }

    /// Waits for the server with which the command let the cluster recover that was cut off. It is
    /// told to end with that command. Whoever went on meanwhile would take it for one that somebody
    /// started.
    fn wait_for_recovery(&self) -> Result<(), SnapshotError> {
        match self.server.wait_for_recovery() {
            None => Ok(()),
            Some(process) => Err(still_recovers(&self.data, process)),
        }
    }

    /// Recovers, and makes what was overwritten the undo of its snapshot.
    pub(super) fn finish(&self, pending: Option<&Path>) -> Result<(), SnapshotError> {
        let pending = pending.filter(|pending| pending.is_dir());
        check_kept(&self.data, pending.is_some())?;
        if let Some(pending) = pending {
            if !self.is_recovered()? {
                let recovered = self.server.recover(&pending.join("recovery.log"));
                recovered.map_err(|error| of_recovery(error, &self.data))?;
            }
            self.server.end_recovery()?;
            log::return_unarchived(&self.data, pending)?;
            log::forget_summaries(pending)?;
            tree::sync_all(&self.data)?;
            // Killed here, this begins again. Behind the next line it would find nothing kept.
            forget(&self.data, OVERWRITES)?;
            kept::finish(pending)?;
        }
        let aside = self.data.join(CONTROL_ASIDE);
        std::fs::remove_file(&aside).doing("remove", &aside)?;
        durable::sync_parent(&aside).doing("sync the directory of", &aside)?;
        forget_undo(&self.data);
        Ok(())
    }

    /// Whether the server has recovered. pg_control of a target is that of no clean shutdown, or
    /// asks for a recovery.
    fn is_recovered(&self) -> Result<bool, SnapshotError> {
        let asks = ["recovery.signal", LABEL];
        let asks = asks.iter().any(|name| self.data.join(name).exists());
        match self.server.running() {
            Some(process) if asks => Err(SnapshotError::ServerRuns {
                what: "a server runs again",
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
        let (at, aside) = (self.control(), self.data.join(CONTROL_ASIDE));
        let bytes = std::fs::read(&aside).doing("read", &aside)?;
        let control = Control::parse(bytes.clone()).map_err(|_| SnapshotError::Damaged {
            path: aside.clone(),
            what: "it is no pg_control",
        })?;
        let pending = pending.filter(|pending| pending.is_dir());
        let kept = pending.map(|pending| Kept::open(pending, control.block_bytes));
        let kept = kept.transpose()?.flatten();
        check_kept(&self.data, kept.is_some())?;
        if let Some(pending) = pending {
            // Without a complete list of what differs, nothing was changed.
            if let Some(kept) = kept {
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
                forget(&self.data, OVERWRITES)?;
            }
            match Keeper::open(&self.data)? {
                Some(keeper) => keeper.note_control(&bytes)?,
                // The memory went with the power. The next server must not take these writes for
                // foreign ones, or it would lose the durable snapshots.
                None => hook::move_stamp(&self.data)?,
            }
        }
        pending.map_or(Ok(()), overwritten::discard)?;
        durable::rename(&aside, &at).doing("rename", &aside)?;
        forget_undo(&self.data);
        Ok(())
    }
}

/// A recovery that should have ended with the command that was cut off.
fn still_recovers(data: &Path, process: i32) -> SnapshotError {
    SnapshotError::ServerRuns {
        what: "the recovery of the command that was cut off still runs",
        path: data.to_owned(),
        process,
    }
}

/// Why the server did not recover. It runs on the cluster itself, so a full disk is that of the
/// cluster, and not that of a scratch directory.
fn of_recovery(error: PostgresError, data: &Path) -> SnapshotError {
    match error.server_end() {
        Some(ServerEnd::NoSpace) => {
            let full = Error::new(ErrorKind::StorageFull, error.to_string());
            SnapshotError::io("recover", data, full)
        }
        _ => error.into(),
    }
}

/// Says that the cluster is overwritten from now on, and where what was there is kept.
pub(super) fn note_overwriting(data: &Path, pending: &Path) -> Result<(), SnapshotError> {
    let path = data.join(OVERWRITES);
    let bytes = pending.as_os_str().as_bytes();
    durable::write(&path, bytes, PRIVATE_MODE).doing("write", &path)
}

/// Notes that what begins now is an undo, if it is one. An earlier note is gone by now.
pub(super) fn note_undo(data: &Path, back: Back) -> Result<(), SnapshotError> {
    if back.state().is_none() {
        return Ok(());
    }
    let path = data.join(UNDOES);
    durable::write(&path, b"", PRIVATE_MODE).doing("write", &path)
}

/// Whether what is under way, or was cut off, is an undo.
pub(super) fn is_undo(data: &Path) -> bool {
    data.join(UNDOES).exists()
}

/// Removes the note of an undo that has ended. What stays of it, the next revert removes before it
/// begins.
fn forget_undo(data: &Path) {
    forget(data, UNDOES).unwrap_or_default();
}

/// Removes a note.
fn forget(data: &Path, note: &str) -> Result<(), SnapshotError> {
    let path = data.join(note);
    let found = durable::if_there(path.symlink_metadata()).doing("inspect", &path)?;
    if found.is_none() {
        return Ok(());
    }
    std::fs::remove_file(&path).doing("remove", &path)?;
    durable::sync_parent(&path).doing("sync the directory of", &path)
}

/// Fails if the cluster was overwritten and what was there is not found: the directory that has it
/// may have been moved by hand, and nobody notes where copies and clones are.
fn check_kept(data: &Path, is_found: bool) -> Result<(), SnapshotError> {
    if is_found {
        return Ok(());
    }
    match noted(data)? {
        Some(path) => Err(SnapshotError::KeptElsewhere { path }),
        None => Ok(()),
    }
}

/// Where what was there is kept, as the note says; `None` if nothing was overwritten.
fn noted(data: &Path) -> Result<Option<PathBuf>, SnapshotError> {
    let path = data.join(OVERWRITES);
    let bytes = durable::if_there(read_regular_at_most(&path, PATH_BYTES_MAX));
    let bytes = bytes.doing("read", &path)?;
    Ok(bytes.map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes))))
}

/// Which of these the revert has kept that was cut off: the one that it noted. If that is not among
/// them, the one with the pg_control that it took aside, or one that has nothing yet. Of an earlier
/// revert one may be left in a copy of a snapshot's directory; its pages are not those that were
/// overwritten now.
fn chosen(data: &Path, found: Vec<PathBuf>) -> Result<Option<PathBuf>, SnapshotError> {
    let noted = noted(data)?;
    if let Some(noted) = noted.filter(|noted| found.contains(noted)) {
        return Ok(Some(noted));
    }
    let aside = data.join(CONTROL_ASIDE);
    let control = std::fs::read(&aside).doing("read", &aside)?;
    let mut paths = Vec::new();
    for path in found {
        if kept::may_be_of(&path, &control)? {
            paths.push(path);
        }
    }
    // A snapshot can have two names.
    paths.sort();
    paths.dedup();
    match paths.len() {
        0 | 1 => Ok(paths.pop()),
        _ => Err(SnapshotError::KeptTwice { paths }),
    }
}

/// What reverts that were cut off have kept. While pg_control is aside, every snapshot must be
/// seen: what was kept may be in one whose disk is not mounted, and without it nobody knows which
/// pages were overwritten.
fn pending_of(place: &Place, is_cut_off: bool) -> Result<Vec<PathBuf>, SnapshotError> {
    if is_cut_off {
        place.check_seen()?;
    }
    let mut found = Vec::new();
    for entry in place.list()? {
        let directory = match entry {
            Entry::Snapshot(snapshot) => snapshot.path().to_owned(),
            // Whatever is damaged of a snapshot: what is kept in it has checksums of its own.
            Entry::Unreadable { path, error, .. } if error.is_damage() => path,
            Entry::Missing { name, path } if is_cut_off => {
                let name = name.to_string();
                return Err(SnapshotError::Missing { name, path });
            }
            // What a revert of this cluster kept is in none of another database.
            Entry::Unreadable {
                error: SnapshotError::OfAnother { .. },
                ..
            } => continue,
            Entry::Unreadable { error, .. } if is_cut_off => return Err(error),
            _ => continue,
        };
        let pending = directory.join(kept::PENDING);
        found.extend(pending.is_dir().then_some(pending));
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
    use crate::overwritten::UndoNumber;
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
        let found = || pending_of(&place, true).unwrap();
        assert_eq!(found(), std::slice::from_ref(&pending));
        // Nor does a damaged record keep the cluster from becoming whole.
        std::fs::write(snapshot.join("record"), "no record").unwrap();
        assert_eq!(found(), [pending]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn what_an_earlier_revert_kept_is_not_written_back_for_this_one() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        std::fs::create_dir(data.join("global")).unwrap();
        std::fs::write(data.join(CONTROL_ASIDE), "of today").unwrap();
        let kept = |name: &str, control: &str| {
            let pending = data.join(name);
            std::fs::create_dir(&pending).unwrap();
            std::fs::write(pending.join("control"), control).unwrap();
            pending
        };
        let (stale, own) = (kept("stale", "of then"), kept("own", "of today"));
        let copy = kept("copy", "of today");
        let choose = |found: &[&PathBuf]| chosen(data, found.iter().copied().cloned().collect());
        assert_eq!(choose(&[]).unwrap(), None);
        assert_eq!(choose(&[&stale]).unwrap(), None);
        assert_eq!(choose(&[&stale, &own, &own]).unwrap().as_ref(), Some(&own));
        let all = [&stale, &own, &copy];
        let error = choose(&all).unwrap_err();
        let paths = [&copy, &own];
        let are_named = matches!(&error, SnapshotError::KeptTwice { paths: found }
            if found.iter().eq(paths));
        assert!(are_named, "{error}");
        for path in paths {
            assert!(
                error.to_string().contains(path.to_str().unwrap()),
                "{error}"
            );
        }
        note_overwriting(data, &own).unwrap();
        assert_eq!(choose(&all).unwrap().as_ref(), Some(&own));
        assert_eq!(choose(&[&stale]).unwrap(), None);
        // A snapshot that is being reverted to has nothing in it at first.
        std::fs::remove_file(copy.join("control")).unwrap();
        assert_eq!(choose(&[&copy]).unwrap().as_ref(), Some(&copy));
        // One that has lost it would be written back whatever it is of.
        for pages in ["undo.pending", "undo"] {
            std::fs::write(copy.join(pages), "pages").unwrap();
            assert_eq!(choose(&[&copy]).unwrap(), None, "{pages}");
            assert_eq!(choose(&[&copy, &own]).unwrap().as_ref(), Some(&own));
            std::fs::remove_file(copy.join(pages)).unwrap();
        }
    }

    /// The place of copies and clones is noted nowhere, and pg_control would get its name back over
    /// pages that were overwritten.
    #[test]
    fn a_revert_that_overwrote_something_waits_for_what_it_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (data, pending) = (directory.path(), Path::new("/moved/then/before.pending"));
        std::fs::create_dir(data.join("global")).unwrap();
        check_kept(data, false).unwrap();
        note_overwriting(data, pending).unwrap();
        check_kept(data, true).unwrap();
        let error = check_kept(data, false).unwrap_err();
        let is_named = matches!(&error, SnapshotError::KeptElsewhere { path } if path == pending);
        assert!(is_named, "{error}");
        forget(data, OVERWRITES).unwrap();
        check_kept(data, false).unwrap();
        forget(data, OVERWRITES).unwrap();
    }

    /// Whoever settles it says which of both was cut off, whatever had been kept by then.
    #[test]
    fn an_undo_is_told_from_a_revert_while_it_is_under_way() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        std::fs::create_dir(data.join("global")).unwrap();
        note_undo(data, Back::ToSnapshot).unwrap();
        assert!(!is_undo(data));
        note_undo(data, Back::ToState(UndoNumber(3))).unwrap();
        assert!(is_undo(data));
        forget_undo(data);
        assert!(!is_undo(data));
        forget_undo(data);
    }

    #[test]
    fn a_recovery_that_does_not_end_is_not_called_a_server_that_runs_again() {
        let said = still_recovers(Path::new("/srv/main"), 7).to_string();
        let end = "still runs on /srv/main (process 7)";
        assert!(said.ends_with(end), "{said}");
        assert!(!said.contains("again"), "{said}");
    }

    #[test]
    fn a_full_disk_while_the_server_recovers_is_that_of_the_cluster() {
        let ended = |log: &str| {
            let (status, log) = ("with exit code 1".to_owned(), log.to_owned());
            let error = PostgresError::ServerEnded { status, log };
            of_recovery(error, Path::new("/srv/main"))
        };
        let full = ended("FATAL:  could not write to file: No space left on device");
        let is_full = matches!(&full, SnapshotError::Io { path, source, .. }
            if source.kind() == ErrorKind::StorageFull && path == Path::new("/srv/main"));
        assert!(is_full, "{full}");
        assert!(full.to_string().contains("No space left"), "{full}");
        let other = ended("FATAL:  something else");
        assert!(matches!(other, SnapshotError::Postgres(_)), "{other}");
    }
}
