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

/// `shop-20261121T081500Z-1f0c9a2e` of `shop-20261121T081500Z-1f0c9a2e.2of4.windlass`: what the
/// files of one set have in common, if nobody gave them names. They may have the temporary suffix.
pub(crate) fn set_part(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(PARTIAL_SUFFIX).unwrap_or(name);
    let (front, device) = name.strip_suffix(STRIPE_SUFFIX)?.rsplit_once('.')?;
    let (index, count) = device.split_once("of")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let id = front.rsplit_once('-').map_or("", |(_, id)| id);
    let is_id = id.len() == 8 && id.bytes().all(|it| it.is_ascii_hexdigit());
    (is_number(index) && is_number(count) && is_id).then_some(front)
}

fn ends_with(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_bytes().ends_with(suffix.as_bytes())
}
