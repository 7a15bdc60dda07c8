//! What lies beside the devices of a set: what holds it, and newer envelopes of an encrypted one.
//!
//! Invariant: a new device gets its name only when these are beside it. A run that was cut off may
//! leave them without the device, which does no harm, and never the device without them.

use std::path::Path;

use windlass_media::{KeyFile, SetId, fitted};

use super::write::fault;
use crate::durable;
use crate::error::{DeviceOperation, EngineError};
use crate::set::{Device, Devices, hold_path, key_file_of};
use crate::storage::Storage;

/// The mode of a file of envelopes.
const KEYS_MODE: u32 = 0o600;
/// Longest file that holds a set.
const HOLD_BYTES_MAX: u64 = 65_536;

/// What is to lie beside each device of a set.
pub(super) struct Beside<'a> {
    pub(super) storage: &'a dyn Storage,
    set: SetId,
    /// None if nothing holds the set. One that cannot be read holds all the same.
    hold: Option<Vec<u8>>,
    /// The newest envelopes.
    keys: Option<KeyFile>,
}

impl<'a> Beside<'a> {
    pub(super) fn of(storage: &'a dyn Storage, devices: &Devices) -> Self {
        let set = devices.set;
        let holds = devices.all().map(|it| hold_path(directory(it), set));
        let hold = holds.into_iter().find(|hold| storage.look(hold).is_ok());
        let files = devices.all();
        let files = files.map(|device| key_file_of(storage, &device.path, set));
        let files = files.filter_map(|file| file.ok().flatten());
        Self {
            storage,
            set,
            hold: hold.map(|hold| document(storage, &hold).unwrap_or_default()),
            keys: files.max_by_key(|file| file.written_nanos),
        }
    }

    /// Writes what a device lacks.
    pub(super) fn put(&self, path: &Path) -> Result<(), EngineError> {
        self.put_keys(path)?;
        self.put_hold(path)
    }

    fn put_hold(&self, path: &Path) -> Result<(), EngineError> {
        let own = hold_path(path.parent().unwrap_or(Path::new("")), self.set);
        let Some(text) = &self.hold else {
            return Ok(());
        };
        if self.storage.look(&own).is_ok() {
            return Ok(());
        }
        let written = self.storage.write(&own, text);
        written.map_err(fault(DeviceOperation::Write, &own))
    }

    fn put_keys(&self, path: &Path) -> Result<(), EngineError> {
        let Some(file) = &self.keys else {
            return Ok(());
        };
        // One that is older came from a disk that was away when the newest was written.
        let is_newest = |own: KeyFile| own.written_nanos >= file.written_nanos;
        if key_file_of(self.storage, path, self.set).is_ok_and(|own| own.is_some_and(is_newest)) {
            return Ok(());
        }
        let own = path.with_file_name(KeyFile::name(self.set));
        let written = durable::write(&own, &file.encode()?, KEYS_MODE);
        written.map_err(fault(DeviceOperation::Write, &own))
    }
}

fn directory(device: &Device) -> &Path {
    device.path.parent().unwrap_or(Path::new(""))
}

/// The content of a small file; none if it cannot be read.
fn document(storage: &dyn Storage, path: &Path) -> Option<Vec<u8>> {
    let opened = storage.open(path).ok()?;
    let bytes = opened.length().ok().filter(|it| *it <= HOLD_BYTES_MAX)?;
    let mut text = vec![0; fitted(bytes)];
    opened.read_exact_at(0, &mut text).ok()?;
    Some(text)
}
