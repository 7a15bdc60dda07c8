//! Paths, links, and files that are not databases; and where a restore goes.

use std::fs::File;

use windlass_sqlite::{Database, SqliteError, is_sqlite};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, run_once};
use windlass_testkit::starting;

use crate::support::{Room, backup_in_transfers, backup_while, restore_to, round_trip, try_backup};

fn ledger(room: &Room) -> CommitLedger {
    let ledger = CommitLedger::create(&room.path("a.db"), LedgerSpec::default());
    ledger.commit(1, 10);
    ledger
}

#[test]
fn a_symbolic_link_is_followed_and_told_of() {
    let room = Room::new();
    let ledger = ledger(&room);
    let mut shell = ledger.shell();
    shell.run(&ledger.transaction(11));
    std::fs::create_dir(room.path("elsewhere")).unwrap();
    let link = room.path("elsewhere/link.db");
    std::os::unix::fs::symlink(&ledger.path, &link).unwrap();
    let (outcome, set) = round_trip(&link, &room.path("set"), &room.path("copy"));
    assert!(
        outcome.warnings[0].name() == "symbolic-link",
        "{:?}",
        outcome.warnings
    );
    assert_eq!(set.entry.path, b"a.db");
    assert_eq!(
        ledger.check(&room.path("copy")),
        11,
        "the WAL beside the real file was read"
    );
    shell.close();
}

#[test]
fn hard_links_are_told_of() {
    let room = Room::new();
    let ledger = ledger(&room);
    std::fs::hard_link(&ledger.path, room.path("b.db")).unwrap();
    let outcome = try_backup(&ledger.path, &room.path("set")).unwrap();
    assert!(
        outcome.warnings[0].to_string().contains("2 hard links"),
        "{:?}",
        outcome.warnings
    );
}

#[test]
fn what_is_no_database_is_named_so() {
    let room = Room::new();
    let path = room.path("text");
    std::fs::write(
        &path,
        "SQLite format 2 and then some more text that is long enough",
    )
    .unwrap();
    assert!(!is_sqlite(&path).unwrap());
    for path in [path, room.path("")] {
        let error = Database::open(&path).unwrap_err();
        assert!(matches!(error, SqliteError::NotADatabase { .. }), "{error}");
    }
    let error = Database::open(&room.path("missing.db")).unwrap_err();
    assert!(
        matches!(error, SqliteError::Io { action: "find", .. }),
        "{error}"
    );
}

#[test]
fn a_restore_into_a_directory_keeps_the_name_and_leaves_its_neighbours() {
    let room = Room::new();
    let ledger = ledger(&room);
    try_backup(&ledger.path, &room.path("set")).unwrap();
    std::fs::create_dir(room.path("into")).unwrap();
    File::create(room.path("into/neighbour")).unwrap();
    let path = restore_to(&room.path("set"), &room.path("into"), false).unwrap();
    assert_eq!(path, room.path("into/a.db"));
    assert_eq!(ledger.check(&path), 10);
    let names = std::fs::read_dir(room.path("into")).unwrap().count();
    assert_eq!(names, 2, "nothing else is left");
}

/// SQLite needs room for "-wal" behind the name of a database in WAL mode.
#[test]
fn a_database_with_the_longest_name_is_restored() {
    let modes = [
        (Journal::Wal, 238),
        (Journal::Wal, 239),
        (Journal::Wal, 251),
    ];
    for (journal, bytes) in modes.into_iter().chain([(Journal::Delete, 255)]) {
        let room = Room::new();
        let spec = LedgerSpec {
            journal,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        ledger.commit(1, 10);
        let name = "n".repeat(bytes);
        let (source, set, into) = (room.path("source"), room.path("set"), room.path("into"));
        for dir in [&source, &into] {
            std::fs::create_dir(dir).unwrap();
        }
        std::fs::copy(&ledger.path, source.join(&name)).unwrap();
        try_backup(&source.join(&name), &set).unwrap();
        for _ in 0..2 {
            let path = restore_to(&set, &into, true).unwrap();
            assert_eq!(path, into.join(&name));
            assert!(std::fs::read(&path).unwrap() == std::fs::read(&ledger.path).unwrap());
            assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1);
        }
        restore_to(&set, &room.path("short.db"), true).unwrap();
        assert_eq!(ledger.check(&room.path("short.db")), 10);
    }
}

#[test]
fn a_set_with_layers_is_restored_by_the_engine_too() {
    for vacuum in [true, false] {
        let room = Room::new();
        let spec = LedgerSpec {
            journal: Journal::Delete,
            accounts: 3000,
            payload_bytes: 1500,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        let ballast = "CREATE TABLE ballast(b); INSERT INTO ballast VALUES(zeroblob(3000000));";
        run_once(&ledger.path, ballast).unwrap();
        let writer = ledger.clone();
        backup_while(&ledger.path, &room.path("set"), move || {
            writer.commit(1, 20);
            if vacuum {
                run_once(&writer.path, "DROP TABLE ballast; VACUUM;").unwrap();
            }
        })
        .unwrap();
        let path = restore_to(&room.path("set"), &room.path("new.db"), false).unwrap();
        assert_eq!(path, room.path("new.db"));
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&ledger.path).unwrap());
        assert_eq!(ledger.check(&path), 20);
    }
}

/// Transfers that are not a multiple of the frame size, and a file that loses only its end. The
/// frame that reached beyond the new end is void, with everything that it held before that end.
#[test]
fn a_set_of_a_file_that_was_cut_is_restored_whole() {
    // The ends lie about 64 KiB apart: in the first and in the second half of a frame.
    for accounts in [3000, 3044, 3088, 3132, 3176] {
        let room = Room::new();
        let spec = LedgerSpec {
            journal: Journal::Delete,
            auto_vacuum: true,
            accounts,
            payload_bytes: 1500,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&room.path("a.db"), spec);
        let ballast = "CREATE TABLE ballast(b); INSERT INTO ballast VALUES(zeroblob(3000000));";
        run_once(&ledger.path, ballast).unwrap();
        let writer = ledger.clone();
        let (database, stripe) = (ledger.path.clone(), room.path("set"));
        backup_in_transfers(320 << 10, &database, &stripe, move || {
            run_once(&writer.path, "DROP TABLE ballast;").unwrap();
        })
        .unwrap();
        let path = restore_to(&stripe, &room.path("new.db"), false).unwrap();
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&ledger.path).unwrap());
        assert_eq!(ledger.check(&path), 0);
    }
}

#[test]
fn a_restore_refuses_what_is_there_unless_forced() {
    let room = Room::new();
    let ledger = ledger(&room);
    try_backup(&ledger.path, &room.path("set")).unwrap();
    let target = room.path("there.db");
    let things: [(&str, &[u8]); 4] = [
        ("there.db", b"SQLite format 3\0 and more"),
        ("there.db-wal", b"\x37\x7f\x06\x82 and more"),
        ("there.db-shm", b"\x18\xe2\x2d\x00 and more"),
        (
            "there.db-journal",
            b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7 and more",
        ),
    ];
    for (name, own) in things {
        std::fs::write(room.path(name), own).unwrap();
        let error = restore_to(&room.path("set"), &target, false).unwrap_err();
        assert!(matches!(error, SqliteError::TargetExists { .. }), "{error}");
        assert_eq!(std::fs::read(room.path(name)).unwrap(), own);
        restore_to(&room.path("set"), &target, true).unwrap();
        assert_eq!(ledger.check(&target), 10);
        std::fs::remove_file(&target).unwrap();
        // A file that SQLite did not write stays, even with `force`.
        std::fs::write(room.path(name), "precious").unwrap();
        let error = restore_to(&room.path("set"), &target, true).unwrap_err();
        let foreign = |error: &windlass_engine::EngineError| {
            matches!(error, windlass_engine::EngineError::OutputForeign { .. })
        };
        assert!(
            matches!(&error, SqliteError::Engine(it) if foreign(it)),
            "{error}"
        );
        assert_eq!(std::fs::read(room.path(name)).unwrap(), b"precious");
        std::fs::remove_file(room.path(name)).unwrap();
    }
}

#[test]
fn a_forced_restore_replaces_no_device_and_no_pipe() {
    let room = Room::new();
    let ledger = ledger(&room);
    try_backup(&ledger.path, &room.path("set")).unwrap();
    let pipe = room.path("pipe");
    let made = starting::run(std::process::Command::new("mkfifo").arg(&pipe));
    assert!(made.unwrap().success());
    let before = pipe.symlink_metadata().unwrap().file_type();
    let error = restore_to(&room.path("set"), &pipe, true).unwrap_err();
    assert!(
        matches!(
            &error,
            SqliteError::Engine(windlass_engine::EngineError::OutputStream { .. })
        ),
        "{error}"
    );
    assert_eq!(pipe.symlink_metadata().unwrap().file_type(), before);
}

#[test]
fn a_forced_restore_refuses_a_database_that_is_in_use() {
    let room = Room::new();
    let ledger = ledger(&room);
    try_backup(&ledger.path, &room.path("set")).unwrap();
    let mut shell = ledger.shell();
    shell.run(&ledger.transaction(11));
    let error = restore_to(&room.path("set"), &ledger.path, true).unwrap_err();
    assert!(
        matches!(error, SqliteError::TargetInUse { pid, .. } if pid > 0),
        "{error}"
    );
    shell.close();
    assert_eq!(ledger.check(&ledger.path), 11, "it is untouched");
    restore_to(&room.path("set"), &ledger.path, true).unwrap();
    assert_eq!(ledger.check(&ledger.path), 10);
}
