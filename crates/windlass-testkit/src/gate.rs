//! A device that holds its writes back until the test lets them go. Meanwhile the run stands still
//! while it reads its source, for as long as a test needs. So no clock decides what happens first.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use windlass_engine::{Buffer, Device, EngineError, WriteDone};

#[derive(Debug, Default)]
struct State {
    reached: bool,
    opened: bool,
}

/// The gate at which the devices of a run wait.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

impl Gate {
    /// Wraps a device, so that its writes of data wait at the gate.
    pub fn device(&self, inner: Box<dyn Device>) -> Box<dyn Device> {
        Box::new(GatedDevice {
            gate: self.clone(),
            inner,
        })
    }

    /// Waits until a run has data to write.
    pub fn wait_reached(&self) {
        self.wait(|state| state.reached);
    }

    /// Lets everything through, now and later.
    pub fn open(&self) {
        self.change(|state| state.opened = true);
    }

    /// Holds back what arrives from now on. Call it while the run has nothing to write.
    pub fn close(&self) {
        self.change(|state| *state = State::default());
    }

    fn pass(&self) {
        self.change(|state| state.reached = true);
        self.wait(|state| state.opened);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let waited = self.0.1.wait_while(self.lock(), |state| !until(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct GatedDevice {
    gate: Gate,
    inner: Box<dyn Device>,
}

impl Device for GatedDevice {
    fn location(&self) -> &str {
        self.inner.location()
    }

    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        self.gate.pass();
        self.inner.submit(offset, buffer)
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        self.inner.reap()
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
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
