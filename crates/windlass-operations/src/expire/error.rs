//! Why nothing can be removed.

use std::path::{Path, PathBuf};

use thiserror::Error;
use windlass_object::is_in_bucket;

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
    #[error("{} is empty: {}", path.display(), why_empty(path))]
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

fn why_empty(path: &Path) -> &'static str {
    match is_in_bucket(path) {
        true => "it may be the wrong prefix",
        false => "its disk may not be mounted",
    }
}

impl ExpireError {
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::NoPolicy | Self::NoPlace { .. } => Ending::Usage,
            Self::EmptyPlace { .. } | Self::NoLocks { .. } => Ending::Failed,
        }
    }
}
