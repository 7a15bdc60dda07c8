//! The file of the pages that the hook preserved, for all snapshots of a database.
//!
//! The server's processes append to it. The controller makes it, and frees the room of pages that
//! no snapshot needs any more. It never moves a page.
//!
//! Invariants
//! - A link is not followed to write, and nothing is emptied or removed that is not a store. The
//!   directory may be one in which others make files, too.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;
use windlass_engine::media::crc32c;
use windlass_engine::{durable, open_regular};
use windlass_image::layout::hook::{FileKey, Memory, identity_of_store};
use windlass_image::layout::{
    ENTRY_BYTES, Geometry, HEADER_BYTES, LayoutFault, Slot, SlotEntry, StoreHeader,
};

use super::error::{HookError, HookIo};
use super::examined::examine_open;

const PRIVATE_MODE: u32 = 0o600;
/// Longest path of a store.
const PATH_BYTES_MAX: usize = 4096;

/// An open store.
#[derive(Debug)]
pub(crate) struct PreservedPages {
    file: File,
    path: PathBuf,
    geometry: Geometry,
}

/// Whose page is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) key: FileKey,
    pub(crate) block: u64,
    /// The page may belong to this snapshot or to a newer one.
    pub(crate) number: u32,
}

impl PreservedPages {
    /// Makes an empty store and tells the hook. No snapshot may exist.
    pub(crate) fn create(
        memory: Memory<'_>,
        path: &Path,
        page_bytes: u32,
    ) -> Result<(), HookError> {
        let geometry = geometry(path, page_bytes)?;
        let header = StoreHeader {
            geometry,
            identity: [0; 32],
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE_MODE)
            .open(path)
            .doing("create", path)?;
        file.write_all_at(&header.encode(), 0)
            .doing("write", path)?;
        let identity = identity(&file).doing("examine", path)?;
        memory.set_page_bytes(page_bytes);
        if !memory.set_store(path.as_os_str().as_bytes()) {
            // Nobody would find it.
            std::fs::remove_file(path).doing("remove", path)?;
            return Err(HookError::LongPath { path: path.into() });
        }
        memory.set_store_identity(identity);
        Ok(())
    }

    /// Whether the file that the hook writes to is there. Another file with its name is not it:
    /// some processes of the server may still write to the one that was removed.
    pub(crate) fn is_there(memory: Memory<'_>) -> bool {
        let Some(path) = Self::path_of(memory) else {
            return false;
        };
        let found = open_regular(&path).and_then(|file| identity(&file));
        let known = memory.store_identity();
        match found {
            Ok(found) => known == 0 || found == known,
            // What cannot be read now is not gone.
            Err(error) => !durable::is_absent(&error),
        }
    }

    /// Where the hook writes its pages; `None` if it has no store.
    pub(crate) fn path_of(memory: Memory<'_>) -> Option<PathBuf> {
        let mut path = [0; PATH_BYTES_MAX];
        let length = memory.store_path(&mut path);
        let path = path.get(..length).filter(|path| !path.is_empty())?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
    }

    /// Opens the store that the hook writes to, to read it.
    pub(crate) fn open(path: &Path, page_bytes: u32) -> Result<Self, HookError> {
        Ok(Self {
            file: open_regular(path).doing("open", path)?,
            path: path.into(),
            geometry: geometry(path, page_bytes)?,
        })
    }

    /// Opens it to free pages. `None` if it is not there, or if its name is that of another file.
    pub(crate) fn open_to_free(memory: Memory<'_>) -> Result<Option<Self>, HookError> {
        let Some((path, file)) = Self::own_file(memory)? else {
            return Ok(None);
        };
        let geometry = geometry(&path, memory.page_bytes())?;
        Ok(Some(Self {
            file,
            path,
            geometry,
        }))
    }

    /// The file that the hook writes to, and its path. `None` if it is not there, or if its name is
    /// that of another file.
    pub(crate) fn own_file(memory: Memory<'_>) -> Result<Option<(PathBuf, File)>, HookError> {
        let Some(path) = Self::path_of(memory) else {
            return Ok(None);
        };
        let Some(file) = open_to_write(&path).doing("open", &path)?.file() else {
            return Ok(None);
        };
        let is_own = match memory.store_identity() {
            // It was brought back after a start of the system.
            0 => is_store(&file),
            known => identity(&file).map(|found| found == known),
        };
        let is_own = is_own.doing("examine", &path)?;
        Ok(is_own.then_some((path, file)))
    }

    /// Makes room for a new store: one that an earlier memory of the cluster left goes. Anything
    /// else that has its name stays as it is, and is an error.
    pub(crate) fn make_room(path: &Path) -> Result<(), HookError> {
        let is_left = match open_to_write(path).doing("open", path)? {
            Opened::Nothing => return Ok(()),
            Opened::File(file) => is_left(&file).doing("read", path)?,
            Opened::Other => false,
        };
        match is_left {
            // It is not emptied: no server writes to it any more.
            true => std::fs::remove_file(path).doing("remove", path),
            false => Err(HookError::StoreTaken { path: path.into() }),
        }
    }

    /// How many slots from this one on can be read with one call.
    pub(crate) const fn run(&self, slot: Slot) -> u32 {
        self.geometry.run(slot)
    }

    /// Reads pages that are in a run of slots, for blocks in a row, and checks that each is the one
    /// that is wanted. False if one is not. `wanted` is the first.
    pub(crate) fn read(
        &self,
        slot: Slot,
        wanted: Wanted,
        into: &mut [u8],
    ) -> std::io::Result<bool> {
        let page_bytes = self.geometry.page_bytes() as usize;
        let mut entries = vec![0; into.len() / page_bytes * ENTRY_BYTES];
        let read = self
            .file
            .read_exact_at(&mut entries, self.geometry.entry_offset(slot));
        let read = read.and_then(|()| {
            self.file
                .read_exact_at(into, self.geometry.page_offset(slot))
        });
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        let entries = entries.as_chunks::<ENTRY_BYTES>().0.iter();
        let mut pages = entries
            .zip(into.chunks_exact(page_bytes))
            .zip(wanted.block..);
        Ok(pages.all(|((entry, page), block)| {
            let entry = SlotEntry::decode(entry).ok().flatten();
            entry.is_some_and(|entry| is_wanted(&entry, Wanted { block, ..wanted }, page))
        }))
    }

    /// Frees the room of these pages, and forgets them. Neighbours go with one call: a file system
    /// that tells its disk what is free waits for the disk in each.
    pub(crate) fn free(&self, slots: &mut Vec<Slot>) -> Result<(), HookError> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let page_bytes = u64::from(self.geometry.page_bytes());
        let mut offsets: Vec<_> = slots
            .drain(..)
            .map(|slot| self.geometry.page_offset(slot))
            .collect();
        offsets.sort_unstable();
        for run in offsets.chunk_by(|before, after| before + page_bytes == *after) {
            let freed = fallocate(&self.file, hole, run[0], run.len() as u64 * page_bytes);
            match freed {
                // A file system without holes keeps the room until the last snapshot is dropped.
                Err(Errno::OPNOTSUPP) => return Ok(()),
                freed => freed
                    .map_err(std::io::Error::from)
                    .doing("free pages of", &self.path)?,
            }
        }
        Ok(())
    }

    /// How much room the store takes on its disk, in bytes.
    pub(crate) fn room(path: &Path) -> Result<u64, HookError> {
        let found = std::fs::metadata(path).doing("examine", path)?;
        Ok(found.blocks().saturating_mul(512))
    }

    /// Removes the store that the hook writes to. Processes of the server may still have it open,
    /// so it is emptied first. Another file that has its name stays.
    pub(crate) fn remove(memory: Memory<'_>) -> Result<(), HookError> {
        let Some((path, file)) = Self::own_file(memory)? else {
            return Ok(());
        };
        file.set_len(0).doing("empty", &path)?;
        std::fs::remove_file(&path).doing("remove", &path)
    }
}

/// What has a name.
enum Opened {
    Nothing,
    File(File),
    /// A link, a directory, a pipe: nothing that a store can be.
    Other,
}

impl Opened {
    fn file(self) -> Option<File> {
        match self {
            Self::File(file) => Some(file),
            Self::Nothing | Self::Other => None,
        }
    }
}

/// Opens a file by its own name, to read and write it.
fn open_to_write(path: &Path) -> std::io::Result<Opened> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).unwrap_or_else(|_| unreachable!("flags"));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).custom_flags(flags);
    let found = match path.symlink_metadata() {
        Err(error) if durable::is_absent(&error) => return Ok(Opened::Nothing),
        found => found?,
    };
    if !found.is_file() {
        return Ok(Opened::Other);
    }
    let file = match options.open(path) {
        Err(error) if durable::is_absent(&error) => return Ok(Opened::Nothing),
        // Somebody has just put it there.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Ok(Opened::Other);
        }
        opened => opened?,
    };
    Ok(match file.metadata()?.is_file() {
        true => Opened::File(file),
        false => Opened::Other,
    })
}

/// The beginning of a file; `None` if it is shorter.
fn header(file: &File) -> std::io::Result<Option<[u8; HEADER_BYTES]>> {
    let mut bytes = [0; HEADER_BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
        read => read.map(|()| Some(bytes)),
    }
}

/// Whether a file begins like a store, of this version or another one.
fn is_store(file: &File) -> std::io::Result<bool> {
    let found = header(file)?.map(|bytes| StoreHeader::decode(&bytes));
    Ok(matches!(found, Some(Ok(_) | Err(LayoutFault::Version(_)))))
}

/// Whether a file is a store, or what is left of one: whoever made it was killed before it wrote
/// the header, or the power was cut before that was on disk.
fn is_left(file: &File) -> std::io::Result<bool> {
    let is_empty = file.metadata()?.len() == 0;
    let is_blank = header(file)?.is_some_and(|bytes| bytes == [0; HEADER_BYTES]);
    Ok(is_empty || is_blank || is_store(file)?)
}

/// What tells a file from every other. The hook asks the same before it writes a page.
fn identity(file: &File) -> std::io::Result<u32> {
    let found = examine_open(file)?;
    Ok(identity_of_store(found.key.inode, found.born))
}

fn is_wanted(entry: &SlotEntry, wanted: Wanted, page: &[u8]) -> bool {
    let [a, b, c, d, rest @ ..] = entry.owner.to_le_bytes();
    let (number, device) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest));
    (entry.file, device) == (wanted.key.inode, wanted.key.device)
        && entry.block == wanted.block
        && number >= wanted.number
        && entry.page_crc == crc32c(page)
}

fn geometry(path: &Path, page_bytes: u32) -> Result<Geometry, HookError> {
    Geometry::new(page_bytes).map_err(|fault| HookError::Document {
        path: path.into(),
        what: fault.to_string(),
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicU32;

    use windlass_image::layout::hook::AREA_BYTES_AT;

    use super::*;

    const PAGE_BYTES: u32 = 8192;

    fn words() -> Vec<AtomicU32> {
        let count = usize::try_from(AREA_BYTES_AT / 4).unwrap();
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    #[test]
    fn only_a_store_or_what_is_left_of_one_makes_room_and_nothing_is_emptied() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (path, other, words) = (at("pages"), at("other"), words());
        PreservedPages::make_room(&path).unwrap();
        PreservedPages::create(Memory::new(&words).unwrap(), &path, PAGE_BYTES).unwrap();
        let store = std::fs::read(&path).unwrap();
        PreservedPages::make_room(&path).unwrap();
        for left in [&store[..], &[0; HEADER_BYTES], b""] {
            std::fs::write(&path, left).unwrap();
            PreservedPages::make_room(&path).unwrap();
            assert!(!path.exists());
        }
        std::fs::write(&other, &store).unwrap();
        let makers: [&dyn Fn(); 4] = [
            &|| symlink(&other, &path).unwrap(),
            &|| symlink(at("nowhere"), &path).unwrap(),
            &|| std::fs::create_dir(&path).unwrap(),
            &|| std::fs::write(&path, "a row of somebody\n".repeat(99)).unwrap(),
        ];
        for make in makers {
            make();
            let error = PreservedPages::make_room(&path).unwrap_err();
            assert!(matches!(error, HookError::StoreTaken { .. }), "{error}");
            let found = path.symlink_metadata().unwrap();
            match found.is_dir() {
                true => std::fs::remove_dir(&path).unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
        }
        assert_eq!(std::fs::read(&other).unwrap(), store);
    }

    #[test]
    fn what_has_the_name_of_the_store_and_is_not_it_is_never_written_to() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let (path, other, words) = (at("pages"), at("other"), words());
        let memory = Memory::new(&words).unwrap();
        PreservedPages::create(memory, &path, PAGE_BYTES).unwrap();
        // Another file, and also one that is a store.
        std::fs::copy(&path, &other).unwrap();
        let store = std::fs::read(&other).unwrap();
        let is_own = || PreservedPages::own_file(memory).unwrap().is_some();
        assert!(is_own());
        std::fs::rename(&path, at("away")).unwrap();
        assert!(!is_own());
        symlink(&other, &path).unwrap();
        assert!(!is_own());
        PreservedPages::remove(memory).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(&other, &path).unwrap();
        assert!(PreservedPages::open_to_free(memory).unwrap().is_none());
        PreservedPages::remove(memory).unwrap();
        for name in ["pages", "other"] {
            assert_eq!(std::fs::read(at(name)).unwrap(), store, "{name}");
        }
        std::fs::rename(at("away"), &path).unwrap();
        PreservedPages::remove(memory).unwrap();
        assert!(!path.exists());
    }
}
