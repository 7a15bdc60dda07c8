//! Bytes that are rebuilt as they are read, and a storage that has them in place of lost stripes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_media::{KeyFile, SetId};

use super::rebuild::{Rebuilder, io_error};
use crate::error::EngineError;
use crate::keys::Keys;
use crate::storage::{Kept, Lies, PlaceFile, ReadAt, Storage};

/// A stripe that is missing or damaged.
#[derive(Debug)]
pub(crate) struct MendedBytes {
    pub(crate) rebuilder: Arc<Rebuilder>,
    pub(crate) stripe: u16,
}

impl ReadAt for MendedBytes {
    fn length(&self) -> io::Result<u64> {
        Ok(self.rebuilder.stripe_bytes(self.stripe))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.rebuilder
            .read(self.stripe, offset, into)
            .map_err(io_error)
    }
}

/// A storage in which some stripes of a set are mended.
#[derive(Debug)]
pub(crate) struct MendedStorage<'a> {
    pub(crate) inner: &'a dyn Storage,
    pub(crate) set: SetId,
    pub(crate) mended: BTreeMap<PathBuf, Arc<MendedBytes>>,
    /// The stripes that are whole, and the files with parity. What lies beside them are the
    /// envelopes of the set.
    pub(crate) whole: Vec<PathBuf>,
}

impl Storage for MendedStorage<'_> {
    fn look(&self, location: &Path) -> io::Result<Lies> {
        match self.mended.get(location) {
            Some(bytes) => Ok(Lies::File {
                bytes: bytes.length()?,
                modified_nanos: 0,
            }),
            None => self.inner.look(location),
        }
    }

    fn open(&self, location: &Path) -> io::Result<Arc<dyn ReadAt>> {
        if let Some(bytes) = self.mended.get(location) {
            return Ok(Arc::clone(bytes) as Arc<dyn ReadAt>);
        }
        let opened = self.inner.open(location);
        let keys = KeyFile::name(self.set);
        if opened.is_ok() || !location.ends_with(&keys) {
            return opened;
        }
        let beside = self.whole.iter().filter_map(|stripe| stripe.parent());
        let mut beside = beside.map(|place| self.inner.open(&place.join(&keys)));
        beside.find(Result::is_ok).unwrap_or(opened)
    }

    fn list(&self, place: &Path, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        self.inner.list(place, each)
    }

    fn keys(&self) -> &dyn Keys {
        self.inner.keys()
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        self.inner.is_same(one, other)
    }

    fn keep(&self, location: &Path, opened: &dyn ReadAt) -> io::Result<Kept> {
        self.inner.keep(location, opened)
    }

    fn hides(&self, location: &Path) -> bool {
        self.inner.hides(location)
    }

    fn note(&self, place: &Path, sets: &BTreeSet<SetId>) -> io::Result<Kept> {
        self.inner.note(place, sets)
    }
}
