//! Sessions that nobody uses for a while, kept alive and watched.
//!
//!   while files are copied --> keeper of the backup's session: its end stops the run at once
//!   from start to stop ------> keeper of the slot's session: its end makes another slot at once
//!
//! A backup lasts hours in which its sessions say nothing. Each says something now and then, so
//! that no firewall or proxy takes it for dead; and the end of one is noticed when it comes, not
//! when the copy is done.
//!
//! Invariants
//! - A session that ends with its server's words is reported with these words.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_engine::Stopper;

use crate::cluster::open;
use crate::conninfo::Target;
use crate::error::PostgresError;
use crate::session::Session;
use crate::warning::Warning;

/// How long a keeper waits for the server before it looks whether it is needed any more.
const LOOK: Duration = Duration::from_millis(25);
/// Looks at the log's first segment are system calls, so they are fewer.
const LOOKS_PER_CHECK: u32 = 40;
/// A server that ends each session of ours wants none.
const SLOTS_MAX: u32 = 10;

/// The log's first segment, which the server must not recycle.
pub(crate) struct FirstSegment {
    directory: PathBuf,
    name: String,
}

impl FirstSegment {
    /// `None` when it is not there under this name: a standby may be on another timeline already.
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
        })
    }
}

/// Does `work` while another thread keeps the session. The end of the session, or of the log that
/// the backup needs, stops the run and is the error.
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

/// A session that pins the log with a temporary slot, until this is dropped. If the session ends
/// before, another one takes its place.
pub(crate) struct Pin {
    done: Arc<AtomicBool>,
    warnings: Arc<Mutex<Vec<Warning>>>,
}

impl Pin {
    /// Keeps a session that has a slot.
    pub(crate) fn keep(mut session: Session, target: Target) -> Self {
        let pin = Self {
            done: Arc::default(),
            warnings: Arc::default(),
        };
        let (done, warnings) = (Arc::clone(&pin.done), Arc::clone(&pin.warnings));
        // It ends with the flag. Nobody waits for it: the server drops a slot with its session.
        std::thread::spawn(move || {
            for _ in 0..SLOTS_MAX {
                let Err(error) = keep(&mut session, &done, None) else {
                    return;
                };
                let again = open(&target).ok().and_then(|mut session| {
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

    /// Lets the log go; what happened meanwhile.
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
