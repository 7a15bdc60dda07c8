//! Clusters to back up, their sets, and the programs of PostgreSQL's versions.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};

use windlass_testkit::installed::{clients, of_version, other_versions};
use windlass_testkit::postgres::{PrivateCluster, give_to_servers, stay_root};

use crate::opening::{Scratch, open_to_all};
use crate::support::text;

/// A temporary directory whose files the servers can use.
pub fn place() -> tempfile::TempDir {
    stay_root();
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    give_to_servers(place.path());
    open_to_all(place.path(), 0o755);
    place
}

/// A directory in it that belongs to the servers' user.
pub fn directory(place: &Path, name: &str) -> PathBuf {
    let path = place.join(name);
    std::fs::create_dir(&path).unwrap();
    give_to_servers(&path);
    path
}

/// Backs up a cluster. Returns the directory of the set.
pub fn back_up(source: &PrivateCluster, place: &Path, options: &[&str]) -> String {
    let set = directory(place, "set");
    let set = set.to_str().unwrap().to_owned();
    let conninfo = source.conninfo();
    let words = [&["backup", &conninfo, "--to", &set, "--quiet"], options].concat();
    let output = Scratch::new().run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    set
}

/// The directory of a version's programs, for versions other than Debian's.
pub fn bindir(major: u32) -> PathBuf {
    of_version(other_versions(), major)
}

/// The client programs of the newest version, which work with servers of every version.
pub fn newest_clients() -> PathBuf {
    of_version(clients(), 18)
}

/// The bytes of all files of a set.
pub fn bytes(set: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(set).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}
