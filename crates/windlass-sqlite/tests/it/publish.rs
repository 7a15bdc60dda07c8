//! The end of a restore: what appears, changes or goes at the target while the restore writes.

use std::path::{Path, PathBuf};

use windlass_engine::EngineError;
use windlass_sqlite::SqliteError;
use windlass_testkit::plain_names::{PlainNames, Renames};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell, run_once};
use windlass_testkit::starting;

use crate::support::{Room, restore_to, restore_while, try_backup};

/// A ledger of ten transactions and its set; the target is another path.
fn scene() -> (Room, CommitLedger, PathBuf, PathBuf) {
    let room = Room::new();
    let ledger = CommitLedger::create(&room.path("a.db"), LedgerSpec::default());
    ledger.commit(1, 10);
    let (stripe, target) = (room.path("set"), room.path("new.db"));
    try_backup(&ledger.path, &stripe).unwrap();
    (room, ledger, stripe, target)
}

fn create_other(path: &Path, journal: Journal) -> Shell {
    let mut shell = Shell::open(path);
    let mode = match journal {
        Journal::Wal => "wal",
        _ => "delete",
    };
    shell.run(&format!(
        "PRAGMA journal_mode={mode}; CREATE TABLE mine(a); INSERT INTO mine VALUES(7);"
    ));
    shell
}

fn withheld(result: Result<PathBuf, SqliteError>) -> (PathBuf, SqliteError) {
    let error = result.unwrap_err();
    assert!(error.hint().unwrap().contains("changed nothing"));
    match error {
        SqliteError::Withheld {
            restored, source, ..
        } => (restored, *source),
        error => panic!("{error}"),
    }
}

#[test]
fn a_database_that_appears_during_a_restore_stays_and_the_restored_one_waits() {
    for journal in [Journal::Delete, Journal::Wal] {
        for is_open in [true, false] {
            let (_room, ledger, stripe, target) = scene();
            let mut shell = None;
            let meanwhile = || shell = Some(create_other(&target, journal)).filter(|_| is_open);
            let (restored, why) = withheld(restore_while(&stripe, &target, false, meanwhile));
            let SqliteError::TargetExists { path } = why else {
                panic!("{why}")
            };
            assert_eq!(path, target);
            assert_eq!(run_once(&target, "SELECT a FROM mine;").unwrap(), "7");
            assert_eq!(ledger.check(&restored), 10);
        }
    }
}

/// SQLite would play such a log into the restored database, or hide it behind the log's pages. Even
/// with `force` the file stays, because SQLite did not write it.
#[test]
fn a_side_file_that_appears_during_a_restore_stays_alone() {
    for (suffix, force) in [
        ("-wal", false),
        ("-journal", false),
        ("-shm", false),
        ("-wal", true),
    ] {
        let (room, _ledger, stripe, target) = scene();
        let side = room.path(&format!("new.db{suffix}"));
        let meanwhile = || std::fs::write(&side, "foreign").unwrap();
        let (_, why) = withheld(restore_while(&stripe, &target, force, meanwhile));
        let is_seen = match why {
            SqliteError::TargetExists { .. } => !force,
            SqliteError::Engine(EngineError::OutputForeign { .. }) => force,
            _ => false,
        };
        assert!(is_seen, "{why}");
        assert!(!target.exists());
        assert_eq!(std::fs::read(&side).unwrap(), b"foreign");
    }
}

/// A connection in rollback mode holds no lock between its transactions. It would go on in a file
/// without a name, and all of its later commits would be lost.
#[test]
fn a_forced_restore_sees_each_user_who_came_during_the_restore() {
    let users = [
        (Journal::Delete, "SELECT count(*) FROM mine;", ""),
        (Journal::Delete, "BEGIN; SELECT a FROM mine;", "COMMIT;"),
        (Journal::Delete, "BEGIN IMMEDIATE;", "COMMIT;"),
        (Journal::Wal, "SELECT count(*) FROM mine;", ""),
    ];
    for (journal, sql, end) in users {
        for is_there_before in [true, false] {
            let (_room, ledger, stripe, target) = scene();
            if is_there_before {
                run_once(&target, "CREATE TABLE old(a);").unwrap();
            }
            let mut shell = None;
            let meanwhile = || {
                let mut user = create_other(&target, journal);
                user.run(sql);
                shell = Some(user);
            };
            let (restored, why) = withheld(restore_while(&stripe, &target, true, meanwhile));
            assert!(matches!(why, SqliteError::TargetInUse { .. }), "{why}");
            let commit = format!("INSERT INTO mine VALUES(9); {end}");
            shell.unwrap().run(&commit);
            assert_eq!(run_once(&target, "SELECT max(a) FROM mine;").unwrap(), "9");
            assert_eq!(ledger.check(&restored), 10);
        }
    }
}

#[test]
fn a_forced_restore_replaces_what_appeared_together_with_its_side_files() {
    for journal in [Journal::Delete, Journal::Wal] {
        let (room, ledger, stripe, target) = scene();
        let meanwhile = || {
            let mut user = create_other(&target, journal);
            user.run("PRAGMA cache_size=2; BEGIN; UPDATE mine SET a = 8;");
            user.kill();
        };
        restore_while(&stripe, &target, true, meanwhile).unwrap();
        assert_eq!(room.names(), ["a.db", "new.db", "set"]);
        assert_eq!(ledger.check(&target), 10);
    }
}

/// The user is seen before the restore writes anything: a restore can take hours.
#[test]
fn a_forced_restore_refuses_an_idle_user_at_once() {
    let (_room, _ledger, stripe, target) = scene();
    let shell = create_other(&target, Journal::Delete);
    let meanwhile = || panic!("the restore must not begin");
    let error = restore_while(&stripe, &target, true, meanwhile).unwrap_err();
    assert!(matches!(error, SqliteError::TargetInUse { .. }), "{error}");
    shell.close();
    restore_to(&stripe, &target, true).unwrap();
}

#[test]
fn a_file_that_took_the_place_of_the_restored_one_does_not_get_its_name() {
    for force in [false, true] {
        let (room, _ledger, stripe, target) = scene();
        let restored = room.path("new.db.windlass-restore/unfinished/a.db");
        let meanwhile = || {
            std::fs::copy(&restored, room.path("other")).unwrap();
            std::fs::remove_file(&restored).unwrap();
            std::fs::hard_link(room.path("other"), &restored).unwrap();
        };
        let error = restore_while(&stripe, &target, force, meanwhile).unwrap_err();
        assert!(
            matches!(error, SqliteError::RestoredTaken { .. }),
            "{error}"
        );
        assert!(!target.exists());
    }
}

/// A restore of that set fails, and so would every later one.
fn damage(stripe: &Path) {
    let mut bytes = std::fs::read(stripe).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle..middle + 64].fill(0xa5);
    std::fs::write(stripe, bytes).unwrap();
}

#[test]
fn a_database_that_was_not_put_in_its_place_stays_until_the_next_one_is_complete() {
    let (room, ledger, stripe, target) = scene();
    let other = room.path("other.set");
    std::fs::copy(&stripe, &other).unwrap();
    damage(&other);
    let block = || std::fs::write(room.path("new.db-wal"), "foreign").unwrap();
    let unblock = || std::fs::remove_file(room.path("new.db-wal")).unwrap();
    let (first, _) = withheld(restore_while(&stripe, &target, false, block));
    unblock();
    assert_eq!(first, room.path("new.db.windlass-restore/a.db"));
    // Neither a set that is damaged nor one that is cut off takes the complete database with it.
    restore_to(&other, &target, false).unwrap_err();
    assert_eq!(ledger.check(&first), 10);
    // The next one that waits takes its place.
    ledger.commit(11, 11);
    try_backup(&ledger.path, &room.path("later.set")).unwrap();
    let later = room.path("later.set");
    let (second, _) = withheld(restore_while(&later, &target, false, block));
    unblock();
    assert_eq!(second, first);
    assert_eq!(ledger.check(&second), 11);
    restore_to(&stripe, &target, false).unwrap();
    assert_eq!(ledger.check(&target), 10);
    assert!(!room.path("new.db.windlass-restore").exists());
}

#[test]
fn a_staging_directory_that_cannot_be_removed_is_named_with_the_restored_database() {
    let (room, ledger, stripe, target) = scene();
    let foreign = room.path("new.db.windlass-restore/foreign");
    let meanwhile = || std::fs::write(&foreign, "precious").unwrap();
    let error = restore_while(&stripe, &target, false, meanwhile).unwrap_err();
    assert!(matches!(error, SqliteError::StagingLeft { .. }), "{error}");
    assert!(error.to_string().contains("complete and in its place"));
    assert_eq!(ledger.check(&target), 10);
    assert!(foreign.exists());
}

/// Something is mounted on its name, or a crash of the machine was in the wrong moment.
#[test]
fn a_database_that_cannot_be_replaced_keeps_what_its_log_has() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount");
        return;
    }
    let (room, ledger, stripe, target) = scene();
    create_other(&target, Journal::Wal).kill();
    let names = || {
        let mut names = room.names();
        names.retain(|name| name.starts_with("new.db"));
        names
    };
    let expected = ["new.db", "new.db-shm", "new.db-wal"];
    assert_eq!(names(), expected);
    let mount = |words: &[&str]| {
        let mut command = std::process::Command::new(words[0]);
        let done = starting::run(command.args(&words[1..]).arg(&target));
        assert!(done.unwrap().success(), "{words:?}");
    };
    mount(&["mount", "--bind", target.to_str().unwrap()]);
    let result = restore_to(&stripe, &target, true);
    mount(&["umount"]);
    let (restored, why) = withheld(result);
    assert!(why.to_string().contains("busy"), "{why}");
    assert_eq!(ledger.check(&restored), 10);
    assert!(names().starts_with(&expected.map(str::to_owned)));
    assert_eq!(run_once(&target, "SELECT a FROM mine;").unwrap(), "7");
    restore_to(&stripe, &target, true).unwrap();
    assert_eq!(ledger.check(&target), 10);
    assert_eq!(room.names(), ["a.db", "new.db", "set"]);
}

/// The log that a crash left aside stays until another restore is complete.
#[test]
fn a_log_that_a_crash_left_aside_goes_when_another_database_is_in_place() {
    let (room, ledger, stripe, target) = scene();
    let other = room.path("other.set");
    std::fs::copy(&stripe, &other).unwrap();
    damage(&other);
    create_other(&target, Journal::Wal).kill();
    let replaced = room.path("new.db.windlass-restore/replaced");
    std::fs::create_dir_all(&replaced).unwrap();
    std::fs::rename(room.path("new.db-wal"), replaced.join("database-wal")).unwrap();
    restore_to(&other, &target, true).unwrap_err();
    assert!(replaced.join("database-wal").exists());
    restore_to(&stripe, &target, true).unwrap();
    assert_eq!(ledger.check(&target), 10);
    assert_eq!(room.names(), ["a.db", "new.db", "other.set", "set"]);
}

/// There are no hard links and no rename that refuses to replace, for example on FAT.
#[test]
fn a_restore_gets_its_name_where_no_rename_refuses_to_replace() {
    let (room, ledger, stripe, _) = scene();
    let names = PlainNames::mount();
    let target = names.path("new.db");
    let restored = |copy: &str| {
        std::fs::copy(&target, room.path(copy)).unwrap();
        ledger.check(&room.path(copy))
    };
    let mine = b"precious";
    let meanwhile = || std::fs::write(&target, mine).unwrap();
    let (waiting, _) = withheld(restore_while(&stripe, &target, false, meanwhile));
    assert_eq!(std::fs::read(&target).unwrap(), mine);
    assert!(waiting.exists());
    std::fs::remove_file(&target).unwrap();
    // A crash leaves the name reserved. That is in nobody's way, forced or not.
    for force in [false, true] {
        let crash = || names.set_renames(Renames::Die);
        let error = restore_while(&stripe, &target, force, crash).unwrap_err();
        assert!(matches!(error, SqliteError::NotInPlace { .. }), "{error}");
        names.set_renames(Renames::Work);
        let left = std::fs::read_to_string(&target).unwrap();
        assert!(left.contains("reserves this name"), "{left}");
        restore_to(&stripe, &target, force).unwrap();
        assert_eq!(restored(if force { "one.db" } else { "two.db" }), 10);
        std::fs::remove_file(&target).unwrap();
    }
    let lose = || names.set_renames(Renames::LoseAnswer);
    restore_while(&stripe, &target, false, lose).unwrap();
    assert_eq!(restored("three.db"), 10);
}
