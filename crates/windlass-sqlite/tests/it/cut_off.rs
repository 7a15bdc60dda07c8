//! A database that has lost its end: cut off, emptied, or shorter than its header says. Each case
//! is an error in every mode and for every reader; Windlass never reads zeros for missing bytes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use windlass_engine::Cancel;
use windlass_sqlite::{Database, SqliteError};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell, run_once};

use crate::support::{Room, backup_while, round_trip, try_backup};

const BOTH_MODES: [Journal; 2] = [Journal::Wal, Journal::Delete];
/// More than the buffers of a run hold, so that the run reads what lies behind it after the gate.
pub const CUT_BYTES: u64 = 1 << 20;

/// A ledger of some 6 MB and ten transactions. In WAL mode an open connection keeps the log.
pub fn scene(journal: Journal) -> (Room, CommitLedger, Option<Shell>) {
    let room = Room::new();
    let spec = LedgerSpec {
        journal,
        accounts: 3000,
        payload_bytes: 1500,
        seed: 22,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&room.path("a.db"), spec);
    let keeper = (journal == Journal::Wal).then(|| ledger.shell());
    ledger.commit(1, 10);
    (room, ledger, keeper)
}

pub fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

fn pages(path: &Path) -> u64 {
    run_once(path, "PRAGMA page_count;")
        .unwrap()
        .parse()
        .unwrap()
}

pub fn expect_cut_off<T>(result: Result<T, SqliteError>, at: u64, whole: u64) {
    let error = result.map(drop).unwrap_err();
    let SqliteError::CutOff {
        found_bytes,
        needed_bytes,
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*found_bytes, *needed_bytes), (at, whole));
    assert!(error.hint().is_some());
}

#[test]
fn a_database_that_is_cut_off_during_the_copy_is_an_error() {
    for journal in BOTH_MODES {
        let (room, ledger, _keeper) = scene(journal);
        let whole = std::fs::metadata(&ledger.path).unwrap().len();
        let path = ledger.path.clone();
        let meanwhile = move || cut(&path, CUT_BYTES);
        let result = backup_while(&ledger.path, &room.path("set"), meanwhile);
        expect_cut_off(result, CUT_BYTES, whole);
        assert!(!room.names().iter().any(|name| name.starts_with("set")));
    }
}

/// The locks hold, and the log has what the index said. SQLite maps the index into memory, and the
/// lost part of the map is never touched.
#[test]
fn an_index_of_the_log_that_is_emptied_during_the_copy_does_no_harm() {
    for is_in_use in [true, false] {
        let (room, ledger, mut keeper) = scene(Journal::Wal);
        if !is_in_use {
            keeper.take().unwrap().close();
        }
        let index = room.path("a.db-shm");
        let meanwhile = move || cut(&index, 0);
        backup_while(&ledger.path, &room.path("set"), meanwhile).unwrap();
        crate::support::write_copy(&room.path("set"), &room.path("copy"));
        assert_eq!(ledger.check(&room.path("copy")), 10);
        assert_eq!(room.path("a.db-wal").exists(), is_in_use);
    }
}

/// Who connects then makes new files, so that two programs do not see each other's locks.
#[test]
fn an_index_of_the_log_that_is_removed_during_the_copy_is_named() {
    let (room, ledger, _keeper) = scene(Journal::Wal);
    let index = room.path("a.db-shm");
    let removed = index.clone();
    let meanwhile = move || std::fs::remove_file(removed).unwrap();
    let error = backup_while(&ledger.path, &room.path("set"), meanwhile).unwrap_err();
    let SqliteError::SideLost { path, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*path, index);
    assert!(!error.hint().unwrap().contains("this process"));
}

/// SQLite forbids this, and no lock prevents it. The set would mix rows of both databases.
#[test]
fn another_database_that_is_copied_over_one_in_wal_mode_is_noticed() {
    let (room, ledger, _keeper) = scene(Journal::Wal);
    let spec = LedgerSpec {
        journal: Journal::Delete,
        accounts: 4000,
        payload_bytes: 1500,
        seed: 23,
        ..LedgerSpec::default()
    };
    let other = CommitLedger::create(&room.path("other.db"), spec).path;
    let path = ledger.path.clone();
    // The file is not emptied first: readers go on meanwhile, and would find it cut off.
    let meanwhile = move || {
        let bytes = std::fs::read(&other).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
    };
    let result = backup_while(&ledger.path, &room.path("set"), meanwhile);
    let error = result.map(|outcome| outcome.facts).unwrap_err();
    let SqliteError::SourceOverwritten { .. } = error else {
        panic!("{error:?}")
    };
    assert!(error.hint().is_some());
    assert!(!room.names().iter().any(|name| name.starts_with("set")));
}

#[test]
fn a_database_that_was_cut_off_before_is_an_error() {
    for journal in BOTH_MODES {
        for cut_at in [CUT_BYTES, CUT_BYTES + 4096 + 100, 4096] {
            let (room, ledger, _keeper) = scene(journal);
            let whole = pages(&ledger.path) * 4096;
            cut(&ledger.path, cut_at);
            let result = try_backup(&ledger.path, &room.path("set"));
            expect_cut_off(result, cut_at, whole);
        }
    }
}

/// Without a connection there is no log; then only the header says how long the file was.
#[test]
fn a_database_at_rest_that_lost_its_last_bytes_is_an_error() {
    for journal in BOTH_MODES {
        for lost in [1, 4096] {
            let (room, ledger, keeper) = scene(journal);
            if let Some(keeper) = keeper {
                keeper.close();
            }
            let whole = std::fs::metadata(&ledger.path).unwrap().len();
            cut(&ledger.path, whole - lost);
            let result = try_backup(&ledger.path, &room.path("set"));
            expect_cut_off(result, whole - lost, whole);
        }
    }
}

/// Pages behind the end of the file are allowed if all of them are in the log.
#[test]
fn pages_behind_the_end_of_the_file_come_from_the_log() {
    let (room, ledger, _keeper) = scene(Journal::Wal);
    let mut writer = ledger.shell();
    writer.run("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_autocheckpoint=0;");
    let whole = std::fs::metadata(&ledger.path).unwrap().len();
    writer.run("CREATE TABLE more(b); INSERT INTO more VALUES(randomblob(400000));");
    let (outcome, _) = round_trip(&ledger.path, &room.path("set"), &room.path("copy"));
    assert!(outcome.facts.bytes > whole + 400_000);
    assert_eq!(std::fs::metadata(&ledger.path).unwrap().len(), whole);
    let sum = "SELECT length(b) FROM more; PRAGMA integrity_check;";
    let found = run_once(&room.path("copy"), sum).unwrap();
    assert_eq!(found, "400000\nok");
    cut(&ledger.path, whole - 4096);
    let result = try_backup(&ledger.path, &room.path("other"));
    expect_cut_off(result, whole - 4096, outcome.facts.bytes);
}

#[test]
fn a_pinned_state_that_is_cut_off_reads_no_zeros() {
    for journal in BOTH_MODES {
        let (_room, ledger, _keeper) = scene(journal);
        let database = Database::open(&ledger.path).unwrap();
        let pinned = database.pin(&Cancel::new()).unwrap();
        let reader = pinned.reader();
        let mut page = [0; 4096];
        let behind = 2 * CUT_BYTES;
        assert_eq!(reader.read(behind, &mut page).unwrap(), 4096);
        cut(&ledger.path, CUT_BYTES);
        let error = reader.read(behind, &mut page).unwrap_err();
        let SqliteError::CutOff { found_bytes, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(found_bytes, CUT_BYTES);
        drop(pinned);
        let error = database.pin(&Cancel::new()).map(drop).unwrap_err();
        assert!(matches!(error, SqliteError::CutOff { .. }), "{error}");
    }
}

/// SQLite removes the log of an empty database when it opens it, though the log may be all that is
/// left.
#[test]
fn an_emptied_database_keeps_its_log_and_its_journal() {
    for journal in BOTH_MODES {
        let (room, ledger, _keeper) = scene(journal);
        let mut shell = ledger.shell();
        shell.run("PRAGMA cache_size=2; BEGIN IMMEDIATE; UPDATE account SET balance = -1;");
        shell.kill();
        let kept = match journal {
            Journal::Wal => room.path("a.db-wal"),
            _ => room.path("a.db-journal"),
        };
        let before = std::fs::read(&kept).unwrap();
        assert!(!before.is_empty());
        cut(&ledger.path, 0);
        let error = try_backup(&ledger.path, &room.path("set")).unwrap_err();
        assert!(matches!(error, SqliteError::Emptied { .. }), "{error}");
        assert!(std::fs::read(&kept).unwrap() == before, "{journal:?}");
    }
}

#[test]
fn a_database_in_its_first_transaction_is_empty() {
    let room = Room::new();
    let path = room.path("a.db");
    File::create(&path).unwrap();
    let mut shell = Shell::open(&path);
    shell.run("BEGIN; CREATE TABLE t(a); INSERT INTO t VALUES(1);");
    let outcome = try_backup(&path, &room.path("set")).unwrap();
    assert_eq!(outcome.facts.bytes, 0);
    shell.run("COMMIT;");
    shell.close();
    assert_eq!(run_once(&path, "SELECT a FROM t;").unwrap(), "1");
}

/// Moves the database away, cuts it off there, and puts another one in its place.
fn replace(path: &Path, other: &Path) {
    let aside = path.with_extension("aside");
    std::fs::rename(path, &aside).unwrap();
    std::fs::copy(other, path).unwrap();
    cut(&aside, CUT_BYTES);
}

fn expect_replaced<T>(result: Result<T, SqliteError>) {
    let error = result.map(drop).unwrap_err();
    assert!(
        matches!(error, SqliteError::SourceReplaced { .. }),
        "{error}"
    );
}

/// What the old file looks like then is of no interest to anybody: the path names a whole database.
#[test]
fn a_database_that_was_replaced_is_not_called_cut_off() {
    for journal in BOTH_MODES {
        for with_sides in [false, true] {
            let (room, ledger, _keeper) = scene(journal);
            let (path, other) = (ledger.path.clone(), room.path("other.db"));
            run_once(&other, "CREATE TABLE other(a);").unwrap();
            let meanwhile = move || {
                if with_sides {
                    for suffix in ["db-wal", "db-shm"] {
                        std::fs::remove_file(path.with_extension(suffix)).unwrap_or_default();
                    }
                }
                replace(&path, &other);
            };
            let result = backup_while(&ledger.path, &room.path("set"), meanwhile);
            expect_replaced(result);
            assert!(!room.names().iter().any(|name| name.starts_with("set")));
        }
    }
}

/// The log may be removed with the old database, before all of it was read.
#[test]
fn a_database_that_was_replaced_with_its_log_is_not_called_broken() {
    let (room, ledger, _keeper) = scene(Journal::Wal);
    let (path, other) = (ledger.path.clone(), room.path("other.db"));
    run_once(&other, "CREATE TABLE other(a);").unwrap();
    let meanwhile = move || {
        for suffix in ["db-wal", "db-shm"] {
            std::fs::remove_file(path.with_extension(suffix)).unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(other, &path).unwrap();
    };
    expect_replaced(backup_while(&ledger.path, &room.path("set"), meanwhile));
}

#[test]
fn a_reader_of_a_database_that_was_replaced_says_so() {
    for journal in BOTH_MODES {
        let (room, ledger, _keeper) = scene(journal);
        let other = room.path("other.db");
        run_once(&other, "CREATE TABLE other(a);").unwrap();
        let database = Database::open(&ledger.path).unwrap();
        let pinned = database.pin(&Cancel::new()).unwrap();
        replace(&ledger.path, &other);
        let mut page = [0; 4096];
        expect_replaced(pinned.reader().read(2 * CUT_BYTES, &mut page));
        drop(pinned);
        expect_replaced(database.check_end());
    }
}
