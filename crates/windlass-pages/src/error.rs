//! What can be wrong with bytes that were not made by an encoder.

use thiserror::Error;

/// Why streams or a layout were refused. A decoder of right streams returns none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PagesError {
    /// The bytes of a layout are none.
    #[error("the layout of the pages is not valid: {what}")]
    Layout {
        /// What is wrong with them.
        what: &'static str,
    },
    /// The frame is not a whole number of pages, or longer than [`crate::RAW_BYTES_MAX`].
    #[error("{bytes} bytes are no whole number of pages of {page_bytes} bytes")]
    Length {
        /// The length of the frame.
        bytes: usize,
        /// The length of a page.
        page_bytes: usize,
    },
    /// A stream ends too early.
    #[error("a stream of the pages ends too early")]
    Truncated,
    /// A stream is longer than what the pages need.
    #[error("a stream of the pages has bytes at its end that nothing needs")]
    Surplus,
    /// The streams contradict themselves, or the layout.
    #[error("the streams of the pages are not valid: {what}")]
    Invalid {
        /// What is wrong with them.
        what: &'static str,
    },
}

/// An error about streams that contradict themselves.
pub(crate) const fn invalid(what: &'static str) -> PagesError {
    PagesError::Invalid { what }
}
