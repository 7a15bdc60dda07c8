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

/// What a storage promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The text from which it was read, or another name.
    pub name: String,
    /// How many bytes count as one operation. Larger I/Os are split, smaller sequential ones are
    /// merged.
    pub io_bytes: u64,
    /// Seconds from the turn of an I/O until it is done, not counting its transfer.
    pub latency_seconds: f64,
    /// Extra seconds for an I/O that does not begin where the last one ended.
    pub seek_seconds: f64,
    /// The limit for all streams together.
    pub whole: Limits,
    /// The limit for each stream.
    pub stream: Limits,
    /// The cap that it shares with other storage of the same machine.
    pub attachment: Attachment,
}

/// Rates; `None` means no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes per second.
    pub bytes_per_second: Option<f64>,
    /// Operations per second. With a burst, they are the rate at which credit is earned.
    pub operations_per_second: Option<f64>,
    /// A higher rate that is available for a while.
    pub burst: Option<Burst>,
}

/// Saved operations, which may be spent at a higher rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Operations per second while there is credit.
    pub operations_per_second: f64,
    /// Operations of credit at the start.
    pub credits: f64,
    /// The most operations of credit that can be saved.
    pub credits_max: f64,
}

/// Which cap of the machine the storage counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// None: the storage is in the machine.
    Local,
    /// The machine's bandwidth to its block storage.
    Storage,
    /// The machine's network.
    Network,
}

impl Model {
    /// Storage without any limit. Every other model starts from it.
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

    /// Bytes per second that `streams` streams of large sequential I/Os get in the long run, when
    /// all burst credit is spent.
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

    /// Makes the storage `factor` times as fast, with credit that lasts as long as before. Latency
    /// does not change, nor does the size of an operation.
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
