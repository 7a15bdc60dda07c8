//! The user's settings in the form that the engine takes.

use windlass_engine::media::saturated;
use windlass_engine::{
    BufferPlan, BufferRequest, FittedOptions, FoundSet, OpenStripe, RestoreOptions, target_writers,
};
use windlass_model::Emulation;
use windlass_postgres::BackupRequest;

use crate::cli::{Backup, Buffers, Layout};
use crate::exit::Failure;

/// The models that storage has to imitate.
pub fn emulation(buffers: &Buffers) -> Result<Emulation, Failure> {
    Ok(Emulation::parse(
        buffers.bounds.emulate.iter().map(String::as_str),
    )?)
}

/// The user's settings in the form that the engine takes.
pub fn request(buffers: &Buffers, layout: &Layout) -> Result<BufferRequest, Failure> {
    let narrow = |option, value: Option<u64>| {
        value
            .map(|value| {
                usize::try_from(value).map_err(|_| {
                    Failure::usage(format!("{option}: {value} is too large"), "Lower it.")
                })
            })
            .transpose()
    };
    Ok(BufferRequest {
        buffers: buffers.buffers,
        transfer_bytes: narrow("--transfer-size", buffers.transfer_size)?,
        alignment: layout.block_size.map(saturated),
        frame_bytes: narrow("--frame-size", layout.frame_size)?,
        compressors: buffers.threads,
        readers: layout.readers,
        memory_limit: buffers.bounds.max_memory,
    })
}

/// The usual request to the server, with the label that was asked for.
pub fn postgres_request(arguments: &Backup) -> BackupRequest {
    BackupRequest {
        label: arguments.label.clone(),
        ..BackupRequest::default()
    }
}

/// Buffers for reading a set. Each stripe is a volume with one reader. `keeps` says whether the
/// data that are read go anywhere.
pub fn restore_options(
    set: &FoundSet,
    buffers: &Buffers,
    max_rate: Option<u64>,
    keeps: bool,
) -> Result<FittedOptions, Failure> {
    let one_each = Layout {
        readers: Some(1),
        ..Layout::default()
    };
    // A damaged set may have no stripe that can be read.
    let stripes = set.stripes().len().max(1);
    let plan = request(buffers, &one_each)?.plan(stripes, 1)?;
    let first = set.stripes().first().map(OpenStripe::header);
    let plan = BufferPlan {
        readers: stripes,
        writers: target_writers(keeps),
        alignment: first.map_or(plan.alignment, |header| header.alignment),
        frame_bytes: first.map_or(plan.frame_bytes, |header| header.frame_bytes as usize),
        ..plan
    };
    let options = RestoreOptions {
        plan,
        device_rate: max_rate,
        ring: !buffers.no_ring,
        pacing: emulation(buffers)?.pacing(),
    };
    Ok(options.fit(set)?)
}
