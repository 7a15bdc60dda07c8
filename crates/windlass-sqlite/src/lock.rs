//! Locks in SQLite's lock range of the database file, in addition to those of SQLite's connection.
//!
//! SQLite's locks are POSIX locks. They belong to the process, and the kernel drops all of them as
//! soon as the process closes *any* descriptor of the file. The engine opens and closes descriptors
//! of its own for direct reads. A lock of the open file description (OFD, Linux 3.15) conflicts
//! with other processes' POSIX locks in the same way. But the kernel drops it only when it is
//! unlocked or its own description is closed. So while a transaction is open, Windlass holds the
//! shared lock twice: SQLite's own, and an OFD lock.

#![allow(unsafe_code, reason = "no wrapper offers OFD locks")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Flock, FlockType};

/// SQLite's pending byte: the lock range begins here, on a page that never holds data.
pub(crate) const PENDING_OFFSET: u64 = 0x4000_0000;
/// A writer holds this byte from its first change on.
const RESERVED_OFFSET: u64 = PENDING_OFFSET + 1;
/// Readers take a read lock on these bytes; a writer that changes the file takes a write lock.
const SHARED_OFFSET: u64 = PENDING_OFFSET + 2;
const SHARED_BYTES: u64 = 510;
/// The whole lock range.
const ALL_BYTES: u64 = SHARED_OFFSET + SHARED_BYTES - PENDING_OFFSET;

/// In the index of the log, a writer holds this byte.
const WRITE_LOCK_OFFSET: u64 = 120;
/// Who copies the log into the file holds this one.
const CHECKPOINT_LOCK_OFFSET: u64 = 121;
/// Everybody who has the index open holds this one.
const INDEX_LOCK_OFFSET: u64 = 128;

/// The command of fcntl(2) that names the signal of a lease. The crate `libc` lacks it.
const F_SETSIG: libc::c_int = 10;

/// How many values hold the lock of a descriptor. The kernel knows one lock of a description,
/// however often it was taken, and one call unlocks it.
static HOLDERS: Mutex<BTreeMap<RawFd, usize>> = Mutex::new(BTreeMap::new());

fn holders() -> MutexGuard<'static, BTreeMap<RawFd, usize>> {
    HOLDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A shared lock of the file's description. It is unlocked when the last value is dropped that
/// holds it.
#[derive(Debug)]
pub(crate) struct SharedLock(Arc<File>);

impl SharedLock {
    /// Takes a read lock. SQLite's connection already holds one of its own, so no other process can
    /// prevent this one.
    pub(crate) fn take(file: &Arc<File>) -> io::Result<Self> {
        let mut holders = holders();
        set(file, libc::F_RDLCK)?;
        *holders.entry(file.as_raw_fd()).or_default() += 1;
        Ok(Self(Arc::clone(file)))
    }
}

impl Drop for SharedLock {
    fn drop(&mut self) {
        let mut holders = holders();
        let left = holders.entry(self.0.as_raw_fd()).or_default();
        *left = left.saturating_sub(1);
        if *left == 0 {
            holders.remove(&self.0.as_raw_fd());
            // Unlocking fails only if the kernel lacks memory to split a lock, and this lock is not
            // split.
            set(&self.0, libc::F_UNLCK).unwrap_or_default();
        }
    }
}

/// All of SQLite's locks at once, for the file's description: no process can begin to read or write
/// the database. They last until this value is dropped.
#[derive(Debug)]
pub(crate) struct ExclusiveLock {
    _file: File,
}

impl ExclusiveLock {
    /// Takes the locks without waiting. If this process may not write the file, it cannot lock it,
    /// and this value only keeps it open.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        match Self::of_writable(path) {
            Err(error) if is_not_writable(&error) => File::open(path).map(Self::of),
            taken => taken,
        }
    }

    /// Does the same, and fails if this process may not write the file.
    pub(crate) fn of_writable(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        set_range(&file, libc::F_WRLCK, PENDING_OFFSET, ALL_BYTES)?;
        Ok(Self::of(file))
    }

    fn of(file: File) -> Self {
        Self { _file: file }
    }
}

fn is_not_writable(error: &io::Error) -> bool {
    use io::ErrorKind::{ExecutableFileBusy, PermissionDenied, ReadOnlyFilesystem};
    matches!(
        error.kind(),
        ExecutableFileBusy | PermissionDenied | ReadOnlyFilesystem
    )
}

/// Whether another process writes and copies the log at the same time, by its locks on the index
/// (`shm`): so does a checkpoint that waits until nobody reads the log.
pub(crate) fn is_restarting(shm: &File) -> io::Result<bool> {
    let writer = holder(shm, WRITE_LOCK_OFFSET, 1)?;
    Ok(writer.is_some() && writer == holder(shm, CHECKPOINT_LOCK_OFFSET, 1)?)
}

/// Whether another process copies the log into the file, by its lock on the index (`shm`).
pub(crate) fn is_copying(shm: &File) -> io::Result<bool> {
    Ok(holder(shm, CHECKPOINT_LOCK_OFFSET, 1)?.is_some())
}

/// A process that has the index of the log (`shm`) open; 0 if the system cannot name it.
pub(crate) fn index_user(shm: &File) -> io::Result<Option<i32>> {
    holder(shm, INDEX_LOCK_OFFSET, 1)
}

/// Whether any process has the file open for writing, with a lock or without. `file` must be open
/// for reading only. False if the system does not say, for example for a file of another user.
///
/// The kernel grants a read lease only if nobody has the file open for writing (fcntl(2)).
pub(crate) fn is_open_for_writing(file: &File) -> bool {
    let descriptor = file.as_raw_fd();
    // A process that opens the file in this moment breaks the lease, and the kernel tells us with a
    // signal. SIGIO, the default, would end this process. It ignores SIGURG.
    // SAFETY: the descriptor is open as long as `file` lives, and the calls take plain numbers.
    let asked = unsafe {
        libc::fcntl(descriptor, F_SETSIG, libc::SIGURG) == 0
            && libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK) != 0
    };
    let refused = asked && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock;
    // SAFETY: as above. Without a lease this changes nothing.
    unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK) };
    refused
}

/// Whether another process is in a write transaction in rollback mode.
pub(crate) fn is_reserved(file: &File) -> io::Result<bool> {
    Ok(holder(file, RESERVED_OFFSET, 1)?.is_some())
}

/// A process that holds any of SQLite's locks; 0 if the system cannot name it.
pub(crate) fn user(file: &File) -> io::Result<Option<i32>> {
    holder(file, PENDING_OFFSET, ALL_BYTES)
}

/// A process that keeps readers from beginning; 0 if the system cannot name it. A writer in
/// rollback mode does so while it commits, a connection with `locking_mode=EXCLUSIVE` to its end.
pub(crate) fn excluder(file: &File) -> io::Result<Option<i32>> {
    let pending = holder_against(file, FlockType::ReadLock, (PENDING_OFFSET, 1))?;
    match pending {
        Some(pid) => Ok(Some(pid)),
        None => holder_against(file, FlockType::ReadLock, (SHARED_OFFSET, SHARED_BYTES)),
    }
}

fn holder(file: &File, start: u64, length: u64) -> io::Result<Option<i32>> {
    holder_against(file, FlockType::WriteLock, (start, length))
}

/// A process whose lock would conflict with a lock of this type on these bytes.
fn holder_against(
    file: &File,
    kind: FlockType,
    (start, length): (u64, u64),
) -> io::Result<Option<i32>> {
    let mut lock = Flock::from(kind);
    lock.start = start;
    lock.length = length;
    let holder = rustix::process::fcntl_getlk(file, &lock)?;
    Ok(holder.map(|holder| holder.pid.map_or(0, |pid| pid.as_raw_nonzero().get())))
}

fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    set_range(file, kind, SHARED_OFFSET, SHARED_BYTES)
}

fn set_range(file: &File, kind: libc::c_int, start: u64, bytes: u64) -> io::Result<()> {
    let overflow = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let lock = libc::flock {
        l_type: kind.try_into().map_err(overflow)?,
        l_whence: libc::SEEK_SET.try_into().map_err(overflow)?,
        l_start: start.try_into().map_err(overflow)?,
        l_len: bytes.try_into().map_err(overflow)?,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open as long as `file` lives, and the call only reads `lock`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_taken_twice_lasts_until_both_are_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let own = Arc::new(File::open(file.path()).unwrap());
        let is_locked = || ExclusiveLock::of_writable(file.path()).is_err();
        let (first, second) = (
            SharedLock::take(&own).unwrap(),
            SharedLock::take(&own).unwrap(),
        );
        drop(first);
        assert!(is_locked());
        let third = SharedLock::take(&own).unwrap();
        drop(second);
        assert!(is_locked());
        drop(third);
        assert!(!is_locked());
    }
}
