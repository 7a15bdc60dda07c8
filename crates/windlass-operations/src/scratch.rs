//! Scratch directories: they hold what an opened set needs, and are removed when it is closed.
//!
//!   <temporary directory>/windlass-<user>/windlass-open-1f0c9a2e/   configuration, socket, log
//!                                                              data/    the mount
//!                                                              overlay/ what was written
//!                                        yesterday --> windlass-open-1f0c9a2e, if it is kept open
//!
//! Invariants
//! - The process of a scratch directory keeps it locked, and so does the server in it. A directory
//!   without a lock is left over. The process that creates the next scratch directory removes it.
//! - Nothing below a mount is ever removed. If a mount cannot be removed, its directory stays.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use crate::error::OperationError;
use crate::kept::{KeptError, KeptName};
use crate::notice::{Notice, Observer};
use crate::outputs::outputs;

const PREFIX: &str = "windlass-open-";
/// The number of hex digits after the prefix.
const ID_DIGITS: usize = 8;
const DATA: &str = "data";
const OVERLAY: &str = "overlay";

/// A scratch directory; removed when dropped.
pub(crate) struct Scratch {
    observer: Arc<dyn Observer>,
    path: PathBuf,
    /// The link to it, if it is kept open under a name.
    link: Option<PathBuf>,
    lock: File,
}

impl Scratch {
    /// Creates a scratch directory in `base`, or in this user's own directory below the temporary
    /// one. First it removes what is left over there. If this process is root, it gives the
    /// directory to `owner`. Under `name` it can be found as long as it is there.
    pub fn create(
        observer: &Arc<dyn Observer>,
        base: Option<&Path>,
        owner: Option<(u32, u32)>,
        name: Option<&KeptName>,
    ) -> Result<Self, OperationError> {
        let base = match base {
            Some(base) => {
                outputs().check(base)?;
                std::path::absolute(base).map_err(|error| failure(base, error))?
            }
            None => own_base()?,
        };
        // One process at a time: a directory without its lock would look left over.
        let alone = File::open(&base).and_then(|alone| {
            flock(&alone, FlockOperation::LockExclusive)?;
            clean(&**observer, &base)?;
            Ok(alone)
        });
        let _alone = alone.map_err(|error| failure(&base, error))?;
        let made = Self::create_in(observer, &base, owner);
        let mut made = made.map_err(|error| failure(&base, error))?;
        if let Some(name) = name {
            made.link(base.join(name.as_str()))?;
        }
        Ok(made)
    }

    /// Makes a link to it.
    fn link(&mut self, link: PathBuf) -> Result<(), OperationError> {
        let target = self.path.file_name().unwrap_or_default();
        match symlink(target, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(KeptError::Taken { path: link }.into());
            }
            made => made.map_err(|error| failure(&link, error))?,
        }
        self.link = Some(link);
        Ok(())
    }

    fn create_in(
        observer: &Arc<dyn Observer>,
        base: &Path,
        owner: Option<(u32, u32)>,
    ) -> io::Result<Self> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = base.join(format!("{PREFIX}{}", &id[..ID_DIGITS]));
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&path)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let observer = Arc::clone(observer);
        let scratch = Self {
            observer,
            path,
            link: None,
            lock,
        };
        private(&scratch.data())?;
        private(&scratch.overlay())?;
        if let Some((uid, gid)) = owner {
            lchown(&scratch.path, Some(uid), Some(gid))?;
        }
        Ok(scratch)
    }

    /// The directory, by its name if it has one.
    pub fn path(&self) -> &Path {
        self.link.as_deref().unwrap_or(&self.path)
    }

    /// A path in the mount, by the name of the directory if it has one.
    pub fn shown(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(DATA).join(path)
    }

    /// The directory on which the view is mounted.
    pub fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    /// The directory in which the overlay keeps what was written.
    pub fn overlay(&self) -> PathBuf {
        self.path.join(OVERLAY)
    }

    /// The lock, which the server holds as well.
    pub fn lock(&self) -> Result<File, OperationError> {
        let cloned = self.lock.try_clone();
        cloned.map_err(|error| failure(&self.path, error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            // If it stays, it leads nowhere, and the next scratch directory here removes it.
            std::fs::remove_file(link).unwrap_or_default();
        }
        if let Err(error) = remove(&self.path) {
            self.observer.notice(&Notice::ScratchLeft {
                path: &self.path,
                error: &error,
            });
        }
    }
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// This user's own directory for all scratch directories. Everybody may write to its parent. So it
/// must belong to this user: another user could have put a link there.
fn own_base() -> Result<PathBuf, OperationError> {
    let base = std::env::temp_dir().join(format!("windlass-{}", us()));
    outputs().check(&base)?;
    // If root creates it, the server's user must be able to pass through it.
    let mode = if us() == 0 { 0o711 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(&base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failure(&base, error));
        }
        _ => {}
    }
    let ours = |metadata: std::fs::Metadata| metadata.is_dir() && metadata.uid() == us();
    if base.symlink_metadata().is_ok_and(ours) {
        return Ok(base);
    }
    let error = io::Error::other("it is not a directory of this user's");
    Err(failure(&base, error))
}

fn is_scratch(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).unwrap_or_default();
    id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes what killed processes left here. If something cannot be removed, it stays, and a warning
/// says so.
fn clean(observer: &dyn Observer, base: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(base)? {
        let entry = entry?;
        let is_directory = entry.metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_directory || !is_scratch(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let path = entry.path();
        let free = File::open(&path)
            .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        // Only an unlocked directory is removed: a locked one is in use.
        let removed = if free { remove(&path) } else { Ok(()) };
        if let Err(error) = removed {
            observer.notice(&Notice::ScratchStays {
                path: &path,
                error: &error,
            });
        }
    }
    for entry in std::fs::read_dir(base)? {
        remove_dangling(&entry?.path());
    }
    Ok(())
}

/// Removes a link to a scratch directory that is gone.
fn remove_dangling(link: &Path) {
    let Ok(target) = std::fs::read_link(link) else {
        return;
    };
    if is_scratch(&target.to_string_lossy()) && !link.exists() {
        // What stays makes this name unusable, which the next one that asks for it is told.
        std::fs::remove_file(link).unwrap_or_default();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if may_be_mounted(path) {
        windlass_mount::detach(&path.join(DATA)).map_err(io::Error::other)?;
    }
    std::fs::remove_dir_all(path)
}

/// Whether something may be mounted there. Removing a mount needs a program. Where that program is
/// missing there is no mount either, so it must not be called needlessly. What cannot be looked at
/// counts as a mount: it is another user's, or its server is dead.
fn may_be_mounted(path: &Path) -> bool {
    match (path.metadata(), path.join(DATA).symlink_metadata()) {
        (Ok(parent), Ok(data)) => parent.dev() != data.dev(),
        (Ok(_), Err(error)) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

fn failure(path: &Path, source: io::Error) -> OperationError {
    OperationError::Scratch {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_we_give_are_ours() {
        assert!(is_scratch("windlass-open-1f0c9a2e"));
        for name in [
            "windlass-open-",
            "windlass-open-1f0c9a2",
            "windlass-open-source1",
            "open",
        ] {
            assert!(!is_scratch(name), "{name}");
        }
    }
}
