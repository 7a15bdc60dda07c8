//! Scratch directories: what an opened set needs while it is open, and nothing afterwards.
//!
//!   <temporary directory>/windlass-<user>/windlass-open-1f0c9a2e/   configuration, socket, log
//!                                                              data/    the mount
//!                                                              overlay/ what was written
//!
//! Invariants
//! - A scratch directory is locked by its process, and by the server that runs in it. One that
//!   nobody has locked is left over: whoever makes the next one removes it.
//! - Nothing below a mount is ever removed: a directory whose mount cannot be taken away stays.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs::outputs;

const PREFIX: &str = "windlass-open-";
/// Hex digits after it.
const ID_DIGITS: usize = 8;
const DATA: &str = "data";
const OVERLAY: &str = "overlay";

/// A scratch directory; removed when dropped.
pub struct Scratch {
    path: PathBuf,
    lock: File,
}

impl Scratch {
    /// Makes one in `base`, or in a directory of this user's below the temporary one, after
    /// removing what is left over there. It is given to `owner` if this is root.
    pub fn create(base: Option<&Path>, owner: Option<(u32, u32)>) -> Result<Self, Failure> {
        let base = match base {
            Some(base) => {
                outputs().check(base)?;
                std::path::absolute(base).map_err(|error| failure(base, &error))?
            }
            None => own_base()?,
        };
        Self::create_in(&base, owner).map_err(|error| failure(&base, &error))
    }

    fn create_in(base: &Path, owner: Option<(u32, u32)>) -> io::Result<Self> {
        // One at a time: between a directory and its lock nobody else may look.
        let alone = File::open(base)?;
        flock(&alone, FlockOperation::LockExclusive)?;
        clean(base)?;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let path = base.join(format!("{PREFIX}{}", &id[..ID_DIGITS]));
        let private = |path: &Path| DirBuilder::new().mode(0o700).create(path);
        private(&path)?;
        let lock = File::open(&path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let scratch = Self { path, lock };
        private(&scratch.data())?;
        private(&scratch.overlay())?;
        if let Some((uid, gid)) = owner {
            lchown(&scratch.path, Some(uid), Some(gid))?;
        }
        Ok(scratch)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the view is mounted.
    pub fn data(&self) -> PathBuf {
        self.path.join(DATA)
    }

    /// Where the overlay keeps what was written.
    pub fn overlay(&self) -> PathBuf {
        self.path.join(OVERLAY)
    }

    /// The lock, for the server to hold as well.
    pub fn lock(&self) -> Result<File, Failure> {
        let cloned = self.lock.try_clone();
        cloned.map_err(|error| failure(&self.path, &error))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            let path = self.path.display();
            output::note(&format!("warning: {path} could not be removed: {error}"));
        }
    }
}

fn us() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The directory of this user's for all scratch directories. Everybody may write where it is, so
/// it must be ours: another user could have put a link there.
fn own_base() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir().join(format!("windlass-{}", us()));
    // The server's user has to get through where root made it.
    let mode = if us() == 0 { 0o711 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(&base) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failure(&base, &error));
        }
        _ => {}
    }
    let ours = |metadata: std::fs::Metadata| metadata.is_dir() && metadata.uid() == us();
    if base.symlink_metadata().is_ok_and(ours) {
        return Ok(base);
    }
    let error = io::Error::other("it is not a directory of this user's");
    Err(failure(&base, &error))
}

fn is_scratch(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).unwrap_or_default();
    id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes what processes that were killed left here. What cannot be removed stays, and is told.
fn clean(base: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(base)? {
        let entry = entry?;
        let is_directory = entry.metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_directory || !is_scratch(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let path = entry.path();
        let free = File::open(&path)
            .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok());
        // Only then: it is in use otherwise.
        let removed = if free { remove(&path) } else { Ok(()) };
        if let Err(error) = removed {
            let path = path.display();
            output::note(&format!("warning: {path} is left over and stays: {error}"));
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    if may_be_mounted(path) {
        windlass_mount::detach(&path.join(DATA)).map_err(io::Error::other)?;
    }
    std::fs::remove_dir_all(path)
}

/// Taking away a mount needs a program that may be missing, which is why there is none then. What
/// cannot be looked at is a mount: another user's, or one whose server is dead.
fn may_be_mounted(path: &Path) -> bool {
    match (path.metadata(), path.join(DATA).symlink_metadata()) {
        (Ok(parent), Ok(data)) => parent.dev() != data.dev(),
        (Ok(_), Err(error)) => error.kind() != io::ErrorKind::NotFound,
        (Err(_), _) => true,
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Code::Failed,
        format!(
            "cannot make a scratch directory in {}: {error}",
            path.display()
        ),
        "Name another directory with --scratch.",
    )
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
