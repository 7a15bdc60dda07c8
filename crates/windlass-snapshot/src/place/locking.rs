//! The directory of a place: it is made when the first snapshot comes, and locked while a name is
//! given or taken away. It may be a link: then somebody moved it to another disk.
//!
//! Never does: make a new directory in the place of one that is away.

use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use rustix::fs::{FlockOperation, flock};
use windlass_engine::durable;

use super::Place;
use crate::error::{Doing, SnapshotError};

/// How often a place is made again that somebody else removed in the same moment.
const ATTEMPTS: u32 = 8;

impl Place {
    /// Keeps names from being given and taken away, as long as the result lives.
    pub(crate) fn lock(&self) -> Result<File, SnapshotError> {
        self.make()
    }

    /// Makes the directory of the place if it is not there, and locks it.
    pub(super) fn make(&self) -> Result<File, SnapshotError> {
        for _ in 0..ATTEMPTS {
            let made = DirBuilder::new().mode(0o700).create(&self.home);
            match made {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.doing("make the directory", &self.home)?;
                    durable::sync_parent(&self.home).doing("sync the directory of", &self.home)?;
                }
            }
            let lock = match File::open(&self.home) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.check_not_away()?;
                    continue;
                }
                opened => opened.doing("open", &self.home)?,
            };
            flock(&lock, FlockOperation::LockExclusive).doing("lock", &self.home)?;
            // Who had the lock may have removed it.
            if self.is_at(&lock) {
                return Ok(lock);
            }
        }
        Err(ErrorKind::NotFound).doing("lock", &self.home)
    }

    /// Locks a place that is there, unless somebody else has the lock.
    pub(super) fn lock_if_free(&self) -> Option<File> {
        let lock = File::open(&self.home).ok()?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        self.is_at(&lock).then_some(lock)
    }

    /// Whether the directory of the place is the open one.
    fn is_at(&self, open: &File) -> bool {
        let key = |found: std::fs::Metadata| (found.dev(), found.ino());
        let (open, found) = (open.metadata().map(key), self.home.metadata().map(key));
        open.is_ok_and(|open| found.is_ok_and(|found| found == open))
    }

    /// Fails if the directory of the place is a link. Nothing is where that leads, so its disk may
    /// not be mounted.
    pub(super) fn check_not_away(&self) -> Result<(), SnapshotError> {
        match std::fs::read_link(&self.home) {
            Ok(path) => Err(SnapshotError::PlaceAway {
                home: self.home.clone(),
                path,
            }),
            Err(_) => Ok(()),
        }
    }
}
