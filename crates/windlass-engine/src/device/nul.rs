//! `nul`: takes everything and keeps nothing. It measures the rest of the pipeline.

use std::time::Duration;

use super::{Device, WriteDone};
use crate::buffer::Buffer;
use crate::error::EngineError;

/// Discards what is written.
#[derive(Debug)]
pub struct NulDevice {
    alignment: u32,
}

impl NulDevice {
    /// A device with this block size.
    pub fn new(alignment: u32) -> Self {
        Self { alignment }
    }
}

impl Device for NulDevice {
    fn location(&self) -> &str {
        "nul"
    }

    fn alignment(&self) -> u32 {
        self.alignment
    }

    fn depth(&self) -> usize {
        1
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn keeps(&self) -> bool {
        false
    }

    fn submit(&mut self, _offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        Ok(Some(WriteDone {
            bytes: buffer.len() as u64,
            elapsed: Duration::ZERO,
        }))
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        Ok(None)
    }

    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn truncate(&mut self, _bytes: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}
