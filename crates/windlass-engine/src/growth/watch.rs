//! Watching a run for its growth: counters and the time become observations.
//!
//! An observation is made when enough time has passed and every buffer has been used twice. After a
//! change, one is left out: what was in flight before belongs to the old number.
//!
//! Locking: one mutex, which nobody waits for. A thread that finds it taken goes on as before.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use windlass_media::fitted;

use super::{Growth, Seen};
use crate::buffer::Pool;
use crate::progress::{Progress, Setup};
use crate::waits::Cause;

/// The shortest stretch of time that is an observation.
const WINDOW: Duration = Duration::from_millis(100);

/// The growing part of a run, shared by the threads that wait for devices.
#[derive(Debug)]
pub(crate) struct GrowthWatch {
    began: Instant,
    backs_up: bool,
    readers: u32,
    writers: u32,
    compressors: u32,
    least: usize,
    transfer_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    growth: Growth,
    last: Counters,
    /// The next observation is left out.
    settling: bool,
}

/// What the run has done up to a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    at: Duration,
    bytes: u64,
    read_nanos: u64,
    write_nanos: u64,
    /// Readers had no buffer.
    unread_nanos: u64,
    /// Compressors or decompressors had no buffer.
    blocked_nanos: u64,
}

impl GrowthWatch {
    /// `None` if the run has all the buffers that it may have.
    pub(crate) fn new(setup: &Setup, pool: &Pool) -> Option<Self> {
        let (least, most) = (pool.count(), pool.most());
        (least < most).then(|| Self {
            began: Instant::now(),
            backs_up: setup.backs_up,
            readers: fitted(setup.plan.readers.max(1)),
            writers: fitted(setup.plan.writers.max(1)),
            compressors: fitted(setup.plan.compressors.max(1)),
            least,
            transfer_bytes: setup.plan.transfer_bytes as u64,
            state: Mutex::new(State {
                growth: Growth::new(least, most),
                last: Counters::default(),
                settling: true,
            }),
        })
    }

    /// With how many buffers the run began.
    pub(crate) fn least(&self) -> usize {
        self.least
    }

    /// Looks at the counters if it is time, and changes the pool if that may gain.
    pub(crate) fn look(&self, progress: &Progress, pool: &Pool) {
        let Ok(mut state) = self.state.try_lock() else {
            return;
        };
        let at = self.began.elapsed();
        if at.saturating_sub(state.last.at) < WINDOW {
            return;
        }
        let (reads, writes) = match self.backs_up {
            true => (Cause::SourceRead, Cause::DeviceWrite),
            false => (Cause::DeviceRead, Cause::TargetWrite),
        };
        let now = Counters {
            at,
            bytes: progress.reader.bytes(),
            read_nanos: progress.reader.waited_nanos(reads),
            write_nanos: progress.writer.waited_nanos(writes),
            unread_nanos: progress.reader.waited_nanos(Cause::FreeBuffer),
            blocked_nanos: progress.compressor.waited_nanos(Cause::FreeBuffer),
        };
        let used_bytes = 2 * state.growth.now as u64 * self.transfer_bytes;
        if now.bytes.saturating_sub(state.last.bytes) < used_bytes {
            return;
        }
        let before = std::mem::replace(&mut state.last, now);
        if std::mem::take(&mut state.settling) {
            return;
        }
        let had = state.growth.now;
        let wanted = state.growth.observe(&self.seen(&before, &now));
        if wanted != had {
            state.settling = true;
            // If there is no memory for more, the pool has fewer than it was asked for.
            state.growth.now = pool.resize(wanted);
        }
    }

    fn seen(&self, before: &Counters, now: &Counters) -> Seen {
        let seconds = (now.at - before.at).as_secs_f64();
        let share = |before: u64, now: u64, threads: u32| {
            to_f64(now.saturating_sub(before)) / 1e9 / (seconds * f64::from(threads))
        };
        let read = share(before.read_nanos, now.read_nanos, self.readers);
        let write = share(before.write_nanos, now.write_nanos, self.writers);
        let unread = share(before.unread_nanos, now.unread_nanos, self.readers);
        let blocked = share(before.blocked_nanos, now.blocked_nanos, self.compressors);
        // The threads that write restored files hold what they write. So that they are at work does
        // not say that more in flight would help, unless others have no buffer because of it.
        let write = match self.backs_up {
            true => write,
            false => blocked.max(write.min(unread)),
        };
        Seen {
            rate: to_f64(now.bytes.saturating_sub(before.bytes)) / seconds,
            waiting: read.max(write),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn to_f64(value: u64) -> f64 {
    value as f64
}
