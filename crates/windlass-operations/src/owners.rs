//! Users as numbers: the owner of a file, the user of a name, the user of this process.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User};

/// The user and the group of a user name.
pub fn user_ids(name: &str) -> Option<(u32, u32)> {
    let user = User::from_name(name).ok().flatten()?;
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

/// Owner and group of a file or directory.
pub fn owner(path: &Path) -> Option<(u32, u32)> {
    let metadata = path.metadata().ok()?;
    Some((metadata.uid(), metadata.gid()))
}

/// The user of this process.
pub fn this_user() -> u32 {
    Uid::effective().as_raw()
}
