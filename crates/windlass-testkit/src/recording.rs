//! A device that remembers every write, sync and rename, and can show what is left after a crash.
//!
//! The image after a crash consists of everything up to the last sync plus any subset of what came
//! after it, down to single sectors of single writes. A disk promises no more than that.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use windlass_engine::{Buffer, Device, EngineError, PARTIAL_SUFFIX, WriteDone};

/// The unit that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;

/// One action on one device.
#[derive(Clone, Debug)]
pub enum Act {
    /// Bytes were written.
    Write(u64, Vec<u8>),
    /// The stripe was cut to a length.
    Truncate(u64),
    /// Everything before this is durable.
    Sync,
    /// The stripe got its final name, durably.
    Publish,
}

/// Everything that happened on all devices of a run, in order, as pairs (device, act).
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Mutex<Vec<(usize, Act)>>>);

impl Recording {
    /// A device of this recording; `index` is its number, `location` its name.
    pub fn device(&self, index: usize, location: &Path, alignment: u32) -> RecordingDevice {
        let location = location.to_string_lossy().into_owned();
        RecordingDevice {
            recording: self.clone(),
            index,
            location,
            alignment,
        }
    }

    /// All acts so far.
    pub fn acts(&self) -> Vec<(usize, Act)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, Act)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, device: usize, act: Act) {
        self.lock().push((device, act));
    }
}

/// What is left of device `index` after a crash that follows the first `moment` acts: its bytes,
/// and whether it has its final name. `keep` decides for each sector and each truncation that was
/// not synced whether it is left.
pub fn crash_image(
    acts: &[(usize, Act)],
    moment: usize,
    index: usize,
    mut keep: impl FnMut() -> bool,
) -> (Vec<u8>, bool) {
    let own: Vec<&Act> = acts[..moment]
        .iter()
        .filter(|(device, _)| *device == index)
        .map(|(_, act)| act)
        .collect();
    let synced = own
        .iter()
        .rposition(|act| matches!(act, Act::Sync))
        .map_or(0, |last| last + 1);
    let (mut bytes, mut published) = (Vec::new(), false);
    for (position, act) in own.into_iter().enumerate() {
        let durable = position < synced;
        match act {
            Act::Write(offset, written) => {
                for (number, sector) in written.chunks(SECTOR_BYTES).enumerate() {
                    let at = offset + (number * SECTOR_BYTES) as u64;
                    if durable || keep() {
                        lay(&mut bytes, at, sector);
                    }
                }
            }
            Act::Truncate(length) if durable || keep() => {
                bytes.resize(usize::try_from(*length).unwrap_or(usize::MAX), 0);
            }
            Act::Truncate(_) | Act::Sync => {}
            Act::Publish => published = true,
        }
    }
    (bytes, published)
}

/// The name a stripe has after a crash.
pub fn crash_name(name: &str, published: bool) -> String {
    if published {
        name.to_owned()
    } else {
        format!("{name}{PARTIAL_SUFFIX}")
    }
}

fn lay(bytes: &mut Vec<u8>, offset: u64, sector: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    if bytes.len() < start + sector.len() {
        bytes.resize(start + sector.len(), 0);
    }
    bytes[start..start + sector.len()].copy_from_slice(sector);
}

/// One device of a [`Recording`].
#[derive(Debug)]
pub struct RecordingDevice {
    recording: Recording,
    index: usize,
    location: String,
    alignment: u32,
}

impl Device for RecordingDevice {
    fn location(&self) -> &str {
        &self.location
    }

    fn alignment(&self) -> u32 {
        self.alignment
    }

    fn depth(&self) -> usize {
        1
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn submit(&mut self, offset: u64, buffer: Buffer) -> Result<Option<WriteDone>, EngineError> {
        let bytes = buffer.len() as u64;
        self.recording
            .add(self.index, Act::Write(offset, buffer.to_vec()));
        Ok(Some(WriteDone {
            bytes,
            elapsed: Duration::ZERO,
        }))
    }

    fn reap(&mut self) -> Result<Option<WriteDone>, EngineError> {
        Ok(None)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.recording
            .add(self.index, Act::Write(offset, bytes.to_vec()));
        Ok(())
    }

    fn truncate(&mut self, bytes: u64) -> Result<(), EngineError> {
        self.recording.add(self.index, Act::Truncate(bytes));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), EngineError> {
        self.recording.add(self.index, Act::Sync);
        Ok(())
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        self.recording.add(self.index, Act::Publish);
        Ok(())
    }
}
