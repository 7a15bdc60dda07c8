//! Buckets as devices: how large parts are, what that takes of the pool, and the stripes.

use std::path::Path;

use windlass_engine::media::SetId;
use windlass_engine::{BufferRequest, Cancel, EngineError};
use windlass_object::{
    Location, ObjectDevice, ObjectStripe, PART_BYTES_DEFAULT, PART_BYTES_MAX, PARTS_IN_FLIGHT,
    part_bytes_for,
};

use crate::devices::DeviceName;
use crate::error::DeviceError;
use crate::stored::buckets;

/// How a run writes to buckets.
#[derive(Clone, Debug)]
pub struct Objects {
    database_bytes: u64,
    part_bytes: u64,
    cancel: Cancel,
}

impl Objects {
    /// For a database of this size. Refuses one that is too large for the parts of an object.
    pub fn new(
        devices: &[DeviceName],
        database_bytes: u64,
        cancel: &Cancel,
    ) -> Result<Self, DeviceError> {
        let mut part_bytes = PART_BYTES_DEFAULT;
        for path in devices.iter().filter_map(DeviceName::in_bucket) {
            let asked = buckets().settings().of(&Location::parse(path)?).part_bytes;
            let found = part_bytes_for(database_bytes, asked);
            let found = found.ok_or(DeviceError::PartsTooMany {
                database_bytes,
                part_bytes: asked.unwrap_or(PART_BYTES_MAX),
            })?;
            // One length for all stripes of a set: the memory is planned for it.
            part_bytes = match asked {
                Some(_) => found,
                None => part_bytes.max(found),
            };
        }
        Ok(Self {
            database_bytes,
            part_bytes,
            cancel: cancel.clone(),
        })
    }

    /// For devices of which none is in a bucket.
    pub fn none(cancel: &Cancel) -> Self {
        Self {
            database_bytes: 0,
            part_bytes: PART_BYTES_DEFAULT,
            cancel: cancel.clone(),
        }
    }

    /// The request for buffers, with those that the devices gather: of each stripe in a bucket the
    /// parts that are on their way, and the one that is being filled.
    pub fn gathering(&self, devices: &[DeviceName], request: &BufferRequest) -> BufferRequest {
        let in_buckets = devices.iter().filter(|one| one.in_bucket().is_some());
        BufferRequest {
            gathered_bytes: in_buckets.count() as u64 * self.stripe_bytes(),
            ..request.clone()
        }
    }

    /// The bytes of the parts of one stripe that are in memory at once, at most.
    pub(crate) fn stripe_bytes(&self) -> u64 {
        (PARTS_IN_FLIGHT as u64 + 1) * self.part_bytes
    }

    /// The size of the database for which they are.
    pub(crate) fn database_bytes(&self) -> u64 {
        self.database_bytes
    }

    /// Begins a stripe.
    pub(crate) fn create(
        &self,
        path: &Path,
        (set_id, index): (SetId, u16),
        alignment: u32,
    ) -> Result<ObjectDevice, EngineError> {
        let stripe = ObjectStripe {
            location: Location::parse(path).map_err(|error| EngineError::DeviceIo {
                operation: windlass_engine::DeviceOperation::Create,
                device: path.to_string_lossy().into_owned(),
                offset: 0,
                source: error.into(),
            })?,
            set_id,
            index,
            alignment,
            part_bytes: self.part_bytes,
        };
        let (device, _keeps) = buckets().create(stripe, self.cancel.clone())?;
        Ok(device)
    }
}
