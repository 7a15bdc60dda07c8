//! Sets one level below a directory. People name /backup and mean the places in it.
//!
//! Windlass never takes a set from below: it only says where sets are. The look is bounded, because
//! the directory may be any directory of the machine.

use std::fs::{DirEntry, read_dir};
use std::path::{Path, PathBuf};

use windlass_engine::{STRIPE_SUFFIX, SetState};

use super::listed::list;

/// How many directories below are looked at.
const LOOKED_AT_MAX: usize = 100;
/// How many names of a directory are looked at.
const NAMES_MAX: usize = 10_000;

/// The directories below these that hold sets, each with how many it holds.
pub fn places(above: &[PathBuf]) -> Vec<(PathBuf, usize)> {
    let entries = above.iter().flat_map(|place| entries(place));
    let directories = entries.filter(is_directory).map(|entry| entry.path());
    let mut below: Vec<_> = directories.filter(|path| !above.contains(path)).collect();
    below.sort();
    below.truncate(LOOKED_AT_MAX);
    let with_count = |path: PathBuf| {
        let count = sets(&path);
        (count > 0).then_some((path, count))
    };
    below.into_iter().filter_map(with_count).collect()
}

/// How many sets are in a directory. A directory without the name of a stripe is not read on.
fn sets(place: &Path) -> usize {
    let ending = STRIPE_SUFFIX.trim_start_matches('.');
    let is_stripe = |path: &Path| path.extension().is_some_and(|end| end == ending);
    if !entries(place).any(|entry| is_stripe(&entry.path())) {
        return 0;
    }
    let sets = list(&[place.to_owned()]).unwrap_or_default().sets;
    let is_begun = |state: &SetState| !matches!(state, SetState::Unfinished);
    sets.iter().filter(|set| is_begun(&set.state)).count()
}

/// What lies in a directory, as far as this user may see it.
fn entries(place: &Path) -> impl Iterator<Item = DirEntry> {
    let entries = read_dir(place).into_iter().flatten().take(NAMES_MAX);
    entries.filter_map(Result::ok)
}

/// Whether it is a directory, or a link to one. The list of names says it of all but links.
fn is_directory(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if kind.is_symlink() => entry.path().is_dir(),
        kind => kind.is_ok_and(|kind| kind.is_dir()),
    }
}
