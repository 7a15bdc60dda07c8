//! What a file is: which one, how long, and when it was made.
//!
//! The moment tells a file from a later one that has the number of its inode.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use windlass_image::layout::hook::FileKey;

use super::error::{HookError, HookIo};

/// What is at a path of the server now.
pub(crate) struct Examined {
    pub(crate) key: FileKey,
    pub(crate) bytes: u64,
    /// When it was made, in nanoseconds; 0 if the file system does not say that.
    pub(crate) born: i64,
}

/// What a path leads to; `None` if that is nothing.
pub(crate) fn examine(path: &Path) -> Result<Option<Examined>, HookError> {
    match examined(CWD, path) {
        Err(Errno::NOENT) => Ok(None),
        found => found
            .map(Some)
            .map_err(std::io::Error::from)
            .doing("examine", path),
    }
}

/// The same of an open file.
pub(crate) fn examine_open(file: &std::fs::File) -> std::io::Result<Examined> {
    examined(file, Path::new("")).map_err(std::io::Error::from)
}

fn examined(directory: impl AsFd, path: &Path) -> Result<Examined, Errno> {
    let flags = match path.as_os_str().is_empty() {
        true => AtFlags::EMPTY_PATH,
        false => AtFlags::empty(),
    };
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(directory, path, flags, mask)?;
    let has_born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let nanos = found.stx_btime.tv_sec.saturating_mul(1_000_000_000);
    Ok(Examined {
        key: FileKey::new(found.stx_dev_major, found.stx_dev_minor, found.stx_ino),
        bytes: found.stx_size,
        born: match has_born {
            true => nanos.saturating_add(i64::from(found.stx_btime.tv_nsec)),
            false => 0,
        },
    })
}
