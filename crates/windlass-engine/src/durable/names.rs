//! How a complete file gets its name, durably, and without replacing another file.
//!
//!   rename that refuses to replace --> hard link --> reserve the name, and rename over that
//!
//! Not every file system knows the first way, and some (FAT, some network and FUSE file systems)
//! do not know the second. The third works everywhere: a new file takes the name, which fails if
//! the name is in use, and the complete file is renamed over it.
//!
//! Invariants
//! - What has the name already stays. With the third way, a file is lost only if its program
//!   removes the reservation and takes the name in the moment between a look and the rename.
//! - An error that is only the system's answer does not count: what counts is which file has the
//!   name afterwards. A network file system may lose the answer to a rename that it did.
//! - After a crash, a reservation says in words what it is, and for which file. It holds nothing,
//!   so whoever holds the lock of that file may replace it.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::{is_file_at, sync_parent};
use crate::bounded::open_regular;

/// What a reservation contains, in front of the name of the file that is to have the name.
const RESERVED: &[u8] = b"Windlass reserves this name. The content is still in this file: ";
/// More than a name of a file has.
const RESERVED_BYTES_MAX: u64 = 1024;

/// Why a file did not get its name, or not for sure.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// Another file has the name. It stays, and so does the file under its old name.
    #[error("another file has the name")]
    Taken,
    /// The file still has its old name.
    #[error(transparent)]
    Failed(io::Error),
    /// The file has its name. But a power cut may take that away, or the old name remains, too.
    #[error(transparent)]
    Unfinished(io::Error),
}

impl From<NameError> for io::Error {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Taken => io::ErrorKind::AlreadyExists.into(),
            NameError::Failed(source) | NameError::Unfinished(source) => source,
        }
    }
}

/// Renames `file` from `from` to `to`. Never replaces what has the name `to`. Both must be in one
/// file system.
pub fn name_new(file: &File, from: &Path, to: &Path) -> Result<(), NameError> {
    name_new_unsynced(file, from, to)?;
    sync_parent(to).map_err(NameError::Unfinished)
}

/// Does the same as [`name_new`], but the caller makes the name durable.
pub fn name_new_unsynced(file: &File, from: &Path, to: &Path) -> Result<(), NameError> {
    settle(file, from, to, rename_new(from, to))
}

/// Does the same as [`name_new`], but replaces what has the name `to`.
pub fn name_over(file: &File, from: &Path, to: &Path) -> Result<(), NameError> {
    #[expect(clippy::disallowed_methods, reason = "this is the durable version")]
    settle(file, from, to, std::fs::rename(from, to))?;
    sync_parent(to).map_err(NameError::Unfinished)
}

/// Removes a reservation that a crash left: its file is gone.
pub fn remove_reservation_left(path: &Path) {
    let is_left = |of: OsString| path.with_file_name(of).symlink_metadata().is_err();
    if reserved_for(path).is_some_and(is_left) {
        // If it stays, the name is in use, and that is what the caller finds.
        std::fs::remove_file(path).unwrap_or_default();
    }
}

/// The name of the file for which `path` is reserved, if it is. A crash can leave that.
pub fn reserved_for(path: &Path) -> Option<OsString> {
    let mut bytes = Vec::new();
    let file = open_regular(path).ok()?;
    let read = file.take(RESERVED_BYTES_MAX).read_to_end(&mut bytes);
    read.ok()?;
    let name = bytes.strip_prefix(RESERVED)?.strip_suffix(b"\n")?;
    Some(OsString::from_vec(name.to_vec()))
}

/// Looks at what a rename did.
fn settle(file: &File, from: &Path, to: &Path, renamed: io::Result<()>) -> Result<(), NameError> {
    let has = |path| is_file_at(file, path).unwrap_or(false);
    let is_twice = has(to) && has(from) && file.metadata().is_ok_and(|it| it.nlink() > 1);
    match renamed {
        // A hard link gave the name, now or before a crash. A rename between two names of one file
        // does nothing.
        _ if is_twice => std::fs::remove_file(from).map_err(NameError::Unfinished),
        Err(error) if !has(to) => Err(match error.kind() {
            io::ErrorKind::AlreadyExists => NameError::Taken,
            _ => NameError::Failed(error),
        }),
        _ => Ok(()),
    }
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        renamed => return Ok(renamed?),
    }
    match rustix::fs::link(from, to) {
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::MLINK) => {
            rename_reserved(from, to)
        }
        Err(errno) => Err(errno.into()),
        // A link never replaces anything.
        Ok(()) => std::fs::remove_file(from),
    }
}

/// Takes the name with a new file, and renames over that.
fn rename_reserved(from: &Path, to: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut own = options.write(true).create_new(true).mode(0o600).open(to)?;
    let reserved = own.write_all(&reservation(from));
    let is_own = || is_file_at(&own, to);
    let renamed = reserved.and_then(|()| match is_own()? {
        #[expect(
            clippy::disallowed_methods,
            reason = "what it replaces is our own file"
        )]
        true => std::fs::rename(from, to),
        false => Err(io::ErrorKind::AlreadyExists.into()),
    });
    if renamed.is_err() && is_own().unwrap_or(false) {
        // It holds nothing. The error to show is the one of the rename.
        std::fs::remove_file(to).unwrap_or_default();
    }
    renamed
}

fn reservation(of: &Path) -> Vec<u8> {
    let name = of.file_name().map_or(&b""[..], OsStr::as_bytes);
    [RESERVED, name, b"\n"].concat()
}
