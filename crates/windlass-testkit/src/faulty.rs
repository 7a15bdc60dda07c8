//! A device whose Nth call of one kind fails, or that is slow.
//!
//! It wraps a real device. Calls that it does not fail reach the disk. Calls are counted over all
//! devices of a run, but each kind separately: how often a writer reaps depends on the speed of the
//! disk, so a number over all kinds would mean another call in each run.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_engine::{
    Buffer, Device, DeviceLayer, DeviceOperation, EngineError, LayeredDevice, WriteDone,
};

/// The calls of [`Device`] that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// [`Device::submit`].
    Submit,
    /// [`Device::reap`].
    Reap,
    /// [`Device::write`].
    Write,
    /// [`Device::truncate`].
    Truncate,
    /// [`Device::sync`].
    Sync,
    /// [`Device::publish`].
    Publish,
}

/// Whether the call that fails had its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The call failed without being made.
    None,
    /// The call was made, but its success was reported as a failure.
    Done,
}

/// Which call of a run is to fail, and which calls were made.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<Counts>>);

#[derive(Debug)]
struct Counts {
    fail_at: Option<(Call, u64)>,
    effect: Effect,
    failed: Option<Call>,
    by_kind: BTreeMap<Call, u64>,
    after_failure: u64,
}

impl Call {
    /// Every kind of call.
    pub const ALL: [Self; 6] = [
        Self::Submit,
        Self::Reap,
        Self::Write,
        Self::Truncate,
        Self::Sync,
        Self::Publish,
    ];
}

impl Faults {
    /// No call fails.
    pub fn none() -> Self {
        Self::new(None, Effect::None)
    }

    /// The call with this number fails. Calls of this kind are counted from 1 over all devices.
    pub fn at(call: Call, number: u64, effect: Effect) -> Self {
        Self::new(Some((call, number)), effect)
    }

    /// Wraps a device that fails where these faults say so.
    pub fn device(&self, inner: Box<dyn Device>) -> Box<dyn Device> {
        layered(self, Duration::ZERO, Duration::ZERO, inner)
    }

    fn new(fail_at: Option<(Call, u64)>, effect: Effect) -> Self {
        let by_kind = BTreeMap::new();
        let counts = Counts {
            fail_at,
            effect,
            failed: None,
            by_kind,
            after_failure: 0,
        };
        Self(Arc::new(Mutex::new(counts)))
    }

    /// The call that failed; `None` if the run did not get that far.
    pub fn failed(&self) -> Option<Call> {
        self.lock().failed
    }

    /// How many calls of each kind were made.
    pub fn calls(&self) -> BTreeMap<Call, u64> {
        self.lock().by_kind.clone()
    }

    /// Calls that reached a device after it had failed. There must be none: its stripe is dead.
    pub fn calls_after_failure(&self) -> u64 {
        self.lock().after_failure
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call of a device. Returns the effect if the call is to fail.
    fn count(&self, call: Call, dead: &mut bool) -> Option<Effect> {
        let mut counts = self.lock();
        counts.after_failure += u64::from(*dead);
        let number = counts.by_kind.entry(call).or_default();
        *number += 1;
        let this = Some((call, *number));
        if this != counts.fail_at {
            return None;
        }
        counts.failed = Some(call);
        *dead = true;
        Some(counts.effect)
    }
}

/// Wraps a device that takes `delay` to make its data durable.
pub fn slow_to_sync(inner: Box<dyn Device>, delay: Duration) -> Box<dyn Device> {
    layered(&Faults::none(), Duration::ZERO, delay, inner)
}

/// Wraps a device that takes `delay` for every transfer.
pub fn slow(inner: Box<dyn Device>, delay: Duration) -> Box<dyn Device> {
    layered(&Faults::none(), delay, Duration::ZERO, inner)
}

fn layered(
    faults: &Faults,
    delay: Duration,
    sync_delay: Duration,
    inner: Box<dyn Device>,
) -> Box<dyn Device> {
    let layer = FaultyLayer {
        faults: faults.clone(),
        delay,
        sync_delay,
        dead: false,
    };
    Box::new(LayeredDevice::new(layer, inner))
}

/// Fails calls where its [`Faults`] say so. It can also wait before each write.
struct FaultyLayer {
    faults: Faults,
    delay: Duration,
    sync_delay: Duration,
    dead: bool,
}

impl FaultyLayer {
    fn call<T>(
        &mut self,
        below: &mut dyn Device,
        call: Call,
        make: impl FnOnce(&mut dyn Device) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match self.faults.count(call, &mut self.dead) {
            None => return make(below),
            // When the rename of a sealed stripe fails, the stripe stays under its partial name.
            // Only the real device can do that, so the call is made.
            Some(Effect::None) if call != Call::Publish => {}
            Some(_) => drop(make(below)?),
        }
        let device = below.location().to_owned();
        let source = io::Error::other(format!("injected fault at {call:?}"));
        Err(EngineError::DeviceIo {
            operation: DeviceOperation::Write,
            device,
            offset: 0,
            source,
        })
    }
}

impl DeviceLayer for FaultyLayer {
    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        std::thread::sleep(self.delay);
        self.call(below, Call::Submit, |device| device.submit(offset, buffer))
    }

    fn reap(&mut self, below: &mut dyn Device) -> Result<Option<WriteDone>, EngineError> {
        self.call(below, Call::Reap, |device| device.reap())
    }

    fn write(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        self.call(below, Call::Write, |device| device.write(offset, bytes))
    }

    fn truncate(&mut self, below: &mut dyn Device, bytes: u64) -> Result<(), EngineError> {
        self.call(below, Call::Truncate, |device| device.truncate(bytes))
    }

    fn sync(&mut self, below: &mut dyn Device) -> Result<(), EngineError> {
        std::thread::sleep(self.sync_delay);
        self.call(below, Call::Sync, |device| device.sync())
    }

    fn publish(&mut self, below: &mut dyn Device) -> Result<(), EngineError> {
        self.call(below, Call::Publish, |device| device.publish())
    }
}
