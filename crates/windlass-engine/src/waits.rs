//! Waits: where each stage stood still, by cause; and what it did meanwhile.
//!
//! Every blocking call of the pipeline is inside [`Stage::wait`]. CPU time is read from the
//! thread's own clock, so that time in which a thread was ready but had no core counts neither as
//! work nor as a wait for a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Why a stage stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A reader had nothing to read: the database was not ready (checkpoint, listing, log).
    Jobs,
    /// The source's device had not delivered yet.
    SourceRead,
    /// No buffer was free.
    FreeBuffer,
    /// No full buffer was there to work on.
    FullBuffer,
    /// No frames were there to write.
    Frames,
    /// The device had not taken a write yet.
    DeviceWrite,
    /// The device had not made its data durable yet.
    DeviceSync,
    /// The device had not delivered a read yet (restore, verify).
    DeviceRead,
    /// The restored file had not taken a write yet.
    TargetWrite,
    /// The restored files were not durable yet.
    TargetSync,
    /// A rate limit held the stage back.
    RateLimit,
}

impl Cause {
    /// Every cause, in the order of reports.
    pub const ALL: [Self; 11] = [
        Self::Jobs,
        Self::SourceRead,
        Self::FreeBuffer,
        Self::FullBuffer,
        Self::Frames,
        Self::DeviceWrite,
        Self::DeviceSync,
        Self::DeviceRead,
        Self::TargetWrite,
        Self::TargetSync,
        Self::RateLimit,
    ];

    /// The name in reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::SourceRead => "source_read",
            Self::FreeBuffer => "free_buffer",
            Self::FullBuffer => "full_buffer",
            Self::Frames => "frames",
            Self::DeviceWrite => "device_write",
            Self::DeviceSync => "device_sync",
            Self::DeviceRead => "device_read",
            Self::TargetWrite => "target_write",
            Self::TargetSync => "target_sync",
            Self::RateLimit => "rate_limit",
        }
    }

    fn index(self) -> usize {
        Self::ALL
            .iter()
            .position(|cause| *cause == self)
            .unwrap_or(0)
    }
}

/// The live counters of one stage, added to by all of its threads.
#[derive(Debug, Default)]
pub struct Stage {
    threads: AtomicU64,
    cpu_nanos: AtomicU64,
    wall_nanos: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
    waits: [Waited; Cause::ALL.len()],
}

#[derive(Debug, Default)]
struct Waited {
    nanos: AtomicU64,
    count: AtomicU64,
}

impl Stage {
    /// Runs a blocking call and counts its time under `cause`.
    pub fn wait<T>(&self, cause: Cause, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = call();
        self.add_wait(cause, begin.elapsed());
        result
    }

    /// Runs a call that both works and blocks: what it spent off the cores is the wait.
    pub fn wait_off_core<T>(&self, cause: Cause, call: impl FnOnce() -> T) -> T {
        let (begin, cpu_begin) = (Instant::now(), thread_cpu());
        let result = call();
        let cpu = thread_cpu().saturating_sub(cpu_begin);
        self.add_wait(cause, begin.elapsed().saturating_sub(cpu));
        result
    }

    /// Counts a wait that was timed by the caller.
    pub fn add_wait(&self, cause: Cause, time: Duration) {
        let waited = &self.waits[cause.index()];
        waited.nanos.fetch_add(nanos(time), Ordering::Relaxed);
        waited.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one operation of so many bytes.
    pub fn add_work(&self, bytes: u64) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs a thread of this stage: its CPU and wall time are counted when it ends.
    pub fn thread<T>(&self, body: impl FnOnce() -> T) -> T {
        self.threads.fetch_add(1, Ordering::Relaxed);
        let (begin, cpu_begin) = (Instant::now(), thread_cpu());
        let result = body();
        let cpu = thread_cpu().saturating_sub(cpu_begin);
        self.cpu_nanos.fetch_add(nanos(cpu), Ordering::Relaxed);
        self.wall_nanos
            .fetch_add(nanos(begin.elapsed()), Ordering::Relaxed);
        result
    }

    /// Bytes worked on so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Nanoseconds waited so far for `cause`.
    pub fn waited_nanos(&self, cause: Cause) -> u64 {
        self.waits[cause.index()].nanos.load(Ordering::Relaxed)
    }

    /// The counters as a report; `name` is the stage's noun.
    pub fn report(&self, name: &'static str) -> StageReport {
        let seconds = |counter: &AtomicU64| seconds(counter.load(Ordering::Relaxed));
        let waits = Cause::ALL.into_iter().zip(&self.waits);
        let waits = waits.filter(|(_, waited)| waited.count.load(Ordering::Relaxed) > 0);
        let waits: Vec<WaitReport> = waits
            .map(|(cause, waited)| WaitReport {
                cause,
                seconds: seconds(&waited.nanos),
                count: waited.count.load(Ordering::Relaxed),
            })
            .collect();
        let waiting: f64 = waits.iter().map(|wait| wait.seconds).sum();
        StageReport {
            name,
            threads: self.threads.load(Ordering::Relaxed),
            busy_seconds: (seconds(&self.wall_nanos) - waiting).max(0.0),
            cpu_seconds: seconds(&self.cpu_nanos),
            operations: self.operations.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            waits,
        }
    }
}

/// One stage of a finished run.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// `reader`, `compressor`, `writer`, ...
    pub name: &'static str,
    /// How many threads it had.
    pub threads: u64,
    /// Seconds not waiting, summed over threads.
    pub busy_seconds: f64,
    /// Seconds on a core, summed over threads.
    pub cpu_seconds: f64,
    /// Transfers, frames or files worked on.
    pub operations: u64,
    /// Bytes worked on.
    pub bytes: u64,
    /// Seconds waiting, by cause.
    pub waits: Vec<WaitReport>,
}

impl StageReport {
    /// Seconds waited for `cause`.
    pub fn waited(&self, cause: Cause) -> f64 {
        self.waits
            .iter()
            .find(|wait| wait.cause == cause)
            .map_or(0.0, |wait| wait.seconds)
    }
}

/// Time a stage stood still for one cause.
#[derive(Clone, Debug, Serialize)]
pub struct WaitReport {
    /// Why.
    pub cause: Cause,
    /// How long, summed over threads.
    pub seconds: f64,
    /// How often.
    pub count: u64,
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a report needs no nanosecond of a year"
)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
