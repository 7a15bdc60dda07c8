//! The readers of a restore: each reads one stripe, in order, as many transfers ahead as the pool
//! has buffers for it. Frames of which the target takes nothing are passed over.

use std::collections::HashSet;
use std::time::Instant;

use crossbeam_channel::Sender;
use hdrhistogram::Histogram;
use windlass_media::{FileNo, FormatError, FrameEntry, IndexBlock, PieceEntry, Structure, fitted};

use super::faults::Faults;
use super::ledger::LinkLedger;
use super::stages::{Plan, PlannedFrame, Stored};
use crate::buffer::{Buffer, Role};
use crate::error::EngineError;
use crate::rate::RateLimit;
use crate::read::{DIRECT_ALIGNMENT, ReadDone, ReadQueue, ReadRequest};
use crate::report::{DeviceReport, latencies};
use crate::set::{FoundSet, OpenStripe, Tally};
use crate::shared::Shared;
use crate::waits::{Cause, Io};

/// Reads one stripe from its first region to its last.
pub(super) struct StripeReader<'a> {
    set: &'a FoundSet,
    stripe: &'a OpenStripe,
    shared: &'a Shared,
    ledger: LinkLedger<'a>,
    faults: &'a dyn Faults,
    /// Files of the newest set of which the target takes nothing.
    pub(super) left_out: Option<&'a HashSet<FileNo>>,
    queue: ReadQueue,
    reading: Vec<(u64, Plan)>,
    token: u64,
    latency: Histogram<u64>,
    pub(super) bytes: u64,
    busy_seconds: f64,
}

impl<'a> StripeReader<'a> {
    pub(super) fn new(
        (set, stripe): (&'a FoundSet, &'a OpenStripe),
        (shared, ledger, faults): (&'a Shared, LinkLedger<'a>, &'a dyn Faults),
        queue: ReadQueue,
    ) -> Result<Self, EngineError> {
        let latency = latencies();
        let (reading, token, bytes, busy_seconds) = (Vec::new(), 0, 0, 0.0);
        Ok(Self {
            set,
            stripe,
            shared,
            ledger,
            faults,
            left_out: None,
            queue,
            reading,
            token,
            latency,
            bytes,
            busy_seconds,
        })
    }

    /// What the stripe's device did.
    pub(super) fn report(&self) -> DeviceReport {
        let name = self.stripe.location().to_string_lossy();
        DeviceReport::new(&name, self.bytes, self.busy_seconds, &self.latency)
    }

    pub(super) fn run(
        mut self,
        stored: &Sender<Stored<'a>>,
        rate: Option<&RateLimit>,
    ) -> Result<Self, EngineError> {
        let capacity = self.shared.pool.buffer_bytes();
        let mut tally = Tally::default();
        for entry in self.stripe.directory() {
            // There may be nothing to read of many blocks.
            self.shared.check()?;
            let stage = &self.shared.progress.reader;
            let block = stage.wait_off_core(Cause::DeviceRead, || self.stripe.index_block(entry));
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    let stripe = (self.ledger.link(), self.stripe);
                    self.faults.block(stripe, entry, error)?;
                    tally.miss();
                    continue;
                }
            };
            tally.add(&block);
            self.bytes += u64::from(entry.bytes);
            let (plans, left) = plans(&block, capacity, |pieces| self.is_taken(pieces));
            for (frame, pieces) in left {
                self.leave_out(frame, pieces)?;
            }
            for plan in plans {
                self.shared.check()?;
                self.one(plan, stored, rate)?;
            }
        }
        while self.queue.in_flight() > 0 {
            self.wait(stored)?;
        }
        self.faults.pass(tally.check(self.set, self.stripe))?;
        Ok(self)
    }

    /// Whether the target takes anything of a frame with these pieces.
    fn is_taken(&self, pieces: &[PieceEntry]) -> bool {
        let Some(left_out) = self.left_out else {
            return true;
        };
        // Nobody asks for what goes nowhere, either.
        let is_left = |piece: &PieceEntry| {
            let heir = self.ledger.heir(piece.file);
            heir.is_none_or(|file| left_out.contains(&file))
        };
        pieces.is_empty() || !pieces.iter().all(is_left)
    }

    /// Enters the pieces of a frame that is not read, as if they had come.
    fn leave_out(&self, frame: &FrameEntry, pieces: &[PieceEntry]) -> Result<(), EngineError> {
        let progress = &self.shared.progress;
        for piece in pieces {
            if let Err(error) = self.ledger.enter(piece, &progress.reader) {
                self.faults.whole(error)?;
            }
        }
        progress.leave_out(u64::from(frame.raw_bytes));
        Ok(())
    }

    /// Starts the read of one plan, after making room for it.
    fn one(
        &mut self,
        plan: Plan,
        stored: &Sender<Stored<'a>>,
        rate: Option<&RateLimit>,
    ) -> Result<(), EngineError> {
        let stripes = self.set.stripes().len();
        self.queue.set_depth(self.shared.read_depth(stripes));
        let buffer = loop {
            if !self.queue.is_full() {
                if let Some(buffer) = self.shared.pool.try_take(Role::Input) {
                    break buffer;
                }
                if self.queue.in_flight() == 0 {
                    let pool = &self.shared.pool;
                    let stage = &self.shared.progress.reader;
                    let buffer = stage.wait(Cause::FreeBuffer, || pool.take(Role::Input));
                    break buffer.ok_or(EngineError::Stopped)?;
                }
            }
            self.wait(stored)?;
        };
        let length = plan.position(plan.end);
        if let Some(rate) = rate {
            rate.pass(
                length as u64,
                &self.shared.progress.reader,
                &self.shared.cancel,
            )?;
        }
        self.token += 1;
        let (offset, token) = (plan.read_offset, self.token);
        self.reading.push((token, plan));
        let request = ReadRequest {
            file: &self.stripe.file,
            number: usize::from(self.stripe.header().stripe.0),
            offset,
            length,
            token,
        };
        let begin = Instant::now();
        let done = self.queue.submit(&request, buffer);
        let done = done.map_err(|source| self.stripe.io(offset, source))?;
        let Some(done) = done else { return Ok(()) };
        if done.waited {
            self.shared
                .progress
                .reader
                .add_wait(Cause::DeviceRead, done.elapsed);
        }
        self.busy_seconds += begin.elapsed().as_secs_f64();
        self.arrived(done, stored)
    }

    fn wait(&mut self, stored: &Sender<Stored<'a>>) -> Result<(), EngineError> {
        let begin = Instant::now();
        let stage = &self.shared.progress.reader;
        let done = stage.wait(Cause::DeviceRead, || self.queue.wait());
        self.busy_seconds += begin.elapsed().as_secs_f64();
        let done = done.map_err(|source| self.stripe.io(0, source))?;
        done.map_or(Ok(()), |done| self.arrived(done, stored))
    }

    fn arrived(&mut self, done: ReadDone, stored: &Sender<Stored<'a>>) -> Result<(), EngineError> {
        let index = self
            .reading
            .iter()
            .position(|(token, _)| *token == done.token);
        let (_, mut plan) = self.reading.swap_remove(index.ok_or(EngineError::Stopped)?);
        let length = plan.position(plan.end);
        let mut buffer = done.buffer;
        // As in a backup, the part that a direct read did not deliver is read again through the
        // cache.
        let filled = done.result.unwrap_or(0).min(length);
        if filled < length {
            let at = plan.read_offset + filled as u64;
            let into = &mut buffer.space()[filled..length];
            let stage = &self.shared.progress.reader;
            let whole = stage.wait(Cause::DeviceRead, || self.read_again(at, into));
            if whole.is_err() {
                let piecemeal = || self.piecemeal(&mut plan, &mut buffer);
                stage.wait(Cause::DeviceRead, piecemeal)?;
            }
        }
        buffer.set_len(length);
        let micros = fitted(done.elapsed.as_micros());
        self.latency.saturating_record(micros);
        let bytes = plan.end - plan.start;
        self.bytes += bytes;
        let progress = &self.shared.progress;
        progress.reader.add_work(bytes);
        let io = Io {
            cause: Cause::DeviceRead,
            bytes,
            elapsed: done.elapsed,
            depth: self.queue.in_flight() + 1,
        };
        progress.io(&progress.reader, io);
        self.shared.grow();
        let message = Stored {
            buffer,
            plan,
            stripe: self.stripe,
        };
        stored.send(message).map_err(|_| EngineError::Stopped)
    }

    /// Reads bytes that could not be read before, or has them rebuilt.
    fn read_again(&self, at: u64, into: &mut [u8]) -> Result<(), EngineError> {
        let read = self.stripe.file.read_uncached(at, into);
        let error = match read {
            Ok(count) if count == into.len() => return Ok(()),
            Ok(count) => {
                let fault = FormatError::Truncated(Structure::IndexBlock);
                self.stripe.damage(at + count as u64, fault)
            }
            Err(source) => self.stripe.io(at, source),
        };
        match self.stripe.rebuild(at, into)? {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// Handles a transfer that cannot be read as a whole. Reads each frame and each gap by itself,
    /// so that one bad sector costs one frame.
    fn piecemeal(&self, plan: &mut Plan, buffer: &mut Buffer) -> Result<(), EngineError> {
        let length = plan.position(plan.end);
        buffer.space()[..length].fill(0);
        for (from, to) in plan.gaps() {
            let into = &mut buffer.space()[plan.position(from)..plan.position(to)];
            if let Err(error) = self.read_again(from, into) {
                into.fill(0);
                let stripe = (self.ledger.link(), self.stripe);
                self.faults.padding(stripe, (from, to - from), error)?;
            }
        }
        let read_offset = plan.read_offset;
        let position = |offset: u64| fitted(offset - read_offset);
        for frame in &mut plan.frames {
            let (from, to) = (frame.entry.offset, frame.end());
            let into = &mut buffer.space()[position(from)..position(to)];
            if let Err(error) = self.read_again(from, into) {
                frame.sound = false;
                self.faults
                    .frame(self.stripe, frame.named(), self.ledger, error)?;
            }
        }
        Ok(())
    }
}

/// A frame with its pieces.
type FrameOf<'b> = (&'b FrameEntry, &'b [PieceEntry]);

/// Cuts a region into reads that fit a buffer. Every byte of the region is in exactly one read, but
/// for frames of which nothing is taken, and the padding behind them. Returns these frames, too.
fn plans(
    block: &IndexBlock,
    capacity: usize,
    is_taken: impl Fn(&[PieceEntry]) -> bool,
) -> (Vec<Plan>, Vec<FrameOf<'_>>) {
    let limit = (capacity - DIRECT_ALIGNMENT) as u64;
    let region_end = block.region_offset + block.region_bytes;
    let (mut plans, mut left) = (Vec::new(), Vec::new());
    let mut open: Option<Plan> = None;
    let mut next_start = block.region_offset;
    let mut frames = block.iter().peekable();
    while let Some((frame, pieces)) = frames.next() {
        // The padding after a frame belongs to the same read.
        let end = frames.peek().map_or(region_end, |(next, _)| next.offset);
        let start = std::mem::replace(&mut next_start, end);
        if !is_taken(pieces) {
            plans.extend(open.take());
            left.push((frame, pieces));
            continue;
        }
        if let Some(plan) = open.take_if(|plan| end - plan.start > limit) {
            plans.push(plan);
        }
        let plan = open.get_or_insert_with(|| Plan {
            read_offset: start & !(DIRECT_ALIGNMENT as u64 - 1),
            start,
            end: start,
            frames: Vec::new(),
        });
        plan.end = end;
        plan.frames.push(PlannedFrame {
            entry: *frame,
            pieces: pieces.to_vec(),
            sound: true,
        });
    }
    plans.extend(open);
    (plans, left)
}
