//! The keeper: keeps sessions that are idle for a while alive, and watches them.
//!
//!   while files are copied --> keeper of the backup's session: if it ends, the run stops at once
//!   from start to stop ------> keeper of the slot's session: if it ends, another slot is made
//!
//! During a backup its sessions are silent for hours. So the keeper sends something on each one now
//! and then, so that no firewall or proxy takes it for dead. The keeper also notices at once when a
//! session ends, and not only when the copy is done.
//!
//! Invariants
//! - If a session ends with words of its server, these words are reported.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_engine::Stopper;

use crate::cluster::open;
use crate::conninfo::Conninfo;
use crate::error::PostgresError;
use crate::session::Session;
use crate::warning::Warning;

/// How long a keeper waits for the server before it checks whether it is still needed.
const LOOK: Duration = Duration::from_millis(25);
/// Checking the log's first segment takes a system call, so the keeper does it less often.
const LOOKS_PER_CHECK: u32 = 40;
/// If the server ends every session of ours, it does not want any.
const SLOTS_MAX: u32 = 10;

/// The log's first segment, which the server must not recycle.
pub(crate) struct FirstSegment {
    directory: PathBuf,
    name: String,
}

impl FirstSegment {
    /// `None` if there is no segment with this name: a standby may already be on another timeline.
    pub(crate) fn new(directory: PathBuf, name: String) -> Option<Self> {
        let first = Self { directory, name };
        first.check().is_ok().then_some(first)
    }

    fn check(&self) -> Result<(), PostgresError> {
        if self.directory.join(&self.name).exists() {
            return Ok(());
        }
        Err(PostgresError::WalMissing {
            segment: self.name.clone(),
            directory: self.directory.clone(),
            slot_limit: None,
        })
    }
}

/// Runs `work` while another thread keeps the session. If the session ends, or the server removes
/// log that the backup needs, the run stops and the error says so.
pub(crate) fn while_kept<T>(
    session: &mut Session,
    stopper: &Stopper,
    first: Option<&FirstSegment>,
    work: impl FnOnce() -> Result<T, PostgresError>,
) -> Result<T, PostgresError> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            let kept = keep(session, &done, first);
            if kept.is_err() {
                stopper.stop();
            }
            kept
        });
        let worked = work();
        done.store(true, Ordering::Release);
        match keeper.join() {
            Ok(kept) => kept.and(worked),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn keep(
    session: &mut Session,
    done: &AtomicBool,
    first: Option<&FirstSegment>,
) -> Result<(), PostgresError> {
    let mut looks = 0_u32;
    while !done.load(Ordering::Acquire) {
        session.idle(LOOK)?;
        looks = looks.wrapping_add(1);
        if let Some(first) = first.filter(|_| looks.is_multiple_of(LOOKS_PER_CHECK)) {
            first.check()?;
        }
    }
    Ok(())
}

/// A session that pins the log with a temporary slot until this value is dropped. If the session
/// ends earlier, another one takes its place.
pub(crate) struct Pin {
    done: Arc<AtomicBool>,
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl Pin {
    /// Keeps a session that already has a slot.
    pub(crate) fn keep(mut session: Session, conninfo: Conninfo) -> Self {
        let pin = Self {
            done: Arc::default(),
            warnings: Arc::default(),
        };
        let (done, warnings) = (Arc::clone(&pin.done), Arc::clone(&pin.warnings));
        // The thread ends when the flag is set. Nobody waits for it, because the server drops a
        // slot together with its session.
        std::thread::spawn(move || {
            for _ in 0..SLOTS_MAX {
                let Err(error) = keep(&mut session, &done, None) else {
                    return;
                };
                let again = open(&conninfo).ok().and_then(|mut session| {
                    session.pin_wal().ok()?;
                    Some(session)
                });
                let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
                warnings.push(Warning::WalPinLost {
                    reason: error.words(),
                    again: again.is_some(),
                });
                match again {
                    Some(again) => session = again,
                    None => return,
                }
            }
        });
        pin
    }

    /// Releases the log. Returns the warnings that came up meanwhile.
    pub(crate) fn end(self) -> Vec<Warning> {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *warnings)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Release);
    }
}
