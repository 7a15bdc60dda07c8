//! A device with a pace: writes are taken at once, and made when their pace says they are done.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Paced, PacedStream};
use crate::buffer::Buffer;
use crate::device::{Device, DeviceLayer, LayeredDevice, WriteDone};
use crate::error::EngineError;
use crate::options::DEVICE_DEPTH;

/// Gives a device a pace.
struct SlowLayer {
    stream: PacedStream,
    waiting: VecDeque<Waiting>,
}

/// A write that is not done yet.
struct Waiting {
    due: Instant,
    begun: Instant,
    offset: u64,
    buffer: Buffer,
}

impl SlowLayer {
    /// Waits until the oldest write is done, and then makes that write.
    fn finish_oldest(&mut self, below: &mut dyn Device) -> Result<Option<WriteDone>, EngineError> {
        let Some(oldest) = self.waiting.pop_front() else {
            return Ok(None);
        };
        self.stream.paced.wait_until(oldest.due);
        let bytes = oldest.buffer.len() as u64;
        below.submit(oldest.offset, oldest.buffer)?;
        while below.in_flight() > 0 {
            below.reap()?;
        }
        let elapsed = oldest.begun.elapsed();
        Ok(Some(WriteDone { bytes, elapsed }))
    }
}

/// Gives each device the pace, if there is one.
pub(crate) fn paced(devices: Vec<Box<dyn Device>>, pace: Option<&Paced>) -> Vec<Box<dyn Device>> {
    let Some(pace) = pace else {
        return devices;
    };
    let slow = |(stream, device)| {
        let layer = SlowLayer {
            stream: pace.stream(stream),
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
        let stream = &self.stream;
        stream.pass(stream.stream, offset, bytes.len());
        below.write(offset, bytes)
    }
}
