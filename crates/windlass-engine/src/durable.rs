//! File operations that are durable when they return: the file's data and the directory's entry.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Syncs the directory that holds `path`, so that the entry itself survives a power cut.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames and syncs the directory of `to`. Both are expected in the same directory.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the durable version")]
    std::fs::rename(from, to)?;
    sync_parent(to)
}

/// Writes a new file of this mode under a temporary name, syncs it, and renames it to `path`.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".windlass-tmp");
    let temporary = path.with_file_name(name);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    rename(&temporary, path)
}
