//! Cleaning up after runs that were cut off: the next run does it before it begins.
//!
//! A `.partial` stripe that nobody has locked is left over. If it is sealed, and all stripes of
//! its set are, the set exists and only names are missing: they are given. If it is not sealed,
//! the set never existed: the stripe is removed. A sealed stripe whose siblings cannot be seen
//! (another disk, not mounted) is left alone.

use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::device::PARTIAL_SUFFIX;
use crate::durable;
use crate::error::EngineError;
use crate::set::{METADATA_LIMIT_DEFAULT, OpenSet, StripeGlance, glance};

/// What was done with one left-over stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanedUp {
    /// Its set was never sealed.
    Removed(PathBuf),
    /// Its set was sealed; it has its name now.
    Published(PathBuf),
    /// Its set may be sealed, but not all stripes can be seen.
    Left(PathBuf),
}

impl fmt::Display for CleanedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Removed(path) => write!(f, "removed {}: its backup was cut off", path.display()),
            Self::Published(path) => {
                write!(
                    f,
                    "named {}: its backup was cut off after the seal",
                    path.display()
                )
            }
            Self::Left(path) => {
                write!(
                    f,
                    "left {} alone: its other stripes cannot be seen",
                    path.display()
                )
            }
        }
    }
}

/// Cleans up what cut-off runs left in `directory`.
pub fn clean_up(directory: &Path) -> Result<Vec<CleanedUp>, EngineError> {
    let fault = |source| EngineError::DeviceIo {
        operation: "read",
        device: directory.to_string_lossy().into_owned(),
        offset: 0,
        source,
    };
    let mut done = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if !path
            .as_os_str()
            .as_bytes()
            .ends_with(PARTIAL_SUFFIX.as_bytes())
        {
            continue;
        }
        // Whoever holds the lock is alive; the lock is ours until the file is dealt with.
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        done.extend(one(&path, file.metadata().map_err(fault)?.len()).map_err(fault)?);
    }
    Ok(done)
}

fn one(path: &Path, bytes: u64) -> std::io::Result<Option<CleanedUp>> {
    let remove = || {
        std::fs::remove_file(path)?;
        durable::sync_parent(path)?;
        Ok(Some(CleanedUp::Removed(path.to_owned())))
    };
    let glances = glance(&[path.to_owned()], METADATA_LIMIT_DEFAULT).unwrap_or_default();
    match glances.first() {
        // A name like ours on a file that is not ours: none of our business, unless it is empty,
        // as a stripe is before its header.
        None if bytes == 0 => remove(),
        None => Ok(None),
        Some(StripeGlance { fault: Some(_), .. }) => remove(),
        Some(_) => publish_or_leave(path, remove),
    }
}

fn publish_or_leave(
    path: &Path,
    remove: impl Fn() -> std::io::Result<Option<CleanedUp>>,
) -> std::io::Result<Option<CleanedUp>> {
    match OpenSet::open(&[path.to_owned()], METADATA_LIMIT_DEFAULT) {
        Ok(_) => {
            let name = path.as_os_str().as_bytes();
            let name = &name[..name.len() - PARTIAL_SUFFIX.len()];
            let name = PathBuf::from(std::ffi::OsStr::from_bytes(name));
            durable::rename(path, &name)?;
            Ok(Some(CleanedUp::Published(name)))
        }
        // A sibling that can be seen and is not sealed: the seal was never completed.
        Err(EngineError::NotSealed { .. } | EngineError::Damage { .. }) => remove(),
        Err(_) => Ok(Some(CleanedUp::Left(path.to_owned()))),
    }
}
