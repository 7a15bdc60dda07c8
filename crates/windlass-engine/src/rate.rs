//! Rate limits: bytes per second, shared by the threads that share the limit.
//!
//! A token bucket that may run into debt: a transfer larger than the bucket passes at once and
//! the next ones wait until the debt is paid, so any transfer size works with any rate.
//!
//! A limit can be lifted for a while. Nobody waits then, and who is waiting stops waiting. What
//! passes meanwhile is still counted as debt, so the average rate holds once the limit is back.
//!
//! Locking: one mutex around the time of the next turn; nothing else is taken while it is held.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::waits::{Cause, Stage};

/// Longest sleep between two looks at the cancel flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// A limit in bytes per second.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_second: u64,
    next: Mutex<Option<Instant>>,
    lifted: AtomicBool,
    changed: Condvar,
}

impl RateLimit {
    /// A limit. Zero bytes per second would never end, so it is taken as one.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            next: Mutex::new(None),
            lifted: AtomicBool::new(false),
            changed: Condvar::new(),
        }
    }

    /// From now on, everything passes at once. Threads that wait go on.
    pub fn lift(&self) {
        // The lock is held here, so that no thread can look at the flag first and then sleep
        // through this call.
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.lifted.store(true, Ordering::Release);
        drop(next);
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

    /// Takes `bytes` out of the bucket, and returns how long the caller must wait for its turn.
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = next.map_or(now, |next| next.max(now));
        *next = Some(turn + cost);
        turn - now
    }

    /// Sleeps until `end`, or until the limit is lifted.
    fn sleep_until(&self, end: Instant, cancel: &Cancel) -> Result<(), EngineError> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            cancel.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.lifted.load(Ordering::Acquire) {
                return Ok(());
            }
            let woken = self.changed.wait_timeout(next, left.min(SLEEP_MAX));
            next = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_is_paid_by_the_next() {
        let limit = RateLimit::new(1000);
        let now = Instant::now();
        assert_eq!(limit.reserve(500, now), Duration::ZERO);
        assert_eq!(limit.reserve(1000, now), Duration::from_millis(500));
        assert_eq!(limit.reserve(1, now), Duration::from_millis(1500));
        let later = now + Duration::from_secs(10);
        assert_eq!(limit.reserve(1, later), Duration::ZERO);
    }

    #[test]
    fn a_lifted_limit_stops_nobody_and_wakes_who_waits() {
        let (limit, stage, cancel) = (RateLimit::new(1), Stage::default(), Cancel::new());
        // The bucket is in debt for many years.
        limit.pass(1 << 30, &stage, &cancel).unwrap();
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
