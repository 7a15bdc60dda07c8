//! The files of durable snapshots in the data directory, as the hook reads and removes them.

#![allow(unsafe_code, reason = "every call of the system is one of C")]

use core::ffi::CStr;

use windlass_layout::hook::{SAVED_DIRECTORY, STAMP_BYTES, STAMP_NAME, Stamp, saved_name};

use crate::system;

const PATH_BYTES: usize = SAVED_DIRECTORY.len() + 16;
const PRIVATE_MODE: u32 = 0o600;

/// A path below the data directory, where the server is.
pub(crate) struct Path([u8; PATH_BYTES]);

impl Path {
    pub(crate) fn new(name: &[u8]) -> Self {
        let mut path = [0; PATH_BYTES];
        let parts = [SAVED_DIRECTORY.as_bytes(), b"/", name];
        // The last byte stays zero.
        let places = path.iter_mut().take(PATH_BYTES - 1);
        places
            .zip(parts.into_iter().flatten())
            .for_each(|(to, from)| *to = *from);
        Self(path)
    }

    /// The snapshot at this place of the table.
    pub(crate) fn of(index: u32) -> Self {
        Self::new(&saved_name(index))
    }

    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// Makes sure that a power cut does not bring a snapshot back.
pub(crate) fn forget(index: u32) {
    // SAFETY: the path ends with a zero.
    unsafe { libc::unlink(Path::of(index).name().as_ptr()) };
    // Whoever removed it before may not have synced the directory yet.
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    if let Ok(fd) = system::open(Path::new(b".").name(), flags, 0) {
        // SAFETY: the descriptor is ours.
        unsafe { libc::fsync(fd) };
        system::close(fd);
    }
}

/// Writes the stamp, and makes it durable. If that is impossible, the next start takes the
/// snapshots for lost.
pub(crate) fn stamp(stamp: Stamp) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_DSYNC | libc::O_NOFOLLOW;
    let path = Path::new(STAMP_NAME.as_bytes());
    if let Ok(fd) = system::open(path.name(), flags, PRIVATE_MODE) {
        system::write_at(fd, &stamp.encode(), 0).unwrap_or_default();
        system::close(fd);
    }
}

/// Reads the stamp.
pub(crate) fn last_stamp() -> Option<Stamp> {
    let path = Path::new(STAMP_NAME.as_bytes());
    let fd = system::open(path.name(), libc::O_RDONLY | libc::O_NOFOLLOW, 0).ok()?;
    let mut bytes = [0; STAMP_BYTES];
    let read = system::read_at(fd, &mut bytes, 0);
    system::close(fd);
    Stamp::decode(&bytes).filter(|_| read == Ok(STAMP_BYTES))
}
