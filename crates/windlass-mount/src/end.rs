//! How a mount ends, and whether it still lies on its place.
//!
//!   kernel ends the session --> threads that serve --> Served::end --> keep_the_place, for ever
//!
//! A mount that was detached while it was in use ends much later, and so does one that somebody
//! else unmounted, on a busy machine. By then another mount can lie on its place.
//!
//! Invariants
//! - Nothing here unmounts a mount that is not this one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

/// How serving ended, once it has ended.
#[derive(Default)]
pub(crate) struct End {
    result: Mutex<Option<io::Result<()>>>,
    ended: Condvar,
    /// The kernel's side of the session. It is there from the moment when the threads serve.
    device: OnceLock<OwnedFd>,
}

impl End {
    /// Names the session, before its threads serve.
    pub(crate) fn follow(&self, session: impl AsFd) -> io::Result<()> {
        let device = session.as_fd().try_clone_to_owned()?;
        // It is set once: one thread runs one session.
        drop(self.device.set(device));
        Ok(())
    }

    /// True if the kernel has ended the session: the mount lies nowhere any more.
    pub(crate) fn is_over(&self) -> bool {
        let Some(device) = self.device.get() else {
            return false;
        };
        let mut asked = [PollFd::new(device, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut asked, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Ends this thread if the kernel has ended the session: notes the end, and sleeps from then
    /// on.
    ///
    /// fuser 0.18 unmounts the place once more when the thread goes on from here. It asks the
    /// kernel whether that is needed, and takes the error that says "ended" for a yes. If another
    /// mount lies there by now, that one would go.
    pub(crate) fn keep_the_place(&self) {
        if !self.is_over() {
            return;
        }
        self.note(Ok(()));
        loop {
            std::thread::park();
        }
    }

    pub(crate) fn note(&self, result: io::Result<()>) {
        *self.lock() = Some(result);
        self.ended.notify_all();
    }

    /// Waits for the end. It tells of a fault once.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut result = self.lock();
        loop {
            match result.take() {
                Some(ended) => {
                    *result = Some(Ok(()));
                    return ended;
                }
                None => {
                    let woken = self.ended.wait(result);
                    result = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// True when it has ended. Waits at most `limit` for that.
    pub(crate) fn wait_for(&self, limit: Duration) -> bool {
        let waited = self
            .ended
            .wait_timeout_while(self.lock(), limit, |result| result.is_none());
        let (result, _) = waited.unwrap_or_else(PoisonError::into_inner);
        result.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<io::Result<()>>> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of the file system that lies on a directory. This asks no server of a mount.
pub(crate) fn file_system(at: &Path) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, at, flags, StatxFlags::empty()).ok()?;
    Some(makedev(found.stx_dev_major, found.stx_dev_minor))
}
