//! A backup: readers fill buffers, compressors turn them into frames, writers lay these on stripes.
//!
//!   push --> readers --> [full] --> compressors --> [chunks] --> writers --> devices
//!               ^                                                   |
//!               +------------------ buffer pool <-------------------+
//!
//! The database's crate pushes files; the end is in three steps, each durable before the next:
//! data and footers on all stripes, seals on all stripes, names. A set is sealed, and exists,
//! when the last seal is durable.
//!
//! Invariants
//! - Queues are bounded by the pool; the queue of units has a bound of its own.
//! - Frames may finish out of order and on any stripe. The index says where each is.
//! - A run that is dropped before `finish` leaves no stripe behind.

mod class;
mod compressor;
mod encoding;
mod ended;
mod group;
mod hurry;
mod output;
mod pages;
mod parity;
mod parity_threads;
mod reader;
mod sealing;
mod source;
mod stripes;
mod writer;

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use windlass_media::{Base, Encoder, Facts, FileNo, FileTable, SetId, fitted};

use crate::adaptive::Watch;
use crate::buffer::{Pool, inputs_max, read_depth};
use crate::cancel::Cancel;
use crate::device::Device;
use crate::error::EngineError;
use crate::options::BackupOptions;
use crate::pace::{Paced, paced};
use crate::process::process_cpu_seconds;
use crate::progress::{Progress, Setup};
use crate::rate::RateLimit;
use crate::read::ReadQueue;
use crate::report::RunReport;
use crate::resource::StageName;
use crate::shared::{Shared, spawn};
pub use class::PageClass;
use compressor::{Chunk, Compressor};
pub use encoding::{Encoded, FrameEncoder, PageCounts};
pub use pages::{FileClasses, PageHook, Pages};
use parity::{Groups, Parity};
use reader::{Filled, Reader};
pub(crate) use sealing::READ_BYTES;
use source::{Cutter, Outcomes, SourceFile, Uncut, Unit};
pub use source::{FileContent, FileOutcome, FileSpec, Missing};
use writer::StripeWriter;

/// How many units may wait for a reader.
const UNITS_WAITING_MAX: usize = 256;

/// A backup under way.
pub struct BackupRun {
    shared: Arc<Shared>,
    outcomes: Arc<Outcomes>,
    hook: Arc<OnceLock<Arc<dyn PageHook>>>,
    options: BackupOptions,
    set_id: SetId,
    cutter: Cutter,
    superseded: Vec<FileNo>,
    beside_bytes: u64,
    base: Option<Base>,
    units: Option<Sender<Unit>>,
    workers: Vec<JoinHandle<()>>,
    writers: Vec<JoinHandle<Option<StripeWriter>>>,
    parity: Option<Parity>,
    keeps: bool,
    began: Instant,
    cpu_began: f64,
    data_began: Option<Instant>,
    adaptive: Option<Arc<Watch>>,
    page_counts: Arc<PageCounts>,
    source_limit: Option<Arc<RateLimit>>,
    device_limit: Option<Arc<RateLimit>>,
    /// If a hurry still lasts at this moment, it ends the run.
    until: Option<Instant>,
}

/// Stops a run from another thread, for a reason that the other thread has. The errors that
/// functions of the run return afterwards are not the cause.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops the run.
    pub fn stop(&self) {
        self.0.fail(EngineError::Stopped);
    }
}

impl BackupRun {
    /// Starts the threads of a backup of set `set_id` to `devices`, one stripe each.
    pub fn start(
        set_id: SetId,
        created_nanos: i64,
        options: BackupOptions,
        devices: Vec<Box<dyn Device>>,
        progress: Arc<Progress>,
        cancel: Cancel,
    ) -> Result<Self, EngineError> {
        let keeps = stripes::keeps(&devices, options.parities)?;
        let (source, target) = Paced::start(options.pacing.as_ref(), &cancel);
        let devices = paced(devices, target.as_ref());
        let plan = &options.plan;
        let adaptive = options.range.map(|range| {
            let window = plan.buffer_bytes;
            Arc::new(Watch::new(range, options.codec, window, plan.compressors))
        });
        let most = plan.buffers_max(options.pages_bytes() + options.parity_bytes());
        let pool = Pool::growing(plan.buffers, most, options.outputs(), plan.transfer_bytes)?;
        let groups = Groups::of(&options, devices.len())?;
        let locations = devices.iter().map(|device| device.location());
        let setup = Setup::of_backup(&options, locations, &pool);
        let (set, shared) = ((set_id, created_nanos), groups.as_ref().map(|it| &it.0));
        let (stripes, parities) = stripes::begin(set, &options, devices, shared)?;
        progress.begin(setup);
        let mut shared = Shared::new(pool, progress, cancel);
        if let Some((groups, _)) = &groups {
            shared.close_also(groups.pools());
        }
        let mut run = Self {
            shared: Arc::new(shared),
            outcomes: Arc::default(),
            hook: Arc::default(),
            set_id,
            cutter: Cutter::new(plan.transfer_bytes),
            superseded: Vec::new(),
            beside_bytes: 0,
            base: None,
            units: None,
            workers: Vec::new(),
            writers: Vec::new(),
            parity: None,
            keeps,
            began: Instant::now(),
            cpu_began: process_cpu_seconds(),
            data_began: None,
            adaptive,
            page_counts: Arc::default(),
            source_limit: options.source_rate.map(RateLimit::new).map(Arc::new),
            device_limit: options.device_rate.map(RateLimit::new).map(Arc::new),
            until: None,
            options,
        };
        run.spawn(stripes, source.as_ref())?;
        if let Some((groups, queues)) = groups {
            run.spawn_parity(groups, parities.into_iter().zip(queues))?;
        }
        Ok(run)
    }

    fn spawn(
        &mut self,
        stripes: Vec<StripeWriter>,
        source: Option<&Paced>,
    ) -> Result<(), EngineError> {
        let plan = self.options.plan.clone();
        let (units, units_out) = bounded::<Unit>(UNITS_WAITING_MAX);
        // The pool bounds this queue: every message holds a buffer, except a chunk of zeros.
        let (full, full_out) = unbounded::<Filled>();
        let (chunks, chunks_out) = bounded::<Chunk>(self.shared.pool.most().max(2));
        self.units = Some(units);
        let compress = self.options.has_outputs();
        let inputs = inputs_max(self.shared.pool.most(), self.options.outputs());
        let depth = read_depth(inputs, plan.readers);
        for stream in 0..plan.readers {
            let pace = source.map(|source| source.stream(stream));
            let queue = ReadQueue::new(depth, self.options.ring, pace);
            let ends = (units_out.clone(), full.clone());
            self.spawn_reader(queue, ends, self.source_limit.clone())?;
        }
        for _ in 0..plan.compressors {
            let encoder = Encoder::new(self.options.codec)?;
            let counts = Arc::clone(&self.page_counts);
            let frames = FrameEncoder::new(encoder, counts, self.options.frame_proof);
            self.spawn_compressor(frames, compress, (full_out.clone(), chunks.clone()))?;
        }
        for stripe in stripes {
            self.spawn_writer(stripe, chunks_out.clone(), self.device_limit.clone())?;
        }
        Ok(())
    }

    fn spawn_reader(
        &mut self,
        queue: ReadQueue,
        (units, full): (Receiver<Unit>, Sender<Filled>),
        rate: Option<Arc<RateLimit>>,
    ) -> Result<(), EngineError> {
        let (shared, outcomes) = (Arc::clone(&self.shared), Arc::clone(&self.outcomes));
        let readers = self.options.plan.readers;
        let body = move || {
            crate::slice::shorten();
            let reader = Reader {
                shared: &shared,
                outcomes: &outcomes,
                rate: rate.as_deref(),
                units,
                full,
                queue,
                readers,
                next: None,
                reading: Vec::new(),
                token: 0,
            };
            shared
                .progress
                .reader
                .thread(|| shared.guard(|| reader.run()))
                .unwrap_or_default();
        };
        self.workers.push(spawn(StageName::Reader, body)?);
        Ok(())
    }

    fn spawn_compressor(
        &mut self,
        frames: FrameEncoder,
        compress: bool,
        (full, chunks): (Receiver<Filled>, Sender<Chunk>),
    ) -> Result<(), EngineError> {
        let (shared, outcomes) = (Arc::clone(&self.shared), Arc::clone(&self.outcomes));
        let (hook, adaptive) = (Arc::clone(&self.hook), self.adaptive.clone());
        let frame_bytes = self.options.plan.frame_bytes;
        let page_frames = self.options.page_frames;
        let cipher = self.options.cipher().cloned();
        let body = move || {
            let compressor = Compressor {
                shared: &shared,
                outcomes: &outcomes,
                hook: &hook,
                full,
                chunks,
                frames,
                adaptive: adaptive.as_deref(),
                rung: None,
                compress,
                page_frames,
                cipher: cipher.as_deref(),
                frame_bytes,
                output: Chunk::empty(),
            };
            shared
                .progress
                .compressor
                .thread(|| shared.guard(|| compressor.run()))
                .unwrap_or_default();
        };
        self.workers.push(spawn(StageName::Compressor, body)?);
        Ok(())
    }

    fn spawn_writer(
        &mut self,
        mut stripe: StripeWriter,
        chunks: Receiver<Chunk>,
        rate: Option<Arc<RateLimit>>,
    ) -> Result<(), EngineError> {
        let shared = Arc::clone(&self.shared);
        let body = move || {
            crate::slice::shorten();
            let run = || stripe.run(&chunks, &shared, rate.as_deref());
            let done = shared.progress.writer.thread(|| shared.guard(run));
            done.map(|()| stripe)
        };
        self.writers.push(spawn(StageName::Writer, body)?);
        Ok(())
    }

    /// The id of the set being written.
    pub fn set_id(&self) -> SetId {
        self.set_id
    }

    /// Largest frame, decompressed, in bytes.
    pub fn frame_bytes(&self) -> u32 {
        fitted(self.options.plan.frame_bytes)
    }

    /// How the run was set up.
    pub fn options(&self) -> &BackupOptions {
        &self.options
    }

    /// Whether the run takes pages apart that its hook classifies ([`Pages::classify`]).
    pub fn takes_pages_apart(&self) -> bool {
        self.options.page_frames && self.options.compresses()
    }

    /// The live counters, and the phase to show.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.shared.progress
    }

    /// Stops this run from another thread. The caller's cancel flag stays as it is.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// The flag that stops the run.
    pub fn cancel(&self) -> &Cancel {
        &self.shared.cancel
    }

    /// Sets the hook that sees every piece. Call it before the first push; later calls change
    /// nothing.
    pub fn set_hook(&mut self, hook: Arc<dyn PageHook>) {
        self.hook.get_or_init(|| hook);
    }

    /// Adds a whole file. Blocks while the queue of units is full.
    pub fn push(&mut self, spec: FileSpec) -> Result<(), EngineError> {
        self.outcomes.know(spec.file);
        let range = 0..spec.bytes;
        self.cut(&SourceFile::new(spec), range, 0)
    }

    /// Adds a newer version of a range of a file that was pushed before. A restore, and every other
    /// reader of the set, uses the highest layer.
    pub fn push_range(
        &mut self,
        spec: &FileSpec,
        offset: u64,
        bytes: u64,
        layer: u8,
    ) -> Result<(), EngineError> {
        self.cut(
            &SourceFile::new(spec.clone()),
            offset..offset + bytes,
            layer,
        )
    }

    /// Adds ranges of a file, from the first to the last. The rest of the file is left out, so the
    /// base of the set must have it.
    pub fn push_parts(
        &mut self,
        spec: FileSpec,
        parts: impl IntoIterator<Item = Range<u64>>,
    ) -> Result<(), EngineError> {
        let number = spec.file;
        self.outcomes.know(number);
        let mut left_out = spec.bytes;
        let file = SourceFile::new(spec);
        for part in parts {
            left_out = left_out.saturating_sub(part.end - part.start);
            self.cut(&file, part, 0)?;
        }
        if left_out > 0 {
            self.outcomes.dropped(number, left_out);
        }
        Ok(())
    }

    /// Says on which set this one builds, and what it takes from there. What is left out of any
    /// other file makes [`BackupRun::finish`] fail.
    pub fn build_on(&mut self, base: Base) {
        self.base = Some(base);
    }

    fn cut(
        &mut self,
        file: &Arc<SourceFile>,
        range: Range<u64>,
        layer: u8,
    ) -> Result<(), EngineError> {
        self.data_began.get_or_insert_with(Instant::now);
        let mut rest = Uncut {
            file: Arc::clone(file),
            offset: range.start,
            end: range.end,
            layer,
        };
        while let Some(unit) = self.cutter.next(&mut rest) {
            self.send(unit)?;
        }
        Ok(())
    }

    fn send(&mut self, unit: Unit) -> Result<(), EngineError> {
        self.shared.check().map_err(|error| self.stopped(error))?;
        self.shared.begin_unit();
        match self.queue(unit) {
            Err(EngineError::Stopped) => Err(self.stopped(EngineError::Stopped)),
            other => other,
        }
    }

    /// Ends the threads of a run that has failed, and returns the error that caused it. Only after
    /// all threads have ended is it certain that the cause is known, and not just an error that
    /// followed from it.
    fn stopped(&mut self, seen: EngineError) -> EngineError {
        self.shared.fail(seen);
        // Otherwise a thread that waits for a rate limit would notice only when its turn comes.
        self.limits().for_each(RateLimit::lift);
        self.units = None;
        let error = self.join().err().unwrap_or(EngineError::Stopped);
        // The run has stopped, so its parity says no more.
        if let Some(parity) = self.parity.take() {
            drop(parity.end(&self.shared));
        }
        error
    }

    /// Waits until everything that was pushed has been read, has passed the hook and has its CRC.
    pub fn drain(&mut self) -> Result<(), EngineError> {
        if let Some(unit) = self.cutter.flush() {
            self.send(unit)?;
        }
        match self.shared.settle(self.until) {
            // Waiting for the threads to end could take as long as what they wait for.
            Err(EngineError::HurryEnded) => Err(EngineError::HurryEnded),
            other => other.map_err(|error| self.stopped(error)),
        }
    }

    /// What became of a file; final after [`BackupRun::drain`].
    pub fn outcome(&self, file: FileNo) -> Option<FileOutcome> {
        self.outcomes.get(file)
    }

    /// Ends the backup: footers, seals, names. The set exists when this returns `Ok`.
    pub fn finish(mut self, files: FileTable, facts: Facts) -> Result<RunReport, EngineError> {
        let (stripes, seconds) = self.end()?;
        self.check_base(&files, &facts)?;
        self.shared.progress.set_phase("sealing");
        let mut parity = self.parity.take();
        let sealed = match self.keeps {
            true => self.seal(stripes, &mut parity, (files, facts)),
            false => Ok((stripes, Vec::new())),
        };
        // If it failed, the threads end with the run.
        self.parity = parity;
        let (stripes, parities) = sealed?;
        Ok(self.report((&stripes, &parities), seconds))
    }

    /// Ends a run that was only a trial. Returns what it did; there is no set.
    pub fn discard(mut self) -> Result<RunReport, EngineError> {
        let (stripes, seconds) = self.end()?;
        let parities = match self.parity.take() {
            Some(parity) => parity.end(&self.shared)?,
            None => Vec::new(),
        };
        Ok(self.report((&stripes, &parities), seconds))
    }

    /// Waits until everything is written. Returns the stripes, and for how many seconds data moved.
    fn end(&mut self) -> Result<(Vec<StripeWriter>, f64), EngineError> {
        self.drain()?;
        self.units = None;
        let stripes = self.join()?;
        let seconds = self.data_began.map(|began| began.elapsed().as_secs_f64());
        Ok((stripes, seconds.unwrap_or(0.0)))
    }

    /// Waits for all threads to end. Returns their stripes, or the first error.
    fn join(&mut self) -> Result<Vec<StripeWriter>, EngineError> {
        for worker in self.workers.drain(..) {
            self.shared.joined(worker.join());
        }
        let writers = self.writers.drain(..);
        let stripes: Vec<_> = writers
            .filter_map(|writer| self.shared.joined(writer.join()).flatten())
            .collect();
        match self.shared.take_error() {
            Some(error) => Err(error),
            None => Ok(stripes),
        }
    }
}

impl Drop for BackupRun {
    fn drop(&mut self) {
        if self.workers.is_empty() && self.writers.is_empty() && self.parity.is_none() {
            return;
        }
        drop(self.stopped(EngineError::Stopped));
    }
}
