//! Other processes do their worst in the middle of a backup, at a known moment.

use std::time::Duration;

use windlass_sqlite::{Database, SqliteError, Warning};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, run_once};

use crate::support::{Room, backup_while, round_trip, run_to, write_copy};

/// Larger than the buffers of a run, so that the run reads most of it after the gate.
fn spec(journal: Journal) -> LedgerSpec {
    let (accounts, payload_bytes) = (3000, 1500);
    LedgerSpec {
        journal,
        accounts,
        payload_bytes,
        seed: 21,
        ..LedgerSpec::default()
    }
}

struct Scene {
    room: Room,
    ledger: CommitLedger,
}

impl Scene {
    /// A ledger of ten transactions.
    fn new(spec: LedgerSpec) -> Self {
        let room = Room::new();
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        ledger.commit(1, 10);
        Self { room, ledger }
    }

    /// Backs up while `meanwhile` runs. Returns the warnings, and the number of transactions in the
    /// copy.
    fn backup(&self, meanwhile: impl FnOnce(CommitLedger) + Send + 'static) -> (Vec<Warning>, u64) {
        let (stripe, copy) = (self.room.path("set"), self.room.path("copy"));
        let ledger = self.ledger.clone();
        let outcome = backup_while(&ledger.path.clone(), &stripe, move || meanwhile(ledger));
        write_copy(&stripe, &copy);
        (outcome.unwrap().warnings, self.ledger.check(&copy))
    }
}

#[test]
fn wal_commits_and_checkpoints_during_the_copy_do_not_reach_it() {
    let scene = Scene::new(spec(Journal::Wal));
    let (_, found) = scene.backup(|ledger| {
        for last in [40, 70, 100] {
            ledger.commit(last - 29, last);
            // The checkpoint copies what it may. It cannot restart the log in any mode.
            run_once(&ledger.path, "PRAGMA wal_checkpoint(PASSIVE);").unwrap();
            run_once(&ledger.path, "PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
        }
    });
    assert!(
        found == 10,
        "a state of the moment the copy began, not {found}"
    );
    assert_eq!(scene.ledger.check(&scene.ledger.path), 10 + 90);
}

#[test]
fn wal_with_frames_pinned_survives_checkpoints_during_the_copy() {
    let scene = Scene::new(spec(Journal::Wal));
    let mut writer = scene.ledger.shell();
    writer.run("PRAGMA wal_autocheckpoint=0;");
    for number in 11..=60 {
        writer.run(&scene.ledger.transaction(number));
    }
    let (_, found) = scene.backup(move |ledger| {
        for number in 61..=90 {
            writer.run(&ledger.transaction(number));
        }
        writer.run(".timeout 0\nPRAGMA wal_checkpoint(FULL); PRAGMA wal_checkpoint(PASSIVE);");
        for number in 91..=120 {
            writer.run(&ledger.transaction(number));
        }
        writer.run("PRAGMA wal_checkpoint(TRUNCATE);");
        writer.close();
    });
    assert_eq!(found, 60);
    assert_eq!(scene.ledger.check(&scene.ledger.path), 120);
}

/// If all of the log has been copied, it pins nothing: the next commit overwrites its frames.
#[test]
fn wal_restarted_during_the_copy() {
    let scene = Scene::new(spec(Journal::Wal));
    let mut writer = scene.ledger.shell();
    for number in 11..=60 {
        writer.run(&scene.ledger.transaction(number));
    }
    writer.run("PRAGMA wal_checkpoint(PASSIVE);");
    let wal = scene.room.path("a.db-wal");
    let salts = move || std::fs::read(&wal).unwrap()[16..24].to_vec();
    let before = salts();
    let (_, found) = scene.backup(move |ledger| {
        for number in 61..=90 {
            writer.run(&ledger.transaction(number));
        }
        assert_ne!(salts(), before, "the log was restarted");
        writer.run(".timeout 0\nPRAGMA wal_checkpoint(TRUNCATE);");
        writer.close();
    });
    assert_eq!(found, 60);
    assert_eq!(scene.ledger.check(&scene.ledger.path), 90);
}

/// A vacuum goes to the log; the file may not shrink while somebody reads it.
#[test]
fn wal_database_vacuumed_during_the_copy() {
    for checkpointed in [true, false] {
        let scene = Scene::new(spec(Journal::Wal));
        let mut writer = scene.ledger.shell();
        writer.run("CREATE TABLE ballast(b); INSERT INTO ballast VALUES(zeroblob(3000000));");
        if checkpointed {
            writer.run("PRAGMA wal_checkpoint(PASSIVE);");
        }
        let (_, found) = scene.backup(move |ledger| {
            ledger.commit(11, 20);
            writer.run("DROP TABLE ballast; VACUUM;");
            writer.run(".timeout 0\nPRAGMA wal_checkpoint(TRUNCATE);");
            writer.close();
        });
        assert_eq!(found, 10, "{checkpointed}");
        let copied = run_once(&scene.room.path("copy"), "SELECT length(b) FROM ballast;");
        assert_eq!(copied.unwrap(), "3000000", "{checkpointed}");
        assert_eq!(scene.ledger.check(&scene.ledger.path), 20);
    }
}

#[test]
fn wal_mode_cannot_be_left_during_the_copy() {
    let scene = Scene::new(spec(Journal::Wal));
    let (_, found) = scene.backup(|ledger| {
        let refused = run_once(&ledger.path, "PRAGMA journal_mode=delete;");
        assert!(
            refused.as_ref().is_err_and(|why| why.contains("locked")),
            "{refused:?}"
        );
    });
    assert_eq!(found, 10);
}

#[test]
fn rollback_writers_commit_during_the_copy_and_are_settled() {
    let scene = Scene::new(spec(Journal::Delete));
    let (warnings, found) = scene.backup(|ledger| ledger.commit(11, 60));
    assert_eq!((warnings, found), (vec![], 60));
}

/// If a writer wrote during the copy and then stopped, the backup does not lock writers out while
/// it reads the file once more.
#[test]
fn rollback_writers_that_rest_are_locked_out_for_no_reading() {
    let scene = Scene::new(spec(Journal::Delete));
    let (stripe, copy) = (scene.room.path("set"), scene.room.path("copy"));
    let ledger = scene.ledger.clone();
    let outcome = backup_while(&scene.ledger.path, &stripe, move || {
        ledger.commit(11, 60);
        // Wait until a later write would show in the file's change time, on any file system.
        std::thread::sleep(Duration::from_millis(4500));
    });
    assert_eq!(outcome.unwrap().lock_bytes, 0);
    write_copy(&stripe, &copy);
    assert_eq!(scene.ledger.check(&copy), 60);
}

#[test]
fn rollback_database_vacuumed_during_the_copy() {
    let scene = Scene::new(LedgerSpec {
        auto_vacuum: true,
        ..spec(Journal::Delete)
    });
    run_once(
        &scene.ledger.path,
        "CREATE TABLE ballast(b); INSERT INTO ballast VALUES(zeroblob(3000000));",
    )
    .unwrap();
    let before = std::fs::metadata(&scene.ledger.path).unwrap().len();
    let (_, found) = scene.backup(|ledger| {
        ledger.commit(11, 20);
        run_once(&ledger.path, "DROP TABLE ballast; VACUUM;").unwrap();
    });
    let after = std::fs::metadata(scene.room.path("copy")).unwrap().len();
    assert!(
        after + 2_500_000 < before,
        "the file shrank from {before} to {after}"
    );
    assert_eq!(found, 20);
}

#[test]
fn rollback_database_that_changes_its_page_size_during_the_copy() {
    let scene = Scene::new(spec(Journal::Delete));
    let (_, found) = scene.backup(|ledger| {
        run_once(&ledger.path, "PRAGMA page_size=16384; VACUUM;").unwrap();
    });
    assert_eq!(found, 10);
    assert_eq!(
        run_once(&scene.room.path("copy"), "PRAGMA page_size;").unwrap(),
        "16384"
    );
}

#[test]
fn rollback_database_that_grows_during_the_copy() {
    let scene = Scene::new(spec(Journal::Truncate));
    let (_, found) = scene.backup(|ledger| {
        let ballast = "CREATE TABLE ballast(b); INSERT INTO ballast VALUES(zeroblob(5000000));";
        run_once(&ledger.path, ballast).unwrap();
        ledger.commit(11, 12);
    });
    assert_eq!(found, 12);
    let ballast = run_once(&scene.room.path("copy"), "SELECT length(b) FROM ballast;");
    assert_eq!(ballast.unwrap(), "5000000");
}

/// Afterwards the change counter is as it was, but what was copied in between is not.
#[test]
fn a_transaction_that_spilled_and_was_rolled_back_leaves_no_trace() {
    let scene = Scene::new(spec(Journal::Persist));
    let (_, found) = scene.backup(|ledger| {
        let mut shell = ledger.shell();
        shell.run("PRAGMA cache_size=2; BEGIN IMMEDIATE; UPDATE account SET balance = -1;");
        // Let the reader go on while the spilled pages are in the file.
        std::thread::spawn(move || {
            shell.run("ROLLBACK;");
            shell.close();
        });
    });
    assert_eq!(found, 10);
}

#[test]
fn a_database_that_turns_to_wal_mode_during_the_copy() {
    for close in [true, false] {
        let scene = Scene::new(spec(Journal::Delete));
        let path = scene.ledger.path.clone();
        let mut shell = scene.ledger.shell();
        shell.run("SELECT count(*) FROM log;");
        let shell = std::sync::Arc::new(std::sync::Mutex::new(Some(shell)));
        let inside = std::sync::Arc::clone(&shell);
        let (warnings, found) = scene.backup(move |ledger| {
            let mut slot = inside.lock().unwrap();
            let mut shell = slot.take().unwrap();
            shell.run("PRAGMA journal_mode=wal; PRAGMA wal_autocheckpoint=0;");
            for number in 11..=60 {
                shell.run(&ledger.transaction(number));
            }
            if close {
                shell.close()
            } else {
                *slot = Some(shell)
            }
        });
        assert_eq!(found, 60);
        assert!(warnings.contains(&Warning::BecameWal), "{warnings:?}");
        drop(shell);
        assert_eq!(scene.ledger.check(&path), 60);
    }
}

#[test]
fn a_database_that_is_removed_or_replaced_during_the_copy_is_an_error() {
    for journal in [Journal::Wal, Journal::Delete] {
        for replace in [true, false] {
            let scene = Scene::new(spec(journal));
            let stripe = scene.room.path("set");
            let (path, aside) = (scene.ledger.path.clone(), scene.room.path("aside"));
            let result = backup_while(&scene.ledger.path, &stripe, move || {
                std::fs::rename(&path, &aside).unwrap();
                if replace {
                    std::fs::copy(&aside, &path).unwrap();
                }
            });
            let error = result.unwrap_err();
            assert!(
                matches!(error, SqliteError::SourceReplaced { .. }),
                "{error}"
            );
            assert!(!stripe.exists(), "no set is left");
        }
    }
}

#[test]
fn a_database_locked_exclusively_is_reported_within_the_stated_wait() {
    for journal in [Journal::Wal, Journal::Delete] {
        let scene = Scene::new(spec(journal));
        let mut shell = scene.ledger.shell();
        shell.run(&format!(
            "PRAGMA locking_mode=exclusive; {}",
            scene.ledger.transaction(11)
        ));
        let mut database = Database::open(&scene.ledger.path).unwrap();
        database.set_lock_wait(Duration::from_millis(20));
        let error = database
            .backup(run_to(&scene.room.path("set")))
            .unwrap_err();
        assert!(matches!(error, SqliteError::Busy { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("EXCLUSIVE")));
        shell.close();
        assert_eq!(scene.ledger.check(&scene.ledger.path), 11);
    }
}

#[test]
fn a_writer_that_has_not_committed_is_neither_waited_for_nor_seen() {
    for journal in [Journal::Wal, Journal::Delete] {
        let scene = Scene::new(spec(journal));
        let mut shell = scene.ledger.shell();
        shell.run(&format!("BEGIN IMMEDIATE; {}", scene.ledger.changes(11)));
        let (outcome, _) = round_trip(
            &scene.ledger.path,
            &scene.room.path("set"),
            &scene.room.path("copy"),
        );
        assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
        assert_eq!(scene.ledger.check(&scene.room.path("copy")), 10);
        shell.run("COMMIT;");
        shell.close();
        assert_eq!(scene.ledger.check(&scene.ledger.path), 11);
    }
}

#[test]
fn a_hot_journal_is_rolled_back_and_reported() {
    for journal in [Journal::Delete, Journal::Truncate, Journal::Persist] {
        let scene = Scene::new(spec(journal));
        let mut shell = scene.ledger.shell();
        // A cache of two pages spills, so the file holds uncommitted pages when the shell dies.
        shell.run("PRAGMA cache_size=2; BEGIN IMMEDIATE; UPDATE account SET balance = -1;");
        shell.kill();
        let garbage = std::fs::read(&scene.ledger.path).unwrap();
        let (outcome, _) = round_trip(
            &scene.ledger.path,
            &scene.room.path("set"),
            &scene.room.path("copy"),
        );
        assert_eq!(scene.ledger.check(&scene.room.path("copy")), 10);
        let warned = outcome.warnings.contains(&Warning::TransactionRolledBack);
        assert!(warned, "{:?}", outcome.warnings);
        assert_ne!(
            std::fs::read(&scene.ledger.path).unwrap(),
            garbage,
            "the journal was hot"
        );
    }
}
