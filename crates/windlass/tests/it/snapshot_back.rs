//! `windlass snapshot revert`, `undo` and `rotate`, also when they are killed at each of their
//! steps.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::cell::Cell;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

use crate::snapshots::{killed_at, ledger, listed};
use crate::support::*;

fn run(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    printed
}

fn done(words: &[&str]) -> Value {
    let (code, document) = json(words);
    assert_eq!(code, 0, "{words:?}: {document}");
    document
}

#[test]
fn a_database_is_reverted_and_the_revert_undone() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    done(&["snapshot", "create", database, "then"]);
    ledger.commit(21, 40);
    done(&["snapshot", "create", database, "newer"]);
    ledger.commit(41, 50);
    let word = format!("{database}@then");
    // Nobody can be asked, so nothing happens. What would be lost or kept is told.
    let printed = run(&["snapshot", "revert", &word], 2);
    for part in [
        "snapshot then",
        "Newer snapshots stay as they are: newer",
        "--yes",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(ledger.check(&ledger.path), 50);
    let went = done(&["snapshot", "revert", &word, "--yes"]);
    assert_eq!(went["newer"], serde_json::json!(["newer"]));
    assert!(went["pages_written"].as_u64().unwrap() > 0, "{went}");
    assert_eq!(ledger.check(&ledger.path), 20);
    run(&["snapshot", "undo", database], 2);
    let listed = done(&["snapshot", "list", database]);
    let age = listed["snapshots"][0]["age_seconds"].as_f64();
    assert!(age.unwrap() > 0.0, "{listed}");
    let undo = listed["undo"].as_array().unwrap();
    assert_eq!(undo.len(), 1, "{listed}");
    for (key, value) in [
        ("name", "undo:1"),
        ("by", "revert"),
        ("snapshot", "then"),
        ("state", "kept"),
    ] {
        assert_eq!(undo[0][key], value, "{listed}");
    }
    assert!(undo[0]["disk_bytes"].as_u64().unwrap() > 4096, "{listed}");
    let printed = run(&["snapshot", "list", database], 0);
    assert!(printed.contains("before the revert with then"), "{printed}");
    let went = done(&["snapshot", "undo", database, "--yes"]);
    assert_eq!(went["undo"], true);
    assert_eq!(ledger.check(&ledger.path), 50);
    // Both snapshots are as they were.
    for (name, count) in [("then", "20\n"), ("newer", "40\n")] {
        let word = format!("{database}@{name}");
        let open = ["open", &word, "--quiet", "--", "sqlite3", "{}"];
        let counted = run(&[&open[..], &["SELECT count(*) FROM log"]].concat(), 0);
        assert!(counted.ends_with(count), "{name}: {counted}");
    }
    let printed = run(
        &["snapshot", "revert", &format!("{database}@newer"), "--yes"],
        0,
    );
    assert!(printed.contains("windlass snapshot undo"), "{printed}");
    assert_eq!(ledger.check(&ledger.path), 40);
    // What a revert kept goes with its snapshot, or alone.
    let dropped = done(&["snapshot", "drop", database, "newer"]);
    assert_eq!(dropped["undo"], serde_json::json!(["undo:3"]));
    let printed = run(&["snapshot", "undo", database, "--yes"], 1);
    assert!(printed.contains("hint: There is undo:2."), "{printed}");
    let printed = run(&["snapshot", "undo", database, "undo:9", "--yes"], 1);
    assert!(printed.contains("hint: There is undo:2."), "{printed}");
    done(&["snapshot", "undo", database, "undo:2", "--yes"]);
    assert_eq!(ledger.check(&ledger.path), 20);
    let printed = run(&["snapshot", "drop", database, "undo:4"], 0);
    assert!(printed.contains("undo:4"), "{printed}");
    done(&["snapshot", "drop", database, "then"]);
    let printed = run(&["snapshot", "undo", database, "--yes"], 1);
    assert!(printed.contains("nothing can be undone"), "{printed}");
    let printed = run(&["snapshot", "revert", database, "--yes"], 2);
    assert!(printed.contains("hint: Write DATABASE@NAME"), "{printed}");
}

/// Somebody brought the state back by other means, so the undo has nothing to write.
#[test]
fn an_undo_of_a_state_that_is_there_already_takes_it_from_the_list() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = place.path().join("shop.db");
    let database = path.to_str().unwrap();
    let sql = |sql: &str| {
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute_batch(sql)
            .unwrap()
    };
    sql("CREATE TABLE t (i); INSERT INTO t VALUES (1)");
    done(&["snapshot", "create", database, "then"]);
    sql("INSERT INTO t VALUES (2)");
    let later = std::fs::read(&path).unwrap();
    let word = format!("{database}@then");
    done(&["snapshot", "revert", &word, "--yes"]);
    std::fs::write(&path, &later).unwrap();
    let printed = run(&["snapshot", "undo", database, "--yes"], 0);
    assert!(printed.contains("nothing: it was so already"), "{printed}");
    let listed = done(&["snapshot", "list", database]);
    assert_eq!(listed["undo"], serde_json::json!([]), "{listed}");
    assert_eq!(std::fs::read(&path).unwrap(), later);
}

#[test]
fn an_undo_of_a_state_that_cannot_be_read_names_the_next_older_one() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let made = done(&["snapshot", "create", database, "then"]);
    let word = format!("{database}@then");
    for count in [40, 30] {
        ledger.commit(21, count);
        done(&["snapshot", "revert", &word, "--yes"]);
    }
    let newest = Path::new(made["place"].as_str().unwrap()).join("undo.2");
    let whole = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &whole[..whole.len() - 1]).unwrap();
    let printed = run(&["snapshot", "undo", database, "--yes"], 4);
    let said = "the newest state undo:2 cannot be brought back";
    assert!(printed.contains(said), "{printed}");
    let command = format!("windlass snapshot undo {database} undo:1");
    assert!(printed.contains(&command), "{printed}");
    assert_eq!(ledger.check(&ledger.path), 20);
    done(&["snapshot", "undo", database, "undo:1", "--yes"]);
    assert_eq!(ledger.check(&ledger.path), 40);
}

/// It is undone already, and nobody asked for what the one before it overwrote.
#[test]
fn an_undo_after_a_revert_that_was_cut_off_brings_back_nothing_older() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let made = done(&["snapshot", "create", database, "then"]);
    let word = format!("{database}@then");
    ledger.commit(21, 40);
    done(&["snapshot", "revert", &word, "--yes"]);
    ledger.commit(21, 30);
    let directory = Path::new(made["place"].as_str().unwrap());
    let pending = directory.join("undo.pending");
    let whole = std::fs::read(directory.join("undo.1")).unwrap();
    let undo = ["snapshot", "undo", database, "--yes"];
    // What it was about to keep is not complete.
    for kept in [&whole[..whole.len() / 2], &[]] {
        std::fs::write(&pending, kept).unwrap();
        let said = done(&undo);
        assert_eq!(said["finished"], true, "{said}");
        assert_eq!(said["cut_off"], "revert", "{said}");
        assert!(!pending.exists());
        assert_eq!(ledger.check(&ledger.path), 30);
    }
    std::fs::write(&pending, b"").unwrap();
    let printed = run(&undo, 0);
    assert!(printed.contains("no undo began"), "{printed}");
    // Who names a state wants that one, and an undo that was cut off is still to be done.
    let note = directory.join("undo.pending-by-undo");
    for (state, is_undo) in [(Some("undo:1"), false), (None, true)] {
        std::fs::write(&pending, b"").unwrap();
        if is_undo {
            std::fs::write(&note, b"").unwrap();
        }
        let words: Vec<_> = undo.into_iter().chain(state).collect();
        let said = done(&words);
        assert_eq!(said["finished"], false, "{said}");
        assert_eq!(ledger.check(&ledger.path), 40, "{said}");
        assert!(!note.exists());
        done(&["snapshot", "revert", &word, "--yes"]);
    }
}

/// What a killed revert left is decided first, and SQLite rolls the transaction back for that.
#[test]
fn a_transaction_that_is_rolled_back_before_the_revert_begins_is_told() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let spec = LedgerSpec {
        journal: Journal::Delete,
        accounts: 300,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&place.path().join("shop.db"), spec);
    ledger.commit(1, 20);
    let database = ledger.path.to_str().unwrap();
    let made = done(&["snapshot", "create", database, "then"]);
    let word = format!("{database}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    ledger.commit(21, 40);
    done(&revert);
    ledger.commit(21, 40);
    let kept = Path::new(made["place"].as_str().unwrap()).join("undo.1");
    std::fs::rename(&kept, kept.with_file_name("undo.pending")).unwrap();
    let mut writer = ledger.shell();
    let changes = "UPDATE account SET balance = -1 WHERE id < 300;";
    writer.run(&format!("PRAGMA cache_size=2; BEGIN; {changes}"));
    writer.kill();
    let journal = ledger.path.with_extension("db-journal");
    assert!(journal.metadata().unwrap().len() > 0);
    let went = done(&revert);
    assert_eq!(went["transaction_rolled_back"], true, "{went}");
    assert_eq!(ledger.check(&ledger.path), 20);
    let went = done(&["snapshot", "undo", database, "--yes"]);
    assert_eq!(went["transaction_rolled_back"], false, "{went}");
}

#[test]
fn a_person_at_a_terminal_is_asked() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    done(&["snapshot", "create", database, "then"]);
    ledger.commit(21, 40);
    let word = format!("{database}@then");
    for (answer, state, code) in [("no\n", 40, 1), ("yes\n", 20, 0)] {
        // script(1) gives the command a terminal, and types what it reads.
        let windlass = env!("CARGO_BIN_EXE_windlass");
        let line = format!("'{windlass}' snapshot revert '{word}'");
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env("WINDLASS_CONFIG", "/dev/null");
        script.env("WINDLASS_STATE_DIR", "/nonexistent/windlass");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        drop(input);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains("Go on? Type yes:"), "{printed}");
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert_eq!(ledger.check(&ledger.path), state, "{printed}");
    }
}

/// The calls at whose entry a process is killed: those that change a file or a name.
const CALLS: [&str; 7] = [
    "pwrite64",
    "write",
    "ftruncate",
    "fdatasync",
    "fsync",
    "unlink",
    "rename",
];

/// A ledger of few pages, so that there are few calls. Its snapshot has 20 transactions and it has
/// 22.
fn small(directory: &Path, journal: Journal) -> CommitLedger {
    let spec = LedgerSpec {
        journal,
        accounts: 10,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&directory.join("shop.db"), spec);
    ledger.commit(1, 20);
    done(&["snapshot", "create", ledger.path.to_str().unwrap(), "then"]);
    ledger.commit(21, 22);
    ledger
}

/// Kills a command at each call. Afterwards the database is in one of its two states, and the other
/// one can be brought back. `reset` comes before each kill.
fn killed(ledger: &CommitLedger, words: &[&str], reset: impl Fn(), after: impl Fn(&str, u64)) {
    killed_at(&CALLS, words, reset, |at| {
        let state = ledger.check(&ledger.path);
        assert!([20, 22].contains(&state), "{at}: {state}");
        after(at, state);
        let left = std::fs::read_dir(ledger.path.parent().unwrap()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        let is_side = |name: &std::ffi::OsString| name.to_string_lossy().contains("-journal");
        assert!(!left.iter().any(is_side), "{at}: {left:?}");
    });
}

fn killed_reverts(journal: Journal) {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = small(place.path(), journal);
    let database = ledger.path.to_str().unwrap();
    let word = format!("{database}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    let undo = ["snapshot", "undo", database, "--yes"];
    killed(
        &ledger,
        &revert,
        || {},
        |at, _| {
            // Whatever became of it, the next one has its end, and can be undone.
            done(&revert);
            assert_eq!(ledger.check(&ledger.path), 20, "{at}");
            done(&undo);
            assert_eq!(ledger.check(&ledger.path), 22, "{at}");
        },
    );
}

#[test]
fn a_killed_revert_of_a_database_with_a_log_is_done_or_undone() {
    killed_reverts(Journal::Wal);
}

#[test]
fn a_killed_revert_of_a_database_with_a_journal_is_done_or_undone() {
    killed_reverts(Journal::Delete);
}

#[test]
fn a_killed_undo_is_done_or_undone() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = small(place.path(), Journal::Wal);
    let database = ledger.path.to_str().unwrap();
    let word = format!("{database}@then");
    let undo = ["snapshot", "undo", database, "--yes"];
    let reset = || drop(done(&["snapshot", "revert", &word, "--yes"]));
    let finished = Cell::new(0);
    killed(&ledger, &undo, reset, |at, state| {
        // Whatever became of it: the undo is done or can be done, and the other state has a name.
        // One whose transaction was committed is finished, and that is all: once more would be one
        // state too far.
        let (code, said) = json(&undo);
        let is_finished = said["finished"] == true;
        match state {
            20 => assert!(code == 0 && !is_finished, "{at}: {said}"),
            _ => assert_eq!(code, i32::from(!is_finished), "{at}: {said}"),
        }
        finished.set(finished.get() + u32::from(is_finished));
        assert_eq!(ledger.check(&ledger.path), 22, "{at}");
        for state in [20, 22] {
            let list = done(&["snapshot", "list", database]);
            let kept = list["undo"].as_array().unwrap();
            assert!(kept.len() <= 3, "{at}: {list}");
            let newest = kept.last().unwrap()["name"].as_str().unwrap();
            done(&["snapshot", "undo", database, newest, "--yes"]);
            assert_eq!(ledger.check(&ledger.path), state, "{at}");
        }
    });
    assert!(finished.get() > 0, "none was cut off behind its commit");
}

#[test]
fn a_rotation_keeps_the_newest_of_its_kind_and_no_other_is_dropped() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    done(&["snapshot", "create", database, "hourly-before-upgrade"]);
    let rotate = ["snapshot", "rotate", database, "hourly", "--keep", "2"];
    let names = || -> Vec<String> {
        let all = listed(database).into_iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut made = Vec::new();
    for round in 0..4 {
        let document = done(&rotate);
        made.push(document["name"].as_str().unwrap().to_owned());
        let dropped = document["dropped"].as_array().unwrap();
        assert_eq!(dropped.len(), usize::from(round >= 2), "{document}");
    }
    assert_eq!(names(), ["hourly-before-upgrade", &made[2], &made[3]]);
    // The kind stands for the newest of it, also where a timer cannot know its name.
    let word = format!("{database}@hourly");
    let count = "select count(*) from log";
    let open = ["open", "--quiet", &word, "--", "sqlite3", "{}", count];
    assert!(run(&open, 0).ends_with("20\n"));
    ledger.commit(21, 22);
    made.push(done(&rotate)["name"].as_str().unwrap().to_owned());
    made.remove(0);
    assert!(run(&open, 0).ends_with("22\n"));
    let unknown = run(&["diff", &format!("{database}@hour"), database], 1);
    assert!(unknown.contains("there is no snapshot"), "{unknown}");
    // Another kind counts for itself.
    done(&["snapshot", "rotate", database, "--keep", "1"]);
    assert_eq!(names().len(), 4);
    // One that is in use stays, and the command says so.
    let oldest = format!("{database}.windlass-snapshots/{}", made[2]);
    let lock = std::fs::File::open(format!("{oldest}/windlass-snapshot")).unwrap();
    lock.lock_shared().unwrap();
    let (code, document) = json(&rotate);
    assert_eq!(code, 3, "{document}");
    assert_eq!(document["in_use"], serde_json::json!([made[2]]));
    // A process that another test is starting may have a copy of the descriptor.
    lock.unlock().unwrap();
    let document = done(&rotate);
    assert_eq!(
        document["dropped"].as_array().unwrap().len(),
        2,
        "{document}"
    );
    run(&["snapshot", "rotate", database, "--keep", "0"], 2);
    run(&["snapshot", "rotate", database, "a/b", "--keep", "1"], 2);
}

/// Who makes snapshots by the hour does not expect that to take away what a revert kept.
#[test]
fn a_rotation_keeps_the_snapshots_that_an_undo_needs() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let rotate = ["snapshot", "rotate", database, "hourly", "--keep", "1"];
    let first = done(&rotate)["name"].as_str().unwrap().to_owned();
    ledger.commit(21, 40);
    done(&[
        "snapshot",
        "revert",
        &format!("{database}@{first}"),
        "--yes",
    ]);
    assert_eq!(ledger.check(&ledger.path), 20);
    let output = windlass(&rotate);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    let warning =
        format!("warning: snapshot {first} should have been dropped, and has what a revert");
    assert!(printed.contains(&warning), "{printed}");
    let (code, document) = json(&rotate);
    assert_eq!(code, 3, "{document}");
    assert_eq!(document["with_undo"], serde_json::json!([first]));
    assert_eq!(
        document["dropped"].as_array().unwrap().len(),
        1,
        "{document}"
    );
    done(&["snapshot", "undo", database, "--yes"]);
    assert_eq!(ledger.check(&ledger.path), 40);
    // Without states it goes like the others.
    done(&["snapshot", "drop", database, "undo:2"]);
    let document = done(&rotate);
    assert_eq!(document["with_undo"], serde_json::json!([]));
    assert_eq!(
        document["dropped"].as_array().unwrap().len(),
        2,
        "{document}"
    );
    assert_eq!(listed(database).len(), 1);
}

/// An empty file is an empty database to SQLite, and a snapshot of it succeeds.
#[test]
fn a_rotation_drops_nothing_for_a_database_that_was_emptied() {
    for method in ["auto", "copy"] {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let ledger = ledger(place.path());
        let database = ledger.path.to_str().unwrap();
        let rotate = [
            "snapshot", "rotate", database, "--keep", "2", "--method", method,
        ];
        let first = done(&rotate)["name"].as_str().unwrap().to_owned();
        let second = done(&rotate)["name"].as_str().unwrap().to_owned();
        for end in ["-wal", "-shm"] {
            std::fs::remove_file(format!("{database}{end}")).unwrap_or_default();
        }
        drop(std::fs::File::create(database).unwrap());
        let printed = run(&[&rotate[..], &["--quiet"]].concat(), 3);
        for part in ["(database-emptied)", &second, &first, "nothing is dropped"] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        let (code, document) = json(&rotate);
        assert_eq!((code, &document["dropped"]), (3, &serde_json::json!([])));
        assert_eq!(document["held_back"], serde_json::json!([first, second]));
        // Whoever makes one by hand learns it, too.
        run(&["snapshot", "create", database, "empty"], 3);
        let accept = ["--accept", "database-emptied"];
        let document = done(&[&rotate[..], &accept].concat());
        assert_eq!(document["dropped"].as_array().unwrap().len(), 3);
        // Nothing is there any more that has more.
        done(&rotate);
    }
}

#[test]
fn a_database_that_was_moved_behind_a_link_has_its_older_snapshots_by_the_name_of_the_link() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    done(&["snapshot", "create", database, "then"]);
    let moved = place.path().join("moved.db");
    std::fs::rename(&ledger.path, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &ledger.path).unwrap();
    let accept = ["--accept", "symbolic-link"];
    let create = ["snapshot", "create", database, "now"];
    done(&[&create[..], &accept].concat());
    let names = |database: &str| -> Vec<String> {
        let all = listed(database).into_iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(database), ["then", "now"]);
    assert_eq!(names(moved.to_str().unwrap()), ["now"]);
    let word = format!("{database}@then");
    let count = "select count(*) from log";
    let open = ["open", "--quiet", &word, "--", "sqlite3", "{}", count];
    assert!(run(&open, 0).ends_with("20\n"));
    done(&["snapshot", "drop", database, "then"]);
    assert_eq!(names(database), ["now"]);
    assert!(!place.path().join("shop.db.windlass-snapshots").exists());
}
