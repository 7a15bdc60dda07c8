//! Storage models: what a device or a service promises, and when it would be done with an I/O.
//!
//!   text --parse--> Model --new--> ModelClock --done_at(I/O, now)--> when it is done
//!                                      |
//!                            InstanceClock, shared by the clocks of one machine
//!
//! A model is a description: bytes and operations per second, what counts as one operation, burst
//! credit, latency, seeks, a cap for each stream. Its clock is a queue without threads and without
//! a real clock: told that an I/O comes in at time T, it says when the I/O is done. The planner
//! asks it in simulated time; a device that emulates the model asks it in real time, and sleeps.
//!
//! Invariants
//! - The same I/Os at the same times give the same answers, on every machine.
//! - No rate is ever above a cap: costs are rounded up to whole nanoseconds.
//! - A clock never goes back: of two I/Os of one stream the later one is never done earlier.

mod clock;
mod known;
mod parse;

use serde::{Deserialize, Serialize};

pub use clock::{InstanceClock, ModelClock, ModelIo, Usage, Usages};
pub use known::{Instance, S3_STREAM_BYTES_PER_SECOND};

/// What storage promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The text it was read from, or what else names it.
    pub name: String,
    /// Bytes that count as one operation: larger I/Os are split, smaller sequential ones merged.
    pub io_bytes: u64,
    /// Seconds from the moment an I/O has its turn until it is done, besides its transfer.
    pub latency_seconds: f64,
    /// Seconds an I/O costs more that does not begin where the last one ended.
    pub seek_seconds: f64,
    /// What all streams together may have.
    pub whole: Limits,
    /// What each stream may have.
    pub stream: Limits,
    /// What it shares with other storage of the same machine.
    pub attachment: Attachment,
}

/// Rates; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes per second.
    pub bytes_per_second: Option<f64>,
    /// Operations per second, earned all the time where there is a burst.
    pub operations_per_second: Option<f64>,
    /// What may be had above that for a while.
    pub burst: Option<Burst>,
}

/// Credit: operations saved up, spent at a higher rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Operations per second while there is credit.
    pub operations_per_second: f64,
    /// Operations of credit at the beginning.
    pub credits: f64,
    /// Most operations of credit.
    pub credits_max: f64,
}

/// Which cap of the machine storage counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// None: it is in the machine.
    Local,
    /// The machine's bandwidth to its block storage.
    Storage,
    /// The machine's network.
    Network,
}

impl Model {
    /// Storage without any limit; the start of every other model.
    pub fn unlimited(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            io_bytes: 256 * 1024,
            latency_seconds: 0.0,
            seek_seconds: 0.0,
            whole: Limits::default(),
            stream: Limits::default(),
            attachment: Attachment::Local,
        }
    }

    /// Bytes per second that `streams` streams of large sequential I/Os get in the long run, with
    /// all burst credit spent.
    pub fn sustained(&self, streams: usize) -> f64 {
        let of = |limits: &Limits| {
            let operations = limits.operations_per_second.map(|rate| rate * self.io());
            let rates = [limits.bytes_per_second, operations];
            rates.into_iter().flatten().fold(f64::INFINITY, f64::min)
        };
        #[expect(clippy::cast_precision_loss, reason = "a handful of streams")]
        let streams = streams.max(1) as f64;
        of(&self.whole).min(of(&self.stream) * streams)
    }

    /// Makes it so many times as fast, and its credit last as long as it did. A latency stays, and
    /// so does what counts as one operation.
    pub(crate) fn scale(&mut self, factor: f64) {
        for limits in [&mut self.whole, &mut self.stream] {
            let rates = [
                &mut limits.bytes_per_second,
                &mut limits.operations_per_second,
            ];
            for rate in rates {
                *rate = rate.map(|rate| rate * factor);
            }
            limits.burst = limits.burst.map(|burst| Burst {
                operations_per_second: burst.operations_per_second * factor,
                credits: burst.credits * factor,
                credits_max: burst.credits_max * factor,
            });
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "at most a few MiB")]
    fn io(&self) -> f64 {
        self.io_bytes as f64
    }
}
