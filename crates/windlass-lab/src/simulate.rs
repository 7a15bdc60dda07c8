//! The pipeline in simulated time: how long a run takes that has not run.
//!
//!   source's clock --> readers --> [full] --> workers --> [chunks] --> writers --> target's clock
//!                         ^                                               |
//!                         +-------------------- free buffers <------------+
//!
//! The same parts as a real run has: a pool of N buffers of which some are kept for outputs,
//! readers with reads in flight, workers (compressors, or decompressors) that need a core and an
//! output, writers that take the next chunk whenever they are free. What an I/O takes is asked of
//! the storage models' clocks. So few buffers, deep latencies and shared caps show, which a
//! minimum of rates would hide.
//!
//! A run of terabytes has millions of I/Os, all alike. Once a stretch of it has been simulated
//! step by step, the same stretch is repeated in one jump, until burst credit runs out or the end
//! is near; there it goes on step by step.
//!
//! Invariants
//! - The same job gives the same outcome, on every machine.
//! - A jump never passes the moment at which a model would change its rate.

mod jump;
mod state;

use serde::Serialize;
use windlass_engine::{BufferPlan, Instance, Model, Usage, Usages};

use state::State;

/// A run to simulate. What is read and written are bytes at the two ends of the pipeline: for a
/// restore the source is where the stripes are.
#[derive(Clone, Debug)]
pub struct Job {
    /// Bytes read from the source.
    pub read_bytes: u64,
    /// Bytes written for each byte read: below one for a backup that compresses.
    pub gain: f64,
    /// Buffers and threads.
    pub buffers: BufferPlan,
    /// Buffers kept for outputs.
    pub outputs: usize,
    /// The input's buffer goes on to the target as it is: nothing is compressed or decompressed.
    pub pass_through: bool,
    /// Each reader reads a file of its own (a stripe); otherwise all read one volume in order.
    pub own_files: bool,
    /// What a worker needs of a core for a byte read, in seconds.
    pub cpu_seconds_per_byte: f64,
    /// Cores.
    pub cores: usize,
    /// What is read from: one for each volume, or stripe, in turn.
    pub sources: Vec<Model>,
    /// What is written to: one for each writer, in turn. Writers that share a model's entry share
    /// its caps, too.
    pub targets: Vec<Model>,
    /// Bytes of a read.
    pub unit_bytes: u64,
    /// Every so many buffers, one takes two writes, one after the other; zero for never.
    pub split_every: u64,
    /// Reads that one reader may have in flight.
    pub read_depth: usize,
    /// Writes that one writer may have in flight.
    pub write_depth: usize,
    /// The machine, with what its storage shares.
    pub instance: Option<Instance>,
    /// At most so many bytes per second from the source.
    pub read_rate: Option<f64>,
    /// At most so many bytes per second to the target.
    pub write_rate: Option<f64>,
    /// Bytes that the target must be given before, at its own speed: parts of files that the
    /// backup does not have.
    pub initialise_bytes: u64,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// From the beginning to the last write.
    pub seconds: f64,
    /// Of these, what it took to write what the backup does not have.
    pub initialise_seconds: f64,
    /// Bytes read.
    pub read_bytes: f64,
    /// Bytes written.
    pub written_bytes: f64,
    /// Seconds on a core, over all cores.
    pub cpu_seconds: f64,
    /// How busy each source was, from the first read on; so all that follow.
    pub sources: Vec<Usages>,
    /// How busy each target was.
    pub targets: Vec<Usages>,
    /// How busy the machine's block storage and network were.
    pub instance: (Usage, Usage),
    /// How busy the limits on reading and writing that the user set were.
    pub rates: (Usage, Usage),
    /// Seconds in which workers were at work, over all workers.
    pub worker_seconds: f64,
    /// Seconds in which a reader had room for a read and no buffer, over all readers.
    pub buffer_wait_seconds: f64,
}

/// Simulates a run.
pub fn simulate(job: &Job) -> Outcome {
    let mut state = State::new(job);
    if job.initialise_bytes > 0 {
        let first = initialisation(job);
        let mut before = State::new(&first);
        before.run(&first);
        state.go_on_from(before);
    }
    state.run(job);
    state.outcome()
}

/// Writing what the backup does not have: nothing is read, nothing computed.
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
