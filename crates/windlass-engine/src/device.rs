//! Devices: where stripes are written. Each device has one stripe and one writer thread.
//!
//! A stripe is created under a `.partial` name and locked, written, cut to its length and synced,
//! sealed and synced, and then published under its own name. If the device is dropped before that,
//! the stripe is removed.

mod file;
mod layer;
mod nul;

use std::time::Duration;

use crate::buffer::Buffer;
use crate::error::EngineError;

pub use file::{FileDevice, FileDeviceOptions};
pub(crate) use file::{holds_nothing, is_stripe};
pub use layer::{DeviceLayer, LayeredDevice};
pub use nul::NulDevice;

/// A finished write. Dropping it frees its buffer.
#[derive(Debug)]
pub struct WriteDone {
    /// Bytes written.
    pub bytes: u64,
    /// From submission to completion.
    pub elapsed: Duration,
}

/// The device of one stripe. Offsets and lengths are multiples of [`Device::alignment`].
///
/// After an error the stripe is dead: the run fails, and nothing more is written to it.
pub trait Device: Send {
    /// The location, as the set will record it.
    fn location(&self) -> &str;
    /// What offsets and lengths must be multiples of.
    fn alignment(&self) -> u32;
    /// How many writes may be in flight.
    fn depth(&self) -> usize;
    /// Writes now in flight.
    fn in_flight(&self) -> usize;
    /// False when written bytes cannot be read again (`nul`). Then the run makes no set.
    fn keeps(&self) -> bool {
        true
    }
    /// Starts a write. Returns one that finished in the meantime, if any did.
    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError>;
    /// Waits for a write that is in flight; `None` when there is none.
    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError>;
    /// Writes `bytes` (index blocks, footer, seal) and waits until that is done.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// Cuts the stripe to its length, and so gives back what was preallocated beyond it.
    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError>;
    /// Makes everything written so far durable.
    fn sync(&mut self) -> Result<(), EngineError>;
    /// Gives the sealed stripe its own name, durably.
    fn publish(&mut self) -> Result<(), EngineError>;
}
