//! What is there already where a set is restored: what may stay, what goes, and which bytes differ.
//!
//!   survey (changes nothing) --> clear: what does not belong goes --> write what differs
//!
//! Invariants
//! - No link is followed. A link where the set has a directory is refused before anything changes.
//! - A file with a second name is never written: it may belong to a copy or a snapshot. It is
//!   removed, and made anew.
//! - At the top of a mount (a tablespace), only what the set has there is touched.
//! - Content decides. Times and lengths are no proof that a file is right.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use windlass_media::{FileKind, fitted, is_zero};

use super::TargetLayout;
use super::directory::error;
use crate::durable;
use crate::error::EngineError;

/// How much is read at once to be compared.
const COMPARED_BYTES: usize = 256 * 1024;
/// The unit in which bytes differ.
const BLOCK_BYTES: usize = 4096;

/// What a restore over existing files has changed.
#[derive(Debug, Default)]
pub struct Changed {
    /// Bytes that were written, because they differed or were missing.
    pub bytes: AtomicU64,
    /// Files, links and directories that did not belong there, and are gone.
    pub removed: AtomicU64,
}

/// What is there, and does not belong to the set.
#[derive(Debug, Default)]
pub struct Existing {
    removed: Vec<PathBuf>,
    /// A directory on each file system, which is synced at the end.
    pub(super) volumes: HashMap<u64, PathBuf>,
}

/// What the set has at a path.
#[derive(Clone, Debug, PartialEq)]
enum Expected {
    Directory,
    File,
    Link(PathBuf),
}

impl Existing {
    /// Looks at everything that is there. What is `spared` stays, whatever it is.
    pub fn survey(layout: &TargetLayout, spared: &[PathBuf]) -> Result<Self, EngineError> {
        let mut found = Self::default();
        let expected = expected(layout);
        let walk = Walk {
            expected: &expected,
            spared,
        };
        found.directory(&walk, &layout.root, false)?;
        for (_, mount) in &layout.mounts {
            found.directory(&walk, mount, true)?;
        }
        Ok(found)
    }

    /// What a restore would remove: files, links and directories with all that they hold.
    pub fn to_remove(&self) -> &[PathBuf] {
        &self.removed
    }

    fn directory(&mut self, walk: &Walk<'_>, path: &Path, is_top: bool) -> Result<(), EngineError> {
        let entries = match fs::read_dir(path) {
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|source| error("list", path, source))?,
        };
        let about = fs::metadata(path).map_err(|source| error("look at", path, source))?;
        let volume = self.volumes.entry(about.dev());
        volume.or_insert_with(|| path.to_owned());
        for entry in entries {
            let entry = entry.map_err(|source| error("list", path, source))?;
            let path = entry.path();
            let about = entry.metadata();
            let about = about.map_err(|source| error("look at", &path, source))?;
            match walk.becomes(&path, &about)? {
                Becomes::Kept => {}
                Becomes::Entered => self.directory(walk, &path, false)?,
                Becomes::Unknown if is_top => {}
                Becomes::Removed | Becomes::Unknown => self.removed.push(path),
            }
        }
        Ok(())
    }

    /// Removes what does not belong.
    pub(super) fn clear(&self, changed: &Changed) -> Result<(), EngineError> {
        for path in &self.removed {
            let is_directory = path.symlink_metadata().is_ok_and(|about| about.is_dir());
            let removed = match is_directory {
                true => fs::remove_dir_all(path),
                false => fs::remove_file(path),
            };
            durable::if_there(removed).map_err(|source| error("remove", path, source))?;
            changed.removed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What becomes of something that is there.
enum Becomes {
    Kept,
    Entered,
    Removed,
    /// The set has nothing of that name.
    Unknown,
}

struct Walk<'a> {
    expected: &'a HashMap<PathBuf, Expected>,
    spared: &'a [PathBuf],
}

impl Walk<'_> {
    fn becomes(&self, path: &PathBuf, about: &Metadata) -> Result<Becomes, EngineError> {
        if self.spared.contains(path) {
            return Ok(Becomes::Kept);
        }
        Ok(match self.expected.get(path) {
            None => Becomes::Unknown,
            Some(Expected::Directory) if about.is_dir() => Becomes::Entered,
            Some(Expected::Directory) if about.is_symlink() => {
                let (path, what) = (path.clone(), "is a symbolic link, which is not followed");
                return Err(EngineError::TargetRefused { path, what });
            }
            Some(Expected::File) if about.is_file() && about.nlink() == 1 => Becomes::Kept,
            Some(Expected::Link(to)) if fs::read_link(path).is_ok_and(|is| is == *to) => {
                Becomes::Kept
            }
            Some(_) => Becomes::Removed,
        })
    }
}

/// Everything that the set has, with the directories above it.
fn expected(layout: &TargetLayout) -> HashMap<PathBuf, Expected> {
    let mut expected = HashMap::new();
    for entry in &layout.files.0 {
        let (path, what) = match entry.kind {
            FileKind::Directory => (layout.place(&entry.path), Expected::Directory),
            FileKind::File => (layout.place(&entry.path), Expected::File),
            FileKind::Symlink => {
                let to = Path::new(OsStr::from_bytes(&entry.link_target));
                (
                    layout.place_link(&entry.path),
                    Expected::Link(to.to_owned()),
                )
            }
        };
        let bases = std::iter::once(&layout.root).chain(layout.mounts.iter().map(|(_, base)| base));
        let base = bases.filter(|base| path.starts_with(base)).max();
        for above in path.ancestors().skip(1) {
            if base.is_none_or(|base| above == base || !above.starts_with(base)) {
                break;
            }
            let known = expected.entry(above.to_owned());
            known.or_insert(Expected::Directory);
        }
        expected.insert(path, what);
    }
    expected
}

/// Opens a file that may be there. `None`: a new one is needed in its place.
pub(super) fn open(path: &Path) -> Result<Option<File>, EngineError> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            // Its mode forbids it. A file of another user cannot be removed either, or should not.
            let removed = fs::remove_file(path);
            removed.map_err(|_| error("open", path, source))?;
            Ok(None)
        }
        Err(source) => Err(error("open", path, source)),
    }
}

/// Writes the blocks that differ. Returns how many bytes those are.
pub(super) fn write_differing(file: &File, offset: u64, bytes: &[u8]) -> io::Result<u64> {
    let mut found = vec![0; bytes.len().min(COMPARED_BYTES)];
    let (mut at, mut written) = (offset, 0);
    for part in bytes.chunks(COMPARED_BYTES) {
        let found = &mut found[..part.len()];
        file.read_exact_at(found, at)?;
        let mut begun: Option<usize> = None;
        let blocks = part.chunks(BLOCK_BYTES).zip(found.chunks(BLOCK_BYTES));
        for (number, (block, there)) in blocks.enumerate() {
            let start = number * BLOCK_BYTES;
            match (block == there, begun) {
                (false, None) => begun = Some(start),
                (true, Some(from)) => {
                    written += write_range(file, at, (part, from, start))?;
                    begun = None;
                }
                _ => {}
            }
        }
        if let Some(from) = begun {
            written += write_range(file, at, (part, from, part.len()))?;
        }
        at += fitted::<u64, usize>(part.len());
    }
    Ok(written)
}

fn write_range(file: &File, at: u64, (part, from, to): (&[u8], usize, usize)) -> io::Result<u64> {
    file.write_all_at(&part[from..to], at + fitted::<u64, usize>(from))?;
    Ok(fitted(to - from))
}

/// Makes a range zeros, unless it is. Returns how many bytes were not.
pub(super) fn clear_differing(file: &File, offset: u64, bytes: u64) -> io::Result<u64> {
    let mut found = vec![0; COMPARED_BYTES];
    let (mut at, end, mut cleared) = (offset, offset.saturating_add(bytes), 0);
    while at < end {
        let length = (end - at).min(fitted(COMPARED_BYTES));
        let found = &mut found[..fitted(length)];
        file.read_exact_at(found, at)?;
        if !is_zero(found) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if rustix::fs::fallocate(file, flags, at, length).is_err() {
                found.fill(0);
                file.write_all_at(found, at)?;
            }
            cleared += length;
        }
        at += length;
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_differ_are_written() {
        let file = tempfile::tempfile().unwrap();
        let old = vec![1; 3 * COMPARED_BYTES + 100];
        file.write_all_at(&old, 0).unwrap();
        let mut new = old.clone();
        assert_eq!(write_differing(&file, 0, &new).unwrap(), 0);
        for (at, differing) in [(5, 4096), (COMPARED_BYTES - 1, 4096), (new.len() - 1, 100)] {
            new[at] = 2;
            assert_eq!(write_differing(&file, 0, &new).unwrap(), differing, "{at}");
            let mut found = vec![0; new.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == new, "{at}");
        }
        let length = fitted::<u64, usize>(new.len());
        assert_eq!(clear_differing(&file, 0, length).unwrap(), length);
        assert_eq!(clear_differing(&file, 0, length).unwrap(), 0);
        assert_eq!(file.metadata().unwrap().len(), length);
    }
}
