//! Receives the transactions of a SQLite database, until the caller ends it.
//!
//!   look --> keep, sync --> wait, unless a checkpoint waits for us --> look ...
//!
//! What the database loses of its log before it was read is never passed over in silence: the log
//! of the place goes on with a new timeline.
//!
//! If the place cannot be reached any more, what it lacks is in the database's own log. The command
//! says so, and how much that is at most, before it ends.

use std::path::Path;
use std::time::{Duration, Instant};

use windlass_engine::Cancel;
use windlass_repository::Place;
use windlass_sqlite::SqliteError;

use super::{ReceiveRequest, is_note_gone};
use crate::caller::Caller;
use crate::captured::{CapturedLog, Capturing, Earlier};
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::check_used;

/// How long a wait lasts before locks and the caller are looked at again.
const STEP: Duration = Duration::from_millis(5);
/// If nobody wrote for so long, the log says that.
const QUIET: Duration = Duration::from_secs(60);

pub(super) fn receive(
    caller: &Caller,
    (request, path, place): (&ReceiveRequest, &Path, &Place),
    cancel: &Cancel,
) -> Result<CapturedLog, OperationError> {
    let mut before = None;
    loop {
        check_used(&request.to)?;
        let mut capturing = Capturing::open(caller, (path, place), before.take(), cancel)?;
        let mut kept = capturing.captured().clone();
        let ended = match session(caller, (&mut capturing, &mut kept), (request, cancel)) {
            Ok(None) => capturing.end(),
            Ok(Some(error)) => {
                caller.tell(&Notice::CaptureBroken(&error));
                match capturing.abandon() {
                    Ok(earlier) => {
                        before = Some(earlier);
                        continue;
                    }
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        };
        match ended {
            // What was found and not kept is found again.
            Err(error) if is_note_gone(&error) => {
                caller.tell(&Notice::NoteGone(&error));
                before = Some(Earlier::without_note(kept));
            }
            ended => return ended,
        }
    }
}

/// Captures until the caller ends it, or until something breaks that another session may mend.
/// `kept` is what was captured durably.
fn session(
    caller: &Caller,
    (capturing, kept): (&mut Capturing, &mut CapturedLog),
    (request, cancel): (&ReceiveRequest, &Cancel),
) -> Result<Option<SqliteError>, OperationError> {
    let interval = request.interval(true);
    // What is under way is finished, so that the last look has everything.
    let patient = Cancel::new();
    let mut written = Instant::now();
    loop {
        let is_last = cancel.is_cancelled();
        let looked = capturing.look(&patient);
        if let Some(bytes) = capturing.take_passed_over() {
            let captured = capturing.captured();
            caller.tell(&Notice::PassedOver {
                database: &captured.database,
                timeline: captured.timeline,
                bytes,
            });
        }
        match looked {
            Ok(true) => {
                kept.clone_from(capturing.captured());
                written = Instant::now();
            }
            Ok(false) if written.elapsed() >= QUIET => {
                capturing.stand()?;
                written = Instant::now();
            }
            Ok(false) => {}
            Err(OperationError::Sqlite(SqliteError::Busy { .. })) if !is_last => {}
            Err(OperationError::Sqlite(error)) if error.is_break() => {
                return Ok(Some(error));
            }
            Err(error) if is_note_gone(&error) => return Err(error),
            Err(error) => {
                let (log, bytes) = capturing.own_log();
                caller.tell(&Notice::NotKept { log: &log, bytes });
                return Err(error);
            }
        }
        if is_last {
            return Ok(None);
        }
        wait(capturing, interval, cancel)?;
    }
}

/// Waits for the next look. Who waits for the pin may wait for other readers, too, and then goes on
/// waiting: so there is a pause in any case.
fn wait(capturing: &Capturing, interval: Duration, cancel: &Cancel) -> Result<(), OperationError> {
    let since = Instant::now();
    loop {
        std::thread::sleep(STEP.min(interval));
        if since.elapsed() >= interval || cancel.is_cancelled() || capturing.is_waited_for()? {
            return Ok(());
        }
    }
}
