//! Graveyards: the hook puts files there that the server removes, and that a snapshot without links
//! still has. What no snapshot has any more is removed from them here.
//!
//! All snapshots of a database share them: the number of the inode is the name, and it is not used
//! again while the file is there.
//!
//! Locking: whoever sweeps holds the right to change which snapshots there are, and has waited for
//! all processes that may have seen one that is gone.

use std::path::{Path, PathBuf};

use windlass_image::layout::hook::{
    FileKey, FileLink, GRAVE_NAME_BYTES, GRAVEYARD_SUFFIX, Memory, Phase, SNAPSHOTS_MAX, Snapshot,
    needs_grave,
};

use super::control::{Control, identity, key_of};
use super::error::{HookError, HookIo};
use super::links::{entries, leave_place_of, place_of, places};
use super::locked::Locked;

/// The graveyard of a data directory's files in a place.
pub(crate) fn path_in(place: &Path, data: &Path) -> Result<PathBuf, HookError> {
    Ok(place.join(format!("{}{GRAVEYARD_SUFFIX}", identity(data)?)))
}

/// The name of a file in a graveyard.
pub(crate) fn name_of(key: FileKey) -> String {
    let mut name = [0; GRAVE_NAME_BYTES];
    key.grave_name(&mut name);
    String::from_utf8_lossy(&name).into_owned()
}

/// Links a file into its graveyard: `path`, which is `relative` to the data directory.
pub(crate) fn keep(
    (path, relative): (&Path, &Path),
    key: FileKey,
    data: &Path,
) -> std::io::Result<()> {
    let place = place_of(data, relative).and_then(|place| path_in(&place, data));
    let grave = place.map_err(std::io::Error::other)?.join(name_of(key));
    match std::fs::hard_link(path, &grave) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(&grave)?;
            match key_of(&found) == key {
                true => Ok(()),
                false => Err(error),
            }
        }
        linked => linked,
    }
}

/// Removes what no snapshot has any more from the graveyards of a cluster.
pub(crate) fn sweep(locked: &Locked<'_>, data: &Path) -> Result<(), HookError> {
    for place in places(data)? {
        sweep_one(&path_in(&place, data)?, Some(locked.memory()))?;
    }
    Ok(())
}

/// Removes what no snapshot of the cluster in this data directory has any more from some
/// graveyards: that of a tablespace that was dropped is found in no other way.
pub(crate) fn sweep_these(graves: &[PathBuf], data: &Path) -> Result<(), HookError> {
    let control = Control::open_any(data)?;
    let locked = control.as_ref().map(Control::lock).transpose()?;
    for path in graves {
        sweep_one(path, locked.as_ref().map(Locked::memory))?;
    }
    Ok(())
}

/// Without a memory there are no snapshots.
fn sweep_one(path: &Path, memory: Option<Memory<'_>>) -> Result<(), HookError> {
    let names = entries(path)?;
    let Ok(directory) = std::fs::metadata(path) else {
        return Ok(());
    };
    let device = key_of(&directory).device;
    for name in names {
        let inode = u64::from_str_radix(&name.to_string_lossy(), 16).ok();
        let key = inode.map(|inode| FileKey { device, inode });
        let is_needed = match (key, memory) {
            (Some(key), Some(memory)) => needs_grave(memory, key),
            _ => false,
        };
        if !is_needed {
            let file = path.join(&name);
            std::fs::remove_file(&file).doing("remove", &file)?;
        }
    }
    if !memory.is_some_and(needs_graves) {
        // Somebody else's file in it keeps it.
        std::fs::remove_dir(path).unwrap_or_default();
        leave_place_of(path);
    }
    Ok(())
}

/// Whether the hook may still want to put something there.
fn needs_graves(memory: Memory<'_>) -> bool {
    let entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    let mut kept = entries.filter(|it| it.state() != Phase::Free);
    kept.any(|snapshot| snapshot.files().any(|file| file.link == FileLink::NONE))
}
