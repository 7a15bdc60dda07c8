//! A locked file (flock(2)): it shows other processes that somebody still works on the file.
//!
//! The kernel drops such a lock when the last descriptor of the open file is closed. A process that
//! this one starts has copies of all descriptors until it runs its program. So closing the file may
//! come too early to end the lock, and whoever looks next finds a file that nobody uses in use.
//! This value unlocks the file when it is dropped, for all copies.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, flock};

/// An open file or directory that is locked as long as this value lives.
#[derive(Debug)]
pub struct Locked<F: AsFd>(F);

impl<F: AsFd> Locked<F> {
    /// Locks the file for itself alone, without waiting. The error is of the kind `WouldBlock` if
    /// somebody else has locked it.
    pub fn take(file: F) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }

    /// Waits until nobody has the file locked.
    pub fn wait(file: &F) -> io::Result<()> {
        let shared = || flock(file, FlockOperation::LockShared);
        rustix::io::retry_on_intr(shared)?;
        Ok(flock(file, FlockOperation::Unlock)?)
    }

    /// Locks the file together with others who do the same, without waiting. The error is of the
    /// kind `WouldBlock` if somebody has locked it for itself alone.
    pub fn share(file: F) -> io::Result<Self> {
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        Ok(Self(file))
    }
}

impl<F: AsFd> Deref for Locked<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.0
    }
}

impl<F: AsFd> Drop for Locked<F> {
    fn drop(&mut self) {
        // If the file system cannot do it, the lock ends when the file is closed.
        flock(&self.0, FlockOperation::Unlock).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_lock_ends_although_a_copy_of_the_descriptor_is_open() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::open(directory.path()).unwrap();
        let locked = Locked::take(open()).unwrap();
        // This is what a process has that was started just now.
        let copy = locked.try_clone().unwrap();
        let refused = Locked::take(open()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(locked);
        Locked::take(open()).unwrap();
        drop(copy);
    }
}
