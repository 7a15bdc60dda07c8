//! A restore, or a verification: the backup's pipeline run backwards.
//!
//!   stripes --> readers --> [stored] --> decompressors --> [decoded] --> writers --> target
//!                  ^                                                       |
//!                  +-------------------- buffer pool <---------------------+
//!
//! Each stripe is read once, in order, index block by index block, so memory does not grow with
//! the set. Every byte of the data region is looked at: frames by their CRC, padding by being
//! zero. Nothing is given to the target before its checksum was right.
//!
//! Invariants
//! - Every range of every file is written once: where layers overlap, only the highest is.
//! - At the end each file has exactly the bytes the file table says, and its CRC where known.

mod ledger;
mod stages;

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{bounded, unbounded};
use windlass_media::{Decoder, FileNo};

use crate::buffer::Pool;
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::options::BufferPlan;
use crate::progress::Progress;
use crate::rate::RateLimit;
use crate::report::{Activity, RunReport, process_cpu_seconds};
use crate::set::OpenSet;
use crate::shared::Shared;
use crate::waits::Cause;

use ledger::Ledger;
pub(crate) use stages::StripeReader;
use stages::{Decoded, Decompressor, Stored, TargetWriter};

/// Threads that write to a target.
pub const TARGET_WRITERS: usize = 4;

/// Where restored bytes go. Calls come from several threads; ranges never overlap.
pub trait Target: Sync {
    /// Takes bytes of a file.
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError>;
    /// Takes note of zeros in a file, which was made with its length and has a hole there.
    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError>;
    /// Ends the restore: everything durable, then what must appear last.
    fn finish(&self) -> Result<(), EngineError>;
    /// False when nothing is kept (verification).
    fn keeps(&self) -> bool {
        true
    }
}

/// A target that keeps nothing: what a verification restores to.
#[derive(Debug, Default)]
pub struct Discard;

impl Target for Discard {
    fn write(&self, _file: FileNo, _offset: u64, _bytes: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn hole(&self, _file: FileNo, _offset: u64, _bytes: u64) -> Result<(), EngineError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// How a restore runs.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// Buffers and threads; see [`RestoreOptions::fit`].
    pub plan: BufferPlan,
    /// At most so many bytes per second from the stripes, together.
    pub device_rate: Option<u64>,
    /// Use io_uring where the kernel has it.
    pub ring: bool,
}

impl RestoreOptions {
    /// Makes the buffers large enough for the set's frames.
    pub fn fit(mut self, set: &OpenSet) -> Self {
        for stripe in set.stripes() {
            // A frame, the padding before and after it, and what a direct read takes more.
            let alignment = stripe.header().alignment as usize;
            let least = stripe.header().frame_bytes as usize + 2 * alignment + 2 * 4096;
            let plan = &mut self.plan;
            plan.transfer_bytes = plan.transfer_bytes.max(least.next_multiple_of(64 * 1024));
            plan.buffer_bytes = plan.buffers as u64 * plan.transfer_bytes as u64;
        }
        self
    }
}

/// Restores a set to a target; with [`Discard`], verifies it.
pub fn restore(
    set: &OpenSet,
    target: &dyn Target,
    options: &RestoreOptions,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<RunReport, EngineError> {
    let options = options.clone().fit(set);
    let (began, cpu_began) = (Instant::now(), process_cpu_seconds());
    let pool = Pool::new(
        options.plan.buffers,
        options.plan.compressors,
        options.plan.transfer_bytes,
    )?;
    let shared = Shared::new(pool, Arc::clone(progress), cancel.clone());
    progress.set_total(set.file_bytes());
    progress.set_phase(if target.keeps() {
        "restoring"
    } else {
        "verifying"
    });
    let ledger = Ledger::new(set)?;
    let readers = run(set, target, &options, &shared, &ledger)?;
    let data_seconds = began.elapsed().as_secs_f64();
    ledger.check(set)?;
    progress.set_phase("syncing");
    progress
        .writer
        .wait(Cause::TargetSync, || target.finish())?;
    let mut activity = Activity::new(progress, &options.plan, began.elapsed().as_secs_f64());
    activity.source_rate = options.device_rate;
    activity.codec = "decompression".to_owned();
    let cpu = process_cpu_seconds() - cpu_began;
    let keeps = target.keeps();
    Ok(RunReport::of_restore(
        set,
        began.elapsed(),
        cpu,
        &activity,
        (readers, data_seconds, keeps),
    ))
}

/// Runs all stages to their end; the readers, for what they know of their stripes.
fn run<'a>(
    set: &'a OpenSet,
    target: &'a dyn Target,
    options: &RestoreOptions,
    shared: &'a Shared,
    ledger: &'a Ledger,
) -> Result<Vec<StripeReader<'a>>, EngineError> {
    let plan = &options.plan;
    let rate = options.device_rate.map(RateLimit::new);
    // Bounded by the pool: every message holds a buffer.
    let (stored, stored_out) = unbounded::<Stored>();
    let (decoded, decoded_out) = bounded::<Decoded>(plan.buffers.max(2));
    let depth = shared
        .pool
        .inputs_max()
        .div_ceil(set.stripes().len())
        .clamp(1, 32);
    let readers = std::thread::scope(|scope| {
        let mut readers = Vec::new();
        for stripe in set.stripes() {
            let reader = StripeReader::new(stripe, shared, depth, options.ring)?;
            let (stored, rate) = (stored.clone(), rate.as_ref());
            readers.push(scope.spawn(move || {
                crate::slice::shorten();
                let run = || shared.guard(|| reader.run(&stored, rate));
                shared.progress.reader.thread(run)
            }));
        }
        for _ in 0..plan.compressors {
            let decoder = Decoder::new()?;
            let (input, output) = (stored_out.clone(), decoded.clone());
            scope.spawn(move || {
                let stage = Decompressor::new(shared, target, ledger, decoder, (input, output));
                shared
                    .progress
                    .compressor
                    .thread(|| shared.guard(|| stage.run()))
            });
        }
        for _ in 0..target_writers(target) {
            let input = decoded_out.clone();
            scope.spawn(move || {
                crate::slice::shorten();
                let stage = TargetWriter {
                    shared,
                    target,
                    ledger,
                    input,
                };
                shared
                    .progress
                    .writer
                    .thread(|| shared.guard(|| stage.run()))
            });
        }
        drop((stored, stored_out, decoded, decoded_out));
        Ok::<_, EngineError>(
            readers
                .into_iter()
                .filter_map(|reader| reader.join().ok().flatten())
                .collect(),
        )
    })?;
    match shared.take_error() {
        Some(error) => Err(error),
        None => Ok(readers),
    }
}

/// Writers wait for the target most of the time: several keep its queue filled. A verification
/// needs one, to take notes.
fn target_writers(target: &dyn Target) -> usize {
    if target.keeps() { TARGET_WRITERS } else { 1 }
}
