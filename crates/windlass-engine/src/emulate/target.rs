//! A restore's target behind a model.

use std::sync::Arc;

use windlass_media::FileNo;

use super::Emulator;
use crate::error::EngineError;
use crate::model::ModelIo;
use crate::target::Target;

/// A target that is as slow as a model. Holes take no time, because nothing is written.
pub(crate) struct EmulatedTarget<'a> {
    inner: &'a dyn Target,
    emulator: Arc<Emulator>,
}

impl<'a> EmulatedTarget<'a> {
    pub(crate) fn new(inner: &'a dyn Target, emulator: Arc<Emulator>) -> Self {
        Self { inner, emulator }
    }
}

impl Target for EmulatedTarget<'_> {
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.emulator.pass(&ModelIo {
            stream: 0,
            file: file.0 as usize,
            offset,
            bytes: bytes.len() as u64,
        });
        self.inner.write(file, offset, bytes)
    }

    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError> {
        self.inner.hole(file, offset, bytes)
    }

    fn finish(&self) -> Result<(), EngineError> {
        self.inner.finish()
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}
