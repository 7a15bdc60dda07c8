//! Settings of a run, in the form that the engine takes.

use windlass_engine::{
    BufferPlan, BufferRequest, FittedOptions, FoundSet, OpenStripe, RestoreOptions, target_writers,
};
use windlass_model::Emulation;

use crate::error::OperationError;

/// How a run uses memory, threads and storage.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Buffers and threads.
    pub buffers: BufferRequest,
    /// The models that storage has to imitate.
    pub emulation: Emulation,
    /// Whether io_uring may be used.
    pub ring: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            buffers: BufferRequest::default(),
            emulation: Emulation::default(),
            ring: true,
        }
    }
}

/// Limits of speed, in bytes per second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// On reading from the source.
    pub read: Option<u64>,
    /// On writing to all devices together.
    pub write: Option<u64>,
}

impl RunSettings {
    /// Buffers for reading a set. Each stripe is a volume with one reader. `keeps` says whether the
    /// data that are read go anywhere; `max_rate` limits what is read, in bytes per second.
    pub fn restore_options(
        &self,
        set: &FoundSet,
        max_rate: Option<u64>,
        keeps: bool,
    ) -> Result<FittedOptions, OperationError> {
        let one_each = BufferRequest {
            readers: Some(1),
            restores: keeps,
            ..self.buffers.clone()
        };
        // A damaged set may have no stripe that can be read.
        let stripes = set.stripes().len().max(1);
        let plan = one_each.plan(stripes, 1)?;
        let first = set.stripes().first().map(OpenStripe::header);
        let plan = BufferPlan {
            readers: stripes,
            writers: target_writers(keeps, plan.buffers_max(0)),
            alignment: first.map_or(plan.alignment, |header| header.alignment),
            frame_bytes: first.map_or(plan.frame_bytes, |header| header.frame_bytes as usize),
            ..plan
        };
        let options = RestoreOptions {
            plan,
            device_rate: max_rate,
            ring: self.ring,
            pacing: self.emulation.pacing(),
        };
        Ok(options.fit(set)?)
    }
}
