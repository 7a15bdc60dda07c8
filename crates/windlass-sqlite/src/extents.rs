//! Where the blocks of two files are, to know without reading that they are the same.
//!
//!   database  [ 0 ... 9 at 7000 ][ 10 at 9000 ][ 11 ... 20 at 7011 ]
//!   clone     [ 0 ................................. 20 at 7000 ]      -> only block 10 differs
//!
//! Why the same blocks are the same content: XFS and Btrfs never overwrite a block that two files
//! share. Whoever writes to one of them gets another block. And a block is not used again while
//! one of the files has it.
//!
//! What is only in the page cache has no block yet, so the system writes it out first
//! (`FIEMAP_FLAG_SYNC`, Documentation/filesystems/fiemap.rst). Nobody may write to the files
//! meanwhile.

#![allow(unsafe_code, reason = "no wrapper offers the map of a file's extents")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use windlass_media::fitted;

/// The number of the system call, `FS_IOC_FIEMAP` (linux/fs.h).
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// Writes the file out first.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// The last extent of the file.
const EXTENT_LAST: u32 = 1;
/// Flags of an extent whose place says nothing, or does not say everything: unknown, not allocated,
/// compressed, encrypted, not aligned, inside of other data, not written.
const EXTENT_UNCLEAR: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;
/// How many extents are asked for at once.
const BATCH: usize = 128;
/// The file systems whose blocks are never overwritten while two files share them (statfs(2)).
const KNOWN: [u64; 2] = [0x5846_5342, 0x9123_683e];

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_more: [u32; 3],
}

#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// The parts of two files that share their blocks. Ask for parts in ascending order.
pub struct SharedExtents<'a> {
    one: Extents<'a>,
    other: Extents<'a>,
}

impl<'a> SharedExtents<'a> {
    /// Of these files. `None` if their file system does not tell.
    pub fn of(one: &'a File, other: &'a File) -> Option<Self> {
        let device = |file: &File| {
            let kind = rustix::fs::fstatfs(file).ok()?.f_type;
            let is_known = u64::try_from(kind).is_ok_and(|kind| KNOWN.contains(&kind));
            let found = file.metadata().ok().filter(|_| is_known);
            found.map(|found| found.dev())
        };
        let (first, second) = (device(one), device(other));
        // Places of two file systems cannot be compared.
        let is_same = first.is_some() && first == second;
        is_same.then(|| Self {
            one: Extents::new(one),
            other: Extents::new(other),
        })
    }

    /// Whether both files have the same blocks from `start` to `end`. If the system does not say,
    /// they have not.
    pub fn cover(&mut self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let (Some(one), Some(other)) = (self.one.at(at), self.other.at(at)) else {
                return false;
            };
            if one.place != other.place {
                return false;
            }
            at = one.end.min(other.end);
        }
        true
    }
}

/// What a file has from a position on.
struct Found {
    /// Where it is on the device; none if it is a hole.
    place: Option<u64>,
    /// Where that ends.
    end: u64,
}

/// The extents of a file, asked for piece by piece.
struct Extents<'a> {
    file: &'a File,
    batch: Vec<Extent>,
    next: usize,
    is_last: bool,
}

impl<'a> Extents<'a> {
    fn new(file: &'a File) -> Self {
        Self {
            file,
            batch: Vec::new(),
            next: 0,
            is_last: false,
        }
    }

    /// What is at this byte. `None` if the system does not say.
    fn at(&mut self, offset: u64) -> Option<Found> {
        loop {
            while let Some(extent) = self.batch.get(self.next) {
                let end = extent.logical.checked_add(extent.length)?;
                if offset < extent.logical {
                    let end = extent.logical;
                    return Some(Found { place: None, end });
                }
                if offset < end {
                    let place = extent.physical.checked_add(offset - extent.logical)?;
                    let is_clear = extent.flags & EXTENT_UNCLEAR == 0;
                    let place = Some(place);
                    return is_clear.then_some(Found { place, end });
                }
                self.next += 1;
            }
            if self.is_last {
                let end = u64::MAX;
                return Some(Found { place: None, end });
            }
            self.batch = ask(self.file, offset).ok()?;
            self.next = 0;
            let last = self.batch.last();
            self.is_last = last.is_none_or(|last| last.flags & EXTENT_LAST != 0);
        }
    }
}

/// The next extents from `start` on. None if there are no more.
fn ask(file: &File, start: u64) -> io::Result<Vec<Extent>> {
    let mut request = Request {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        count: fitted(BATCH),
        reserved: 0,
        extents: [Extent::default(); BATCH],
    };
    // SAFETY: the descriptor is open as long as `file` lives. The system writes at most `count`
    // extents behind the head, and `request` has room for as many.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut request) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let mapped = (request.mapped as usize).min(BATCH);
    Ok(request.extents[..mapped].to_vec())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use rustix::fs::ioctl_ficlone;
    use windlass_testkit::volume::{Volume, VolumeKind};

    use super::*;

    const BLOCK: u64 = 64 << 10;
    const BLOCKS: u64 = 64;

    fn file(volume: &Volume, name: &str) -> File {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        options.open(volume.at().join(name)).unwrap()
    }

    /// The blocks that are known to be the same.
    fn shared(one: &File, other: &File) -> Vec<u64> {
        let mut extents = SharedExtents::of(one, other).unwrap();
        let blocks = 0..BLOCKS;
        blocks
            .filter(|block| extents.cover(block * BLOCK, (block + 1) * BLOCK))
            .collect()
    }

    #[test]
    fn blocks_are_shared_until_one_of_the_files_is_written_to() {
        for kind in [VolumeKind::Xfs, VolumeKind::Btrfs] {
            let volume = Volume::new(kind, 400);
            let (one, other) = (file(&volume, "one"), file(&volume, "other"));
            let bytes = vec![7; usize::try_from(BLOCK).unwrap()];
            (0..BLOCKS).for_each(|block| one.write_all_at(&bytes, block * BLOCK).unwrap());
            // A hole is no block, and zeros all the same.
            other.set_len(BLOCKS * BLOCK).unwrap();
            assert!(shared(&one, &other).is_empty(), "{kind:?}");
            other.write_all_at(&[1], 3 * BLOCK).unwrap();
            one.set_len(0).unwrap();
            one.set_len(BLOCKS * BLOCK).unwrap();
            assert_eq!(shared(&one, &other).len(), 63, "{kind:?}");
            (0..BLOCKS).for_each(|block| one.write_all_at(&bytes, block * BLOCK).unwrap());
            ioctl_ficlone(&other, &one).unwrap();
            let all: Vec<u64> = (0..BLOCKS).collect();
            assert_eq!(shared(&one, &other), all, "{kind:?}");
            // The same bytes again, and nothing of it is synced. Each file has a block of its own.
            one.write_all_at(&bytes[..4096], 10 * BLOCK).unwrap();
            other.write_all_at(b"x", 20 * BLOCK + 5).unwrap();
            one.set_len(63 * BLOCK).unwrap();
            let changed = [10, 20, 63];
            let rest: Vec<u64> = all.into_iter().filter(|it| !changed.contains(it)).collect();
            assert_eq!(shared(&one, &other), rest, "{kind:?}");
        }
    }

    #[test]
    fn other_file_systems_tell_nothing() {
        let (one, other) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let volumes = [VolumeKind::Xfs, VolumeKind::Xfs].map(|kind| Volume::new(kind, 400));
        let files = [&volumes[0], &volumes[1]].map(|volume| file(volume, "one"));
        assert!(SharedExtents::of(&files[0], &files[1]).is_none());
        assert!(SharedExtents::of(&files[0], &one).is_none());
        let kind = rustix::fs::fstatfs(&one).unwrap().f_type;
        let is_known = u64::try_from(kind).is_ok_and(|kind| KNOWN.contains(&kind));
        assert_eq!(SharedExtents::of(&one, &other).is_some(), is_known);
    }
}
