//! What a view says, in the words of FUSE: attributes, times, error numbers.

use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use windlass_engine::media::{FileKind, fitted, saturated};
use windlass_image::{Attributes, ImageError, NodeNo};

use crate::filesystem::REQUEST_BYTES;

/// The unit of `st_blocks`, in bytes.
const BLOCK_BYTES: u64 = 512;
/// How much programs should read and write at a time. The kernel splits or merges their requests.
const IO_BYTES: u32 = 128 * 1024;

pub(crate) fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
    }
}

pub(crate) fn attributes(of: &Attributes, owner: (u32, u32), direct_io: bool) -> FileAttr {
    let (uid, gid) = of.owner.unwrap_or(owner);
    let changed = time(of.changed_nanos);
    FileAttr {
        ino: INodeNo(of.node.0),
        size: of.bytes,
        blocks: of.bytes.div_ceil(BLOCK_BYTES),
        atime: time(of.accessed_nanos),
        mtime: time(of.modified_nanos),
        ctime: changed,
        crtime: changed,
        kind: kind(of.kind),
        perm: fitted(of.mode & 0o7777),
        nlink: of.links,
        uid,
        gid,
        rdev: 0,
        // Past the page cache, each read is one request to us, so a large one costs fewer round
        // trips.
        blksize: if direct_io { REQUEST_BYTES } else { IO_BYTES },
        flags: 0,
    }
}

/// The attributes of no file. The kernel then remembers that the name does not exist.
pub(crate) fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: IO_BYTES,
        flags: 0,
    }
}

fn time(nanos: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanos.unsigned_abs());
    let time = if nanos < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Nanoseconds since 1970. A time that does not fit becomes the nearest one that does.
pub(crate) fn nanos(time: TimeOrNow) -> i64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => saturated(after.as_nanos()),
        Err(before) => -saturated::<i64, _>(before.duration().as_nanos()),
    }
}

pub(crate) fn node(number: INodeNo) -> NodeNo {
    NodeNo(number.0)
}

/// The error number that a program sees.
pub(crate) fn errno(error: &ImageError) -> Errno {
    Errno::from_i32(error.errno().raw_os_error())
}
