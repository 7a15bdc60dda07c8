//! How a capture keeps the log from growing: it copies it into the file, if need be while writers
//! wait.
//!
//! Invariants: as in `capture.rs`.

use std::time::{Duration, Instant};

use windlass_engine::Cancel;

use super::{COPIED_FRAMES, LogCapture, Look, index_of};
use crate::error::SqliteError;
use crate::view::{beside, read_index};

/// If the log has grown by so many frames, because writers commit all the time, the capture keeps
/// them from it for as long as copying takes.
const HELD_FRAMES: u32 = 8 * COPIED_FRAMES;
/// How often to try to copy all of the log while writers wait.
const TRIES_MAX: u32 = 20;
/// How often to try to find no writer.
const HOLD_TRIES_MAX: u32 = 100;
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(1);

/// How often writers had to wait, because the log was copied in their absence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// How many times.
    pub times: u64,
    /// For how long at most.
    pub longest: Duration,
}

impl Held {
    /// This, and what came later.
    pub fn and(self, later: Self) -> Self {
        Self {
            times: self.times + later.times,
            longest: self.longest.max(later.longest),
        }
    }
}

impl LogCapture {
    /// Copies into the file what nobody needs in the log. Returns whether that was all of it.
    pub(super) fn copies_all(&self) -> Result<bool, SqliteError> {
        self.copier.checkpoint()?;
        let index = index_of(&self.database, &self.shm)?;
        Ok(index.backfilled >= index.frame_count)
    }

    /// From so many frames on, writers wait. If a reader kept the log from being copied, they wait
    /// again only when as much has come once more: it may still read.
    pub(super) fn held_from(&self) -> u32 {
        let before = self.read_up_to.as_ref();
        let before = before.filter(|before| before.salts == self.index.salts);
        before.map_or(HELD_FRAMES, |before| {
            HELD_FRAMES.saturating_add(before.frame)
        })
    }

    /// Copies the log while nobody can write, if there is a moment in which nobody writes.
    pub(super) fn hold<E: From<SqliteError>>(
        &mut self,
        cancel: &Cancel,
        keep: &mut impl FnMut(&Self, &Look) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.hold_writers()? {
            return Ok(());
        }
        let since = Instant::now();
        self.is_holding = true;
        let copied = self.copy_alone(cancel, keep);
        self.is_holding = false;
        let released = self.holder.release_writers();
        self.held.times += 1;
        self.held.longest = self.held.longest.max(since.elapsed());
        let is_copied = copied?;
        self.read_up_to = (!is_copied).then_some(self.last);
        Ok(released?)
    }

    /// Keeps writers away. A writer that never pauses leaves only short gaps.
    fn hold_writers(&self) -> Result<bool, SqliteError> {
        for _ in 0..HOLD_TRIES_MAX {
            if self.holder.try_hold_writers()? {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(false)
    }

    /// Copies the log while nobody can write. Without that, a writer that never pauses would make
    /// the log grow without end. Returns whether all of it is in the file.
    fn copy_alone<E: From<SqliteError>>(
        &mut self,
        cancel: &Cancel,
        keep: &mut impl FnMut(&Self, &Look) -> Result<(), E>,
    ) -> Result<bool, E> {
        if self.rest_bytes()? > self.rest_bytes_max {
            return Ok(false);
        }
        self.move_pin(cancel, keep)?;
        for _ in 0..TRIES_MAX {
            if self.copies_all()? {
                self.move_pin(cancel, keep)?;
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(false)
    }

    /// Bytes of the pages that were committed since the last look.
    fn rest_bytes(&self) -> Result<u64, SqliteError> {
        let index = index_of(&self.database, &self.shm)?;
        let kept = match index.salts == self.last.salts {
            true => self.last.frame,
            false => 0,
        };
        let frames = index.frame_count.saturating_sub(kept);
        Ok(u64::from(frames) * u64::from(index.page_bytes))
    }

    /// If the pin holds mark 0, makes sure that no process is inside a checkpoint when it leaves
    /// that. SQLite up to 3.51.2 may lose what such a process copies from a log that begins again.
    /// A checkpoint that keeps writers away meanwhile does no harm, and it may wait for the pin.
    pub(super) fn wait_for_copiers(&self, cancel: &Cancel) -> Result<(), SqliteError> {
        if self.index.backfilled < self.index.frame_count {
            return Ok(());
        }
        // If a writer left the index half-written, SQLite mends it in a checkpoint.
        let now = read_index(&self.shm, &beside(&self.database.path, "-shm"))?;
        if now.is_some_and(|now| now.same_generation(&self.index)) {
            return Ok(());
        }
        let since = Instant::now();
        while !self.copier.checkpoint()? && !self.is_waited_for()? {
            cancel.check()?;
            let waited = self.database.lock_wait;
            if since.elapsed() >= waited {
                let path = self.database.path.clone();
                return Err(SqliteError::Busy { path, waited });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
