//! Why a drill proves nothing.

use thiserror::Error;

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
    /// One set was chosen, so none can be drawn.
    #[error("one set was chosen, so there is none to draw")]
    Chosen,
}
