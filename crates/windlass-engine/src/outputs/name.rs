//! Where a path leads, so that two paths to one file are known to be one.
//!
//! A file is known by device and inode; a name that nobody has yet, by its directory's and itself.
//! Of a directory that is mounted elsewhere a second time (`mount --bind`) only the mounted part
//! can be seen from there: the table of mounts says which part of the file system that is.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// How many links are followed from one to the next, as in the kernel.
const LINKS_MAX: usize = 40;

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// A name in a directory, and the file with this name, if there is one.
#[derive(Clone, Debug)]
pub(super) struct Name {
    path: PathBuf,
    identity: Option<Identity>,
    name: Option<(Identity, OsString)>,
}

/// A directory with everything in it.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    path: PathBuf,
    identity: Option<Identity>,
    location: Option<Location>,
}

/// A path within a file system. It does not depend on where that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Location {
    device: String,
    path: PathBuf,
}

impl Name {
    /// The name at the end of the path. If it is a link, also each name that it leads to.
    pub(super) fn of(path: &Path) -> Result<Vec<Self>, EngineError> {
        let fault = |source| EngineError::OutputIo {
            operation: "find",
            path: path.to_owned(),
            source,
        };
        let absolute = std::path::absolute(path).map_err(fault)?;
        let mut names = vec![Self::new(real(&absolute), absolute.symlink_metadata().ok())];
        let mut link = absolute;
        for _ in 0..LINKS_MAX {
            let Ok(target) = link.read_link() else { break };
            link.pop();
            link.push(target);
            names.push(Self::new(real(&link), link.symlink_metadata().ok()));
        }
        Ok(names)
    }

    fn new(path: PathBuf, metadata: Option<Metadata>) -> Self {
        let directory = path.parent().and_then(|parent| parent.metadata().ok());
        let name = directory.zip(path.file_name());
        Self {
            identity: metadata.as_ref().map(identity),
            name: name.map(|(directory, name)| (identity(&directory), name.to_owned())),
            path,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A directory on the way to this name, or the directory with this name, that this user may not
    /// enter. What is in it cannot be seen.
    pub(super) fn closed(&self) -> Option<&Path> {
        let is_closed = |path: &&Path| {
            let inside = path.join(".").symlink_metadata();
            inside.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        // Everything below the first such directory is closed too.
        let above: Vec<_> = self.path.ancestors().collect();
        above.into_iter().rev().find(is_closed)
    }

    /// Whether both names are, or would be, the same file.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same_file = self.identity.is_some() && self.identity == other.identity;
        same_file || (self.name.is_some() && self.name == other.name)
    }
}

impl Tree {
    /// The directory need not exist yet.
    pub(super) fn of(path: &Path) -> Result<Self, EngineError> {
        let fault = |source| EngineError::OutputIo {
            operation: "find",
            path: path.to_owned(),
            source,
        };
        let absolute = std::path::absolute(path).map_err(fault)?;
        let path = absolute.canonicalize().unwrap_or_else(|_| real(&absolute));
        Ok(Self {
            identity: path.metadata().ok().as_ref().map(identity),
            location: Location::of(&path),
            path,
        })
    }

    /// Whether the name is this directory, or lies in it.
    pub(super) fn holds(&self, name: &Name) -> bool {
        let above = name.path.ancestors();
        let mut identities = above.filter_map(|path| path.metadata().ok());
        let is_above = identities.any(|found| Some(identity(&found)) == self.identity);
        if is_above || name.path.starts_with(&self.path) {
            return true;
        }
        let (Some(own), Some(other)) = (&self.location, Location::of(&name.path)) else {
            return false;
        };
        own.device == other.device && other.path.starts_with(&own.path)
    }
}

impl Location {
    fn of(path: &Path) -> Option<Self> {
        let table = std::fs::read("/proc/self/mountinfo").ok()?;
        Self::in_table(&table, path)
    }

    /// Finds the mount on which the path lies. It is the deepest one; if several have the same
    /// place, the last.
    fn in_table(table: &[u8], path: &Path) -> Option<Self> {
        let mounts = table.split(|byte| *byte == b'\n').filter_map(mount);
        let above = mounts.filter(|(_, _, at)| path.starts_with(at));
        let (device, root, at) = above.max_by_key(|(_, _, at)| at.components().count())?;
        Some(Self {
            device,
            path: root.join(path.strip_prefix(at).ok()?),
        })
    }
}

/// `36 35 98:0 /root /mount/point options ...` (proc(5)): device, root, mount point.
fn mount(line: &[u8]) -> Option<(String, PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    Some((device, unescaped(fields.next()?), unescaped(fields.next()?)))
}

/// In this table, the kernel writes a space and some others as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).and_then(|it| std::str::from_utf8(it).ok());
        match digits.and_then(|it| u8::from_str_radix(it, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                plain.push(byte);
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain).into()
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The path with its real directories, as far as they exist.
fn real(path: &Path) -> PathBuf {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return path.canonicalize().unwrap_or_else(|_| path.to_owned());
    };
    let mut missing: Vec<&OsStr> = vec![name];
    for above in parent.ancestors() {
        match above.canonicalize() {
            Ok(mut found) => {
                found.extend(missing.iter().rev());
                return found;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => break,
        }
        missing.extend(above.file_name());
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        30 22 8:2 / /data rw - xfs /dev/sdb rw\n\
        31 22 8:2 /pg/base /mnt/a\\040b rw - xfs /dev/sdb rw\n";

    #[test]
    fn a_part_of_a_file_system_that_is_mounted_twice_is_one_place() {
        let at = |path: &str| Location::in_table(TABLE, Path::new(path)).unwrap();
        assert_eq!(at("/mnt/a b/5/1"), at("/data/pg/base/5/1"));
        assert_ne!(at("/mnt/5/1"), at("/data/pg/base/5/1"));
        assert_eq!(at("/data").path, Path::new("/"));
    }
}
