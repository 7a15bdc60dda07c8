//! A device that holds its writes back until the test lets them go. Meanwhile the run stands still
//! while it reads its source, for as long as a test needs. So no clock decides what happens first.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use windlass_engine::{Buffer, Device, DeviceLayer, EngineError, LayeredDevice, WriteDone};

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    opened: bool,
}

/// The gate at which the devices of a run wait.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

impl Gate {
    /// Wraps a device, so that its writes of data wait at the gate.
    pub fn device(&self, inner: Box<dyn Device>) -> Box<dyn Device> {
        Box::new(LayeredDevice::new(self.clone(), inner))
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
        self.change(|state| *state = GateState::default());
    }

    fn pass(&self) {
        self.change(|state| state.reached = true);
        self.wait(|state| state.opened);
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn wait(&self, until: impl Fn(&GateState) -> bool) {
        let waited = self.0.1.wait_while(self.lock(), |state| !until(state));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceLayer for Gate {
    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        self.pass();
        below.submit(offset, buffer)
    }
}
