//! The server's own programs, of the set's major version: found, or named by the user.
//!
//! A data directory starts only with programs of its own major version. So Windlass asks each place
//! for its version before it uses it. If a search fails, the error says what was found where.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{IoContext, PostgresError};

/// Where packages of one major version put their programs; `{}` stands for the version.
const PLACES: [&str; 6] = [
    "/usr/lib/postgresql/{}/bin",
    "/usr/pgsql-{}/bin",
    "/usr/lib/postgresql{}/bin",
    "/usr/libexec/postgresql{}",
    "/usr/local/pgsql-{}/bin",
    "/opt/postgresql/{}/bin",
];
/// Where a build of any version may be installed.
const PLACE_OF_ANY: &str = "/usr/local/pgsql/bin";

/// Programs of one major version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    major: u32,
    version: String,
}

impl Programs {
    /// Finds the programs of PostgreSQL `major`: in `directory` if that is given, otherwise on the
    /// PATH or where packages put them.
    pub fn find(major: u32, directory: Option<&Path>) -> Result<Self, PostgresError> {
        let places = match directory {
            // Make the path absolute, because the server starts in another directory than ours.
            Some(directory) => vec![std::path::absolute(directory).doing("resolve", directory)?],
            None => places(major),
        };
        let mut looked = String::new();
        for place in places {
            match version_in(&place) {
                Some((found, version)) if found == major => {
                    return Ok(Self {
                        directory: place,
                        major,
                        version,
                    });
                }
                Some((found, _)) => put(&mut looked, &place, &format!("is PostgreSQL {found}")),
                None => put(&mut looked, &place, "has no postgres that runs"),
            }
        }
        Err(PostgresError::Programs { major, looked })
    }

    /// The directory of the programs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Their major version.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The version as the server shows it: `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The path of the server program.
    pub(crate) fn postgres(&self) -> PathBuf {
        self.directory.join("postgres")
    }
}

fn put(looked: &mut String, place: &Path, what: &str) {
    let comma = if looked.is_empty() { "" } else { ", " };
    write!(looked, "{comma}{} {what}", place.display()).expect("a string takes everything");
}

/// The places to search, each once. Only places that exist, unless none does.
fn places(major: u32) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter(|place| place.join("postgres").exists());
    let packages = PLACES
        .iter()
        .map(|place| PathBuf::from(place.replace("{}", &major.to_string())));
    let mut found: Vec<PathBuf> = Vec::new();
    for place in on_path
        .chain(configured())
        .chain(packages)
        .chain([PathBuf::from(PLACE_OF_ANY)])
    {
        if !found.contains(&place) {
            found.push(place);
        }
    }
    if found.iter().any(|place| place.exists()) {
        found.retain(|place| place.exists());
    }
    found
}

/// The directory that pg_config on the PATH reports.
fn configured() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let place = text.trim();
    (output.status.success() && !place.is_empty()).then(|| place.into())
}

/// Major version and version of the server in a directory. The server answers this even for root.
fn version_in(place: &Path) -> Option<(u32, String)> {
    let output = Command::new(place.join("postgres"))
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.trim().strip_prefix("postgres (PostgreSQL) ")?;
    Some((major_of(version)?, version.to_owned()))
}

/// `15.18 (Debian ...)` and `18beta1` are 15 and 18.
fn major_of(version: &str) -> Option<u32> {
    let end = version.find(|letter: char| !letter.is_ascii_digit());
    version[..end.unwrap_or(version.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_number_in_front() {
        assert_eq!(major_of("15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_of("18beta1"), Some(18));
        assert_eq!(major_of("17"), Some(17));
        assert_eq!(major_of("devel"), None);
    }
}
