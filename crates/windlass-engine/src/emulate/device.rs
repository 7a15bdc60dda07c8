//! A device behind a model: writes are taken at once and made when the model is done with them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{EmulatedStream, Emulator};
use crate::buffer::Buffer;
use crate::device::{Device, WriteDone};
use crate::error::EngineError;
use crate::options::DEVICE_DEPTH;

/// A device that is as slow as a model.
struct EmulatedDevice {
    inner: Box<dyn Device>,
    stream: EmulatedStream,
    waiting: VecDeque<Waiting>,
}

/// A write that the model has not finished.
struct Waiting {
    due: Instant,
    begun: Instant,
    offset: u64,
    buffer: Buffer,
}

impl EmulatedDevice {
    fn new(inner: Box<dyn Device>, stream: EmulatedStream) -> Self {
        let waiting = VecDeque::new();
        Self {
            inner,
            stream,
            waiting,
        }
    }

    /// Waits until the model has finished the oldest write, and then makes that write.
    fn finish_oldest(&mut self) -> Result<Option<WriteDone>, EngineError> {
        let Some(oldest) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.stream.emulator.wait_until(oldest.due);
        let bytes = oldest.buffer.len() as u64;
        self.inner.submit(oldest.offset, oldest.buffer)?;
        while self.inner.in_flight() > 0 {
            self.inner.reap()?;
        }
        let elapsed = oldest.begun.elapsed();
        Ok(Some(WriteDone { bytes, elapsed }))
    }
}

/// Puts each device behind the model, if there is one.
pub(crate) fn emulated(
    devices: Vec<Box<dyn Device>>,
    model: Option<&Arc<Emulator>>,
) -> Vec<Box<dyn Device>> {
    let Some(emulator) = model else {
        return devices;
    };
    let slow = |(stream, device)| {
        let emulator = Arc::clone(emulator);
        Box::new(EmulatedDevice::new(
            device,
            EmulatedStream { emulator, stream },
        )) as _
    };
    devices.into_iter().enumerate().map(slow).collect()
}

impl Device for EmulatedDevice {
    fn location(&self) -> &str {
        self.inner.location()
    }

    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }

    fn depth(&self) -> usize {
        DEVICE_DEPTH
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        let full = self.waiting.len() == DEVICE_DEPTH;
        let finished = if full { self.finish_oldest()? } else { None };
        self.waiting.push_back(Waiting {
            due: self
                .stream
                .done_at(self.stream.stream, offset, buffer.len()),
            begun: Instant::now(),
            offset,
            buffer,
        });
        Ok(finished)
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        self.finish_oldest()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        let due = self.stream.done_at(self.stream.stream, offset, bytes.len());
        self.stream.emulator.wait_until(due);
        self.inner.write(offset, bytes)
    }

    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.inner.truncate(bytes)
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        self.inner.publish()
    }
}
