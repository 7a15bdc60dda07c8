//! Why nothing can be rehearsed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::ending::Ending;

/// Why nothing can be rehearsed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RehearseError {
    /// The place is no directory.
    #[error("{} is not a directory", path.display())]
    NoDirectory {
        /// The place.
        path: PathBuf,
    },
    /// No set-up has a name that contains the text.
    #[error("no set-up has such a name")]
    NoSetUp {
        /// The text.
        text: String,
    },
    /// The directory of the rehearsal cannot be made.
    #[error("create {}: {source}", path.display())]
    Create {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl RehearseError {
    /// How an operation ends that fails like this.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::NoDirectory { .. } | Self::NoSetUp { .. } => Ending::Usage,
            Self::Create { .. } => Ending::Failed,
        }
    }
}
