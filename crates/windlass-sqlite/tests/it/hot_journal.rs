//! A writer dies in its transaction and leaves a hot journal. SQLite rolls it back for the backup.
//! But if the file has lost its end, the rollback would fill it with zeros, so there must be none.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use windlass_engine::Cancel;
use windlass_sqlite::{Database, SqliteError, Warning};
use windlass_testkit::sqlite::{CommitLedger, Journal, Random, Shell, run_once};

use crate::cut_off::{self, CUT_BYTES, cut, expect_cut_off};
use crate::support::{Room, backup_while, round_trip, try_backup, write_copy};

const ROLLBACK_MODES: [Journal; 3] = [Journal::Delete, Journal::Truncate, Journal::Persist];
/// A transaction with so small a cache changes the file before it ends.
const BEGIN: &str = "PRAGMA cache_size=2; BEGIN IMMEDIATE;";
const FIRST_ROWS: &str = "UPDATE account SET balance = -1 WHERE id < 300;";

/// A ledger in rollback mode.
fn scene(journal: Journal) -> (Room, CommitLedger) {
    let (room, ledger, _) = cut_off::scene(journal);
    (room, ledger)
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

fn journal_of(path: &Path) -> PathBuf {
    path.with_extension("db-journal")
}

/// A shell begins a transaction, changes the file, and dies.
fn die_within(mut shell: Shell, changes: &str) {
    shell.run(&format!("{BEGIN} {changes}"));
    shell.kill();
}

#[test]
fn a_database_that_is_cut_off_is_not_rolled_back() {
    for journal in ROLLBACK_MODES {
        for cut_at in [CUT_BYTES, CUT_BYTES + 4096 + 100, 4096] {
            let (room, ledger) = scene(journal);
            let whole = length(&ledger.path);
            die_within(ledger.shell(), FIRST_ROWS);
            cut(&ledger.path, cut_at);
            let files = || [&ledger.path, &journal_of(&ledger.path)].map(std::fs::read);
            let before = files().map(Result::unwrap);
            expect_cut_off(try_backup(&ledger.path, &room.path("set")), cut_at, whole);
            let database = Database::open(&ledger.path).unwrap();
            expect_cut_off(database.check_end(), cut_at, whole);
            expect_cut_off(database.pin(&Cancel::new()), cut_at, whole);
            assert!(files().map(Result::unwrap) == before, "{journal:?}");
        }
    }
}

#[test]
fn a_database_that_lost_only_its_last_byte_is_not_rolled_back() {
    let (room, ledger) = scene(Journal::Delete);
    let whole = length(&ledger.path);
    die_within(ledger.shell(), FIRST_ROWS);
    cut(&ledger.path, whole - 1);
    let result = try_backup(&ledger.path, &room.path("set"));
    expect_cut_off(result, whole - 1, whole);
}

#[test]
fn a_database_that_is_cut_off_during_the_copy_is_not_rolled_back() {
    for journal in ROLLBACK_MODES {
        let (room, ledger) = scene(journal);
        let whole = length(&ledger.path);
        let (path, shell) = (ledger.path.clone(), ledger.shell());
        let meanwhile = move || {
            die_within(shell, FIRST_ROWS);
            cut(&path, CUT_BYTES);
        };
        let result = backup_while(&ledger.path, &room.path("set"), meanwhile);
        expect_cut_off(result, CUT_BYTES, whole);
        assert_eq!(length(&ledger.path), CUT_BYTES);
    }
}

/// SQLite removes the journal of an empty database.
#[test]
fn a_database_that_is_emptied_during_the_copy_keeps_its_journal() {
    let (room, ledger) = scene(Journal::Delete);
    let (path, shell) = (ledger.path.clone(), ledger.shell());
    let meanwhile = move || {
        die_within(shell, FIRST_ROWS);
        cut(&path, 0);
    };
    backup_while(&ledger.path, &room.path("set"), meanwhile).unwrap_err();
    assert!(length(&journal_of(&ledger.path)) > 0);
}

#[test]
fn a_transaction_that_dies_during_the_copy_is_rolled_back_and_reported() {
    for journal in ROLLBACK_MODES {
        let (room, ledger) = scene(journal);
        let shell = ledger.shell();
        let meanwhile = move || die_within(shell, FIRST_ROWS);
        let outcome = backup_while(&ledger.path, &room.path("set"), meanwhile).unwrap();
        assert_eq!(outcome.warnings, [Warning::TransactionRolledBack]);
        write_copy(&room.path("set"), &room.path("copy"));
        assert_eq!(ledger.check(&room.path("copy")), 10);
    }
}

/// The transaction made the file longer. What it added is not part of the database.
#[test]
fn a_cut_through_what_the_transaction_added_loses_nothing() {
    let (room, ledger) = scene(Journal::Delete);
    let whole = length(&ledger.path);
    let more = "INSERT INTO bulk SELECT id, randomblob(3000) FROM account;";
    die_within(ledger.shell(), more);
    assert!(length(&ledger.path) > whole + 100_000);
    cut(&ledger.path, whole + 50_000);
    round_trip(&ledger.path, &room.path("set"), &room.path("copy"));
    assert_eq!(ledger.check(&room.path("copy")), 10);
}

/// A table whose last pages are leaves, which an update of all rows puts into the journal.
fn blobs(path: &Path) -> String {
    let setup = "CREATE TABLE a(i INTEGER PRIMARY KEY, b);
        WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 30000)
        INSERT INTO a SELECT i, randomblob(200) FROM r;";
    run_once(path, setup).unwrap();
    content(path)
}

/// The rows of all of `blobs`, and SQLite's verdict.
fn content(path: &Path) -> String {
    let rows = "SELECT count(*), sum(length(b)), group_concat(hex(substr(b, 1, 4)), '') FROM a;";
    run_once(path, &format!("{rows} PRAGMA integrity_check;")).unwrap()
}

/// Old versions of SQLite cut the file before the transaction ends, and VACUUM still does.
#[test]
fn pages_behind_the_end_of_the_file_come_from_the_journal() {
    let room = Room::new();
    let path = room.path("a.db");
    for synchronous in ["off", "full"] {
        std::fs::remove_file(&path).unwrap_or_default();
        let before = blobs(&path);
        let whole = length(&path);
        // The second statement pushes the last pages of the first out of the cache. A page counts
        // in the journal only when it may also be in the file.
        let changes = "UPDATE a SET b = randomblob(200);
            UPDATE a SET b = randomblob(200) WHERE i < 5000;";
        let mut shell = Shell::open(&path);
        shell.run(&format!("PRAGMA synchronous={synchronous};"));
        die_within(shell, changes);
        cut(&path, whole - 10 * 4096 - 1);
        let (outcome, _) = round_trip(&path, &room.path("set"), &room.path("copy"));
        std::fs::remove_file(room.path("set")).unwrap();
        assert_eq!(outcome.facts.bytes, whole);
        assert_eq!(outcome.warnings, [Warning::TransactionRolledBack]);
        assert!(content(&room.path("copy")) == before);
    }
}

/// What kills `sqlite3`: it has written this much into the journal, or the file became shorter.
enum KillAt {
    JournalBytes(u64),
    Shorter,
}

/// Runs SQL in a process that is killed at some moment, or ends before it.
fn run_and_kill(path: &Path, sql: &str, at: &KillAt) {
    let whole = length(path);
    let mut command = Command::new("sqlite3");
    command.arg(path).arg(sql).stdout(Stdio::null());
    let mut child = windlass_testkit::starting::start(&mut command).unwrap();
    while child.try_wait().unwrap().is_none() {
        let is_now = match at {
            KillAt::JournalBytes(bytes) => length(&journal_of(path)) >= *bytes,
            KillAt::Shorter => length(path) < whole,
        };
        if is_now {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Whatever a crash leaves can be rolled back. VACUUM with a smaller page size cuts the file in
/// mid-transaction.
#[test]
fn no_crash_is_taken_for_a_database_that_is_cut_off() {
    let mut random = Random(4);
    let shrinking = [
        "PRAGMA page_size=1024; VACUUM;",
        "PRAGMA auto_vacuum=1; VACUUM;",
        "PRAGMA incremental_vacuum;",
        "PRAGMA cache_size=2; BEGIN; UPDATE a SET b = randomblob(300); COMMIT;",
    ];
    let room = Room::new();
    let (first, path) = (room.path("first.db"), room.path("a.db"));
    run_once(&first, "PRAGMA page_size=8192; PRAGMA auto_vacuum=2;").unwrap();
    run_once(
        &first,
        "PRAGMA page_size=8192; PRAGMA auto_vacuum=2; VACUUM;",
    )
    .unwrap();
    blobs(&first);
    run_once(&first, "DELETE FROM a WHERE i % 3 < 2;").unwrap();
    let before = content(&first);
    let bytes = u32::try_from(length(&first)).unwrap();
    for draw in 0..24 {
        let sql = shrinking[draw % shrinking.len()];
        std::fs::copy(&first, &path).unwrap();
        let at = match draw / shrinking.len() {
            0 => KillAt::Shorter,
            _ => KillAt::JournalBytes(random.below(bytes).into()),
        };
        run_and_kill(&path, sql, &at);
        round_trip(&path, &room.path("set"), &room.path("copy"));
        std::fs::remove_file(room.path("set")).unwrap();
        let found = content(&room.path("copy"));
        assert!(found == before || sql.contains("UPDATE"), "{draw}: {sql}");
        assert!(found.ends_with("\nok"), "{draw}: {sql}");
    }
}

/// SQLite cannot tell what the log of a file without a name may be like: disk I/O error 1802.
#[test]
fn an_error_of_sqlite_on_a_database_that_was_removed_says_so() {
    let (room, ledger) = scene(Journal::Delete);
    let path = ledger.path.clone();
    let meanwhile = move || {
        run_once(&path, "PRAGMA journal_mode=WAL;").unwrap();
        std::fs::remove_file(&path).unwrap();
    };
    let error = backup_while(&ledger.path, &room.path("set"), meanwhile).unwrap_err();
    let is_named = matches!(error, SqliteError::SourceReplaced { .. });
    assert!(is_named, "{error}");
}
