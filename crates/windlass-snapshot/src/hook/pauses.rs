//! Stops the server between its calls, and knows for how long all tries of a snapshot did.
//!
//! A machine that stalls for some seconds makes a pause fail: a process of the server does not
//! leave its call in time, or the server goes on by itself. Another pause may hold, so some more
//! are tried.
//!
//! Never does: pause the server again before it has run for as long as it stood still.

use std::cell::Cell;
use std::time::{Duration, Instant};

use windlass_engine::{Cancel, Progress};
use windlass_image::layout::hook::{Busy, pause, resume};

use super::control::Patience;
use super::error::HookError;
use super::locked::Locked;

/// The server's processes wait for no longer than this.
const SERVER_MAX: Duration = Duration::from_secs(3);
/// The controller gives up earlier.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// So many pauses may fail.
const FAILED_MAX: u32 = 3;
/// Whoever interrupts is heard after this.
const REST_STEP: Duration = Duration::from_millis(50);

/// The pauses of one snapshot.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    failed: Cell<u32>,
    last: Cell<Duration>,
    all: Cell<Duration>,
}

impl Pauses {
    /// Runs something while the server stands still. Fails if a process did not wait for it.
    pub(super) fn during<T>(
        &self,
        locked: &Locked<'_>,
        token: u32,
        work: impl FnOnce() -> Result<T, HookError>,
    ) -> Result<T, HookError> {
        let began = Instant::now();
        let memory = locked.memory();
        let done = match pause(memory, token, &mut Patience::of(PAUSE_MAX)) {
            Err(Busy { pid }) => Err(HookError::PauseBusy { pid }),
            Ok(()) => match (work(), resume(memory, token)) {
                (Ok(_), false) => Err(HookError::PauseBroken),
                (done, _) => done,
            },
        };
        self.count(began.elapsed(), done.is_err());
        done
    }

    fn count(&self, stood_still: Duration, has_failed: bool) {
        // If it failed, the server may have gone on long before that was known.
        let most = match has_failed {
            true => SERVER_MAX,
            false => Duration::MAX,
        };
        self.last.set(stood_still.min(most));
        self.all.set(self.all.get().saturating_add(self.last.get()));
    }

    /// For how long the server stood still in all of them together.
    pub(super) fn stood_still(&self) -> Duration {
        self.all.get()
    }

    /// Whether another pause is to be tried after an error. The server has then run for as long as
    /// it stood still.
    pub(super) fn are_to_go_on(
        &self,
        error: &HookError,
        (progress, cancel): (&Progress, &Cancel),
    ) -> Result<bool, HookError> {
        let is_failed = matches!(error, HookError::PauseBroken | HookError::PauseBusy { .. });
        if !is_failed {
            return Ok(false);
        }
        self.failed.set(self.failed.get() + 1);
        if self.failed.get() == FAILED_MAX {
            return Ok(false);
        }
        progress.set_phase("letting writers go on");
        self.rest(cancel)?;
        Ok(true)
    }

    fn rest(&self, cancel: &Cancel) -> Result<(), HookError> {
        let until = Instant::now() + self.last.get();
        loop {
            let checked = cancel.check();
            checked.map_err(|error| HookError::Postgres(error.into()))?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(REST_STEP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_pauses_cost_counts_no_longer_than_the_server_waits() {
        let pauses = Pauses::default();
        pauses.count(Duration::from_secs(3600), true);
        assert_eq!(pauses.stood_still(), SERVER_MAX);
        pauses.count(Duration::from_secs(4), false);
        assert_eq!(pauses.stood_still(), Duration::from_secs(7));
    }

    #[test]
    fn whoever_interrupts_is_heard_before_the_next_pause() {
        let (pauses, cancel) = (Pauses::default(), Cancel::new());
        let watched = Progress::default();
        cancel.cancel();
        let again = pauses.are_to_go_on(&HookError::PauseBroken, (&watched, &cancel));
        assert!(again.is_err());
        assert_eq!(watched.phase(), "letting writers go on");
    }
}
