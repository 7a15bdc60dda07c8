//! This user may not read a stripe or a place. That is no damage: another user may read it.

use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_engine::EngineError;
use windlass_postgres::user_shown;

use crate::owners;

/// What this user may not read, and who may.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{} cannot be read by {}: permission denied", path.display(), user_shown(*uid))]
pub struct Denied {
    /// What may not be read.
    pub path: PathBuf,
    /// The user of this process.
    pub uid: u32,
    /// The owner; none if it cannot be found out.
    pub owner: Option<u32>,
}

impl Denied {
    /// What may not be read, if that is what the error says.
    pub fn of(error: &EngineError) -> Option<Self> {
        match error {
            EngineError::DeviceIo { device, .. } if error.is_denied() => {
                Some(Self::at(Path::new(device)))
            }
            _ => None,
        }
    }

    fn at(path: &Path) -> Self {
        // If the directory may not be looked into either, nothing is known of the file.
        let owner = path.ancestors().find_map(owners::owner);
        Self {
            path: path.to_owned(),
            uid: owners::this_user(),
            owner: owner.map(|(uid, _)| uid),
        }
    }
}

/// Whether the file belongs to another user than that of this process.
pub(crate) fn is_of_another(path: &Path) -> bool {
    owners::owner(path).is_none_or(|(uid, _)| uid != owners::this_user())
}
