//! Raises the kernel's read-ahead in a mount, if this user may.
//!
//! A FUSE mount starts with 128 KiB, and the negotiation with the kernel can only lower that. Root
//! can raise it through sysfs. That saves requests, not decoding; docs/bench-open.md measures the
//! gain. An ordinary user's mount stays as it is.
//!
//! Invariants
//! - It never lowers the value, and never changes that of another file system.
//! - If it fails, the mount works nevertheless: it serves the same bytes, only more slowly.

use std::fs::File;
use std::io::{self, Read, Write};

use rustix::fs::{major, minor};

/// A sequential reader gains from this much read-ahead; two and four times as much gained nothing
/// more.
const READ_AHEAD_KIB: u64 = 512;

/// Raises the kernel's read-ahead for the mount whose file system has this number.
pub(crate) fn raise(number: u64) {
    raise_of(number).unwrap_or_default();
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
