//! Rate limits: bytes per second, shared by the threads that share the limit.
//!
//! A token bucket that may run into debt: a transfer larger than the bucket passes at once and
//! the next ones wait until the debt is paid, so any transfer size works with any rate.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::Cancel;
use crate::error::EngineError;
use crate::waits::{Cause, Stage};

/// Longest sleep between two looks at the cancel flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// At most so many bytes per second.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_second: u64,
    next: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// A limit; zero bytes per second would never end and is taken as one.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            next: Mutex::new(None),
        }
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// Waits until `bytes` more may pass, counted in `stage` under [`Cause::RateLimit`].
    pub fn pass(&self, bytes: u64, stage: &Stage, cancel: &Cancel) -> Result<(), EngineError> {
        let wait = self.reserve(bytes, Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        stage.wait(Cause::RateLimit, || {
            sleep_until(Instant::now() + wait, cancel)
        })
    }

    /// Takes `bytes` out of the bucket; says how long the caller must wait for its turn.
    fn reserve(&self, bytes: u64, now: Instant) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = next.map_or(now, |next| next.max(now));
        *next = Some(turn + cost);
        turn - now
    }
}

fn sleep_until(end: Instant, cancel: &Cancel) -> Result<(), EngineError> {
    loop {
        cancel.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(SLEEP_MAX));
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
}
