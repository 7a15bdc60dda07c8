//! A layer in front of a device: it changes some calls, and every other call goes through.

use super::{Device, WriteDone};
use crate::buffer::Buffer;
use crate::error::EngineError;

/// What a layer does with the calls to the device below it. Unless a layer says otherwise, a call
/// goes through.
pub trait DeviceLayer: Send {
    /// See [`Device::depth`].
    fn depth(&self, below: &dyn Device) -> usize {
        below.depth()
    }
    /// See [`Device::in_flight`].
    fn in_flight(&self, below: &dyn Device) -> usize {
        below.in_flight()
    }
    /// See [`Device::submit`].
    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        below.submit(offset, buffer)
    }
    /// See [`Device::reap`].
    fn reap(&mut self, below: &mut dyn Device) -> Result<Option<WriteDone>, EngineError> {
        below.reap()
    }
    /// See [`Device::write`].
    fn write(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        below.write(offset, bytes)
    }
    /// See [`Device::truncate`].
    fn truncate(&mut self, below: &mut dyn Device, bytes: u64) -> Result<(), EngineError> {
        below.truncate(bytes)
    }
    /// See [`Device::sync`].
    fn sync(&mut self, below: &mut dyn Device) -> Result<(), EngineError> {
        below.sync()
    }
    /// See [`Device::publish`].
    fn publish(&mut self, below: &mut dyn Device) -> Result<(), EngineError> {
        below.publish()
    }
}

/// A device with a layer in front of it.
pub struct LayeredDevice<L> {
    below: Box<dyn Device>,
    layer: L,
}

impl<L: DeviceLayer> LayeredDevice<L> {
    /// Puts a layer in front of a device.
    pub fn new(layer: L, below: Box<dyn Device>) -> Self {
        Self { below, layer }
    }
}

impl<L: DeviceLayer> Device for LayeredDevice<L> {
    fn location(&self) -> &str {
        self.below.location()
    }

    fn alignment(&self) -> u32 {
        self.below.alignment()
    }

    fn depth(&self) -> usize {
        self.layer.depth(&*self.below)
    }

    fn in_flight(&self) -> usize {
        self.layer.in_flight(&*self.below)
    }

    fn keeps(&self) -> bool {
        self.below.keeps()
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        self.layer.submit(&mut *self.below, offset, buffer)
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        self.layer.reap(&mut *self.below)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.layer.write(&mut *self.below, offset, bytes)
    }

    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.layer.truncate(&mut *self.below, bytes)
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.layer.sync(&mut *self.below)
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        self.layer.publish(&mut *self.below)
    }
}
