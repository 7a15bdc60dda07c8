//! Hurry: a stretch of a backup during which somebody waits for it to read.
//!
//! A database that must be locked while its last changes are read is one: nobody can write until
//! the readers are done. So no rate limit holds meanwhile, the buffers are empty when it begins,
//! and it may have an end: what was pushed and not read by then fails the run.
//!
//! Invariants
//! - At the end of its time `push`, `push_range` and `drain` fail at once. They do not wait for the
//!   run's threads, because a device that hangs would keep the caller from letting the lock go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::SendTimeoutError;

use super::BackupRun;
use super::source::Unit;
use crate::error::EngineError;
use crate::rate::RateLimit;
use crate::shared::{LOOK, time_left};

/// How long to wait between two looks at the buffers.
const BUFFER_PAUSE: Duration = Duration::from_millis(5);

impl BackupRun {
    /// Waits until everything that was read is on the devices, except what compressors and devices
    /// still gather. A hurry that begins next then has the buffers to itself.
    pub fn empty_buffers(&mut self) -> Result<(), EngineError> {
        self.drain()?;
        let gathered = self.options.outputs() + self.options.plan.gathered;
        while self.shared.pool.occupancy().free + gathered < self.shared.pool.count() {
            if let Err(error) = self.shared.check() {
                return Err(self.stopped(error));
            }
            std::thread::sleep(BUFFER_PAUSE);
        }
        Ok(())
    }

    /// Begins a hurry: the rate limits are lifted, and threads that wait for one go on. After
    /// `until`, pushing and draining fail with [`EngineError::HurryEnded`].
    pub fn begin_hurry(&mut self, until: Option<Instant>) {
        self.limits().for_each(RateLimit::lift);
        self.until = until;
    }

    /// Ends the hurry: the rate limits apply again.
    pub fn end_hurry(&mut self) {
        self.limits().for_each(RateLimit::impose);
        self.until = None;
    }

    /// When the present hurry ends the run.
    pub fn hurry_until(&self) -> Option<Instant> {
        self.until
    }

    /// The limit on reading, for code that reads bytes of the source outside the run.
    pub fn source_limit(&self) -> Option<Arc<RateLimit>> {
        self.source_limit.clone()
    }

    pub(super) fn limits(&self) -> impl Iterator<Item = &RateLimit> {
        let limits = [&self.source_limit, &self.device_limit];
        limits.into_iter().filter_map(|limit| limit.as_deref())
    }

    /// Gives a unit to the readers.
    pub(super) fn queue(&self, mut unit: Unit) -> Result<(), EngineError> {
        let units = self.units.as_ref().ok_or(EngineError::Stopped)?;
        loop {
            let left = time_left(self.until)?;
            match units.send_timeout(unit, left.min(LOOK)) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(EngineError::Stopped),
                Err(SendTimeoutError::Timeout(again)) => unit = again,
            }
        }
    }
}
