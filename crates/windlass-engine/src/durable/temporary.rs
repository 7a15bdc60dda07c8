//! Temporary names of files that are not complete yet, and what a killed run left under them.
//!
//! A writer locks its temporary file before it writes the first byte, and keeps the lock until the
//! file has its name. The kernel drops the lock of a killed process. So a temporary file that
//! nobody has locked belongs to nobody.
//!
//! Invariants
//! - A temporary file is removed only by who has its lock. A file system without locks keeps them.
//! - Whoever finds its new file locked or gone writes another one.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::is_file_at;
use crate::bounded::open_regular;

/// The end of the file name of a file that is not complete yet.
const SUFFIX: &str = ".windlass-tmp";
/// How much of a file's name its temporary name keeps. A name has at most 255 bytes.
const NAME_BYTES_KEPT: usize = 180;
/// How often a writer tries it again if somebody who cleans up was faster.
const ATTEMPTS: u32 = 8;

/// Creates a temporary file beside `path`, of this mode, and locks it as long as it is open.
pub fn create(path: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let mut fault = io::ErrorKind::WouldBlock.into();
    for _ in 0..ATTEMPTS {
        let temporary = unused_name(path);
        let mut options = OpenOptions::new();
        // The file must be new: one that has this name already belongs to somebody else.
        let options = options.write(true).create_new(true).mode(mode);
        let file = options.open(&temporary)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Somebody who cleans up has it, and removes it.
            Err(error @ Errno::WOULDBLOCK) => fault = error.into(),
            // Without locks nobody cleans up either.
            Err(_) => return Ok((file, temporary)),
            Ok(()) => match is_file_at(&file, &temporary) {
                Ok(true) => return Ok((file, temporary)),
                Ok(false) => fault = io::ErrorKind::NotFound.into(),
                Err(error) => fault = error,
            },
        }
    }
    Err(fault)
}

/// Removes the temporary files of `path` that killed runs left. What cannot be removed stays: it
/// does no harm.
pub fn remove_left(path: &Path) {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = std::fs::read_dir(parent);
    for entry in entries.into_iter().flatten().flatten() {
        if is_temporary_of(&entry.file_name(), path) {
            remove(&entry.path()).unwrap_or_default();
        }
    }
}

/// Removes the temporary files of all names in a directory that killed runs left.
pub fn remove_all_left(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if is_temporary(&entry.file_name()) {
            remove(&entry.path()).unwrap_or_default();
        }
    }
}

/// Removes a temporary file if nobody writes it.
fn remove(temporary: &Path) -> io::Result<()> {
    let file = open_regular(temporary)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    match is_file_at(&file, temporary)? {
        true => std::fs::remove_file(temporary),
        // Its writer has completed it, and renamed it, before it was locked here.
        false => Ok(()),
    }
}

/// A name beside `path` that no other call uses, in this process or another.
fn unused_name(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // In a container every process may have the same number, so the time is part of the name.
    let time = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let mut name = beginning(path);
    name.push(format!("{time:x}-{process}-{count}{SUFFIX}"));
    path.with_file_name(name)
}

/// What the temporary names of a file begin with.
fn beginning(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let kept = OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_KEPT)]);
    let mut beginning = OsString::from(".");
    beginning.push(kept);
    beginning.push(".");
    beginning
}

/// Whether a name is one that [`unused_name`] makes for `path`.
fn is_temporary_of(name: &OsStr, path: &Path) -> bool {
    let rest = name.as_bytes().strip_prefix(beginning(path).as_bytes());
    rest.is_some_and(is_end)
}

/// Whether a name is one that [`unused_name`] makes for any path.
fn is_temporary(name: &OsStr) -> bool {
    let rest = name.as_bytes().strip_prefix(b".");
    let dot = rest.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    let dot = dot.and_then(|rest| rest.iter().rposition(|byte| *byte == b'.'));
    rest.zip(dot)
        .is_some_and(|(rest, dot)| is_end(&rest[dot + 1..]))
}

/// Whether these bytes are what [`unused_name`] adds behind the name.
fn is_end(bytes: &[u8]) -> bool {
    let rest = bytes.strip_suffix(SUFFIX.as_bytes());
    let Some(parts) = rest.and_then(|rest| std::str::from_utf8(rest).ok()) else {
        return false;
    };
    let is_number = |text: &str, radix| u128::from_str_radix(text, radix).is_ok();
    let parts: Vec<_> = parts.split('-').collect();
    matches!(parts[..], [time, process, count]
        if is_number(time, 16) && is_number(process, 10) && is_number(count, 10))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(|entry| name(entry).into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_run_left_goes_and_what_is_written_stays() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mf");
        let (written, own) = create(&path, 0o600).unwrap();
        let others = [".mf.12ab-7-0.other", ".mf.x-7-0.windlass-tmp", "mf", ".mfs"];
        let left = [".mf.12ab-7-0.windlass-tmp", ".mf.18f-123-45.windlass-tmp"];
        let another = ".mf.prom.12ab-7-0.windlass-tmp";
        for name in others.iter().chain(&left).chain([&another]) {
            std::fs::write(place.path().join(name), b"half").unwrap();
        }
        remove_left(&path);
        let own = own.file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected: Vec<_> = others.map(str::to_owned).into();
        expected.extend([own.clone(), another.to_owned()]);
        expected.sort();
        assert_eq!(names(place.path()), expected);
        // The kernel drops the lock when its process ends. It drops it here, too, if another test
        // is starting a process, which has a copy of the descriptor.
        flock(&written, FlockOperation::Unlock).unwrap();
        remove_left(&path);
        expected.retain(|name| *name != own);
        assert_eq!(names(place.path()), expected);
    }

    #[test]
    fn a_complete_file_replaces_another_and_leaves_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("page.html");
        let left = place.path().join(".page.html.0-1-2.windlass-tmp");
        std::fs::write(left, b"half").unwrap();
        std::fs::write(&path, b"old").unwrap();
        super::super::write(&path, b"new", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(names(place.path()), ["page.html"]);
    }
}
