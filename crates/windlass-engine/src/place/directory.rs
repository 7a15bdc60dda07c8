//! A directory as a place. Directories below it are not looked into, and links not followed.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Place, PlaceFile};
use crate::bounded::open_regular;
use crate::error::EngineError;
use crate::set::places::where_it_may_be;
use crate::set::stripe::read_error;

/// A directory that holds stripes.
#[derive(Clone, Debug)]
pub struct DirectoryPlace(PathBuf);

impl DirectoryPlace {
    /// The place in this directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

impl Place for DirectoryPlace {
    fn files(&self, each: &mut dyn FnMut(PlaceFile)) -> Result<(), EngineError> {
        let fault = |source| read_error(&self.0, 0, source);
        for entry in std::fs::read_dir(&self.0).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            // A backup that ends at this moment renames its stripe. The new name may or may not be
            // listed.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file() {
                each(place_file(entry.path(), &metadata));
            }
        }
        Ok(())
    }

    fn read(&self, location: &Path, offset: u64, into: &mut [u8]) -> io::Result<()> {
        open_regular(location)?.read_exact_at(into, offset)
    }

    fn elsewhere(&self, written: &[u8]) -> Vec<PlaceFile> {
        let inside = [self.0.join("any")];
        let may_be = where_it_may_be(&inside, written).into_iter();
        let there = may_be.filter_map(|path| {
            let metadata = path.metadata().ok().filter(Metadata::is_file)?;
            Some(place_file(path, &metadata))
        });
        there.collect()
    }
}

fn place_file(location: PathBuf, metadata: &Metadata) -> PlaceFile {
    let seconds = metadata.mtime().saturating_mul(1_000_000_000);
    PlaceFile {
        location,
        bytes: metadata.len(),
        modified_nanos: seconds.saturating_add(metadata.mtime_nsec()),
    }
}
