//! A restore, or a verification: the backup's pipeline run backwards.
//!
//!   stripes --> readers --> [stored] --> decompressors --> [decoded] --> writers --> target
//!                  ^                                                       |
//!                  +-------------------- buffer pool <---------------------+
//!
//! The sets of a chain are read one after the other, the newest first. Each stripe is read once, in
//! order, index block by index block, so memory does not grow with the set. Every byte of the data
//! region is looked at: frames by their CRC, padding by being zero. Nothing is given to the target
//! before its checksum was right. If the target leaves files out, frames of which it takes nothing
//! are not read: their pieces are entered as the index tells of them.
//!
//! Invariants
//! - Every range of every file is written once: where layers overlap, only the highest is, and
//!   where sets of a chain do, only the newest.
//! - At the end each file has exactly the bytes the file table says, and its CRC where known.

mod decompressor;
mod faults;
mod ledger;
mod stages;
mod stripe_reader;
mod target_writer;

use std::ops::Deref;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use windlass_media::{FrameDecoder, StripeHeader};

use crate::activity::Activity;
use crate::buffer::{Pool, inputs_max, read_depth};
use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::options::{BufferPlan, target_writers};
use crate::pace::{Paced, PacedTarget, Pacing};
use crate::process::process_cpu_seconds;
use crate::progress::{DeviceCounter, Progress, Setup};
use crate::rate::RateLimit;
use crate::read::ReadQueue;
use crate::report::{Ended, RunReport};
use crate::resource::StageName;
use crate::set::{FoundSet, OpenSet};
use crate::shared::Shared;
use crate::target::Target;
use crate::waits::Cause;

use decompressor::Decompressor;
pub(crate) use faults::Faults;
use faults::Stop;
pub(crate) use ledger::{Ledger, LinkLedger};
use stages::{Decoded, Stored};
use stripe_reader::StripeReader;
use target_writer::TargetWriter;

/// How a restore runs.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// Buffers and threads; see [`RestoreOptions::fit`].
    pub plan: BufferPlan,
    /// The most bytes per second that are read from all stripes together.
    pub device_rate: Option<u64>,
    /// Use io_uring where the kernel has it.
    pub ring: bool,
    /// How fast the storage is, if not as fast as it can.
    pub pacing: Option<Arc<dyn Pacing>>,
}

/// How the restore of one set runs: options with buffers that hold each of its frames. This is the
/// only place where a plan is fitted to a set, so what a command shows is what runs.
#[derive(Clone, Debug)]
pub struct FittedOptions(RestoreOptions);

impl Deref for FittedOptions {
    type Target = RestoreOptions;

    fn deref(&self) -> &RestoreOptions {
        &self.0
    }
}

impl RestoreOptions {
    /// Makes the buffers large enough for the frames of the set and of those that it builds on,
    /// within the allowed memory.
    pub fn fit(mut self, set: &FoundSet) -> Result<FittedOptions, EngineError> {
        for stripe in set.links().flat_map(FoundSet::stripes) {
            let frame_bytes = stripe.header().frame_bytes;
            self.plan.grow(buffer_bytes(stripe.header()), frame_bytes)?;
        }
        Ok(FittedOptions(self))
    }
}

impl FittedOptions {
    fn holds(&self, set: &FoundSet) -> bool {
        let mut stripes = set.links().flat_map(FoundSet::stripes);
        stripes.all(|stripe| self.plan.transfer_bytes >= buffer_bytes(stripe.header()))
    }
}

/// A buffer must hold a frame, the padding before and after it, and the alignment of a direct read.
fn buffer_bytes(header: &StripeHeader) -> usize {
    header.stored_bytes_max() as usize + 2 * header.alignment as usize + 2 * 4096
}

/// Restores a set to a target, with what it takes from the sets that it builds on. Ends at the
/// first damage.
pub fn restore(
    set: &OpenSet,
    target: &dyn Target,
    options: &FittedOptions,
    progress: &Arc<Progress>,
    cancel: &Cancel,
) -> Result<RunReport, EngineError> {
    let (report, _) = run_through(set, target, options, progress, cancel, &Stop)?;
    Ok(report)
}

/// Runs a set through the pipeline. Returns the report, and the ledger of the files.
pub(crate) fn run_through(
    set: &FoundSet,
    target: &dyn Target,
    options: &FittedOptions,
    progress: &Arc<Progress>,
    cancel: &Cancel,
    faults: &dyn Faults,
) -> Result<(RunReport, Ledger), EngineError> {
    assert!(options.holds(set), "the options were fitted to another set");
    let (began, cpu_began) = (Instant::now(), process_cpu_seconds());
    let pool = Pool::growing(
        options.plan.buffers,
        options.plan.buffers_max(0),
        options.plan.compressors,
        options.plan.transfer_bytes,
    )?;
    progress.begin(setup(set, options, target.keeps(), &pool));
    let shared = Shared::new(pool, Arc::clone(progress), cancel.clone());
    // A damaged set may have no list of its stripes.
    let held = set.links().map(FoundSet::held_bytes);
    progress.set_total(held.sum::<u64>().max(set.file_bytes()));
    progress.set_phase(if target.keeps() {
        "restoring"
    } else {
        "verifying"
    });
    let ledger = faults.ledger(set)?;
    let (source, stripes) = Paced::start(options.pacing.as_ref(), cancel);
    let slow = source.map(|source| PacedTarget::new(target, &source));
    let mut readers = Vec::new();
    for (link, set) in set.links().enumerate() {
        progress.begin_link();
        let run = RestoreRun {
            set,
            target: slow.as_ref().map_or(target, |slow| slow),
            options,
            shared: &shared,
            ledger: ledger.of_link(link),
            faults,
            pace: stripes.as_ref(),
            before: readers.len(),
        };
        readers.extend(run.run()?);
    }
    let data_seconds = began.elapsed().as_secs_f64();
    faults.complete(set, &ledger)?;
    progress.set_phase("syncing");
    progress
        .writer
        .wait(Cause::TargetSync, || target.finish())?;
    let mut activity = Activity::new(progress, &options.plan, began.elapsed().as_secs_f64());
    activity.buffers_peak = shared.pool.peak();
    activity.source_rate = options.device_rate;
    activity.codec = "decompression".to_owned();
    let bytes_written = if target.keeps() {
        activity.writer.bytes
    } else {
        0
    };
    let ended = Ended {
        set_id: set.set_id(),
        elapsed: began.elapsed(),
        cpu_seconds: process_cpu_seconds() - cpu_began,
        data_seconds,
        bytes_read: readers.iter().map(|reader| reader.bytes).sum(),
        bytes_written,
        devices: readers.iter().map(StripeReader::report).collect(),
    };
    Ok((RunReport::of_restore(ended, &activity), ledger))
}

/// The facts about the run for its observers.
fn setup(set: &FoundSet, options: &RestoreOptions, keeps: bool, pool: &Arc<Pool>) -> Setup {
    let stripes = set.links().flat_map(FoundSet::stripes);
    let names = stripes.map(|stripe| stripe.location().to_string_lossy().into_owned());
    let target = if keeps { "target" } else { "nowhere" };
    let devices = names.chain([target.to_owned()]).map(DeviceCounter::new);
    Setup {
        plan: options.plan.clone(),
        codec: "decompression".to_owned(),
        source_rate: options.device_rate,
        device_rate: None,
        backs_up: false,
        devices: devices.collect(),
        pool: Arc::downgrade(pool),
    }
}

/// The restore of one set under way, as all its threads see it.
struct RestoreRun<'a> {
    set: &'a FoundSet,
    target: &'a dyn Target,
    options: &'a RestoreOptions,
    shared: &'a Shared,
    ledger: LinkLedger<'a>,
    faults: &'a dyn Faults,
    /// The pace of the storage that the stripes lie on.
    pace: Option<&'a Paced>,
    /// How many stripes newer sets have.
    before: usize,
}

type Threads<'scope, T> = Vec<ScopedJoinHandle<'scope, Option<T>>>;

impl<'a> RestoreRun<'a> {
    /// Runs all stages to their end. Returns the readers, because they know what their stripes did.
    fn run(&self) -> Result<Vec<StripeReader<'a>>, EngineError> {
        let plan = &self.options.plan;
        let rate = self.options.device_rate.map(RateLimit::new);
        // The pool bounds this queue, because every message holds a buffer.
        let (stored, stored_out) = unbounded::<Stored<'a>>();
        let (decoded, decoded_out) = bounded::<Decoded>(plan.buffers.max(2));
        let readers = std::thread::scope(|scope| {
            let started = self
                .start_readers(scope, &stored, rate.as_ref())
                .and_then(|readers| {
                    self.start_decompressors(scope, &stored_out, &decoded)?;
                    self.start_writers(scope, &decoded_out)?;
                    Ok(readers)
                });
            drop((stored, stored_out, decoded, decoded_out));
            let readers = started.unwrap_or_else(|error| {
                // The threads that were started wait for the others: this ends them.
                self.shared.fail(error);
                Vec::new()
            });
            let ended = readers
                .into_iter()
                .map(|reader| self.shared.joined(reader.join()).flatten());
            ended.flatten().collect()
        });
        match self.shared.take_error() {
            Some(error) => Err(error),
            None => Ok(readers),
        }
    }

    fn start_readers<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        stored: &Sender<Stored<'a>>,
        rate: Option<&'scope RateLimit>,
    ) -> Result<Threads<'scope, StripeReader<'a>>, EngineError>
    where
        'a: 'scope,
    {
        let (shared, ring) = (self.shared, self.options.ring);
        let inputs = inputs_max(shared.pool.most(), self.options.plan.compressors);
        let depth = read_depth(inputs, self.set.stripes().len());
        let mut readers = Vec::new();
        for stripe in self.set.stripes() {
            let around = (shared, self.ledger, self.faults);
            let place = self.before + readers.len();
            let pace = self.pace.map(|pace| pace.stream(place));
            let queue = ReadQueue::new(depth, ring, pace);
            let mut reader = StripeReader::new((self.set, stripe), around, queue)?;
            reader.left_out = self.target.left_out();
            let stored = stored.clone();
            readers.push(start(scope, StageName::Reader, move || {
                crate::slice::shorten();
                Progress::serve(place);
                let run = || shared.guard(|| reader.run(&stored, rate));
                shared.progress.reader.thread(run)
            })?);
        }
        Ok(readers)
    }

    fn start_decompressors<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        input: &Receiver<Stored<'a>>,
        output: &Sender<Decoded>,
    ) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let shared = self.shared;
        for _ in 0..self.options.plan.compressors {
            let stage = Decompressor {
                shared,
                target: self.target,
                ledger: self.ledger,
                faults: self.faults,
                decoder: FrameDecoder::new()?,
                input: input.clone(),
                output: output.clone(),
                open: None,
            };
            let run = move || shared.guard(|| stage.run());
            let body = move || shared.progress.compressor.thread(run);
            start(scope, StageName::Decompressor, body)?;
        }
        Ok(())
    }

    fn start_writers<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        input: &Receiver<Decoded>,
    ) -> Result<(), EngineError>
    where
        'a: 'scope,
    {
        let shared = self.shared;
        for _ in 0..target_writers(self.target.keeps(), self.shared.pool.most()) {
            let stage = TargetWriter {
                shared,
                target: self.target,
                ledger: self.ledger,
                faults: self.faults,
                input: input.clone(),
            };
            start(scope, StageName::Writer, move || {
                crate::slice::shorten();
                shared.progress.serve_outside();
                let run = || shared.guard(|| stage.run());
                shared.progress.writer.thread(run)
            })?;
        }
        Ok(())
    }
}

/// Starts a thread of a stage. The system may refuse it.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: StageName,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, EngineError> {
    let thread = std::thread::Builder::new().name(stage.name().to_owned());
    let started = thread.spawn_scoped(scope, body);
    started.map_err(|source| EngineError::Thread { stage, source })
}
