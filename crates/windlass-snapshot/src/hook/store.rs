//! The file of the pages that the hook preserved, for all snapshots of a database.
//!
//! The server's processes append to it. The controller makes it, and frees the room of pages that
//! no snapshot needs any more. It never moves a page.

use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use windlass_engine::media::crc32c;
use windlass_engine::{durable, open_regular};
use windlass_image::layout::hook::{FileKey, Memory};
use windlass_image::layout::{ENTRY_BYTES, Geometry, Slot, SlotEntry, StoreHeader};

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

    /// Opens the store that the hook writes to.
    pub(crate) fn open(path: &Path, page_bytes: u32, write: bool) -> Result<Self, HookError> {
        let file = OpenOptions::new().read(true).write(write).open(path);
        Ok(Self {
            file: file.doing("open", path)?,
            path: path.into(),
            geometry: geometry(path, page_bytes)?,
        })
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
                Err(rustix::io::Errno::OPNOTSUPP) => return Ok(()),
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

    /// Removes the store. Processes of the server may still have it open, so it is emptied first.
    pub(crate) fn remove(path: &Path) -> Result<(), HookError> {
        match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            file => file.and_then(|file| file.set_len(0)).doing("empty", path)?,
        }
        std::fs::remove_file(path).doing("remove", path)
    }
}

/// What tells a file from every other, also from one that gets the number of its inode. The device
/// is no part of it: a disk may get another number when it is mounted again.
fn identity(file: &File) -> std::io::Result<u32> {
    let found = examine_open(file)?;
    let of_inode = crc32c(&found.key.inode.to_le_bytes());
    Ok((of_inode ^ crc32c(&found.born.to_le_bytes()).rotate_left(1)).max(1))
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
