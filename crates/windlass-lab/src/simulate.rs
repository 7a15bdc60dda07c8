//! The pipeline in simulated time: how long a run would take, without making it.
//!
//!   source's clock --> readers --> [full] --> workers --> [chunks] --> writers --> target's clock
//!                         ^                                               |
//!                         +-------------------- free buffers <------------+
//!
//! The simulation has the same parts as a real run. There is a pool of N buffers, and some of them
//! are kept for outputs. There are readers with reads in flight. Workers (compressors or
//! decompressors) need a core and an output. Writers take the next chunk whenever they are free.
//! The clocks of the storage models say how long an I/O takes. So the effects of few buffers, high
//! latencies and shared caps appear, which the lowest of several rates would hide.
//!
//! A run of terabytes has millions of I/Os, all alike. The simulation goes through a stretch of the
//! run step by step, then repeats the same stretch in one jump. Where burst credit runs out or the
//! end is near, it goes on step by step.
//!
//! Invariants
//! - The same job gives the same outcome, on every machine.
//! - A jump never passes the moment at which a model would change its rate.

mod jump;
mod state;

use serde::Serialize;
use windlass_engine::BufferPlan;
use windlass_model::{Instance, Model, Usage, Usages};

use state::Simulation;

/// A run to simulate. "Read" and "written" mean the two ends of the pipeline: in a restore, the
/// source is where the stripes are.
#[derive(Clone, Debug)]
pub struct Job {
    /// Bytes read from the source.
    pub read_bytes: u64,
    /// Bytes written for each byte read. It is below one if a backup compresses.
    pub gain: f64,
    /// Buffers and threads.
    pub buffers: BufferPlan,
    /// Buffers kept for outputs.
    pub outputs: usize,
    /// Whether the buffer of the input goes on to the target as it is, because nothing is
    /// compressed or decompressed.
    pub pass_through: bool,
    /// Whether each reader reads a file of its own (a stripe). Otherwise all read one volume in
    /// order.
    pub own_files: bool,
    /// Seconds of a core that a worker needs for each byte read.
    pub cpu_seconds_per_byte: f64,
    /// Cores.
    pub cores: usize,
    /// The storage to read from: one model for each volume or stripe, taken in turn.
    pub sources: Vec<Model>,
    /// The storage to write to: one model for each writer, taken in turn. Writers that share a
    /// model also share its caps.
    pub targets: Vec<Model>,
    /// Bytes of a read.
    pub unit_bytes: u64,
    /// One in this many buffers needs two writes, one after the other; zero if none does.
    pub split_every: u64,
    /// Reads that one reader may have in flight.
    pub read_depth: usize,
    /// Writes that one writer may have in flight.
    pub write_depth: usize,
    /// The machine, with the limits that all of its storage shares.
    pub instance: Option<Instance>,
    /// The limit on reading from the source, in bytes per second.
    pub read_rate: Option<f64>,
    /// The limit on writing to the target, in bytes per second.
    pub write_rate: Option<f64>,
    /// Bytes that must be written to the target first, at its own speed: parts of files that the
    /// backup does not have.
    pub initialise_bytes: u64,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Seconds from the beginning to the last write.
    pub seconds: f64,
    /// The part of these seconds in which parts were written that the backup does not have.
    pub initialise_seconds: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Seconds on a core, over all cores.
    pub cpu_seconds: f64,
    /// How busy each source was. This and the following values count from the first read on.
    pub sources: Vec<Usages>,
    /// How busy each target was.
    pub targets: Vec<Usages>,
    /// How busy the machine's block storage and network were.
    pub instance: (Usage, Usage),
    /// How busy the user's limits on reading and writing were.
    pub rates: (Usage, Usage),
    /// Seconds in which workers were at work, over all workers.
    pub worker_seconds: f64,
    /// Seconds in which a reader could have started a read but had no buffer, over all readers.
    pub buffer_wait_seconds: f64,
}

/// Simulates a run.
pub fn simulate(job: &Job) -> Outcome {
    let mut state = Simulation::new(job);
    if job.initialise_bytes > 0 {
        let first = initialisation(job);
        let mut before = Simulation::new(&first);
        before.run(&first);
        state.go_on_from(before);
    }
    state.run(job);
    state.outcome()
}

/// Writes what the backup does not have. Nothing is read or computed.
fn initialisation(job: &Job) -> Job {
    Job {
        read_bytes: job.initialise_bytes,
        gain: 1.0,
        pass_through: true,
        outputs: 0,
        cpu_seconds_per_byte: 0.0,
        sources: vec![Model::unlimited("zeros")],
        read_rate: None,
        initialise_bytes: 0,
        unit_bytes: job.buffers.transfer_bytes as u64,
        split_every: 0,
        ..job.clone()
    }
}

#[cfg(test)]
mod tests;
