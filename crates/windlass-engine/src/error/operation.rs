//! What was being done with a device when it failed.

use std::path::Path;
use std::{fmt, io};

use windlass_media::{FormatError, Structure};

use super::EngineError;

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
    /// Removing it.
    Remove,
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
            Self::Remove => "remove",
        })
    }
}

/// Damage of a stripe.
pub(crate) fn damage(location: &Path, offset: u64, source: FormatError) -> EngineError {
    EngineError::Damage {
        location: location.to_string_lossy().into_owned(),
        offset,
        source,
    }
}

/// A stripe that cannot be read. One that ends too early is damaged.
pub(crate) fn read_error(location: &Path, offset: u64, source: io::Error) -> EngineError {
    if source.kind() == io::ErrorKind::UnexpectedEof {
        return damage(location, offset, FormatError::Truncated(Structure::Header));
    }
    // What parity could not rebuild says itself what is lost.
    let source = match source.downcast::<EngineError>() {
        Ok(error) => return error,
        Err(source) => source,
    };
    EngineError::DeviceIo {
        operation: DeviceOperation::Read,
        device: location.to_string_lossy().into_owned(),
        offset,
        source,
    }
}
