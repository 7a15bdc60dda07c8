//! Where the place of a database is: beside the database, also if that is a link or is gone.

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The end of the name of the directory that holds the snapshots of a database.
const SUFFIX: &str = ".windlass-snapshots";
/// So many links are followed, as the system does.
const LINKS_MAX: u32 = 40;

/// The directory for the snapshots of a database.
pub(super) fn home_of(database: &Path) -> Result<PathBuf> {
    let real = match database.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound => gone(database),
        real => real,
    }?;
    let mut name = real.file_name().map_or(OsString::new(), OsString::from);
    name.push(SUFFIX);
    Ok(real.with_file_name(name))
}

/// The directory for the snapshots of a database that had this name before it was moved, and a link
/// took its name. `None` if the name is no link.
pub(super) fn home_of_link(database: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(database).ok()?;
    let path = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
    let mut name = path.file_name()?.to_owned();
    name.push(SUFFIX);
    path.is_symlink().then(|| path.with_file_name(name))
}

/// The database whose snapshots a directory has.
pub(super) fn database_of(home: &Path) -> PathBuf {
    let name = home.file_name().unwrap_or_default().as_bytes();
    let name = name.strip_suffix(SUFFIX.as_bytes()).unwrap_or(name);
    home.with_file_name(OsStr::from_bytes(name))
}

/// Whether a path has the name of such a directory.
pub(super) fn is_home(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.len() > SUFFIX.len() && name.ends_with(SUFFIX.as_bytes())
}

/// Where a database was whose file is not there: also where a link leads.
fn gone(database: &Path) -> Result<PathBuf> {
    let mut path = std::path::absolute(database)?;
    for _ in 0..LINKS_MAX {
        let parent = path.parent().ok_or(ErrorKind::NotFound)?.canonicalize()?;
        path = parent.join(path.file_name().ok_or(ErrorKind::NotFound)?);
        match std::fs::read_link(&path) {
            Ok(target) => path = parent.join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_beside_what_a_link_leads_to_also_if_that_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("shop.db", at.join("link.db")).unwrap();
        for is_there in [false, true] {
            if is_there {
                std::fs::File::create(at.join("shop.db")).unwrap();
            }
            for name in ["shop.db", "link.db"] {
                let home = home_of(&at.join(name)).unwrap();
                assert_eq!(home, at.join("shop.db.windlass-snapshots"), "{name}");
                assert_eq!(database_of(&home), at.join("shop.db"));
            }
        }
    }
}
