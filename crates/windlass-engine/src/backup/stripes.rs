//! The stripes of a set being written: begun together, described together.

use windlass_media::{STRIPES_MAX, SetId, StripeHeader, StripeIndex, StripeTableEntry, fitted};

use super::writer::StripeWriter;
use crate::device::Device;
use crate::error::EngineError;
use crate::options::BackupOptions;
use crate::setting::{Setting, SettingFault};

/// Whether the devices keep what they take. Either all of them do, or (`nul`) none.
pub(crate) fn keeps(devices: &[Box<dyn Device>]) -> Result<bool, EngineError> {
    let keeping = devices.iter().filter(|device| device.keeps()).count();
    let (asked, most) = (devices.len(), usize::from(STRIPES_MAX));
    let fault = match keeping {
        _ if asked > most => SettingFault::TooMany { asked, most },
        _ if asked == 0 => SettingFault::NoDevice,
        0 => return Ok(false),
        _ if keeping < asked => SettingFault::DevicesMixed,
        _ => return Ok(true),
    };
    Err(Setting::Devices.refused(fault))
}

/// The stripes of a new set, one for each device, with their headers written.
pub(crate) fn begin(
    set_id: SetId,
    created_nanos: i64,
    options: &BackupOptions,
    devices: Vec<Box<dyn Device>>,
) -> Result<Vec<StripeWriter>, EngineError> {
    let plan = &options.plan;
    // Offsets are multiples of the set's alignment, and buffers are padded to the device's.
    if let Some(device) = devices
        .iter()
        .find(|device| device.alignment() != plan.alignment)
    {
        return Err(Setting::BlockSize.refused(SettingFault::BlocksOfDevice {
            device_bytes: device.alignment(),
            set_bytes: plan.alignment,
        }));
    }
    let locations: Vec<_> = devices
        .iter()
        .map(|device| device.location().as_bytes().to_vec())
        .collect();
    let mut header = StripeHeader {
        set_id,
        stripe: StripeIndex(0),
        alignment: plan.alignment,
        transfer_bytes: fitted(plan.transfer_bytes),
        frame_bytes: fitted(plan.frame_bytes),
        created_nanos,
        page_frames: options.page_frames,
        lock: options.encryption.as_ref().map(|it| it.lock.clone()),
        locations,
    };
    let mut stripes = Vec::with_capacity(devices.len());
    for (index, device) in devices.into_iter().enumerate() {
        header.stripe = StripeIndex(fitted(index));
        let cipher = options.cipher().cloned();
        stripes.push(StripeWriter::begin(device, &header, cipher)?);
    }
    Ok(stripes)
}

/// What the set will record about its stripes.
pub(crate) fn describe(stripes: &[StripeWriter]) -> Vec<StripeTableEntry> {
    let entry = |stripe: &StripeWriter| StripeTableEntry {
        location: stripe.device.location().as_bytes().to_vec(),
        data_bytes: stripe.offset,
        index_blocks: fitted(stripe.directory.len()),
        frames: stripe.frames,
        raw_bytes: stripe.raw_bytes,
        stored_bytes: stripe.stored_bytes,
        hash: StripeTableEntry::hash_of(&stripe.header, &stripe.directory),
    };
    stripes.iter().map(entry).collect()
}
