//! Graveyards: where a file gets another name before the server takes its own away.
//!
//!   data directory   pg_subtrans/windlass/ID-graves/INODE
//!   tablespace       LOCATION/windlass/ID-graves/INODE
//!
//! A tablespace in place lies in the data directory: the server removes all of it.
//!
//! The controller makes the directories when it makes a snapshot without links, and removes from
//! them what no snapshot needs any more. The link comes before the call, and the call stays what it
//! is. So a process that is killed in between leaves a file with two names.

#![allow(unsafe_code, reason = "every call of the system is one of C")]

use core::ffi::{CStr, c_int};

use windlass_layout::hook::{
    Cause, Fault, FileKey, GRAVE_NAME_BYTES, GRAVEYARD_SUFFIX, Memory, SAVED_DIRECTORY,
    SAVED_IN_TABLESPACE, lose_unpinned, needs_pin,
};

use crate::saved;
use crate::system;

const PATH_BYTES_MAX: usize = 4096;
/// The longest path of a tablespace's link, with its number, is shorter.
const SPACE_BYTES_MAX: usize = 64;
const TABLESPACES: &[u8] = b"pg_tblspc/";
/// The name of the shared memory begins with this; what follows tells data directories apart.
const CONTROL_PREFIX_BYTES: usize = 9;

/// Gives the file at a path another name, if a snapshot needs the file and has no link to it.
/// If that is impossible, the snapshot is lost.
pub(crate) fn pin(memory: Memory<'_>, path: &CStr, key: FileKey) {
    if !needs_pin(memory, key) {
        return;
    }
    if let Err(errno) = keep(path, key) {
        give_up(memory, key, errno);
    }
}

/// The file loses its name, and where its graveyard is cannot be told.
pub(crate) fn cannot_pin(memory: Memory<'_>, key: FileKey) {
    if needs_pin(memory, key) {
        give_up(memory, key, 0);
    }
}

fn give_up(memory: Memory<'_>, key: FileKey, errno: c_int) {
    let cause = Cause::Name;
    if lose_unpinned(memory, key, Fault { cause, errno }, saved::forget) {
        system::say_if_free(
            b"windlass: a snapshot is lost: a file that the server removes could not be kept\n",
        );
    }
}

fn keep(path: &CStr, key: FileKey) -> Result<(), c_int> {
    let mut place = [0; PATH_BYTES_MAX];
    let grave = grave_of(path.to_bytes(), key, &mut place).ok_or(libc::ENAMETOOLONG)?;
    let mut linked = system::link(path, grave);
    if linked == Err(libc::EEXIST) {
        if is_at(grave, key) {
            return Ok(());
        }
        // A copy of a data directory has the graves of the original.
        // SAFETY: the path ends with a zero.
        unsafe { libc::unlink(grave.as_ptr()) };
        linked = system::link(path, grave);
    }
    match linked {
        Ok(()) if is_at(grave, key) => Ok(()),
        Ok(()) => Err(libc::ESTALE),
        // Somebody else has removed the name, and pinned the file before that.
        Err(libc::ENOENT) if system::link_stat_at(path).is_none() => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn is_at(grave: &CStr, key: FileKey) -> bool {
    system::link_stat_at(grave).is_some_and(|stat| stat.key == key)
}

/// The name in the graveyard of the file system that a path of the server is on.
fn grave_of<'a>(path: &[u8], key: FileKey, into: &'a mut [u8; PATH_BYTES_MAX]) -> Option<&'a CStr> {
    let directory = system::stat_at(c".")?.key.control_name();
    let identity = directory.get(CONTROL_PREFIX_BYTES..)?;
    let mut name = [0; GRAVE_NAME_BYTES];
    key.grave_name(&mut name);
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let space = tablespace_of(path).filter(|space| !is_in_place(space));
    let base = match space {
        Some(space) => [space, b"/", SAVED_IN_TABLESPACE.as_bytes()],
        None => [SAVED_DIRECTORY.as_bytes(), b"", b""],
    };
    let [first, second, third] = base;
    let suffix = GRAVEYARD_SUFFIX.as_bytes();
    let parts = [first, second, third, b"/", identity, suffix, b"/", &name];
    let mut places = into.iter_mut();
    for byte in parts.into_iter().flatten() {
        *places.next()? = *byte;
    }
    *places.next()? = 0;
    CStr::from_bytes_until_nul(into).ok()
}

/// The link of the tablespace that a path goes through.
fn tablespace_of(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(TABLESPACES)?;
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    path.get(..TABLESPACES.len().checked_add(slash)?)
}

/// Whether a tablespace is a directory, and no link to one.
fn is_in_place(space: &[u8]) -> bool {
    let mut path = [0; SPACE_BYTES_MAX];
    let Some(begin) = path.get_mut(..space.len()) else {
        return false;
    };
    begin.copy_from_slice(space);
    let path = CStr::from_bytes_until_nul(&path).ok();
    path.and_then(system::link_stat_at)
        .is_some_and(|stat| stat.is_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grave_is_on_the_file_system_of_its_file() {
        let key = FileKey::new(8, 1, 0xBEEF);
        let mut place = [0; PATH_BYTES_MAX];
        for (path, begin) in [
            (&b"base/5/16384"[..], "pg_subtrans/windlass/"),
            (b"./pg_xact/0000", "pg_subtrans/windlass/"),
            (b"pg_tblspc/16400/PG_15_2/5/1", "pg_tblspc/16400/windlass/"),
        ] {
            let grave = grave_of(path, key, &mut place).map(CStr::to_bytes);
            let grave = grave.and_then(|bytes| core::str::from_utf8(bytes).ok());
            let grave = grave.unwrap_or_default();
            assert!(grave.starts_with(begin), "{grave}");
            assert!(grave.ends_with("-graves/000000000000beef"), "{grave}");
        }
    }
}
