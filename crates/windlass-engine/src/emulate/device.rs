//! A device behind a model: writes are taken at once and made when the model is done with them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::{EmulatedStream, Emulator};
use crate::buffer::Buffer;
use crate::device::{Device, DeviceLayer, LayeredDevice, WriteDone};
use crate::error::EngineError;
use crate::options::DEVICE_DEPTH;

/// Makes a device as slow as a model.
struct SlowLayer {
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

impl SlowLayer {
    /// Waits until the model has finished the oldest write, and then makes that write.
    fn finish_oldest(&mut self, below: &mut dyn Device) -> Result<Option<WriteDone>, EngineError> {
        let Some(oldest) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.stream.emulator.wait_until(oldest.due);
        let bytes = oldest.buffer.len() as u64;
        below.submit(oldest.offset, oldest.buffer)?;
        while below.in_flight() > 0 {
            below.reap()?;
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
        let layer = SlowLayer {
            stream: EmulatedStream { emulator, stream },
            waiting: VecDeque::new(),
        };
        Box::new(LayeredDevice::new(layer, device)) as _
    };
    devices.into_iter().enumerate().map(slow).collect()
}

impl DeviceLayer for SlowLayer {
    fn depth(&self, _: &dyn Device) -> usize {
        DEVICE_DEPTH
    }

    fn in_flight(&self, _: &dyn Device) -> usize {
        self.waiting.len()
    }

    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        let full = self.waiting.len() == DEVICE_DEPTH;
        let finished = if full {
            self.finish_oldest(below)?
        } else {
            None
        };
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

    fn reap(&mut self, below: &mut dyn Device) -> Result<Option<WriteDone>, EngineError> {
        self.finish_oldest(below)
    }

    fn write(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let due = self.stream.done_at(self.stream.stream, offset, bytes.len());
        self.stream.emulator.wait_until(due);
        below.write(offset, bytes)
    }
}
