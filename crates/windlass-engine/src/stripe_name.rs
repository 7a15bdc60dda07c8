//! The names of stripes' files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The end of the names that Windlass gives to its stripes.
pub const STRIPE_SUFFIX: &str = ".windlass";
/// The end of the file name of a stripe that is not sealed yet.
pub const PARTIAL_SUFFIX: &str = ".partial";

/// The name of a stripe until its set is sealed.
pub fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(PARTIAL_SUFFIX);
    PathBuf::from(name)
}

/// True for the name of a stripe whose set is not sealed yet.
pub(crate) fn is_partial(path: &Path) -> bool {
    ends_with(path, PARTIAL_SUFFIX)
}

/// True for a name that Windlass gives to sealed stripes.
pub(crate) fn is_named_as_stripe(path: &Path) -> bool {
    ends_with(path, STRIPE_SUFFIX)
}

fn ends_with(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_bytes().ends_with(suffix.as_bytes())
}
