//! File operations that are durable when they return: the file's data and the directory's entry.

mod locked;
mod names;
mod temporary;

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub use locked::Locked;
pub use names::{
    NameError, name_new, name_new_unsynced, name_over, remove_reservation_left, reserved_for,
};
pub use temporary::{create as create_temporary, remove_all_left, remove_left};

/// Syncs the directory that holds `path`, so that the directory entry survives a power cut.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Whether something failed because the disk, or what its user may have of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Whether an error says that nothing is there. Any other says nothing about that.
pub fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

/// What was done with a file or directory, such as removing or reading it; `None` if nothing is
/// there.
pub fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
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

/// Writes a new file of this mode under a temporary name, syncs it, and renames it to `path`. Then
/// it removes what killed runs left that wrote the same file.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_beside(path, bytes, mode, true)?;
    remove_left(path);
    sync_parent(path)
}

/// Does the same without a sync. Readers always see a complete file, but a power cut may lose it.
/// Because a file may be written so every few seconds, what killed runs left stays.
pub fn write_unsynced(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_beside(path, bytes, mode, false)
}

fn write_beside(path: &Path, bytes: &[u8], mode: u32, sync: bool) -> io::Result<()> {
    let (mut file, temporary) = temporary::create(path, mode)?;
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
