//! Why nothing can be removed.

use std::path::PathBuf;

use thiserror::Error;

use crate::ending::Ending;

/// Why nothing can be removed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExpireError {
    /// No rule was given.
    #[error("nothing says what to keep")]
    NoPolicy,
    /// A stripe was named, or one set was chosen.
    #[error("{what} is not a place: sets expire by the rules for a whole place")]
    NoPlace {
        /// What was named.
        what: String,
    },
    /// One of several places has nothing in it.
    #[error("{} is empty: its disk may not be mounted", path.display())]
    EmptyPlace {
        /// The place.
        path: PathBuf,
    },
    /// The storage cannot tell whether somebody reads a set.
    #[error("{} cannot be locked: {source}", path.display())]
    NoLocks {
        /// The stripe.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl ExpireError {
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::NoPolicy | Self::NoPlace { .. } => Ending::Usage,
            Self::EmptyPlace { .. } | Self::NoLocks { .. } => Ending::Failed,
        }
    }
}
