//! Why a method cannot make a snapshot of a database in a place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a method cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// Databases of this kind do not have the method.
    OtherDatabase,
    /// The server does not write through the hook.
    NoHook {
        /// What was found.
        said: String,
    },
    /// A module of the server may change files unseen by the hook.
    Unseen {
        /// What was found.
        said: String,
    },
    /// The method cannot keep a limit.
    NoLimits,
    /// The method begins with a checkpoint, and none was wanted.
    NeedsCheckpoint,
    /// The method begins with no checkpoint, and one was to be left out.
    NoCheckpoint,
    /// The file system does not clone files, or not this file to this place.
    NoClones {
        /// The file that was tried.
        from: PathBuf,
        /// Where its clone should be.
        into: PathBuf,
        /// What the system said.
        said: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherDatabase => out.write_str("databases of this kind do not have it"),
            Self::NoHook { said } | Self::Unseen { said } => out.write_str(said),
            Self::NoLimits => out.write_str("it cannot keep a limit"),
            Self::NeedsCheckpoint => out.write_str("it begins with a checkpoint"),
            Self::NoCheckpoint => out.write_str("it has no checkpoint that could be left out"),
            Self::NoClones { from, into, said } => write!(
                out,
                "the file system cannot clone {} into {}: {said}",
                from.display(),
                into.display()
            ),
        }
    }
}

impl Obstacle {
    pub(crate) fn no_clones(from: &Path, into: &Path, error: &io::Error) -> Self {
        Self::NoClones {
            from: from.to_owned(),
            into: into.to_owned(),
            said: error.to_string(),
        }
    }
}
