//! What holds the stripes that operations list and read: the files of this machine, and buckets.
//!
//! Every operation that reads sets asks [`STORAGE`], which also has the keys of this process. The
//! clients of buckets live as long as the process: two operations that use one bucket share its
//! connections, and nothing else.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use windlass_engine::media::SetId;
use windlass_engine::{
    CleanedUp, EngineError, Files, Going, Kept, Keyed, Lies, NotRemoved, PlaceFile, ReadAt, Storage,
};
use windlass_keys::Readers;
use windlass_object::{
    Buckets, FOREIGN_WRITER_LIVES, ObjectSettings, is_in_bucket, is_stripe_name,
};
use windlass_repository::Place;

use crate::error::{DeviceError, OperationError};
use crate::keys::OwnKeys;

/// Whatever holds stripes.
pub(crate) const STORAGE: &dyn Storage = &Keyed {
    storage: &Stored,
    keys: &OwnKeys,
};

static BUCKETS: LazyLock<Buckets> = LazyLock::new(Buckets::new);

/// Sets how to reach buckets. A program does it once, before its first operation.
pub fn configure_buckets(settings: ObjectSettings) {
    BUCKETS.configure(settings);
}

/// The buckets of this process.
pub(crate) fn buckets() -> &'static Buckets {
    &BUCKETS
}

/// Whether a path is a place, which holds stripes: a directory, or what in a bucket is no stripe.
pub(crate) fn is_place(path: &Path) -> bool {
    match is_in_bucket(path) {
        true => !is_stripe_name(path),
        false => path.is_dir(),
    }
}

/// Whether nothing is there. What a bucket has, its list says.
pub(crate) fn is_missing(path: &Path) -> bool {
    let is_not_found = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
    !is_in_bucket(path) && path.symlink_metadata().is_err_and(is_not_found)
}

/// A path from the root of the file system, or a location in a bucket as it is.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match is_in_bucket(path) {
        true => Ok(path.to_owned()),
        false => std::path::absolute(path),
    }
}

/// Refuses a place in a bucket, of which `what` is said.
pub(crate) fn no_bucket(path: &Path, what: &'static str) -> Result<(), DeviceError> {
    match is_in_bucket(path) {
        true => Err(DeviceError::InBucket {
            text: path.to_string_lossy().into_owned(),
            what,
        }),
        false => Ok(()),
    }
}

/// A place, as the log in it is read.
pub(crate) fn log_at(path: &Path) -> Place {
    let place = match is_in_bucket(path) {
        true => Place::new(path, buckets()),
        false => Place::directory(path),
    };
    place.with_keys(&OwnKeys)
}

/// A place, as log is written there: for the readers whom these words name. Call it before the
/// process becomes another user, who may not read what they name.
pub(crate) fn log_into(path: &Path, encrypt: &[String]) -> Result<Place, OperationError> {
    let readers = Readers::asked(encrypt)?;
    let encryption = readers
        .map(|readers| readers.log_encryption())
        .transpose()?;
    Ok(log_at(path).encrypting(encryption.map(Arc::new)))
}

/// Cleans up what interrupted runs left in a place.
pub(crate) fn clean_up(place: &Path) -> Result<Vec<CleanedUp>, EngineError> {
    match is_in_bucket(place) {
        true => buckets().clean_up(place, FOREIGN_WRITER_LIVES),
        false => windlass_engine::clean_up(place),
    }
}

/// Files and buckets, told apart by the location.
#[derive(Debug)]
struct Stored;

fn of(location: &Path) -> &'static dyn Storage {
    match is_in_bucket(location) {
        true => buckets(),
        false => &Files,
    }
}

impl Storage for Stored {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        of(location).look(location)
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        of(location).open(location)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        of(place).list(place, each)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        match is_in_bucket(one) || is_in_bucket(other) {
            true => one == other,
            false => Files.is_same(one, other),
        }
    }

    fn keep(&self, location: &Path, opened: &dyn ReadAt) -> io::Result<Kept> {
        of(location).keep(location, opened)
    }

    fn reserve(&self, location: &Path) -> io::Result<Option<Kept>> {
        of(location).reserve(location)
    }

    fn remove(&self, location: &Path) -> io::Result<()> {
        of(location).remove(location)
    }

    fn write(&self, location: &Path, content: &[u8]) -> io::Result<()> {
        of(location).write(location, content)
    }

    fn hides(&self, location: &Path) -> bool {
        of(location).hides(location)
    }

    fn note(&self, place: &Path, sets: &BTreeSet<SetId>) -> io::Result<Kept> {
        of(place).note(place, sets)
    }

    fn noted(&self, place: &Path) -> io::Result<BTreeSet<SetId>> {
        of(place).noted(place)
    }

    fn now_nanos(&self, place: &Path) -> i64 {
        of(place).now_nanos(place)
    }

    fn remove_set(&self, going: &Going<'_>) -> Result<(), NotRemoved> {
        of(going.place).remove_set(going)
    }
}
