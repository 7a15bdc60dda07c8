//! Why a drill proves nothing.

use std::path::PathBuf;

use thiserror::Error;
use windlass_engine::show_size;

/// Why a drill proved nothing.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DrillError {
    /// There is no set to draw from.
    #[error("there is no sealed set to draw from in {places}")]
    NothingToDraw {
        /// Where.
        places: String,
    },
    /// There is no directory to restore into.
    #[error("there is no directory {}", path.display())]
    NoDirectory {
        /// What was named.
        path: PathBuf,
    },
    /// Nothing can be restored into the directory.
    #[error("cannot restore into {}: {source}", path.display())]
    Into {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The restore of the drill would not fit.
    #[error(
        "cannot restore into {}: it needs {}, and {} are free",
        path.display(), show_size(*needed), show_size(*free)
    )]
    NoRoom {
        /// The directory.
        path: PathBuf,
        /// Bytes of the database.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// One set was chosen, so none can be drawn.
    #[error("one set was chosen, so there is none to draw")]
    Chosen,
}
