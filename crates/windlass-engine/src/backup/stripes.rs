//! The stripes of a set being written: begun together, described together.

use std::sync::Arc;

use windlass_media::{
    ParityHeader, STRIPES_MAX, SetId, StripeHeader, StripeIndex, StripeTableEntry, fitted,
};

use super::parity::{Groups, ParityWriter};
use super::writer::StripeWriter;
use crate::device::Device;
use crate::error::EngineError;
use crate::options::BackupOptions;
use crate::setting::{Setting, SettingFault};

/// Whether the devices keep what they take. Either all of them do, or (`nul`) none.
/// At least one of them is left for data.
pub(crate) fn keeps(devices: &[Box<dyn Device>], parities: u16) -> Result<bool, EngineError> {
    let keeping = devices.iter().filter(|device| device.keeps()).count();
    let (asked, most) = (devices.len(), usize::from(STRIPES_MAX));
    let fault = match keeping {
        _ if asked > most => SettingFault::TooMany { asked, most },
        _ if asked == 0 => SettingFault::NoDevice,
        _ if usize::from(parities) >= asked => SettingFault::ParityOfAll { asked },
        0 if parities > 0 => SettingFault::ParityOfNothing,
        0 => return Ok(false),
        _ if keeping < asked => SettingFault::DevicesMixed,
        _ => return Ok(true),
    };
    Err(Setting::Devices.refused(fault))
}

/// The stripes of a new set, one for each device, with their headers written.
pub(crate) fn begin(
    (set_id, created_nanos): (SetId, i64),
    options: &BackupOptions,
    mut devices: Vec<Box<dyn Device>>,
    groups: Option<&Arc<Groups>>,
) -> Result<(Vec<StripeWriter>, Vec<ParityWriter>), EngineError> {
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
    let locations = |devices: &[Box<dyn Device>]| {
        let devices = devices.iter();
        let names = devices.map(|device| device.location().as_bytes().to_vec());
        names.collect::<Vec<_>>()
    };
    let with_parity = devices.split_off(devices.len() - usize::from(options.parities));
    let (locations, parities) = (locations(&devices), locations(&with_parity));
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
        parities,
    };
    let mut stripes = Vec::with_capacity(devices.len());
    for (index, device) in devices.into_iter().enumerate() {
        header.stripe = StripeIndex(fitted(index));
        let cipher = options.cipher().cloned();
        let groups = groups.map(Arc::clone);
        stripes.push(StripeWriter::begin(device, &header, cipher, groups)?);
    }
    let begin = |(parity, device)| {
        let member_bytes = header.transfer_bytes;
        ParityWriter::begin(device, ParityHeader::of(&header, parity, member_bytes))
    };
    let parities = (0..).zip(with_parity).map(begin);
    Ok((stripes, parities.collect::<Result<_, _>>()?))
}

/// What the set will record about its stripes.
pub(crate) fn describe(stripes: &[StripeWriter]) -> Vec<StripeTableEntry> {
    let entry = |stripe: &StripeWriter| StripeTableEntry {
        location: stripe.output.device.location().as_bytes().to_vec(),
        data_bytes: stripe.output.offset,
        index_blocks: fitted(stripe.directory.len()),
        frames: stripe.frames,
        raw_bytes: stripe.raw_bytes,
        stored_bytes: stripe.stored_bytes,
        hash: StripeTableEntry::hash_of(&stripe.header, &stripe.directory),
    };
    stripes.iter().map(entry).collect()
}
