//! What may make writers wait in rollback mode, and for how long. A rate limit must not; a device
//! may, but no longer than the lock limit.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windlass_engine::{Cause, Progress};
use windlass_sqlite::{Database, SqliteError};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, run_once};

use crate::support::{Room, TRANSFER_BYTES, gated_run, write_copy};

/// The phase in which writers are locked out.
const LOCKED: &str = "settling under the database lock";
/// Touches every page.
const UPDATE: &str = "UPDATE account SET payload = randomblob(1500);";

fn scene() -> (Room, CommitLedger) {
    let room = Room::new();
    let spec = LedgerSpec {
        journal: Journal::Delete,
        accounts: 1500,
        payload_bytes: 1500,
        seed: 23,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&room.path("a.db"), spec);
    ledger.commit(1, 3);
    (room, ledger)
}

/// Writes to the whole database again and again while the copy is made without a lock. So more is
/// left to copy under the lock than all buffers hold. Returns false once the lock is held.
fn keep_changing(path: &Path, writes: &mut u32, progress: &Progress) -> bool {
    let locked = progress.phase() == LOCKED;
    *writes += 1;
    if !locked && writes.is_multiple_of(8) {
        // SQLite refuses this write if the backup has just taken the lock.
        run_once(path, UPDATE).unwrap_or_default();
    }
    !locked
}

fn rate_limit_waits(progress: &Progress) -> Vec<(windlass_engine::StageName, u64)> {
    let waits = |stage: windlass_engine::StageReport| {
        let waits = stage.waits.into_iter();
        let limited = waits.filter(|wait| wait.cause == Cause::RateLimit);
        (stage.name, limited.map(|wait| wait.count).sum())
    };
    progress.reports().map(waits).to_vec()
}

#[test]
fn no_rate_limit_holds_while_writers_are_locked_out() {
    let (room, ledger) = scene();
    let mut database = Database::open(&ledger.path).unwrap();
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let (path, inside, mut writes) = (ledger.path.clone(), Arc::clone(&seen), 0);
    // So little that the slowest disk has to wait for it.
    let rate = Some(4 << 20);
    let stripe = room.path("set");
    let run = gated_run(&database, &stripe, TRANSFER_BYTES, rate, move |progress| {
        if !keep_changing(&path, &mut writes, progress) {
            inside.lock().unwrap().push(rate_limit_waits(progress));
        }
    });
    let progress = Arc::clone(run.progress());
    let outcome = database.backup(run).unwrap();
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(seen.len() > 8, "{} writes under the lock", seen.len());
    let waits = rate_limit_waits(&progress);
    assert!(waits.iter().any(|(_, count)| *count > 8), "{waits:?}");
    for one in &seen {
        assert_eq!(one, &seen[0], "nothing waited for a limit under the lock");
    }
    assert!(outcome.lock_bytes > 0);
    let (done, total) = (progress.done(), progress.total());
    assert!(done <= total, "{done} of {total}");
    write_copy(&stripe, &room.path("copy"));
    let checked = run_once(&room.path("copy"), "PRAGMA integrity_check;");
    assert_eq!(checked.unwrap(), "ok");
}

/// The device hangs until another connection can write to the database again.
#[test]
fn a_device_that_hangs_keeps_writers_out_no_longer_than_the_limit() {
    let (room, ledger) = scene();
    let mut database = Database::open(&ledger.path).unwrap();
    database.set_lock_limit(Some(Duration::from_millis(300)));
    let (path, mut writes) = (ledger.path.clone(), 0);
    let stripe = room.path("set");
    let run = gated_run(&database, &stripe, TRANSFER_BYTES, None, move |progress| {
        if !keep_changing(&path, &mut writes, progress) {
            while run_once(&path, UPDATE).is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    let error = database.backup(run).map(|done| done.facts).unwrap_err();
    assert!(matches!(error, SqliteError::LockLimit { .. }), "{error}");
    assert!(error.hint().unwrap().contains("allow more seconds"));
    assert_eq!(room.names(), ["a.db"], "nothing is left behind");
    let checked = run_once(&ledger.path, "PRAGMA integrity_check;");
    assert_eq!(checked.unwrap(), "ok");
}
