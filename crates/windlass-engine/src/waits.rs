//! Waits: how long each stage waited, by cause, and how much it did.
//!
//! Every blocking call of the pipeline is inside [`Stage::wait`]; debug builds check it. CPU time
//! is read from the thread's own clock, so that time in which a thread was ready but had no core
//! counts neither as work nor as a wait for a device.
//!
//! Waits that have not ended count, too, in a report in the middle of a run (`open`). A stage can
//! tell a recorder about each wait (`recording`); it knows nothing about the recorder.

mod cause;
mod inside;
mod open;
mod recording;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError};
use serde::{Deserialize, Serialize};
use windlass_media::fitted;

use crate::resource::StageName;

pub use cause::Cause;
use inside::Inside;
pub(crate) use inside::{counted_by_caller, may_block};
use open::Open;
pub(crate) use recording::{Io, Recording, Tap, serve_device, served_device};

/// The live counters of one stage, added to by all of its threads.
#[derive(Debug, Default)]
pub struct Stage {
    /// How many threads were started for the set that is read.
    threads: AtomicU64,
    /// The most of all sets of a chain: they are read one after the other.
    threads_most: AtomicU64,
    cpu_nanos: AtomicU64,
    wall_nanos: AtomicU64,
    operations: AtomicU64,
    bytes: AtomicU64,
    waits: [Waited; Cause::ALL.len()],
    running: Open,
    tap: OnceLock<Tap>,
}

#[derive(Debug, Default)]
struct Waited {
    nanos: AtomicU64,
    count: AtomicU64,
    open: Open,
}

impl Waited {
    fn add(&self, time: Duration) {
        self.nanos.fetch_add(nanos(time), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self, cause: Cause, now: Instant) -> WaitReport {
        let ended = self.nanos.load(Ordering::Relaxed);
        WaitReport {
            cause,
            seconds: seconds(ended.saturating_add(self.open.nanos(now))),
            count: self.count.load(Ordering::Relaxed),
        }
    }
}

impl Stage {
    /// Runs a blocking call, and counts its time under `cause`.
    pub fn wait<T>(&self, cause: Cause, call: impl FnOnce() -> T) -> T {
        self.timed(cause, call).0
    }

    /// Does the same, and also returns how long it took.
    pub fn timed<T>(&self, cause: Cause, call: impl FnOnce() -> T) -> (T, Duration) {
        let (begin, waited) = (Instant::now(), &self.waits[cause.index()]);
        let entered = waited.open.enter(begin);
        let inside = Inside::wait();
        let result = call();
        drop(inside);
        let time = begin.elapsed();
        waited.open.leave(entered);
        self.count(cause, begin, time);
        (result, time)
    }

    /// Runs a call that both works and blocks. The time that it spent off the cores counts as the
    /// wait.
    pub fn wait_off_core<T>(&self, cause: Cause, call: impl FnOnce() -> T) -> T {
        let (begin, cpu_begin) = (Instant::now(), thread_cpu());
        let inside = Inside::wait();
        let result = call();
        drop(inside);
        let cpu = thread_cpu().saturating_sub(cpu_begin);
        self.count(cause, begin, begin.elapsed().saturating_sub(cpu));
        result
    }

    /// Takes the next message, and waits for it if there is none. `None` when nobody can send any
    /// more.
    pub(crate) fn next<T>(&self, cause: Cause, messages: &Receiver<T>) -> Option<T> {
        match messages.try_recv() {
            Ok(message) => Some(message),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => self.wait(cause, || messages.recv()).ok(),
        }
    }

    /// Hands a message to the next stage, and waits while there is no room. Returns false when
    /// nobody takes any more.
    pub(crate) fn hand<T>(&self, cause: Cause, messages: &Sender<T>, message: T) -> bool {
        match messages.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(message)) => self.wait(cause, || messages.send(message)).is_ok(),
        }
    }

    /// Counts a wait that the caller has timed and that has just ended.
    pub fn add_wait(&self, cause: Cause, time: Duration) {
        match self.tap.get() {
            None => self.waits[cause.index()].add(time),
            Some(_) => self.count(cause, Instant::now() - time, time),
        }
    }

    fn count(&self, cause: Cause, begin: Instant, time: Duration) {
        self.waits[cause.index()].add(time);
        if let Some(tap) = self.tap.get() {
            tap.waited(cause, begin, time);
        }
    }

    /// Reports all waits from now on to `tap`. Only the first tap that is set is used.
    pub(crate) fn set_tap(&self, tap: Tap) {
        self.tap.get_or_init(|| tap);
    }

    pub(crate) fn tap(&self) -> Option<&Tap> {
        self.tap.get()
    }

    /// Counts one operation of `bytes` bytes.
    pub fn add_work(&self, bytes: u64) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Runs a thread of this stage. Its CPU time and wall time are counted when it ends.
    pub fn thread<T>(&self, body: impl FnOnce() -> T) -> T {
        let threads = self.threads.fetch_add(1, Ordering::Relaxed) + 1;
        self.threads_most.fetch_max(threads, Ordering::Relaxed);
        let (begin, cpu_begin) = (Instant::now(), thread_cpu());
        let entered = self.running.enter(begin);
        let inside = Inside::stage();
        let result = body();
        drop(inside);
        let cpu = thread_cpu().saturating_sub(cpu_begin);
        self.cpu_nanos.fetch_add(nanos(cpu), Ordering::Relaxed);
        self.running.leave(entered);
        self.wall_nanos
            .fetch_add(nanos(begin.elapsed()), Ordering::Relaxed);
        if let Some(tap) = self.tap.get() {
            tap.thread_ends();
        }
        result
    }

    /// Notes that the threads so far have ended, and that others take their place.
    pub(crate) fn begin_link(&self) {
        self.threads.store(0, Ordering::Relaxed);
    }

    /// Bytes worked on so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Nanoseconds waited so far for `cause`, counting only waits that have ended.
    pub(crate) fn waited_nanos(&self, cause: Cause) -> u64 {
        self.waits[cause.index()].nanos.load(Ordering::Relaxed)
    }

    /// The counters up to now, as a report. The CPU time is that of
    /// threads that have ended.
    pub fn report(&self, name: StageName) -> StageReport {
        let now = Instant::now();
        let waits = Cause::ALL.into_iter().zip(&self.waits);
        let waits = waits.map(|(cause, waited)| waited.report(cause, now));
        let waits: Vec<WaitReport> = waits
            .filter(|wait| wait.count > 0 || wait.seconds > 0.0)
            .collect();
        let waiting: f64 = waits.iter().map(|wait| wait.seconds).sum();
        let wall = self.wall_nanos.load(Ordering::Relaxed);
        let wall = seconds(wall.saturating_add(self.running.nanos(now)));
        StageReport {
            name,
            threads: self.threads_most.load(Ordering::Relaxed),
            busy_seconds: (wall - waiting).max(0.0),
            cpu_seconds: seconds(self.cpu_nanos.load(Ordering::Relaxed)),
            operations: self.operations.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            waits,
        }
    }
}

/// One stage of a finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// Which one.
    pub name: StageName,
    /// How many threads it had at once.
    pub threads: u64,
    /// Seconds in which it did not wait, summed over threads.
    pub busy_seconds: f64,
    /// Seconds on a core, summed over threads.
    pub cpu_seconds: f64,
    /// Transfers, frames or files worked on.
    pub operations: u64,
    /// Bytes worked on.
    pub bytes: u64,
    /// Seconds in which it waited, by cause.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitReport {
    /// The cause.
    pub cause: Cause,
    /// Seconds, summed over threads.
    pub seconds: f64,
    /// How many waits.
    pub count: u64,
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = fitted(time.tv_sec);
    Duration::new(seconds, fitted(time.tv_nsec))
}

fn nanos(time: Duration) -> u64 {
    fitted(time.as_nanos())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a report needs no nanosecond of a year"
)]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
