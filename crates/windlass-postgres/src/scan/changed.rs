//! A scan of a few paths: what has changed since the whole scan.
//!
//! The caller knows every name that came, went, or became that of another file since then. So
//! nothing else has to be looked at. A path counts if the whole scan has listed its directory; what
//! is below a new directory is found by listing that one.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use windlass_media::FileKind;

use super::{ScanRules, Scanner, joined};
use crate::error::PostgresError;
use crate::listing::Listing;
use crate::names::{self, RelationFile};

/// What is at some paths now, and below them.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The paths, relative to the data directory. What was known of them and of what is below them
    /// no longer holds.
    pub(crate) paths: Vec<Vec<u8>>,
    /// What is there.
    pub(crate) listing: Listing,
}

/// Looks at these paths again; `None` if it cannot tell where one of them leads. `directories` are
/// those that the whole scan has listed.
pub(crate) fn scan_changed<'p>(
    rules: &ScanRules,
    directories: &HashSet<Vec<u8>>,
    changed: impl Iterator<Item = &'p [u8]>,
) -> Result<Option<Changed>, PostgresError> {
    let mut scanner = Scanner::new(rules)?;
    let mut paths = HashSet::new();
    for path in changed {
        match relative(path, &[&rules.root, &scanner.real_root]) {
            Where::Inside(path) => {
                paths.insert(path);
            }
            Where::Outside => {}
            Where::Unknown => return Ok(None),
        }
    }
    let mut paths: Vec<_> = paths.into_iter().collect();
    paths.retain(|path| directories.contains(split(path).0));
    paths.sort_unstable();
    let mut walked: HashSet<&[u8]> = HashSet::new();
    for path in &paths {
        // A directory is listed with everything below it.
        let mut above = std::iter::successors(Some(split(path).0), |it| Some(split(it).0));
        let is_walked = above
            .by_ref()
            .take_while(|it| !it.is_empty())
            .any(|it| walked.contains(it));
        if !is_walked && scanner.look_at(path)? {
            walked.insert(path);
        }
    }
    scanner.walk_pending()?;
    scanner.remove_unlogged();
    let listing = scanner.listing;
    Ok(Some(Changed { paths, listing }))
}

enum Where {
    Inside(Vec<u8>),
    Outside,
    Unknown,
}

/// A path of the server, which is in its data directory, without what changes nothing.
fn relative(path: &[u8], roots: &[&Path]) -> Where {
    let path = Path::new(OsStr::from_bytes(path));
    let inside = match path.is_absolute() {
        false => Some(path),
        true => roots.iter().find_map(|root| path.strip_prefix(root).ok()),
    };
    let Some(inside) = inside else {
        return outside(path, roots);
    };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in inside.components() {
        match part {
            Component::Normal(name) => parts.push(name.as_bytes()),
            Component::CurDir => {}
            _ => return Where::Unknown,
        }
    }
    match parts.is_empty() {
        true => Where::Outside,
        false => Where::Inside(parts.join(&b'/')),
    }
}

/// Another way to the data directory is possible. A directory that is gone leads nowhere.
fn outside(path: &Path, roots: &[&Path]) -> Where {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    let leads_in = |parent: &Path| roots.iter().any(|root| parent.starts_with(root));
    match parent.is_some_and(|parent| leads_in(&parent)) {
        true => Where::Unknown,
        false => Where::Outside,
    }
}

/// A path's directory, and its name there.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

impl Scanner<'_> {
    /// True if something else than a file is there.
    fn look_at(&mut self, path: &[u8]) -> Result<bool, PostgresError> {
        let (directory, name) = split(path);
        self.note_unlogged(directory, name);
        let (at, before) = (self.path_of(path), self.listing.len());
        self.list_entry(directory, name, || at.symlink_metadata())?;
        let found = self.listing.entries()[before..].first();
        Ok(found.is_some_and(|entry| entry.kind != FileKind::File))
    }

    /// Whether a relation is unlogged is told by another file than the one that has changed.
    fn note_unlogged(&mut self, directory: &[u8], name: &[u8]) {
        let relation = names::is_relation_directory(directory);
        let relation = relation.then(|| RelationFile::parse(name)).flatten();
        let Some(number) = relation.map(|relation| relation.number) else {
            return;
        };
        let init = joined(directory, format!("{number}_init").as_bytes());
        if self.path_of(&init).symlink_metadata().is_ok() {
            let unlogged = self.unlogged.entry(directory.to_vec()).or_default();
            unlogged.insert(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_server_is_one_of_the_data_directory_or_outside() {
        let roots = [Path::new("/data"), Path::new("/real")];
        let inside = |path: &[u8]| match relative(path, &roots) {
            Where::Inside(path) => Some(path),
            _ => None,
        };
        assert_eq!(inside(b"base/5/1"), Some(b"base/5/1".to_vec()));
        assert_eq!(inside(b"./base//5/1"), Some(b"base/5/1".to_vec()));
        assert_eq!(inside(b"/real/base/5"), Some(b"base/5".to_vec()));
        assert!(matches!(relative(b"base/../1", &roots), Where::Unknown));
        assert!(matches!(
            relative(b"/nowhere/at/all", &roots),
            Where::Outside
        ));
    }
}
