//! What a backup did with pages that it could take apart.

use serde::{Deserialize, Serialize};

/// What a run did with pages that it could take apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesReport {
    /// Bytes of pages that were taken apart.
    pub apart_bytes: u64,
    /// What they take on the stripes.
    pub apart_stored_bytes: u64,
    /// Bytes of pages that are shorter as they are.
    pub plain_bytes: u64,
    /// What they take on the stripes.
    pub plain_stored_bytes: u64,
    /// Frames whose pages did not come back when that was tried. They are stored as they are; this
    /// is a mistake in Windlass.
    pub wrong_frames: u64,
}
