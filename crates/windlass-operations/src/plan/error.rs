//! Why a plan or a probe cannot be made.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a plan or a probe cannot be made. All of them are mistakes in what was asked for.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Neither a database nor a size.
    #[error("plan: there is no size to plan for")]
    NoSize,
    /// No machine with this name is known.
    #[error("the machine {name:?} is not known")]
    UnknownInstance {
        /// Its name.
        name: String,
    },
    /// Nothing says what storage is at an end.
    #[error("the storage of the {} is missing", if *is_source { "source" } else { "target" })]
    NoStorage {
        /// Whether it is the end that the bytes come from.
        is_source: bool,
    },
    /// A path cannot be looked at.
    #[error("{}: {source}", path.display())]
    NoPath {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The storage of a path has not been measured.
    #[error("{} has not been probed", path.display())]
    NotProbed {
        /// The path.
        path: PathBuf,
    },
    /// A path to probe does not exist.
    #[error("cannot probe {}: {source}", path.display())]
    NoProbe {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A path to probe is in no directory.
    #[error("{} is in no directory", path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
}
