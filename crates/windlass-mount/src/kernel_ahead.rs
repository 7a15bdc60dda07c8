//! How far the kernel reads ahead in a mount, raised where we may.
//!
//! A FUSE mount begins with 128 KiB, and what is negotiated with the kernel can only make that
//! less. More is to be had from sysfs, for whoever may write there: root. It saves requests, not
//! decoding; docs/bench-open.md has what it gains. An ordinary user's mount stays as it is.
//!
//! Invariants
//! - Never lowers what is there, and never touches another file system's.
//! - Failing is no failure: a mount that is not tuned serves the same bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// What a sequential reader gains from; twice and four times as much gained nothing more.
const READ_AHEAD_KIB: u64 = 512;

/// The file system that a directory is on.
pub(crate) fn file_system(at: &Path) -> Option<u64> {
    at.metadata().ok().map(|metadata| metadata.dev())
}

/// Raises the reading ahead of the mount on `at`, which was on `below` before.
pub(crate) fn raise(at: &Path, below: Option<u64>) {
    let mounted = file_system(at);
    // Unmounted already: what is seen is somebody's disk.
    if mounted == below {
        return;
    }
    if let Some(device) = mounted {
        raise_of(device).unwrap_or_default();
    }
}

fn raise_of(device: u64) -> io::Result<()> {
    let (major, minor) = (major(device), minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let mut setting = File::options().read(true).write(true).open(path)?;
    let mut text = String::new();
    setting.read_to_string(&mut text)?;
    let is_less = text
        .trim()
        .parse()
        .is_ok_and(|kib: u64| kib < READ_AHEAD_KIB);
    if is_less {
        setting.write_all(READ_AHEAD_KIB.to_string().as_bytes())?;
    }
    Ok(())
}
