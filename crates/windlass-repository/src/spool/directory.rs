//! A directory below the one of the user, for what is kept beside a server: log that was fetched
//! ahead, or what is known of log that was stored ahead.
//!
//! Invariants
//! - Only this user can write there.
//! - It is used only in the run of the machine in which it was made. So its files need not be
//!   durable: after a power cut a file could be empty under its name.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_engine::durable::Locked;

use crate::error::{IoContext, RepositoryError};

/// The kernel draws it anew at each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const PREFIX: &str = "windlass-";
const LOCK: &str = "lock";

/// A directory of this user, in this run of the machine.
#[derive(Debug)]
pub(crate) struct SpoolDirectory {
    path: PathBuf,
}

impl SpoolDirectory {
    /// The one that these words say, below a directory that exists.
    pub(crate) fn of(root: &Path, words: &[&[u8]]) -> Result<Self, RepositoryError> {
        let boot = std::fs::read_to_string(BOOT_ID).doing("read", BOOT_ID)?;
        let boot = boot.trim().replace('-', "");
        let mut hasher = blake3::Hasher::new();
        for word in words {
            hasher.update(word);
        }
        let key = hasher.finalize().to_hex();
        let path = root.join(format!("{PREFIX}{boot}-{}", &key[..16]));
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).doing("make directory", &path);
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(&path).doing("examine", &path)?;
        match is_own(&found) {
            true => Ok(Self { path }),
            false => Err(RepositoryError::Spool { path }),
        }
    }

    /// The path of a name in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The right to write here. `None` if another process has it.
    pub(crate) fn turn(&self) -> Result<Option<Locked<File>>, RepositoryError> {
        let path = self.join(LOCK);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = windlass_engine::open_own(&path, options).doing("open", &path)?;
        match Locked::take(file) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).doing("lock", &path),
        }
    }

    /// The names in it, without the lock's.
    pub(crate) fn names(&self) -> Result<Vec<String>, RepositoryError> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).doing("list", &self.path)? {
            let name = entry.doing("list", &self.path)?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.retain(|name| name != LOCK);
        Ok(names)
    }

    /// Removes directories of earlier runs of the machine.
    pub(crate) fn remove_earlier(&self) -> Result<(), RepositoryError> {
        let own = self.path.file_name().unwrap_or_default().to_string_lossy();
        let root = self.path.parent().unwrap_or(Path::new("."));
        let boot = own.rsplit_once('-').map_or(&*own, |(boot, _)| boot);
        for entry in std::fs::read_dir(root).doing("list", root)? {
            let entry = entry.doing("list", root)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_earlier = name.starts_with(PREFIX) && !name.starts_with(boot);
            if is_earlier && entry.metadata().is_ok_and(|found| is_own(&found)) {
                let path = entry.path();
                std::fs::remove_dir_all(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }
}

/// Whether this is a directory of this user, to which nobody else may write.
fn is_own(found: &Metadata) -> bool {
    let us = rustix::process::geteuid().as_raw();
    found.is_dir() && found.uid() == us && found.mode() & 0o022 == 0
}
