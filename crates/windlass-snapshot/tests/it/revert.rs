//! Databases go back to their snapshots and forth again, while other processes have them open.

use std::path::Path;
use std::sync::Arc;

use windlass_engine::Cancel;
use windlass_snapshot::{
    Back, Method, Place, Reverted, Snapshot, SnapshotError, UndoNumber, find_undo, newest_undo,
    remove_undo, revert, undo_states,
};
use windlass_sqlite::{Database, SqliteError};
use windlass_testkit::sparse;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::support::*;

const JOURNALS: [Journal; 4] = [
    Journal::Wal,
    Journal::Delete,
    Journal::Truncate,
    Journal::Persist,
];

fn ledger(directory: &Path, spec: LedgerSpec) -> CommitLedger {
    let name = format!("{}-{}.db", spec.journal.name(), spec.auto_vacuum);
    let ledger = CommitLedger::create(&directory.join(name), spec);
    ledger.commit(1, 40);
    ledger
}

fn of(journal: Journal) -> LedgerSpec {
    LedgerSpec {
        journal,
        accounts: 300,
        ..LedgerSpec::default()
    }
}

fn go(ledger: &CommitLedger, snapshot: &Snapshot, back: Back) -> Result<Reverted, SnapshotError> {
    let place = Place::beside(&ledger.path).unwrap();
    let database = Database::open(&ledger.path).unwrap();
    revert(
        &place,
        snapshot,
        back,
        &database,
        &Arc::default(),
        &Cancel::new(),
    )
}

fn undo(ledger: &CommitLedger) -> Reverted {
    bring_back(ledger, None)
}

/// Brings back a state, or what the newest revert overwrote.
fn bring_back(ledger: &CommitLedger, number: Option<UndoNumber>) -> Reverted {
    let place = Place::beside(&ledger.path).unwrap();
    let found = match number {
        Some(number) => find_undo(&place, number),
        None => newest_undo(&place),
    };
    let found = found.unwrap();
    go(ledger, &found.snapshot, Back::ToState(found.number)).unwrap()
}

/// Undoes an undo.
fn redo(ledger: &CommitLedger, undone: &Reverted) -> Reverted {
    bring_back(ledger, Some(undone.kept.unwrap()))
}

/// The names of all states that can be brought back.
fn states(ledger: &CommitLedger) -> Vec<String> {
    let all = undo_states(&Place::beside(&ledger.path).unwrap()).unwrap();
    all.iter().map(|undo| undo.number.to_string()).collect()
}

fn made(ledger: &CommitLedger, name: &str, method: Method) -> Snapshot {
    let made = snapshot(&ledger.path, name, Some(method)).unwrap();
    made.snapshot
}

/// The number of transactions that another process sees.
fn seen(shell: &mut Shell) -> String {
    shell.run("SELECT count(*) FROM log;").remove(0)
}

/// Back, forth and back again, while another process has the database open.
fn there_and_back(ledger: &CommitLedger, method: Method) {
    let what = format!("{:?} {method}", ledger.spec);
    let snapshot = made(ledger, "then", method);
    let mut other = ledger.shell();
    assert_eq!(seen(&mut other), "40");
    ledger.commit(41, 90);
    let went = go(ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert!(went.written_count > 10, "{what}: {went:?}");
    assert_eq!(seen(&mut other), "40", "{what}");
    assert_eq!(ledger.check(&ledger.path), 40, "{what}");
    let went = undo(ledger);
    assert!(went.written_count > 10, "{what}: {went:?}");
    assert_eq!(seen(&mut other), "90", "{what}");
    assert_eq!(ledger.check(&ledger.path), 90, "{what}");
    // What came after an undo is kept by the next, and an undo can be undone.
    ledger.commit(91, 95);
    let went = redo(ledger, &went);
    assert_eq!(ledger.check(&ledger.path), 40, "{what}");
    redo(ledger, &went);
    assert_eq!(ledger.check(&ledger.path), 95, "{what}");
    other.run("VACUUM;");
    go(ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert_eq!(ledger.check(&ledger.path), 40, "{what}");
    undo(ledger);
    assert_eq!(seen(&mut other), "95", "{what}");
    assert_eq!(ledger.check(&ledger.path), 95, "{what}");
    // The snapshot itself is as it was.
    let place = tempfile::tempdir_in(ledger.path.parent().unwrap()).unwrap();
    assert_eq!(ledger.check(&written_out(&snapshot, place.path())), 40);
}

#[test]
fn a_database_goes_back_to_a_copy_and_forth_again() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for journal in JOURNALS {
        there_and_back(&ledger(place.path(), of(journal)), Method::Copy);
    }
}

#[test]
fn a_database_goes_back_to_a_clone_and_forth_again() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    for journal in JOURNALS {
        there_and_back(&ledger(volume.at(), of(journal)), Method::Clone);
    }
}

#[test]
fn a_database_that_shrinks_by_itself_goes_back_and_forth() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for journal in [Journal::Wal, Journal::Delete] {
        let spec = LedgerSpec {
            auto_vacuum: true,
            ..of(journal)
        };
        there_and_back(&ledger(place.path(), spec), Method::Copy);
    }
}

/// With `auto_vacuum=full`, a commit moves pages from the end into free ones. A state with free
/// pages must not be taken apart by that.
#[test]
fn free_pages_of_a_state_stay_where_they_are() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let spec = LedgerSpec {
        auto_vacuum: true,
        ..of(Journal::Wal)
    };
    let ledger = ledger(place.path(), spec);
    let mut shell = ledger.shell();
    // The bulk rows of transaction 40 are deleted by transaction 50, and leave free pages.
    shell.run("PRAGMA auto_vacuum=incremental;");
    shell.run(&(41..=55).map(|n| ledger.transaction(n)).collect::<String>());
    assert_ne!(shell.run("PRAGMA freelist_count;"), ["0"]);
    let snapshot = made(&ledger, "free", Method::Copy);
    shell.run("PRAGMA auto_vacuum=full;");
    shell.run(&(56..=70).map(|n| ledger.transaction(n)).collect::<String>());
    assert_eq!(shell.run("PRAGMA freelist_count;"), ["0"]);
    go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert_ne!(shell.run("PRAGMA freelist_count;"), ["0"]);
    assert_eq!(ledger.check(&ledger.path), 55);
    undo(&ledger);
    assert_eq!(ledger.check(&ledger.path), 70);
}

#[test]
fn only_pages_that_differ_are_written_and_kept() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let spec = LedgerSpec {
        accounts: 20_000,
        ..of(Journal::Wal)
    };
    let ledger = ledger(place.path(), spec);
    let snapshot = made(&ledger, "then", Method::Copy);
    let went = go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert_eq!((went.written_count, went.kept_count), (0, 0));
    // Nothing was overwritten, so nothing can be undone.
    assert!(states(&ledger).is_empty());
    ledger.commit(41, 41);
    let went = go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert!(
        went.page_count > 3000 && went.written_count < 10,
        "{went:?}"
    );
    assert!(went.kept_count <= went.written_count + 1, "{went:?}");
    let size = snapshot.path().join("undo.1").metadata().unwrap().len();
    assert!(size < 50_000, "{size}");
}

/// A clone shares its blocks with the database, so only what was written since is read.
#[test]
fn what_a_clone_shares_with_its_database_is_not_read() {
    for kind in [VolumeKind::Xfs, VolumeKind::Btrfs] {
        let volume = Volume::new(kind, 500);
        for journal in [Journal::Wal, Journal::Delete] {
            let spec = LedgerSpec {
                accounts: 40_000,
                ..of(journal)
            };
            let ledger = ledger(volume.at(), spec);
            let snapshot = made(&ledger, "then", Method::Clone);
            let rows = format!("{kind:?} {journal:?}");
            // The last connection that closes writes the log into the file. This one lets it be.
            let mut other = ledger.shell();
            assert_eq!(seen(&mut other), "40");
            for (first, last) in [(41, 41), (42, 43)] {
                ledger.commit(first, last);
                let went = go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
                assert!(went.page_count > 7000, "{rows} {went:?}");
                assert!(went.compared_count < went.page_count / 2, "{rows} {went:?}");
                assert_eq!(ledger.check(&ledger.path), 40, "{rows}");
                let went = undo(&ledger);
                assert!(went.compared_count < went.page_count / 2, "{rows} {went:?}");
                assert_eq!(ledger.check(&ledger.path), last, "{rows}");
            }
        }
    }
}

/// SQLite locks bytes of the page at 1 GiB, and refuses to touch that page.
#[test]
fn a_database_of_more_than_a_gigabyte_goes_back_and_forth() {
    let volume = Volume::new(VolumeKind::Xfs, 600);
    let ledger = ledger(volume.at(), of(Journal::Delete));
    sparse::grow(&ledger.path, (1 << 30) + (1 << 26));
    let snapshot = made(&ledger, "then", Method::Clone);
    // New pages come from the far end, behind the locked page.
    ledger.commit(41, 60);
    let went = go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert!(
        went.page_count > 260_000 && went.written_count < 1000,
        "{went:?}"
    );
    assert!(went.compared_count < went.page_count / 10, "{went:?}");
    assert_eq!(ledger.check(&ledger.path), 40);
    undo(&ledger);
    assert_eq!(ledger.check(&ledger.path), 60);
}

#[test]
fn the_journal_mode_stays_whatever_the_snapshot_had() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for (journal, becomes) in [(Journal::Delete, "wal"), (Journal::Wal, "delete")] {
        let ledger = ledger(place.path(), of(journal));
        let snapshot = made(&ledger, "then", Method::Copy);
        let mut shell = Shell::open(&ledger.path);
        assert_eq!(
            shell.run(&format!("PRAGMA journal_mode={becomes};")),
            [becomes]
        );
        shell.run(&ledger.transaction(41));
        go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
        assert_eq!(seen(&mut shell), "40");
        let mut other = Shell::open(&ledger.path);
        assert_eq!(other.run("PRAGMA journal_mode;"), [becomes]);
        undo(&ledger);
        assert_eq!(seen(&mut shell), "41");
        assert_eq!(ledger.check(&ledger.path), 41);
    }
}

#[test]
fn a_reader_of_a_database_with_a_log_keeps_its_state_until_it_ends() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Wal));
    let snapshot = made(&ledger, "then", Method::Copy);
    ledger.commit(41, 60);
    let mut reader = ledger.shell();
    reader.run("BEGIN;");
    assert_eq!(seen(&mut reader), "60");
    go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert_eq!(seen(&mut reader), "60");
    let checked = reader.run("PRAGMA integrity_check;");
    assert_eq!(checked, ["ok"]);
    reader.run("COMMIT;");
    assert_eq!(seen(&mut reader), "40");
}

/// A process that is killed within a transaction leaves a journal, which the next one to read the
/// database rolls back. Nobody can bring back what it had written.
#[test]
fn a_transaction_that_is_rolled_back_before_a_revert_is_told() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Delete));
    let snapshot = made(&ledger, "then", Method::Copy);
    ledger.commit(41, 60);
    let mut writer = ledger.shell();
    let changes = "UPDATE account SET balance = -1 WHERE id < 300;";
    writer.run(&format!("PRAGMA cache_size=2; BEGIN; {changes}"));
    writer.kill();
    let journal = ledger.path.with_extension("db-journal");
    assert!(journal.metadata().unwrap().len() > 0);
    let went = go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    assert!(went.rolled_back, "{went:?}");
    assert!(!undo(&ledger).rolled_back);
    assert_eq!(ledger.check(&ledger.path), 60);
}

#[test]
fn a_writer_is_waited_for_and_in_rollback_mode_a_reader_too() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for (journal, holds) in [
        (Journal::Wal, "BEGIN IMMEDIATE;"),
        (Journal::Delete, "BEGIN IMMEDIATE;"),
        (Journal::Delete, "BEGIN; SELECT count(*) FROM log;"),
    ] {
        let directory = tempfile::tempdir_in(place.path()).unwrap();
        let ledger = ledger(directory.path(), of(journal));
        let snapshot = made(&ledger, "then", Method::Copy);
        ledger.commit(41, 60);
        let mut other = ledger.shell();
        other.run(holds);
        let mut database = Database::open(&ledger.path).unwrap();
        database.set_lock_wait(std::time::Duration::ZERO);
        let home = Place::beside(&ledger.path).unwrap();
        let (progress, cancel) = (Arc::default(), Cancel::new());
        let back = Back::ToSnapshot;
        let error = revert(&home, &snapshot, back, &database, &progress, &cancel).unwrap_err();
        let is_busy = matches!(&error, SnapshotError::Sqlite(SqliteError::Busy { .. }));
        assert!(is_busy, "{error}");
        other.run("ROLLBACK;");
        go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
        assert_eq!(ledger.check(&ledger.path), 40);
    }
}

/// Each connection knows the schema by its cookie. A cookie that comes a second time with another
/// schema would make it write into pages of another table.
#[test]
fn no_connection_takes_an_old_schema_for_a_new_one() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    for journal in [Journal::Wal, Journal::Delete] {
        let ledger = ledger(place.path(), of(journal));
        let snapshot = made(&ledger, "then", Method::Copy);
        let mut other = ledger.shell();
        other.run("CREATE TABLE one(a); INSERT INTO one VALUES ('one');");
        assert_eq!(other.run("SELECT a FROM one;"), ["one"]);
        go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
        // Without care this schema has the cookie that the other connection knows.
        let mut third = ledger.shell();
        third.run("CREATE TABLE two(b); INSERT INTO two VALUES ('two');");
        assert_eq!(
            other.run("SELECT name FROM sqlite_schema WHERE name IN ('one', 'two');"),
            ["two"]
        );
        assert_eq!(other.run("SELECT b FROM two;"), ["two"]);
        assert_eq!(other.run("PRAGMA integrity_check;"), ["ok"]);
    }
}

#[test]
fn a_database_with_another_page_size_or_without_pages_is_left_alone() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Delete));
    let snapshot = made(&ledger, "then", Method::Copy);
    let mut shell = ledger.shell();
    shell.run("PRAGMA page_size=8192; VACUUM;");
    shell.close();
    let error = go(&ledger, &snapshot, Back::ToSnapshot).unwrap_err();
    let is_other = matches!(
        &error,
        SnapshotError::Sqlite(SqliteError::OtherPageSize {
            page_bytes: 8192,
            other_bytes: 4096,
            ..
        })
    );
    assert!(is_other, "{error}");
    assert_eq!(ledger.check(&ledger.path), 40);
    std::fs::write(&ledger.path, b"").unwrap();
    let error = go(&ledger, &snapshot, Back::ToSnapshot).unwrap_err();
    let is_empty = matches!(
        &error,
        SnapshotError::Sqlite(SqliteError::EmptyState { .. })
    );
    assert!(is_empty, "{error}");
    assert!(!snapshot.path().join("undo.pending").exists());
    // The side that has no pages is named.
    let empty = made(&ledger, "empty", Method::Copy);
    let mut shell = ledger.shell();
    shell.run("CREATE TABLE t(x);");
    shell.close();
    let error = go(&ledger, &empty, Back::ToSnapshot).unwrap_err();
    let is_empty = matches!(&error, SnapshotError::EmptySnapshot { name } if name == "empty");
    assert!(is_empty, "{error}");
}

#[test]
fn a_damaged_undo_changes_nothing() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Wal));
    let snapshot = made(&ledger, "then", Method::Copy);
    ledger.commit(41, 60);
    go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    let kept = snapshot.path().join("undo.1");
    let mut bytes = std::fs::read(&kept).unwrap();
    // A byte of a page in the middle, which is found when other pages are written already.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    let error = go(&ledger, &snapshot, Back::ToState(UndoNumber(1))).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert_eq!(ledger.check(&ledger.path), 40);
    assert!(!snapshot.path().join("undo.pending").exists());
}

/// Who types a revert twice, or takes the wrong snapshot, must not lose what was there before.
#[test]
fn each_revert_keeps_what_it_overwrote_and_each_undo_goes_back_one_more() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Wal));
    let (older, newer) = (
        made(&ledger, "older", Method::Copy),
        made(&ledger, "newer", Method::Copy),
    );
    for (count, snapshot) in [(60, &older), (50, &older), (45, &newer)] {
        ledger.commit(41, count);
        go(&ledger, snapshot, Back::ToSnapshot).unwrap();
        assert_eq!(ledger.check(&ledger.path), 40);
    }
    assert_eq!(states(&ledger), ["undo:1", "undo:2", "undo:3"]);
    for (count, left) in [
        (45, ["undo:1", "undo:2", "undo:4"]),
        (50, ["undo:1", "undo:4", "undo:5"]),
        (60, ["undo:4", "undo:5", "undo:6"]),
    ] {
        let went = undo(&ledger);
        assert_eq!(went.gone, [], "what was brought back makes room");
        assert_eq!(ledger.check(&ledger.path), count);
        assert_eq!(states(&ledger), left);
    }
    // There is no further one, but each state that an undo overwrote has a name.
    let home = Place::beside(&ledger.path).unwrap();
    let error = newest_undo(&home).unwrap_err();
    let SnapshotError::NoUndo { known, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*known, ["undo:4", "undo:5", "undo:6"]);
    let went = bring_back(&ledger, Some(UndoNumber(5)));
    assert_eq!(ledger.check(&ledger.path), 45);
    assert_eq!(went.kept, Some(UndoNumber(7)));
    // Only the newest three stay, and whoever goes back learns which one goes.
    let went = go(&ledger, &newer, Back::ToSnapshot).unwrap();
    assert_eq!(went.gone, [UndoNumber(4)]);
    assert_eq!(states(&ledger), ["undo:6", "undo:7", "undo:8"]);
    remove_undo(&home, UndoNumber(7)).unwrap();
    let error = remove_undo(&home, UndoNumber(7)).unwrap_err();
    assert!(matches!(error, SnapshotError::NoState { .. }), "{error}");
    assert_eq!(states(&ledger), ["undo:6", "undo:8"]);
    undo(&ledger);
    assert_eq!(ledger.check(&ledger.path), 45);
    bring_back(&ledger, Some(UndoNumber(6)));
    assert_eq!(ledger.check(&ledger.path), 50);
}

/// Before states had numbers, a snapshot had one at most.
#[test]
fn the_state_that_an_older_version_kept_can_be_brought_back() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path(), of(Journal::Wal));
    let snapshot = made(&ledger, "then", Method::Copy);
    ledger.commit(41, 60);
    go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    let (named, unnamed) = (snapshot.path().join("undo.1"), snapshot.path().join("undo"));
    std::fs::rename(named, unnamed).unwrap();
    assert_eq!(states(&ledger), ["undo:0"]);
    ledger.commit(41, 50);
    go(&ledger, &snapshot, Back::ToSnapshot).unwrap();
    undo(&ledger);
    assert_eq!(ledger.check(&ledger.path), 50);
    undo(&ledger);
    assert_eq!(ledger.check(&ledger.path), 60);
    assert!(!states(&ledger).contains(&"undo:0".to_owned()));
}
