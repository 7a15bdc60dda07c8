//! The temporary names of files that must appear last.
//!
//! Such a name is short, and no path of the set has it. So it fits wherever the file's own name
//! fits, and a set can hold anything, even what an interrupted restore left in a data directory.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use windlass_media::{FileNo, FileTable};

/// The beginning of a temporary name. A number follows.
const PREFIX: &str = ".windlass-last-";

/// A temporary name for each file of the table that must appear last.
pub(super) fn names(files: &FileTable) -> HashMap<FileNo, OsString> {
    let last = files.0.iter().filter(|entry| entry.flags.last);
    let taken = taken(files);
    let free = (0_u64..)
        .map(|number| format!("{PREFIX}{number}"))
        .filter(|name| !taken.contains(name.as_bytes()));
    last.map(|entry| entry.file)
        .zip(free.map(OsString::from))
        .collect()
}

/// The path under which a file is written that has this path at the end. It is in the same
/// directory, so renaming it never copies it.
pub(super) fn beside(path: &Path, name: &OsString) -> PathBuf {
    path.with_file_name(Path::new(name))
}

/// The names in the set, at any depth, that could be a temporary name.
fn taken(files: &FileTable) -> HashSet<&[u8]> {
    let components = files.0.iter();
    components
        .flat_map(|entry| entry.path.split(|byte| *byte == b'/'))
        .filter(|name| name.starts_with(PREFIX.as_bytes()))
        .collect()
}
