//! What was being done with a device when it failed.

use std::fmt;

/// What is done with a device, or with a stripe that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceOperation {
    /// Making its file.
    Create,
    /// Writing a transfer.
    Write,
    /// Cutting off what was allocated too much.
    Truncate,
    /// Making all writes durable.
    Sync,
    /// Giving the sealed stripe its name.
    Publish,
    /// Making the name durable, and removing the old one.
    Settle,
    /// Reading.
    Read,
}

impl fmt::Display for DeviceOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Truncate => "truncate",
            Self::Sync => "sync",
            Self::Publish => "publish",
            Self::Settle => "settle",
            Self::Read => "read",
        })
    }
}
