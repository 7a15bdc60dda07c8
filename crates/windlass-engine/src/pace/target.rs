//! A restore's target with a pace.

use std::collections::HashSet;

use windlass_media::FileNo;

use super::{Paced, PacedStream};
use crate::error::EngineError;
use crate::target::Target;

/// A target that has a pace. Holes take no time, because nothing is written.
pub(crate) struct PacedTarget<'a> {
    inner: &'a dyn Target,
    stream: PacedStream,
}

impl<'a> PacedTarget<'a> {
    pub(crate) fn new(inner: &'a dyn Target, pace: &Paced) -> Self {
        let stream = pace.stream(0);
        Self { inner, stream }
    }
}

impl Target for PacedTarget<'_> {
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.stream.pass(file.0 as usize, offset, bytes.len());
        self.inner.write(file, offset, bytes)
    }

    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError> {
        self.inner.hole(file, offset, bytes)
    }

    fn left_out(&self) -> Option<&HashSet<FileNo>> {
        self.inner.left_out()
    }

    fn finish(&self) -> Result<(), EngineError> {
        self.inner.finish()
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}
