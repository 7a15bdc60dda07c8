//! Whether a cluster that was shut down has everything of a snapshot already, and not only its
//! pages. Some of a snapshot is in its log, and a server that opens it would replay that.
//!
//!   snapshot B ends at 0/5000000 on timeline 1
//!   cluster on timeline 1, at 0/6000000                    has it
//!   cluster on timeline 2, which left 1 at 0/4000000       went back to an earlier snapshot
//!   cluster on timeline 2, which left 1 at 0/5000000       went back to B, or to a later one

use std::path::Path;

use windlass_postgres::{Control, Lsn, Timeline, timelines_before};

use crate::error::SnapshotError;

/// Whether the log of a cluster that was shut down went through this position of a timeline. False
/// when in doubt.
pub(super) fn went_through(
    data: &Path,
    control: &Control,
    (timeline, position): (Timeline, Lsn),
) -> Result<bool, SnapshotError> {
    // A cluster with a minimal log goes back without a new timeline.
    if control.is_log_minimal() || !control.is_shut_down() {
        return Ok(false);
    }
    if control.checkpoint_timeline == timeline {
        return Ok(control.checkpoint >= position);
    }
    let left = timelines_before(data, control.checkpoint_timeline)?.unwrap_or_default();
    let mut left = left.iter();
    Ok(left.any(|(past, at)| *past == timeline && *at >= position))
}
