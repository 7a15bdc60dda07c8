//! Targets: where restored bytes go.

mod directory;
mod existing;
mod last;
mod layout;

use std::collections::HashSet;

use windlass_media::FileNo;

use crate::error::EngineError;

pub use directory::DirectoryTarget;
pub use existing::{Changed, Existing};
pub use layout::TargetLayout;

/// Where restored bytes go. Several threads call it, with ranges that never overlap.
pub trait Target: Sync {
    /// Takes bytes of a file.
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// Takes note of zeros in a file. The file was created with its full length, so it has a hole
    /// there.
    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError>;
    /// Ends the restore: first everything becomes durable, then the last files get their names.
    fn finish(&self) -> Result<(), EngineError>;
    /// The files of which nothing is taken, if there are any. Then frames are not read that have
    /// nothing else, or only what is of no file of the newest set any more.
    fn left_out(&self) -> Option<&HashSet<FileNo>> {
        None
    }

    /// False when nothing is kept (verification).
    fn keeps(&self) -> bool {
        true
    }
}

/// A target that keeps nothing. A verification uses it.
#[derive(Debug, Default)]
pub struct Discard;

impl Target for Discard {
    fn write(&self, _file: FileNo, _offset: u64, _bytes: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn hole(&self, _file: FileNo, _offset: u64, _bytes: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn keeps(&self) -> bool {
        false
    }
}
