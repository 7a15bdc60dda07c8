//! What `scripts/test` installs for the tests: the programs of PostgreSQL's versions, and the
//! library with the hook.
//!
//! Two variables name directories by version (`14=/dir:17=/dir`). A test that needs one that is not
//! set fails and says what sets it.

use std::path::PathBuf;

use crate::postgres::DEFAULT_BIN;

/// Names the programs of the versions beside Debian's.
const OTHERS: &str = "WINDLASS_TEST_PG_BINDIRS";
/// Names the client programs of the newest versions.
const CLIENTS: &str = "WINDLASS_TEST_PG_CLIENTS";

/// Debian's version. Its programs are in [`DEFAULT_BIN`].
const DEBIAN: u32 = 15;

/// Only the tests of the write hook need this version, and one of pages that a copy leaves without
/// content: everything else that changes between 15 and 17 is tested with these.
const FOR_HOOK: u32 = 16;

/// The library, as cargo names it.
pub const LIBRARY: &str = "libwindlass_interpose.so";

/// The versions beside Debian's, with their programs.
pub fn other_versions() -> Vec<(u32, PathBuf)> {
    let mut versions = listed(OTHERS);
    versions.retain(|(major, _)| *major != FOR_HOOK);
    versions
}

/// All versions, with their programs. Debian's is the last one.
pub fn all_versions() -> Vec<(u32, PathBuf)> {
    let mut versions = other_versions();
    versions.push((DEBIAN, DEFAULT_BIN.into()));
    versions
}

/// All versions whose writes the hook has to see. Debian's is the last one.
pub fn hooked_versions() -> Vec<(u32, PathBuf)> {
    let mut versions = listed(OTHERS);
    versions.push((DEBIAN, DEFAULT_BIN.into()));
    versions
}

/// The client programs of the newest versions.
pub fn clients() -> Vec<(u32, PathBuf)> {
    listed(CLIENTS)
}

/// The directory of this version in such a list.
pub fn of_version(versions: Vec<(u32, PathBuf)>, major: u32) -> PathBuf {
    let found = versions.iter().find(|(listed, _)| *listed == major);
    found
        .unwrap_or_else(|| panic!("no {major} in {versions:?}"))
        .1
        .clone()
}

/// The library with the hook, as cargo built it for these tests.
pub fn library() -> PathBuf {
    let tests = std::env::current_exe().expect("the path of the tests");
    let library = tests.with_file_name(LIBRARY);
    assert!(library.exists(), "{} is missing", library.display());
    library
}

fn listed(variable: &str) -> Vec<(u32, PathBuf)> {
    let text = std::env::var(variable);
    let text = text.unwrap_or_else(|_| panic!("{variable} is not set: run scripts/test"));
    let parse = |pair: &str| {
        let (major, bin) = pair.split_once('=').expect("MAJOR=DIRECTORY");
        (major.parse().expect("a major version"), PathBuf::from(bin))
    };
    text.split(':').map(parse).collect()
}
