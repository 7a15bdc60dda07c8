//! Rate limits: bytes per second, shared by the threads that share the limit.
//!
//! Every transfer is paid for in time before it passes, the first one too. So what has passed since
//! the first transfer was asked for is never more than the rate times the time, also in a run of a
//! second. The bucket holds at most one transfer: while nobody asks, the time that the next
//! transfer costs can be saved up, and no more. Any transfer size works with any rate.
//!
//! A limit can be lifted for a while. Nobody waits then, and who is waiting stops waiting. What
//! passes meanwhile is still counted as debt, so the average rate holds once the limit is back.
//!
//! Invariants
//! - In any stretch of time, at most the rate times that time passes, and one transfer.
//!
//! Locking: one mutex around the time up to which all is paid; nothing else is taken while it is
//! held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_media::saturated;

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::waits::{Cause, Stage};

/// Longest sleep between two looks at the cancel flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A limit in bytes per second.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_second: u64,
    /// The moment up to which the transfers so far have used the time; `None` before the first.
    paid: Mutex<Option<Instant>>,
    lifted: AtomicBool,
    changed: Condvar,
}

impl RateLimit {
    /// A limit. Zero bytes per second would never end, so it is taken as one.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            paid: Mutex::new(None),
            lifted: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    /// From now on, everything passes at once. Threads that wait go on.
    pub fn lift(&self) {
        // The lock is held here, so that no thread can look at the flag first and then sleep
        // through this call.
        let paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        self.lifted.store(true, Ordering::Release);
        drop(paid);
        self.changed.notify_all();
    }

    /// Makes the limit apply again.
    pub fn impose(&self) {
        self.lifted.store(false, Ordering::Release);
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// Waits until `bytes` more may pass. The wait counts in `stage` under [`Cause::RateLimit`].
    pub fn pass(&self, bytes: u64, stage: &Stage, cancel: &Cancel) -> Result<(), EngineError> {
        let wait = self.reserve(bytes, Instant::now());
        if wait.is_zero() || self.lifted.load(Ordering::Acquire) {
            return Ok(());
        }
        stage.wait(Cause::RateLimit, || {
            self.sleep_until(Instant::now() + wait, cancel)
        })
    }

    /// Takes `bytes` out of the bucket, and returns how long the caller must wait until they are
    /// paid for.
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(saturated(nanos));
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (paid.unwrap_or(now) + cost).max(now);
        *paid = Some(turn);
        turn - now
    }

    /// Sleeps until `end`, or until the limit is lifted.
    fn sleep_until(&self, end: Instant, cancel: &Cancel) -> Result<(), EngineError> {
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            cancel.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.lifted.load(Ordering::Acquire) {
                return Ok(());
            }
            let woken = self.changed.wait_timeout(paid, left.min(SLEEP_MAX));
            paid = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_transfer_is_paid_for_before_it_passes() {
        let limit = RateLimit::new(1000);
        let now = Instant::now();
        assert_eq!(limit.reserve(500, now), Duration::from_millis(500));
        assert_eq!(limit.reserve(1000, now), Duration::from_millis(1500));
        // Ten seconds of rest pay for one transfer, and not for ten.
        let later = now + Duration::from_secs(10);
        assert_eq!(limit.reserve(1000, later), Duration::ZERO);
        assert_eq!(limit.reserve(1000, later), Duration::from_secs(1));
    }

    proptest! {
        /// Threads ask for transfers in simulated time; between two of them each does something
        /// else for a while.
        #[test]
        fn no_stretch_of_time_passes_more_than_the_rate_and_one_transfer(
            rate in 1u64..10_000_000,
            threads in 1usize..5,
            asked in prop::collection::vec((1u64..4_000_000, 0u64..3_000), 1..60),
        ) {
            let (limit, begin) = (RateLimit::new(rate), Instant::now());
            let mut free = vec![begin; threads];
            let mut passed: Vec<(Instant, u64)> = Vec::new();
            for (bytes, busy_millis) in asked {
                let next = free.iter().enumerate().min_by_key(|(_, at)| **at).unwrap().0;
                let at = free[next] + limit.reserve(bytes, free[next]);
                passed.push((at, bytes));
                free[next] = at + Duration::from_millis(busy_millis);
            }
            let allowed = |time: Duration| rate as f64 * time.as_secs_f64() * (1.0 + 1e-6) + 1.0;
            let mut since_begin = 0;
            for (index, (at, bytes)) in passed.iter().enumerate() {
                since_begin += bytes;
                // Nothing at all passes beyond the rate, counted from the beginning.
                prop_assert!(since_begin as f64 <= allowed(*at - begin), "{passed:?}");
                let mut since = 0;
                for (earlier, bytes) in passed[..=index].iter().rev() {
                    prop_assert!(since as f64 <= allowed(*at - *earlier), "{passed:?}");
                    since += bytes;
                }
            }
        }
    }

    #[test]
    fn a_lifted_limit_stops_nobody_and_wakes_who_waits() {
        let (limit, stage, cancel) = (RateLimit::new(1), Stage::default(), Cancel::new());
        // The bucket is in debt for many years.
        limit.reserve(1 << 30, Instant::now());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| limit.pass(1, &stage, &cancel));
            limit.lift();
            waiting.join().unwrap().unwrap();
        });
        let waited = Stage::default();
        limit.pass(1 << 30, &waited, &cancel).unwrap();
        assert_eq!(waited.waited_nanos(Cause::RateLimit), 0);
        limit.impose();
        let left = limit.reserve(1, Instant::now());
        assert!(
            left > Duration::from_secs(1 << 30),
            "the debt is still there"
        );
    }
}
