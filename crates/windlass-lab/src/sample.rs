//! A sample of a database: extents from all over its files. It shows how well and how fast the
//! database compresses.
//!
//! A fixed seed decides which places are read, and each byte of the files is equally likely. So the
//! same files give the same sample. Windlass only reads the database. A live database may change
//! during the sampling: a sample is good for ratios and speeds, and is never kept as data.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::PageClass;
use windlass_engine::media::{Codec, PageLayout, fitted};

use crate::error::LabError;

/// Bytes read at a place.
const EXTENT_BYTES: u64 = 1024 * 1024;
/// The longest page of a database is a multiple of all shorter ones.
const PAGE_BYTES_MAX: u64 = 64 * 1024;
const SEED: u64 = 0x5eed_0f57_0a6e;

/// Extents of a database.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// What was read, in pieces of at most one extent.
    pub extents: Vec<Extent>,
    /// How pages of the files are laid out.
    pub(crate) layouts: Vec<PageLayout>,
    /// Whether pages are taken apart with every codec, and not only where that costs no time.
    pub(crate) is_asked: bool,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// A piece of a file.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Which of the layouts its pages have, if that is known.
    pub(crate) layout: Option<usize>,
}

impl Sample {
    /// Reads at most `bytes` from `files`; if they are smaller, all of them.
    pub fn of_files(files: &[PathBuf], bytes: u64) -> Result<Self, LabError> {
        Self::of_relations(files, bytes, |_| None)
    }

    /// The same, of files whose pages have classes: a backup takes them apart.
    pub fn of_relations(
        files: &[PathBuf],
        bytes: u64,
        class: impl Fn(&Path) -> Option<Arc<PageClass>>,
    ) -> Result<Self, LabError> {
        let mut sizes = Vec::new();
        for file in files {
            match fs::metadata(file) {
                Ok(found) => sizes.push((file, found.len())),
                // Files come and go in a live database.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(LabError::io("examine", file)(error)),
            }
        }
        let total_bytes: u64 = sizes.iter().map(|(_, size)| size).sum();
        let extents = total_bytes.div_ceil(EXTENT_BYTES);
        let mut sample = Self {
            total_bytes,
            ..Self::default()
        };
        let mut classes: Vec<Arc<PageClass>> = Vec::new();
        for extent in places(extents, bytes.div_ceil(EXTENT_BYTES)) {
            if let Some((path, bytes)) = read(&sizes, extent * EXTENT_BYTES)? {
                let layout = class(path).map(|class| index_of(&mut classes, &class));
                sample.extents.push(Extent { bytes, layout });
            }
        }
        let layouts = classes.iter().map(|class| class.layout().clone());
        sample.layouts = layouts.collect();
        Ok(sample)
    }

    /// For a backup that was asked to take pages apart: it does so with every codec that
    /// compresses.
    #[must_use]
    pub fn asked(self, is_asked: bool) -> Self {
        Self { is_asked, ..self }
    }

    /// How the pages are laid out that a backup with this codec takes apart.
    pub(crate) fn layouts_with(&self, codec: Codec) -> &[PageLayout] {
        let is_asked = self.is_asked && codec != Codec::None;
        match is_asked || PageClass::is_worth_it_with(codec) {
            true => &self.layouts,
            false => &[],
        }
    }

    /// Bytes of the sample.
    pub fn bytes(&self) -> u64 {
        self.extents
            .iter()
            .map(|extent| extent.bytes.len() as u64)
            .sum()
    }
}

/// Where a class is in the list. Files of one relation have the same one.
pub(crate) fn index_of(classes: &mut Vec<Arc<PageClass>>, class: &Arc<PageClass>) -> usize {
    let known = classes.iter().position(|one| Arc::ptr_eq(one, class));
    known.unwrap_or_else(|| {
        classes.push(Arc::clone(class));
        classes.len() - 1
    })
}

/// Reads the extent at a position of all files laid end to end, or at the beginning of the page
/// there, up to the end of its file. `None` if the file is gone.
fn read<'a>(
    files: &[(&'a PathBuf, u64)],
    mut position: u64,
) -> Result<Option<(&'a Path, Vec<u8>)>, LabError> {
    for (path, size) in files {
        if position >= *size {
            position -= size;
            continue;
        }
        // Only whole pages can be taken apart.
        let position = position - position % PAGE_BYTES_MAX;
        let length = EXTENT_BYTES.min(size - position);
        let mut extent = vec![0; fitted(length)];
        let read = File::open(path).and_then(|file| read_at(&file, position, &mut extent));
        return match read {
            Ok(count) => {
                extent.truncate(count);
                Ok(Some((path, extent)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::io("read", *path)(error)),
        };
    }
    Ok(None)
}

fn read_at(file: &File, position: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// `wanted` of `count` places, in order. `count` is divided into `wanted` equal parts, and one
/// place is drawn from each.
pub(crate) fn places(count: u64, wanted: u64) -> Vec<u64> {
    let wanted = wanted.min(count);
    let mut random = SEED;
    let place = |index: u64| {
        let (from, to) = (index * count / wanted, (index + 1) * count / wanted);
        random = next(random);
        from + random % (to - from).max(1)
    };
    (0..wanted).map(place).collect()
}

/// SplitMix64: good enough for choosing places, and the same everywhere.
pub(crate) fn next(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// All plain files below a directory. Links are followed only if they are directly inside
/// `pg_tblspc`.
pub fn plain_files(root: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut waiting = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(LabError::io("list", &directory))?,
        };
        let follow = directory.ends_with("pg_tblspc");
        for entry in entries {
            let path = entry.map_err(LabError::io("list", &directory))?.path();
            let metadata = if follow {
                path.metadata()
            } else {
                path.symlink_metadata()
            };
            match metadata {
                Ok(metadata) if metadata.is_dir() => waiting.push(path),
                Ok(metadata) if metadata.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(place: &Path, name: &str, byte: u8, bytes: usize) -> PathBuf {
        let path = place.join(name);
        windlass_engine::durable::write(&path, &vec![byte; bytes], 0o600).unwrap();
        path
    }

    #[test]
    fn small_databases_are_read_whole_and_each_extent_once() {
        let place = tempfile::tempdir().unwrap();
        let files = [
            file(place.path(), "one", 1, 3 << 20),
            file(place.path(), "two", 2, (1 << 20) + 5),
        ];
        let sample = Sample::of_files(&files, 1 << 30).unwrap();
        assert_eq!(sample.total_bytes, (4 << 20) + 5);
        let ones = sample
            .extents
            .iter()
            .flat_map(|extent| &extent.bytes)
            .filter(|byte| **byte == 1)
            .count();
        let twos = sample
            .extents
            .iter()
            .flat_map(|extent| &extent.bytes)
            .filter(|byte| **byte == 2)
            .count();
        assert_eq!((ones, twos), (3 << 20, (1 << 20) + 5));
    }

    #[test]
    fn a_sample_stays_within_its_bound_and_is_the_same_again() {
        let place = tempfile::tempdir().unwrap();
        let files = [file(place.path(), "one", 7, 40 << 20)];
        let sample = Sample::of_files(&files, 4 << 20).unwrap();
        assert_eq!(sample.bytes(), 4 << 20);
        assert_eq!(places(40, 4), places(40, 4));
        let drawn = places(1000, 10);
        assert!(
            drawn
                .iter()
                .enumerate()
                .all(|(part, place)| place / 100 == part as u64)
        );
    }

    #[test]
    fn what_vanishes_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        let gone = place.path().join("gone");
        let sample = Sample::of_files(&[gone], 1 << 20).unwrap();
        assert_eq!((sample.bytes(), sample.total_bytes), (0, 0));
        assert!(plain_files(&place.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn links_are_followed_to_tablespaces_only() {
        let place = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        file(outside.path(), "relation", 1, 10);
        fs::create_dir(place.path().join("pg_tblspc")).unwrap();
        file(place.path(), "plain", 1, 10);
        for link in ["pg_tblspc/16384", "elsewhere"] {
            std::os::unix::fs::symlink(outside.path(), place.path().join(link)).unwrap();
        }
        let found = plain_files(place.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["relation", "plain"]);
    }
}
