//! Places: where a cluster's files are, so that nobody writes there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::control::CONTROL_PATH;
use crate::tablespace::TABLESPACE_LINKS;

/// How many entries of a directory are looked at to find out whether it is a tablespace. A
/// tablespace is empty when it is created, so there is little beside the server's own directory.
const ENTRIES_LOOKED_AT: usize = 1000;

/// The data directory, and every directory that a link in it leads to: tablespaces, `pg_wal`.
pub fn places_of(data_directory: &Path) -> Vec<PathBuf> {
    let mut places = vec![data_directory.to_owned()];
    for directory in [
        data_directory.to_owned(),
        data_directory.join(TABLESPACE_LINKS),
    ] {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let links = entries
            .map(|entry| entry.path())
            .filter(|it| it.is_symlink());
        let real = links.filter_map(|link| link.canonicalize().ok());
        places.extend(real.filter(|place| place.is_dir()));
    }
    places
}

/// Says in which data directory or tablespace a path lies, or which one it is, in words that follow
/// `cannot write PATH:`. It looks only at the path, and asks no server.
pub fn cluster_around(path: &Path) -> Option<String> {
    path.ancestors().find_map(|above| {
        let place = above.display();
        if is_data_directory(above) {
            return Some(format!("it is in the data directory {place}"));
        }
        is_tablespace(above).then(|| format!("it is in the tablespace {place}"))
    })
}

/// Like [`cluster_around`], but a data directory counts only if a server runs on it: not even a new
/// file may appear there. Nothing in a tablespace shows whether its server runs, so each counts.
pub fn running_cluster_around(path: &Path) -> Option<String> {
    path.ancestors().find_map(|above| {
        let place = above.display();
        if above.join("postmaster.pid").exists() && is_data_directory(above) {
            let what = format!("it is in the data directory {place}, on which a server runs");
            return Some(what);
        }
        is_tablespace(above).then(|| format!("it is in the tablespace {place}"))
    })
}

fn is_data_directory(path: &Path) -> bool {
    path.join("PG_VERSION").is_file() && path.join(CONTROL_PATH).is_file()
}

/// Whether this is the location of a tablespace, or the server's own directory in one. The location
/// as a whole is the server's: its user owns it, and each major version puts a directory there.
fn is_tablespace(path: &Path) -> bool {
    if path.file_name().is_some_and(is_version_directory) {
        return path.is_dir();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut entries = entries.take(ENTRIES_LOOKED_AT);
    entries.any(|entry| is_version_directory(&entry.file_name()) && entry.path().is_dir())
}

/// In a tablespace a server keeps everything in one directory, `PG_<major>_<catalog version>`.
fn is_version_directory(name: &OsStr) -> bool {
    let name = name.to_str();
    let versions = name.and_then(|name| name.strip_prefix("PG_")?.split_once('_'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    versions.is_some_and(|(major, catalog)| number(major) && number(catalog) && catalog.len() == 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_cluster_is_known_from_any_path_in_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for directory in ["data/global", "data/base/5", "data/pg_tblspc"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        for directory in ["fast/PG_18_202506291/5", "wal"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        for file in ["data/PG_VERSION", "data/global/pg_control"] {
            std::fs::write(at(file), "18").unwrap();
        }
        std::os::unix::fs::symlink(at("fast"), at("data/pg_tblspc/16384")).unwrap();
        std::os::unix::fs::symlink(at("wal"), at("data/pg_wal")).unwrap();
        for path in ["data", "data/new", "data/base/5/1", "data/a/b"] {
            assert!(cluster_around(&at(path)).is_some(), "{path}");
        }
        for path in ["fast/PG_18_202506291/5/x", "fast", "fast/new", "fast/a/b"] {
            assert!(cluster_around(&at(path)).is_some(), "{path}");
            assert!(running_cluster_around(&at(path)).is_some(), "{path}");
        }
        for path in ["new", "fast2", "PG_18_202506291"] {
            assert_eq!(cluster_around(&at(path)), None, "{path}");
        }
        assert_eq!(running_cluster_around(&at("data/new")), None);
        std::fs::write(at("data/postmaster.pid"), "1").unwrap();
        assert!(running_cluster_around(&at("data/new")).is_some());
        let places = places_of(&at("data"));
        for path in ["data", "fast", "wal"] {
            let path = at(path).canonicalize().unwrap();
            assert!(places.contains(&path), "{path:?} in {places:?}");
        }
    }
}
