//! Small sets with frames on every stripe: left to themselves, one writer might take them all.

use std::sync::{Arc, Barrier};

use windlass_engine::media::FileNo;
use windlass_engine::{Buffer, Device, EngineError, PageHook, WriteDone};

/// A device that delays its first transfer until every other device has its first one. So a set of
/// a few KiB has frames on each stripe.
struct Turn {
    inner: Box<dyn Device>,
    all: Option<Arc<Barrier>>,
}

impl Device for Turn {
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
    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        if let Some(all) = self.all.take() {
            all.wait();
        }
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

struct OneEach(usize, Barrier);

impl PageHook for OneEach {
    fn piece(&self, file: FileNo, _: u64, _: &mut [u8]) -> Result<(), EngineError> {
        if (file.0 as usize) < self.0 {
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
        let all = Some(Arc::clone(&all));
        Box::new(Turn { inner, all }) as Box<dyn Device>
    };
    devices.into_iter().map(turn).collect()
}

/// Makes sure that each of `count` compressors gets one of the files 0 to `count` - 1. These files
/// must be large.
pub fn one_each(count: usize) -> Arc<dyn PageHook> {
    Arc::new(OneEach(count, Barrier::new(count)))
}
