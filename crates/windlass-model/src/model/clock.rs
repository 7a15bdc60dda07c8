//! The clock of a model: when would it be done with an I/O that comes in now?
//!
//! Each cap is a bucket that serves one I/O after the other: it says from when to when it is busy
//! with this one. An I/O passes its buckets at the same time (its stream's, the device's, the
//! machine's) and is done when the last of them is, plus the latency, in which nothing is busy.
//!
//! Times are nanoseconds since a beginning that the caller chooses.

use std::collections::VecDeque;

use serde::Serialize;

use super::{Attachment, Burst, Instance, Limits, Model};

/// How many ends of recent I/Os are remembered, where a new I/O may continue: as many as files that
/// are written side by side.
const RUNS_MAX: usize = 64;
const SECOND: f64 = 1e9;

/// An I/O as a model sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelIo {
    /// The stream that makes it. A cap for each stream counts by this number.
    pub stream: usize,
    /// The file or object. It shows which I/Os are sequential.
    pub file: usize,
    /// Where in the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A model in use.
#[derive(Clone, Debug)]
pub struct ModelClock {
    model: Model,
    whole: Bucket,
    streams: Vec<Bucket>,
    /// For each file, where its last I/O ended and how many bytes that sequential run has; newest
    /// first.
    runs: VecDeque<(usize, u64, u64)>,
}

/// The caps of a machine. The clocks of all storage that is attached to it share them.
#[derive(Clone, Debug)]
pub struct InstanceClock {
    storage: Bucket,
    network: Bucket,
}

/// For how many seconds a cap was busy, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Bytes per second.
    pub bytes_seconds: f64,
    /// Operations per second.
    pub operations_seconds: f64,
    /// Waiting for burst credit to be earned.
    pub credit_seconds: f64,
    /// Seeking.
    pub seek_seconds: f64,
}

/// How busy the parts of a model were.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usages {
    /// The cap that all streams share.
    pub whole: Usage,
    /// The average cap of a stream. These caps hold a run up only when all are busy.
    pub stream: Usage,
}

impl Usage {
    /// Seconds busy. Bytes and operations are counted side by side, so the larger number counts.
    pub fn seconds(&self) -> f64 {
        let by_bytes = self.bytes_seconds + self.seek_seconds;
        by_bytes.max(self.operations_seconds + self.credit_seconds)
    }

    /// What most of that time went to, in words.
    pub fn mostly(&self) -> &'static str {
        let parts = [
            (self.bytes_seconds, "bytes per second"),
            (self.operations_seconds, "operations per second"),
            (
                self.credit_seconds,
                "operations per second, burst credit spent",
            ),
            (self.seek_seconds, "seeks"),
        ];
        let most = parts
            .into_iter()
            .max_by(|one, other| one.0.total_cmp(&other.0));
        most.map_or("", |(_, words)| words)
    }
}

impl ModelClock {
    /// A clock at time zero, with nothing under way and all credit available.
    pub fn new(model: &Model) -> Self {
        Self {
            whole: Bucket::new(&model.whole),
            streams: Vec::new(),
            runs: VecDeque::new(),
            model: model.clone(),
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// When an I/O that arrives at `at` is done.
    pub fn done_at(&mut self, io: &ModelIo, at: u64, shared: Option<&mut InstanceClock>) -> u64 {
        let (operations, seeks) = self.bill(io);
        let work = Work {
            bytes: io.bytes,
            operations,
            seek_seconds: if seeks { self.model.seek_seconds } else { 0.0 },
        };
        let plain = Work {
            seek_seconds: 0.0,
            ..work
        };
        while self.streams.len() <= io.stream {
            self.streams.push(Bucket::new(&self.model.stream));
        }
        let mut end = self
            .whole
            .pass(&work, at)
            .max(self.streams[io.stream].pass(&plain, at));
        let bucket = shared.and_then(|shared| match self.model.attachment {
            Attachment::Local => None,
            Attachment::Storage => Some(&mut shared.storage),
            Attachment::Network => Some(&mut shared.network),
        });
        if let Some(bucket) = bucket {
            end = end.max(bucket.pass(&plain, at));
        }
        end + nanos(self.model.latency_seconds)
    }

    /// How many operations an I/O counts as, and whether the disk must seek for it. A run of small
    /// sequential I/Os counts as one operation each time it fills one.
    fn bill(&mut self, io: &ModelIo) -> (u64, bool) {
        let size = self.model.io_bytes;
        let found = self.runs.iter();
        let found = found
            .clone()
            .position(|(file, end, _)| (*file, *end) == (io.file, io.offset));
        let run = found.and_then(|index| self.runs.remove(index));
        let before = run.map_or(0, |(_, _, bytes)| bytes);
        let after = before + io.bytes;
        self.runs.push_front((io.file, io.offset + io.bytes, after));
        self.runs.truncate(RUNS_MAX);
        let operations = after.div_ceil(size) - before.div_ceil(size);
        (operations, found != Some(0))
    }

    /// How busy the storage has been.
    pub fn usages(&self) -> Usages {
        let count = to_f64(self.streams.len().max(1) as u64);
        let mut stream = Usage::default();
        for usage in self.streams.iter().map(|stream| stream.usage) {
            stream.bytes_seconds += usage.bytes_seconds / count;
            stream.operations_seconds += usage.operations_seconds / count;
        }
        Usages {
            whole: self.whole.usage,
            stream,
        }
    }

    /// Counts from here on how busy it is.
    pub fn forget_usages(&mut self) {
        self.whole.usage = Usage::default();
        self.streams
            .iter_mut()
            .for_each(|stream| stream.usage = Usage::default());
    }

    /// How many times the events since `then` can be repeated before the credit changes the rate.
    pub fn repeats(&self, then: &Self) -> u64 {
        self.whole.repeats(&then.whole)
    }

    /// Repeats the events of the `period` since `then` another `times` times. The clocks go on, and
    /// credit and usage change as they did.
    pub fn repeat(&mut self, then: &Self, times: u64, period: u64) {
        self.whole.repeat(&then.whole, times, period);
        for (stream, before) in self.streams.iter_mut().zip(&then.streams) {
            stream.repeat(before, times, period);
        }
        // A later I/O continues where the repeated part would have ended, whatever its offset.
        self.runs
            .iter_mut()
            .for_each(|run| run.2 %= self.model.io_bytes);
    }
}

impl InstanceClock {
    /// A clock at time zero.
    pub fn new(instance: &Instance) -> Self {
        let storage = Limits {
            bytes_per_second: Some(instance.storage_bytes_per_second),
            operations_per_second: Some(instance.storage_operations_per_second),
            burst: None,
        };
        let network = Limits {
            bytes_per_second: Some(instance.network_bytes_per_second),
            ..Limits::default()
        };
        Self {
            storage: Bucket::new(&storage),
            network: Bucket::new(&network),
        }
    }

    /// How busy block storage and network have been.
    pub fn usages(&self) -> (Usage, Usage) {
        (self.storage.usage, self.network.usage)
    }

    /// Like [`ModelClock::forget_usages`].
    pub fn forget_usages(&mut self) {
        self.storage.usage = Usage::default();
        self.network.usage = Usage::default();
    }

    /// Like [`ModelClock::repeat`].
    pub fn repeat(&mut self, then: &Self, times: u64, period: u64) {
        self.storage.repeat(&then.storage, times, period);
        self.network.repeat(&then.network, times, period);
    }
}

/// What an I/O costs.
#[derive(Clone, Copy)]
struct Work {
    bytes: u64,
    operations: u64,
    seek_seconds: f64,
}

/// One cap of a model or a machine.
#[derive(Clone, Debug)]
struct Bucket {
    bytes_per_second: f64,
    operations_per_second: f64,
    burst: Option<Burst>,
    credits: f64,
    credited_at: u64,
    /// When the cap is free again for bytes.
    bytes_next: u64,
    /// When the cap is free again for operations.
    operations_next: u64,
    usage: Usage,
}

impl Bucket {
    fn new(limits: &Limits) -> Self {
        Self {
            bytes_per_second: limits.bytes_per_second.unwrap_or(f64::INFINITY),
            operations_per_second: limits.operations_per_second.unwrap_or(f64::INFINITY),
            burst: limits.burst,
            credits: limits.burst.map_or(0.0, |burst| burst.credits),
            credited_at: 0,
            bytes_next: 0,
            operations_next: 0,
            usage: Usage::default(),
        }
    }

    /// Serves an I/O after all earlier ones, and returns when it is done. Bytes and operations are
    /// counted side by side: with merging, most small I/Os count no operation, and one now and then
    /// does.
    fn pass(&mut self, work: &Work, at: u64) -> u64 {
        let by_bytes = to_f64(work.bytes) / self.bytes_per_second;
        self.usage.bytes_seconds += by_bytes;
        self.usage.seek_seconds += work.seek_seconds;
        self.bytes_next = self.bytes_next.max(at) + nanos(by_bytes + work.seek_seconds);
        if work.operations == 0 {
            return self.bytes_next;
        }
        let operations = to_f64(work.operations);
        let turn = self.operations_next.max(at);
        let turn = turn + self.earn(operations, turn);
        let rate = self.burst.map_or(self.operations_per_second, |burst| {
            burst.operations_per_second.max(self.operations_per_second)
        });
        self.usage.operations_seconds += operations / rate;
        self.operations_next = turn + nanos(operations / rate);
        self.bytes_next.max(self.operations_next)
    }

    /// Takes credit for `operations`. Returns how long it takes to earn what is missing.
    fn earn(&mut self, operations: f64, turn: u64) -> u64 {
        let Some(burst) = self.burst else { return 0 };
        let rate = self.operations_per_second;
        let earned = rate * to_f64(turn - self.credited_at) / SECOND;
        let credits = (self.credits + earned).min(burst.credits_max.max(operations));
        let missing = (operations - credits).max(0.0);
        let wait = nanos(missing / rate);
        self.usage.credit_seconds += missing / rate;
        self.credits = (credits - operations).max(0.0);
        self.credited_at = turn + wait;
        wait
    }

    fn repeats(&self, then: &Self) -> u64 {
        let spent = then.credits - self.credits;
        // An empty bucket stays empty, apart from what is earned between two I/Os.
        let empty = self.credits.max(then.credits) < 64.0;
        if self.burst.is_none() || empty || spent <= 0.0 {
            return u64::MAX;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "credits are never negative, and few"
        )]
        let times = (self.credits / spent) as u64;
        times.saturating_sub(1)
    }

    fn repeat(&mut self, then: &Self, times: u64, period: u64) {
        let count = to_f64(times);
        let max = self.burst.map_or(0.0, |burst| burst.credits_max);
        self.credits = (self.credits + count * (self.credits - then.credits)).clamp(0.0, max);
        self.bytes_next += times * period;
        self.operations_next += times * period;
        self.credited_at += times * period;
        let (now, before) = (&mut self.usage, &then.usage);
        for (value, old) in [
            (&mut now.bytes_seconds, before.bytes_seconds),
            (&mut now.operations_seconds, before.operations_seconds),
            (&mut now.credit_seconds, before.credit_seconds),
            (&mut now.seek_seconds, before.seek_seconds),
        ] {
            *value += count * (*value - old);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a model is not exact to 53 bits"
)]
fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Whole nanoseconds, rounded up, so that no rate is ever above its cap.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive; too long a one saturates, as it should"
)]
fn nanos(seconds: f64) -> u64 {
    (seconds * SECOND).ceil().min(1e18) as u64
}

#[cfg(test)]
mod tests;
