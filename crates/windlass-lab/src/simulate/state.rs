//! The state of the pipeline between two events, and what can start after an event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use windlass_engine::inputs_max;
use windlass_model::{InstanceClock, Model, ModelClock, ModelIo};

use super::{Job, Outcome};
use crate::numbers::to_f64;

pub(super) const SECOND: f64 = 1e9;
/// An amount below this counts as nothing. Compression makes amounts fractional.
const NOTHING: f64 = 0.5;

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A read of a reader is done.
    Read(usize, u64),
    /// A worker has made what it was making.
    Step(usize),
    /// A write of a writer is done. The flag says whether its buffer was an input.
    Write(usize, bool),
}

/// A compressor or decompressor.
#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    /// The bytes of output that the worker has still to make from the input it holds.
    input: Option<f64>,
    /// Bytes in the output that the worker holds.
    output: Option<f64>,
    /// Bytes of output being made.
    step: Option<f64>,
}

/// Bytes on their way to a writer.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    bytes: f64,
    is_input: bool,
}

/// Sums over the run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) read: f64,
    pub(super) written: f64,
    pub(super) worker_seconds: f64,
    pub(super) buffer_wait_seconds: f64,
}

/// The whole state.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    pub(super) now: u64,
    /// When the run began to read.
    began: u64,
    pub(super) unread: u64,
    pub(super) events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pub(super) sources: Vec<ModelClock>,
    pub(super) targets: Vec<ModelClock>,
    pub(super) read_cap: ModelClock,
    pub(super) write_cap: ModelClock,
    pub(super) instance: Option<InstanceClock>,
    pub(super) sums: Sums,
    sequence: u64,
    free: usize,
    inputs: usize,
    inputs_max: usize,
    /// Reads in flight of each reader.
    readers: Vec<usize>,
    full: VecDeque<u64>,
    workers: Vec<Worker>,
    busy_cores: usize,
    chunks: VecDeque<Chunk>,
    /// Writes in flight of each writer.
    writers: Vec<usize>,
    /// For the buffer that each writer is writing: the writes that are left, and the bytes of each.
    parts: Vec<(usize, f64)>,
    chunk_count: u64,
    /// Readers and writers that have nothing in flight and wait for a buffer or a chunk. The one
    /// that has waited longest is first.
    idle_readers: VecDeque<usize>,
    idle_writers: VecDeque<usize>,
    /// Readers and writers that look for more right now. The others wait for what is in flight.
    awake_readers: Vec<usize>,
    awake_writers: Vec<usize>,
    /// The offset of the next read of each file and of the next write of each writer.
    read_offsets: Vec<u64>,
    write_offsets: Vec<u64>,
    next_unit: usize,
}

impl Simulation {
    pub(super) fn new(job: &Job) -> Self {
        let clocks = |models: &[Model]| models.iter().map(ModelClock::new).collect::<Vec<_>>();
        let plan = &job.buffers;
        let (sources, targets) = (clocks(&job.sources), clocks(&job.targets));
        Self {
            now: 0,
            began: 0,
            unread: job.read_bytes,
            events: BinaryHeap::new(),
            read_offsets: vec![0; sources.len().max(plan.readers)],
            write_offsets: vec![0; plan.writers],
            sources,
            targets,
            read_cap: cap(job.read_rate),
            write_cap: cap(job.write_rate),
            instance: job.instance.as_ref().map(InstanceClock::new),
            sums: Sums::default(),
            sequence: 0,
            free: plan.buffers,
            inputs: 0,
            inputs_max: inputs_max(plan.buffers, job.outputs),
            readers: vec![0; plan.readers],
            full: VecDeque::new(),
            workers: vec![Worker::default(); plan.compressors.max(1)],
            busy_cores: 0,
            chunks: VecDeque::new(),
            writers: vec![0; plan.writers],
            parts: vec![(0, 0.0); plan.writers],
            chunk_count: 0,
            idle_readers: (0..plan.readers).collect(),
            idle_writers: (0..plan.writers).collect(),
            awake_readers: Vec::new(),
            awake_writers: Vec::new(),
            next_unit: 0,
        }
    }

    /// Continues the time of a run that has ended, and the state of the storage that it wrote to.
    pub(super) fn go_on_from(&mut self, before: Self) {
        self.now = before.now;
        self.targets = before.targets;
        self.write_cap = before.write_cap;
        self.instance = before.instance;
        self.write_offsets = before.write_offsets;
        self.sums.written = before.sums.written;
        self.began = before.now;
        self.targets.iter_mut().for_each(ModelClock::forget_usages);
        self.instance
            .iter_mut()
            .for_each(InstanceClock::forget_usages);
        self.write_cap.forget_usages();
    }

    /// Starts all that can start now.
    ///
    /// This is as in the engine. A thread with something in flight waits only for that, and looks
    /// for a buffer or a chunk only when it is done. A thread with nothing in flight waits for a
    /// buffer or a chunk, and then takes all that there are.
    pub(super) fn start(&mut self, job: &Job) {
        loop {
            let mut any = self.start_writers(job);
            for worker in 0..self.workers.len() {
                any |= self.start_worker(job, worker);
            }
            any |= self.start_readers(job);
            if !any {
                break;
            }
        }
        self.awake_readers.clear();
        self.awake_writers.clear();
    }

    fn start_writers(&mut self, job: &Job) -> bool {
        let mut any = false;
        while let Some(chunk) = self.chunks.front().copied() {
            let room = |writer: &&usize| self.writers[**writer] < job.write_depth;
            let awake = self.awake_writers.iter().find(room).copied();
            let idle = self.idle_writers.pop_front();
            self.awake_writers.extend(idle);
            let Some(writer) = idle.or(awake) else { break };
            self.chunks.pop_front();
            self.start_write(job, writer, chunk);
            any = true;
        }
        any
    }

    fn start_readers(&mut self, job: &Job) -> bool {
        let mut any = false;
        while self.unread > 0 && self.can_take_input() {
            let room = |reader: &&usize| self.readers[**reader] < job.read_depth;
            let awake = self.awake_readers.iter().find(room).copied();
            let idle = self.idle_readers.pop_front();
            self.awake_readers.extend(idle);
            let Some(reader) = idle.or(awake) else { break };
            self.start_read(job, reader);
            any = true;
        }
        any
    }

    /// A read is done. The reader takes the free buffers before anybody uses the buffer it has just
    /// filled.
    fn end_read(&mut self, job: &Job, reader: usize, bytes: u64) {
        self.readers[reader] -= 1;
        self.full.push_back(bytes);
        while self.unread > 0 && self.can_take_input() && self.readers[reader] < job.read_depth {
            self.start_read(job, reader);
        }
        if self.readers[reader] == 0 {
            self.idle_readers.push_back(reader);
        }
    }

    fn end_write(&mut self, job: &Job, writer: usize, is_input: bool) {
        let (left, bytes) = self.parts[writer];
        if left > 0 {
            self.parts[writer].0 -= 1;
            return self.issue_write(job, writer, bytes, is_input);
        }
        self.writers[writer] -= 1;
        self.free += 1;
        self.inputs -= usize::from(is_input);
        if self.writers[writer] == 0 {
            self.idle_writers.push_back(writer);
        } else {
            self.awake_writers.push(writer);
        }
    }

    /// Handles the next event and moves the time on; returns false at the end.
    pub(super) fn step(&mut self, job: &Job) -> bool {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return false;
        };
        let starving = self
            .readers
            .iter()
            .filter(|flying| **flying < job.read_depth)
            .count();
        if self.unread > 0 && !self.can_take_input() {
            self.sums.buffer_wait_seconds += to_f64((at - self.now) * starving as u64) / SECOND;
        }
        self.now = at;
        match event {
            Event::Read(reader, bytes) => self.end_read(job, reader, bytes),
            Event::Step(worker) => self.end_step(job, worker),
            Event::Write(writer, is_input) => self.end_write(job, writer, is_input),
        }
        self.start(job);
        true
    }

    fn can_take_input(&self) -> bool {
        self.free > 0 && self.inputs < self.inputs_max
    }

    fn start_read(&mut self, job: &Job, reader: usize) {
        let bytes = self.unread.min(job.unit_bytes);
        let turn = if job.own_files {
            reader
        } else {
            self.next_unit
        };
        let source = turn % self.sources.len();
        let file = if job.own_files { reader } else { source };
        let io = ModelIo {
            stream: reader,
            file,
            offset: self.read_offsets[file],
            bytes,
        };
        self.read_offsets[file] += bytes;
        self.next_unit += 1;
        self.unread -= bytes;
        self.free -= 1;
        self.inputs += 1;
        self.readers[reader] += 1;
        self.sums.read += to_f64(bytes);
        let allowed = self.read_cap.done_at(&io, self.now, None);
        let done = self.sources[source].done_at(&io, self.now, self.instance.as_mut());
        self.push(done.max(allowed), Event::Read(reader, bytes));
    }

    fn start_worker(&mut self, job: &Job, index: usize) -> bool {
        let mut worker = self.workers[index];
        if worker.step.is_some() {
            return false;
        }
        if worker.input.is_none() {
            worker.input = self.full.pop_front().map(|bytes| to_f64(bytes) * job.gain);
        }
        let Some(left) = worker.input else {
            return self.flush_at_end(index);
        };
        if !job.pass_through && worker.output.is_none() && self.free > 0 {
            self.free -= 1;
            worker.output = Some(0.0);
        }
        let ready = job.pass_through || worker.output.is_some();
        let starts = ready && self.busy_cores < job.cores.max(1);
        if starts {
            let room = capacity(job) - worker.output.unwrap_or(0.0);
            let step = if job.pass_through {
                left
            } else {
                left.min(room)
            };
            worker.step = Some(step);
            self.busy_cores += 1;
            let seconds = step / job.gain * job.cpu_seconds_per_byte;
            self.sums.worker_seconds += seconds;
            self.push(self.now + nanos(seconds), Event::Step(index));
        }
        self.workers[index] = worker;
        starts
    }

    /// When no more input can come, a worker without input gives its last output away.
    fn flush_at_end(&mut self, index: usize) -> bool {
        let reading = self.unread > 0 || self.readers.iter().any(|flying| *flying > 0);
        if reading || !self.full.is_empty() {
            return false;
        }
        let output = self.workers[index].output.take();
        output.is_some_and(|bytes| {
            self.send(Chunk {
                bytes,
                is_input: false,
            });
            true
        })
    }

    fn end_step(&mut self, job: &Job, index: usize) {
        self.busy_cores -= 1;
        let mut worker = self.workers[index];
        let made = worker.step.take().unwrap_or(0.0);
        let left = worker.input.unwrap_or(0.0) - made;
        if job.pass_through {
            worker.input = None;
            self.send(Chunk {
                bytes: made,
                is_input: true,
            });
        } else {
            let bytes = worker.output.unwrap_or(0.0) + made;
            worker.output = Some(bytes);
            if bytes + NOTHING >= capacity(job) {
                worker.output = None;
                self.send(Chunk {
                    bytes,
                    is_input: false,
                });
            }
            worker.input = (left > NOTHING).then_some(left);
            if worker.input.is_none() {
                self.free += 1;
                self.inputs -= 1;
            }
        }
        self.workers[index] = worker;
    }

    fn send(&mut self, chunk: Chunk) {
        self.chunks.push_back(chunk);
    }

    fn start_write(&mut self, job: &Job, writer: usize, chunk: Chunk) {
        self.chunk_count += 1;
        let split = job.split_every > 0 && self.chunk_count.is_multiple_of(job.split_every);
        let bytes = if split {
            chunk.bytes / 2.0
        } else {
            chunk.bytes
        };
        self.parts[writer] = (usize::from(split), bytes);
        self.writers[writer] += 1;
        self.sums.written += chunk.bytes;
        self.issue_write(job, writer, bytes, chunk.is_input);
    }

    fn issue_write(&mut self, job: &Job, writer: usize, bytes: f64, is_input: bool) {
        let bytes = nanos(bytes / SECOND);
        // The writers of a restore fill the same files, in order; in a backup each has its own
        // stripe.
        let file = if job.own_files { 0 } else { writer };
        let io = ModelIo {
            stream: writer,
            file,
            offset: self.write_offsets[file],
            bytes,
        };
        self.write_offsets[file] += bytes;
        let allowed = self.write_cap.done_at(&io, self.now, None);
        let index = writer % self.targets.len();
        let done = self.targets[index].done_at(&io, self.now, self.instance.as_mut());
        self.push(done.max(allowed), Event::Write(writer, is_input));
    }

    fn push(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    pub(super) fn outcome(&self) -> Outcome {
        let instance = self.instance.as_ref();
        Outcome {
            seconds: to_f64(self.now) / SECOND,
            initialise_seconds: to_f64(self.began) / SECOND,
            read_bytes: self.sums.read,
            written_bytes: self.sums.written,
            cpu_seconds: self.sums.worker_seconds,
            sources: self.sources.iter().map(ModelClock::usages).collect(),
            targets: self.targets.iter().map(ModelClock::usages).collect(),
            instance: instance.map(InstanceClock::usages).unwrap_or_default(),
            rates: (self.read_cap.usages().whole, self.write_cap.usages().whole),
            worker_seconds: self.sums.worker_seconds,
            buffer_wait_seconds: self.sums.buffer_wait_seconds,
        }
    }
}

/// The bytes that a worker puts into an output before it gives it away. For a codec, the worst case
/// of the next frame must still fit. For a decoded frame, the size of the result is known.
fn capacity(job: &Job) -> f64 {
    let (transfer, frame) = (job.buffers.transfer_bytes, job.buffers.frame_bytes);
    let (transfer, frame) = (to_f64(transfer as u64), to_f64(frame as u64));
    if job.own_files {
        return transfer;
    }
    transfer - frame * (1.0 - job.gain.min(1.0) / 2.0)
}

fn cap(rate: Option<f64>) -> ModelClock {
    let mut model = Model::unlimited("rate limit");
    model.whole.bytes_per_second = rate;
    ModelClock::new(&model)
}

/// Whole nanoseconds, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive; too long a one saturates"
)]
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * SECOND).ceil().min(1e18) as u64
}
