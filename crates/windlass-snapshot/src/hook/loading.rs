//! Whether a server writes through the hook, and which snapshots still need it to.

use std::path::{Path, PathBuf};

use windlass_image::layout::hook::{Phase, Snapshot};

use super::control::Control;
use super::error::HookError;
use super::orphans;

/// Whether every process of the server on a data directory writes through the hook.
pub fn is_active(data: &Path) -> Result<bool, HookError> {
    match Control::open(data).and_then(|control| control.check_server()) {
        Ok(()) | Err(HookError::Unseen { .. } | HookError::Blind { .. }) => Ok(true),
        Err(HookError::NotLoaded { .. } | HookError::Version { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fails if a module of the server on a data directory could change files unseen by the hook.
pub fn check_modules(data: &Path) -> Result<(), HookError> {
    match Control::open(data).and_then(|control| control.check_server()) {
        Err(error @ (HookError::Unseen { .. } | HookError::Blind { .. })) => Err(error),
        _ => Ok(()),
    }
}

/// The file with the memory that the hook shares with its controller. It outlives the server, so
/// whoever removes a data directory for good removes it too.
pub fn memory_of(data: &Path) -> Result<PathBuf, HookError> {
    Control::path_of(data)
}

/// How many snapshots of a data directory would be lost without the hook. `home` has an entry for
/// each; what has none there, or no pages, is forgotten.
pub fn depending(data: &Path, home: &Path) -> Result<usize, HookError> {
    let control = match Control::open(data) {
        Err(HookError::NotLoaded { .. } | HookError::Version { .. }) => return Ok(0),
        control => control?,
    };
    let locked = control.lock()?;
    orphans::take_out_all(&locked, Some(home))?;
    let needs = |it: &Snapshot<'_>| it.state() == Phase::Active;
    Ok(locked.snapshots().filter(needs).count())
}
