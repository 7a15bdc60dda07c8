//! Why a stage stands still.

use serde::{Deserialize, Serialize};

/// Why a stage stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A reader had nothing to read, because the database was not ready (checkpoint, listing, log).
    Jobs,
    /// The device of the source had not delivered yet.
    SourceRead,
    /// No buffer was free, or the next stage had no room for what needs none.
    FreeBuffer,
    /// There was no full buffer to work on.
    FullBuffer,
    /// There were no frames to write.
    Frames,
    /// The device had not taken a write yet.
    DeviceWrite,
    /// The device had not made its data durable yet.
    DeviceSync,
    /// The device had not delivered a read yet (restore, verify).
    DeviceRead,
    /// The restored file had not taken a write yet.
    TargetWrite,
    /// The restored files were not durable yet.
    TargetSync,
    /// A rate limit held the stage back.
    RateLimit,
}

impl Cause {
    /// Every cause, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Jobs,
        Self::SourceRead,
        Self::FreeBuffer,
        Self::FullBuffer,
        Self::Frames,
        Self::DeviceWrite,
        Self::DeviceSync,
        Self::DeviceRead,
        Self::TargetWrite,
        Self::TargetSync,
        Self::RateLimit,
    ];

    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::SourceRead => "source_read",
            Self::FreeBuffer => "free_buffer",
            Self::FullBuffer => "full_buffer",
            Self::Frames => "frames",
            Self::DeviceWrite => "device_write",
            Self::DeviceSync => "device_sync",
            Self::DeviceRead => "device_read",
            Self::TargetWrite => "target_write",
            Self::TargetSync => "target_sync",
            Self::RateLimit => "rate_limit",
        }
    }

    /// The cause of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    pub(super) fn index(self) -> usize {
        Self::ALL
            .iter()
            .position(|cause| *cause == self)
            .unwrap_or(0)
    }
}
