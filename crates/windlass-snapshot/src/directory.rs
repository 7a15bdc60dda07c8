//! The directory of a snapshot: its mark, its lock, and how it goes.
//!
//!   NAME/windlass-snapshot   the mark; whoever makes, reads or drops the snapshot locks it
//!   NAME/record              what makes the snapshot exist; NAME/dropped once it is dropped, or
//!                            NAME/dropped-copy if another directory has what the server knows
//!   NAME/files, NAME/data/   files that are kept one by one; or
//!   NAME/snapshot.windlass   a set
//!   NAME/hook/               what the hook's controller knows, and small files
//!
//! Invariants
//! - Nothing is removed from a directory without the mark. One that has a record gets it again.
//! - The record gets another name first, durably. What is left then is no snapshot, and can be
//!   removed by whoever finds it, damaged or not. A record that is gone in another way is lost.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::io::Errno;
use windlass_engine::{durable, read_regular_at_most};

use crate::error::{Doing, SnapshotError};
use crate::hook;
use crate::method::Method;
use crate::record::{RECORD, Record};

/// What the record of a snapshot becomes that is dropped.
const ENDING: &str = "dropped";
/// The same of a copy of a snapshot by the hook: its server has the original.
const ENDING_COPY: &str = "dropped-copy";
/// The file that makes a directory ours.
const MARK: &str = "windlass-snapshot";
/// What it says.
const MARKED: &[u8] = b"Windlass keeps a snapshot in this directory. Change nothing here.\n";
/// More than a mark has.
const MARK_BYTES_MAX: u64 = 1024;

/// The directory of a snapshot, locked.
#[derive(Debug)]
pub(crate) struct Locked {
    path: PathBuf,
    lock: File,
}

impl Drop for Locked {
    fn drop(&mut self) {
        // A process that was started just now has a copy of the descriptor, and would keep the lock
        // until it runs its program.
        flock(&self.lock, FlockOperation::Unlock).unwrap_or_default();
    }
}

impl Locked {
    /// Makes the directory with its mark, and locks it.
    pub(crate) fn create(path: &Path) -> Result<Self, SnapshotError> {
        let made = DirBuilder::new().mode(0o700).create(path);
        made.doing("make the directory", path)?;
        let mark = path.join(MARK);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&mark).doing("create", &mark)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).doing("lock", &mark)?;
        let written = file.write_all(MARKED).and_then(|()| file.sync_all());
        written.doing("write", &mark)?;
        sync(path)?;
        durable::sync_parent(path).doing("sync the directory of", path)?;
        Ok(Self {
            path: path.to_owned(),
            lock: file,
        })
    }

    /// Locks the directory for one who changes it. `None` if somebody uses it.
    pub(crate) fn alone(path: &Path) -> Result<Option<Self>, SnapshotError> {
        Self::lock(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Locks the directory for one who reads it. `None` if somebody makes or drops it.
    pub(crate) fn shared(path: &Path) -> Result<Option<Self>, SnapshotError> {
        Self::lock(path, FlockOperation::NonBlockingLockShared)
    }

    fn lock(path: &Path, how: FlockOperation) -> Result<Option<Self>, SnapshotError> {
        let mark = path.join(MARK);
        if !is_file(&mark) && Record::is_in(path) {
            // Whoever drops a snapshot takes the record first. So somebody else removed the mark.
            make_mark(&mark)?;
        }
        let lock = windlass_engine::open_regular(&mark).doing("open", &mark)?;
        match flock(&lock, how) {
            Err(Errno::WOULDBLOCK) => return Ok(None),
            locked => locked.doing("lock", &mark)?,
        }
        // Whoever had the lock may have removed the directory.
        let is_there = durable::is_file_at(&lock, &mark).unwrap_or(false);
        Ok(is_there.then(|| Self {
            path: path.to_owned(),
            lock,
        }))
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if this user may not remove all of it. It is asked before the snapshot ends: what is
    /// left then is no snapshot any more.
    pub(crate) fn check_removable(&self) -> Result<(), SnapshotError> {
        hook::check_readable(&self.path.join(hook::CONTENT))?;
        if let Some(parent) = self.path.parent() {
            check_changeable(parent)?;
        }
        check_all_changeable(&self.path)
    }

    /// Makes a copy of a snapshot by the hook one that no server knows. The original, of which the
    /// copy has the number, stays in its server.
    pub(crate) fn leave_original(&self) -> Result<(), SnapshotError> {
        let content = self.path.join(hook::CONTENT);
        Ok(hook::forget_document(&content)?)
    }

    /// Whether somebody began to drop it, and it was a copy of another one then.
    pub(crate) fn ends_as_copy(&self) -> bool {
        self.path.join(ENDING_COPY).symlink_metadata().is_ok()
    }

    /// Removes what does not say, or says wrongly, which snapshot of a server this one is. True if
    /// the server may have it all the same.
    pub(crate) fn disbelieve(&self) -> Result<bool, SnapshotError> {
        let content = self.path.join(hook::CONTENT);
        let record = record_of(&self.path).filter(|record| record.method == Method::Hook);
        let is_missed = record.is_some() && !hook::Document::is_in(&content);
        if !content.is_dir() {
            return Ok(is_missed);
        }
        let recorded = record.and_then(|record| record.files_crc32c);
        Ok(hook::Document::disbelieve(&content, recorded)? || is_missed)
    }

    /// Ends the snapshot: the record gets another name, durably. One that has lost its record gets
    /// a file of that name, too, and so does a copy.
    pub(crate) fn unmake(&self, is_copy: bool, has_lost_record: bool) -> Result<(), SnapshotError> {
        let name = match is_copy {
            true => ENDING_COPY,
            false => ENDING,
        };
        let (record, ending) = (self.path.join(RECORD), self.path.join(name));
        let renamed = durable::if_there(durable::rename(&record, &ending));
        let is_wanted = renamed.doing("rename", &record)?.is_none() && (is_copy || has_lost_record);
        // One that is there may be the record.
        if is_wanted && ending.symlink_metadata().is_err() {
            File::create(&ending).doing("create", &ending)?;
            sync(&self.path)?;
        }
        Ok(())
    }

    /// Removes everything but the mark, after [`Locked::unmake`].
    pub(crate) fn empty(&self) -> Result<(), SnapshotError> {
        let content = self.path.join(hook::CONTENT);
        if content.is_dir() {
            // Other snapshots may need pages of this one.
            hook::remove(&content)?;
        }
        let entries = std::fs::read_dir(&self.path).doing("list", &self.path)?;
        for entry in entries {
            let entry = entry.doing("list", &self.path)?;
            let kept = [MARK, ENDING, ENDING_COPY];
            if kept.iter().all(|kept| entry.file_name() != *kept) {
                remove_all(&entry.path())?;
            }
        }
        // They say of the rest that it may go.
        for name in [ENDING, ENDING_COPY] {
            let ending = self.path.join(name);
            if ending.symlink_metadata().is_ok() {
                remove_all(&ending)?;
            }
        }
        Ok(())
    }

    /// Removes the mark and the directory, which is empty.
    pub(crate) fn remove(self) -> Result<(), SnapshotError> {
        let mark = self.path.join(MARK);
        std::fs::remove_file(&mark).doing("remove", &mark)?;
        std::fs::remove_dir(&self.path).doing("remove", &self.path)?;
        durable::sync_parent(&self.path).doing("sync the directory of", &self.path)
    }
}

/// Removes a file, or a directory with everything in it.
fn remove_all(path: &Path) -> Result<(), SnapshotError> {
    let found = path.symlink_metadata().doing("inspect", path)?;
    let removed = match found.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    removed.doing("remove", path)
}

fn is_file(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_ok_and(|found| found.is_file())
}

/// Makes the mark of a directory anew that is ours by its record.
fn make_mark(mark: &Path) -> Result<(), SnapshotError> {
    let removed = match mark.symlink_metadata() {
        Ok(found) if found.is_dir() => std::fs::remove_dir(mark),
        Ok(found) if !found.is_file() => std::fs::remove_file(mark),
        _ => Ok(()),
    };
    durable::if_there(removed).doing("remove", mark)?;
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(mark);
    let written = match made {
        // Somebody else was faster.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        made => made.and_then(|mut file| file.write_all(MARKED).and_then(|()| file.sync_all())),
    };
    written.doing("create", mark)?;
    durable::sync_parent(mark).doing("sync the directory of", mark)
}

/// Fails if this user may not remove what a directory and those below it have. An empty one goes
/// with what its parent's owner may do.
fn check_all_changeable(directory: &Path) -> Result<(), SnapshotError> {
    let mut entries = std::fs::read_dir(directory)
        .doing("list", directory)?
        .peekable();
    if entries.peek().is_some() {
        check_changeable(directory)?;
    }
    for entry in entries {
        let entry = entry.doing("list", directory)?;
        let path = entry.path();
        if entry.file_type().doing("inspect", &path)?.is_dir() {
            check_all_changeable(&path)?;
        }
    }
    Ok(())
}

/// Fails if this user may not give or take away names in a directory.
pub(crate) fn check_changeable(directory: &Path) -> Result<(), SnapshotError> {
    let needed = Access::WRITE_OK | Access::EXEC_OK;
    access(directory, needed).doing("change", directory)
}

/// Syncs a directory, so that its entries survive a power cut.
pub(crate) fn sync(path: &Path) -> Result<(), SnapshotError> {
    let opened = File::open(path).and_then(|directory| directory.sync_all());
    opened.doing("sync", path)
}

/// Whether a directory is one of a snapshot, complete or not.
pub(crate) fn is_marked(path: &Path) -> bool {
    // A process may be killed before it has written the mark. The file's name is ours already.
    let bytes = read_regular_at_most(path.join(MARK), MARK_BYTES_MAX);
    bytes.is_ok_and(|bytes| bytes.is_empty() || bytes == MARKED)
}

/// Whether somebody began to drop a snapshot.
pub(crate) fn is_ending(path: &Path) -> bool {
    let mut names = [ENDING, ENDING_COPY].into_iter();
    names.any(|name| path.join(name).symlink_metadata().is_ok())
}

/// The record of a snapshot, also of one that somebody began to drop; `None` if nobody can read it.
pub(crate) fn record_of(path: &Path) -> Option<Record> {
    let mut names = [RECORD, ENDING, ENDING_COPY].into_iter();
    names.find_map(|name| Record::read_named(path, name).ok().flatten())
}

/// Whether a snapshot is there.
pub(crate) fn is_complete(path: &Path) -> bool {
    let found = path.join(RECORD).symlink_metadata();
    // What cannot be looked at now is not gone.
    !found.is_err_and(|error| durable::is_absent(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_document_goes_with_its_snapshot_without_a_wait() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("one");
        let directory = Locked::create(&path).unwrap();
        let content = path.join(hook::CONTENT);
        std::fs::create_dir(&content).unwrap();
        let pipe = content.join("hook.json");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        directory.check_removable().unwrap();
        assert!(directory.disbelieve().unwrap());
        assert!(!hook::Document::is_in(&content));
        directory.empty().unwrap();
        directory.remove().unwrap();
        assert!(!path.exists());
    }

    /// It would keep every name from being given or taken away.
    #[test]
    fn a_file_in_the_place_of_what_the_hook_wrote_goes_with_its_snapshot() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("one");
        let directory = Locked::create(&path).unwrap();
        File::create(path.join(hook::CONTENT)).unwrap();
        directory.check_removable().unwrap();
        assert!(!directory.disbelieve().unwrap());
        directory.unmake(false, false).unwrap();
        directory.empty().unwrap();
        directory.remove().unwrap();
        assert!(!path.exists());
    }
}
