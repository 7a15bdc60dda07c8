//! Small sets with frames on every stripe: left to themselves, one writer might take them all.

use std::sync::{Arc, Barrier};

use windlass_engine::{
    Buffer, Device, DeviceLayer, EngineError, LayeredDevice, PageHook, Pages, WriteDone,
};

/// Delays the first transfer of a device until every other device has its first one. So a set of a
/// few KiB has frames on each stripe.
struct Turn(Option<Arc<Barrier>>);

impl DeviceLayer for Turn {
    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        if let Some(all) = self.0.take() {
            all.wait();
        }
        below.submit(offset, buffer)
    }
}

struct OneEach(usize, Barrier);

impl PageHook for OneEach {
    fn pages(&self, pages: &mut Pages<'_>) -> Result<(), EngineError> {
        if (pages.file().0 as usize) < self.0 {
            self.1.wait();
        }
        Ok(())
    }
}

/// Makes sure that each device gets one transfer before any device gets two. There must be one for
/// each.
pub fn in_turn(devices: Vec<Box<dyn Device>>) -> Vec<Box<dyn Device>> {
    let all = Arc::new(Barrier::new(devices.len()));
    let turn = |inner| {
        let turn = Turn(Some(Arc::clone(&all)));
        Box::new(LayeredDevice::new(turn, inner)) as Box<dyn Device>
    };
    devices.into_iter().map(turn).collect()
}

/// Makes sure that each of `count` compressors gets one of the files 0 to `count` - 1. These files
/// must be large.
pub fn one_each(count: usize) -> Arc<dyn PageHook> {
    Arc::new(OneEach(count, Barrier::new(count)))
}
