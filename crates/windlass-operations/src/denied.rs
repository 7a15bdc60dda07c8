//! What to say when this user may not read a stripe or a place. That is no damage: another user may
//! read it.

use std::path::Path;

use windlass_engine::EngineError;
use windlass_postgres::user_shown;

use crate::privilege;

/// The message and the hint, if the error says that this user may not read.
pub fn words(error: &EngineError) -> Option<(String, String)> {
    let EngineError::DeviceIo { device, .. } = error else {
        return None;
    };
    if !error.is_denied() {
        return None;
    }
    let message = format!("{device} cannot be read by {}: permission denied", user());
    Some((message, hint(Path::new(device))))
}

/// The user of this process.
pub fn user() -> String {
    user_shown(nix::unistd::Uid::effective().as_raw())
}

/// Who may read it.
pub fn hint(path: &Path) -> String {
    // If the directory may not be looked into either, nothing is known of the file.
    let owner = path.ancestors().find_map(privilege::owner);
    let who = match owner {
        Some((0, _)) => "root".to_owned(),
        Some((uid, _)) => format!("{} or as root", user_shown(uid)),
        None => "its owner or as root".to_owned(),
    };
    format!("Run the command as {who}, or let this user read it.")
}

/// Whether the file belongs to another user than that of this process.
pub fn is_of_another(path: &Path) -> bool {
    let owner = privilege::owner(path);
    owner.is_none_or(|(uid, _)| uid != nix::unistd::Uid::effective().as_raw())
}
