//! A place: where it is, what keeps its objects, who reads and writes what is encrypted there, and
//! whose log it has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::{Directory, Keys, NoKeys, Objects};
use windlass_media::{LogEncryption, SetId};

use super::{LOG, OF_DATABASE, hex};
use crate::error::{IoContext, RepositoryError};
use crate::token::ContentKey;

/// A place that may hold logs: where it is, what keeps its objects, and the keys to them.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    objects: &'static dyn Objects,
    keys: &'static dyn Keys,
    encryption: Option<Arc<LogEncryption>>,
    content_key: Option<ContentKey>,
}

impl Place {
    /// The place at this location.
    pub fn new(path: impl AsRef<Path>, objects: &'static dyn Objects) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            objects,
            keys: &NoKeys,
            encryption: None,
            content_key: None,
        }
    }

    /// The same, read with these keys.
    pub fn with_keys(self, keys: &'static dyn Keys) -> Self {
        Self { keys, ..self }
    }

    /// The same. What is written there is encrypted, unless there is nothing to encrypt with.
    pub fn encrypting(self, encryption: Option<Arc<LogEncryption>>) -> Self {
        Self { encryption, ..self }
    }

    /// The same. Content that cannot be read is compared with this key.
    pub fn comparing_with(self, content_key: Option<ContentKey>) -> Self {
        Self {
            content_key,
            ..self
        }
    }

    /// The keys with which its objects are read.
    pub(crate) fn keys(&self) -> &'static dyn Keys {
        self.keys
    }

    /// What encrypts the objects that are written there.
    pub(crate) fn encryption(&self) -> Option<&LogEncryption> {
        self.encryption.as_deref()
    }

    /// What tells content from other content that cannot be read.
    pub(crate) fn content_key(&self) -> Option<&ContentKey> {
        self.content_key.as_ref()
    }

    /// A directory of this machine.
    pub fn directory(path: impl AsRef<Path>) -> Self {
        Self::new(path, &Directory)
    }

    /// Its location.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What keeps its objects.
    pub(crate) fn objects(&self) -> &'static dyn Objects {
        self.objects
    }

    /// Whether it is a directory, whose objects can grow and be locked.
    pub fn is_directory(&self) -> bool {
        self.objects.directory().is_some()
    }

    /// Fails if what is written there could not be read again by whoever writes it.
    pub fn check_key(&self) -> Result<(), RepositoryError> {
        let Some(encryption) = self.encryption() else {
            return Ok(());
        };
        let object = SetId([0; 16]);
        let lock = encryption.lock(object);
        match self.keys.open(object, &lock) {
            Ok(_) => Ok(()),
            Err(fault) => Err(RepositoryError::NotReadAgain {
                place: self.path.clone(),
                recipients: lock.recipients(),
                fault,
            }),
        }
    }

    /// Its location, whatever the working directory is.
    pub(crate) fn absolute(&self) -> Result<PathBuf, RepositoryError> {
        match self.is_directory() {
            true => std::path::absolute(&self.path).doing("find", &self.path),
            false => Ok(self.path.clone()),
        }
    }

    /// Fails if the place is not there: its disk may not be mounted.
    pub fn find(&self) -> Result<(), RepositoryError> {
        self.objects.find(&self.path).doing("list", &self.path)
    }

    /// The names in a folder.
    pub(crate) fn folders(&self, folder: &Path) -> Result<Vec<String>, RepositoryError> {
        self.objects.folders(folder).doing("list", folder)
    }
}

/// The clusters whose log a place holds, in ascending order. Fails if the place is not there.
pub fn log_systems(place: &Place) -> Result<Vec<u64>, RepositoryError> {
    let names = logs(place)?;
    let mut systems: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    systems.sort_unstable();
    Ok(systems)
}

/// Whether a place has a folder for logs. Fails if the place is not there.
pub fn has_log(place: &Place) -> Result<bool, RepositoryError> {
    place.find()?;
    match place.is_directory() {
        true => Ok(place.path.join(LOG).is_dir()),
        false => Ok(!place.folders(&place.path.join(LOG))?.is_empty()),
    }
}

/// The SQLite databases whose log a place holds, in ascending order.
pub fn log_databases(place: &Place) -> Result<Vec<u64>, RepositoryError> {
    let names = logs(place)?;
    let number = |name: &String| hex(name.strip_prefix(OF_DATABASE)?, 16);
    let mut found: Vec<u64> = names.iter().filter_map(number).collect();
    found.sort_unstable();
    Ok(found)
}

/// The names of the logs of a place.
fn logs(place: &Place) -> Result<Vec<String>, RepositoryError> {
    // A place that cannot be read, or that is not mounted, is no place without log.
    place.find()?;
    place.folders(&place.path.join(LOG))
}
