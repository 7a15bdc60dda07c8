//! File operations that are durable when they return: the file's data and the directory's entry.

mod names;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

pub use names::{NameError, name_new, name_over, reserved_for};

/// The end of the file name of a file that is not complete yet.
const TEMPORARY_SUFFIX: &str = ".windlass-tmp";
/// How much of a file's name its temporary name keeps. A name has at most 255 bytes.
const NAME_BYTES_KEPT: usize = 180;

/// Syncs the directory that holds `path`, so that the directory entry survives a power cut.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames, and syncs the directory of `to`. Both paths must be in the same directory.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the durable version")]
    std::fs::rename(from, to)?;
    sync_parent(to)
}

/// Whether the file that has this name is the open one.
pub fn is_file_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, found) = (file.metadata()?, path.symlink_metadata()?);
    Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
}

/// Writes a new file of this mode under a temporary name, syncs it, and renames it to `path`.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_beside(path, bytes, mode, true)?;
    sync_parent(path)
}

/// Does the same without a sync. Readers always see a complete file, but a power cut may lose it.
pub fn write_unsynced(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_beside(path, bytes, mode, false)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32, sync: bool) -> io::Result<()> {
    let temporary = temporary(path);
    let mut options = OpenOptions::new();
    // The file must be new: one that has this name already belongs to somebody else.
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| match sync {
        true => file.sync_all(),
        false => Ok(()),
    });
    #[expect(clippy::disallowed_methods, reason = "this is the durable version")]
    let renamed = written.and_then(|()| std::fs::rename(&temporary, path));
    if renamed.is_err() {
        // The file is ours alone and incomplete. The error to show is the one that stopped it.
        std::fs::remove_file(&temporary).unwrap_or_default();
    }
    renamed
}

/// A name beside `path` that no other call uses, in this process or another.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().as_bytes();
    let kept = OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_KEPT)]);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    // In a container every process may have the same number, so the time is part of the name.
    let time = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let mut temporary = OsStr::new(".").to_owned();
    temporary.push(kept);
    temporary.push(format!(".{time:x}-{process}-{count}{TEMPORARY_SUFFIX}"));
    path.with_file_name(temporary)
}
