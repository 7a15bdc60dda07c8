//! What a writer does with its device: transfers in flight, short writes, and how long both took.

use std::time::Instant;

use hdrhistogram::Histogram;
use windlass_media::fitted;

use crate::buffer::Buffer;
use crate::device::{Device, WriteDone};
use crate::error::EngineError;
use crate::report::{DeviceReport, latencies};
use crate::resource::StageName;
use crate::shared::Shared;
use crate::waits::{Cause, Io, Stage};

/// A device, and where its next byte goes.
pub(crate) struct Output {
    pub(crate) device: Box<dyn Device>,
    /// Where the next byte goes.
    pub(crate) offset: u64,
    operations: u64,
    latency: Histogram<u64>,
    /// The waits of this device alone. The run's stage has the sum over all devices.
    waits: Stage,
}

impl Output {
    /// A device on which nothing was written yet.
    pub(crate) fn new(device: Box<dyn Device>) -> Self {
        Self {
            device,
            offset: 0,
            operations: 0,
            latency: latencies(),
            waits: Stage::default(),
        }
    }

    /// What the device did in a run in which data moved for `data_seconds`.
    pub(crate) fn report(&self, data_seconds: f64) -> DeviceReport {
        // A device is busy while something is in flight. That is always so, except when its writer
        // waits for frames.
        let idle = self.waits.report(StageName::Writer).waited(Cause::Frames);
        let busy = (data_seconds - idle).max(0.0);
        DeviceReport::new(self.device.location(), self.offset, busy, &self.latency)
    }

    /// Starts the write of a transfer, after as many others have ended as have to.
    pub(crate) fn submit(&mut self, buffer: Buffer, shared: &Shared) -> Result<(), EngineError> {
        let (offset, bytes) = (self.offset, buffer.len() as u64);
        let depth = shared.write_depth(self.device.depth());
        while self.device.in_flight() >= depth.max(1) {
            self.reap(shared)?;
        }
        let done = self.timed(shared, Cause::DeviceWrite, |output| {
            output.device.submit(offset, buffer)
        })?;
        self.offset += bytes;
        self.count(done, shared);
        Ok(())
    }

    /// Waits for one write that is in flight.
    pub(crate) fn reap(&mut self, shared: &Shared) -> Result<(), EngineError> {
        let done = self.timed(shared, Cause::DeviceWrite, |output| output.device.reap())?;
        self.count(done, shared);
        Ok(())
    }

    /// Waits for all writes that are in flight.
    pub(crate) fn drain(&mut self, shared: &Shared) -> Result<(), EngineError> {
        while self.device.in_flight() > 0 {
            self.reap(shared)?;
        }
        Ok(())
    }

    /// Writes a block, and waits until that is done. Returns where it is.
    pub(crate) fn write(&mut self, bytes: &[u8], shared: &Shared) -> Result<u64, EngineError> {
        let (offset, begin) = (self.offset, Instant::now());
        self.timed(shared, Cause::DeviceWrite, |output| {
            output.device.write(offset, bytes)
        })?;
        let io = Io {
            cause: Cause::DeviceWrite,
            bytes: bytes.len() as u64,
            elapsed: begin.elapsed(),
            depth: self.device.in_flight() + 1,
        };
        shared.progress.io(&shared.progress.writer, io);
        self.offset += bytes.len() as u64;
        Ok(offset)
    }

    fn count(&mut self, done: Option<WriteDone>, shared: &Shared) {
        let Some(done) = done else { return };
        self.operations += 1;
        let micros = fitted(done.elapsed.as_micros());
        self.latency.saturating_record(micros);
        let progress = &shared.progress;
        progress.writer.add_work(done.bytes);
        let io = Io {
            cause: Cause::DeviceWrite,
            bytes: done.bytes,
            elapsed: done.elapsed,
            depth: self.device.in_flight() + 1,
        };
        progress.io(&progress.writer, io);
        shared.grow();
    }

    /// Waits for another device. The stage waits for a device, and this one has nothing to do.
    pub(crate) fn wait_for_other<T>(&mut self, shared: &Shared, call: impl FnOnce() -> T) -> T {
        let (result, elapsed) = shared.progress.writer.timed(Cause::DeviceWrite, call);
        self.waits.add_wait(Cause::Frames, elapsed);
        result
    }

    /// Runs a blocking call. Its time counts for this device and for the stage.
    pub(crate) fn timed<T>(
        &mut self,
        shared: &Shared,
        cause: Cause,
        call: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let (result, elapsed) = shared.progress.writer.timed(cause, || call(self));
        self.waits.add_wait(cause, elapsed);
        result
    }
}
