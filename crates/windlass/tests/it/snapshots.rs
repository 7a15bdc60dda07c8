//! `windlass snapshot`, as its users see it, also when it is killed at each of its steps.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::snapshot_room::traced;
use crate::support::*;

/// A small ledger in this directory, with 20 transactions.
pub fn ledger(directory: &Path) -> CommitLedger {
    let spec = LedgerSpec {
        journal: Journal::Wal,
        accounts: 50,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&directory.join("shop.db"), spec);
    ledger.commit(1, 20);
    ledger
}

fn home(database: &Path) -> PathBuf {
    database.with_file_name("shop.db.windlass-snapshots")
}

pub fn listed(database: &str) -> Vec<Value> {
    let (code, document) = json(&["snapshot", "list", database]);
    assert_eq!(code, 0, "{document}");
    document["snapshots"].as_array().unwrap().clone()
}

#[test]
fn a_snapshot_is_made_listed_and_dropped() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    let (code, made) = json(&["snapshot", "create", database, "before-upgrade"]);
    assert_eq!(code, 0, "{made}");
    assert_eq!(made["method"], "clone");
    assert_eq!(made["survives"], "power_cut");
    assert_eq!(made["writers_stopped_seconds"], 0.0);
    let place = home(&ledger.path).join("before-upgrade");
    assert_eq!(made["place"], place.to_str().unwrap());
    let steps = made["steps"].as_array().unwrap();
    let step = |name: &str| steps.iter().any(|step| step["name"] == name);
    assert!(step("cloning the database") && step("publishing"), "{made}");
    let all = listed(database);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["state"], "kept");
    assert!(all[0]["disk_bytes"].as_u64().unwrap() > 0);
    let output = windlass(&["snapshot", "list", database]);
    let printed = text(&output);
    assert!(
        printed.contains("before-upgrade") && printed.contains("kept"),
        "{printed}"
    );
    let (code, dropped) = json(&["snapshot", "drop", database, "before-upgrade"]);
    assert_eq!((code, &dropped["dropped"]), (0, &"before-upgrade".into()));
    assert!(!home(&ledger.path).exists());
    assert_eq!(ledger.check(&ledger.path), 20);
}

/// A snapshot of a SQLite database has nothing to do with the memories of servers.
#[test]
fn no_memory_of_the_hook_is_looked_for_when_a_sqlite_database_has_a_snapshot() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    for verb in ["create", "drop"] {
        let (log, output) = traced("openat", &["snapshot", verb, database, "one"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(log.contains("shop.db"), "{log}");
        assert!(!log.contains("\"/dev/shm\""), "{verb}: {log}");
    }
}

#[test]
fn where_nothing_can_be_cloned_it_says_so_and_copies() {
    let place = Place::new();
    let (database, disk2) = (place.arg("shop.db"), place.arg("disk2"));
    let (code, made) = json(&["snapshot", "create", &database, "a", "--to", &disk2]);
    assert_eq!(code, 0, "{made}");
    assert_eq!(made["method"], "copy");
    assert_eq!(made["passed_over"][0]["method"], "clone");
    assert!(place.path("disk2/a/record").exists());
    let words = ["snapshot", "create", &database, "b", "--method", "clone"];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("cannot clone"), "{printed}");
    assert!(printed.contains("hint: Leave --method out"), "{printed}");
    assert_eq!(listed(&database).len(), 1);
    let (code, _) = json(&["snapshot", "drop", &database, "a"]);
    assert_eq!(code, 0);
    assert!(!home(&place.path("shop.db")).exists());
}

#[test]
fn mistakes_have_hints() {
    let place = Place::new();
    let database = place.arg("shop.db");
    let said = |words: &[&str], code: i32, hint: &str| {
        let output = windlass(&[&["snapshot"], words].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(
            printed.contains("hint: ") && printed.contains(hint),
            "{printed}"
        );
    };
    said(&["create", &database, "../x"], 2, "Write a name like");
    said(&["create", &database, "latest"], 2, "Write a name like");
    said(&["drop", &database, "none"], 1, "no snapshots");
    json(&["snapshot", "create", &database, "nightly"]);
    said(&["create", &database, "nightly"], 1, "Choose another name");
    said(&["drop", &database, "nightyl"], 1, "Did you mean nightly");
    let inside = place.arg("missing/deeper");
    said(&["create", &database, "x", "--to", &inside], 1, "");
}

#[test]
fn nothing_else_is_written_into_snapshots() {
    let place = Place::new();
    let (database, disk2) = (place.arg("shop.db"), place.arg("disk2"));
    let copy = |name: &str, more: &[&str]| {
        let words = ["snapshot", "create", &database, name, "--method", "copy"];
        json(&[&words[..], more].concat()).0
    };
    assert_eq!(copy("one", &[]), 0);
    assert_eq!(copy("two", &["--to", &disk2]), 0);
    let (of_one, sets) = (format!("{database}@one"), place.arg("sets"));
    assert_eq!(json(&["backup", &database, "--to", &sets]).0, 0);
    let home = home(&place.path("shop.db"));
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    let inside = [home.clone(), home.join("one"), place.path("disk2/two")];
    let refused = |words: &[&str]| {
        let output = windlass(words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        let is_said = ["belongs to a snapshot", "has the snapshots of a database"];
        assert!(is_said.iter().any(|it| printed.contains(it)), "{printed}");
    };
    for at in &inside {
        let (at, new) = (shown(at), shown(&at.join("new")));
        refused(&["snapshot", "create", &database, "three", "--to", &at]);
        refused(&["snapshot", "create", &database, "three", "--to", &new]);
        for source in [&database, &of_one] {
            refused(&["backup", source, "--to", &at]);
            refused(&["backup", source, "--to", &format!("{new}.windlass")]);
        }
        refused(&["restore", &sets, "--into", &new]);
        refused(&["extract", &of_one, "shop.db", "--into", &at]);
        refused(&["extract", &sets, "shop.db", "--into", &new]);
    }
    // The set that a snapshot of another database keeps is no set to be overwritten.
    let kept = shown(&place.path("disk2/two/snapshot.windlass"));
    refused(&["backup", &of_one, "--to", &kept, "--overwrite"]);
    for name in ["one", "two"] {
        let snapshot = format!("{database}@{name}");
        assert_eq!(windlass(&["verify", &snapshot]).status.code(), Some(0));
    }
    assert_eq!(listed(&database).len(), 2);
}

#[test]
fn what_may_not_be_read_is_neither_missing_nor_half_dropped() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (place, nobody) = (Place::new(), Some(65534));
    let (database, disk2) = (place.arg("shop.db"), place.arg("disk2"));
    for name in ["", "shop.db", "shop.db-wal", "shop.db-shm"] {
        if place.path(name).exists() {
            std::os::unix::fs::chown(place.path(name), nobody, nobody).unwrap();
        }
    }
    let allow = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    let denied = |code: i32, words: &[&str]| {
        let output = windlass(&[&["snapshot"], words].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains("Permission denied"), "{printed}");
        assert!(
            printed.contains("hint: Windlass looks there as"),
            "{printed}"
        );
        for wrong in ["no snapshot", "not there", "lost"] {
            assert!(!printed.contains(wrong), "{printed}");
        }
    };
    json(&["snapshot", "create", &database, "a"]);
    json(&["snapshot", "create", &database, "b", "--to", &disk2]);
    let home = home(&place.path("shop.db"));
    allow(&home, 0);
    denied(1, &["list", &database]);
    denied(1, &["drop", &database, "a"]);
    denied(1, &["revert", &format!("{database}@a"), "--yes"]);
    allow(&home, 0o700);
    allow(&place.path("disk2"), 0);
    denied(3, &["list", &database]);
    allow(&place.path("disk2"), 0o700);
    // Something in it cannot be removed.
    let inner = home.join("a/inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("file"), "").unwrap();
    std::os::unix::fs::chown(&inner, nobody, nobody).unwrap();
    allow(&inner, 0o500);
    let output = windlass(&["snapshot", "drop", &database, "a"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let kept = listed(&database);
    assert!(kept.iter().all(|one| one["state"] == "kept"), "{kept:?}");
    allow(&inner, 0o700);
    for name in ["a", "b"] {
        let (code, said) = json(&["snapshot", "drop", &database, name]);
        assert_eq!(code, 0, "{said}");
    }
}

/// As a copy of a directory leaves it, with the database and its place.
#[test]
fn a_snapshot_of_another_database_is_not_reverted_to_or_dropped_through_a_link() {
    let place = Place::new();
    let (database, disk2) = (place.arg("shop.db"), place.arg("disk2"));
    json(&["snapshot", "create", &database, "a", "--to", &disk2]);
    let other = place.path("test/shop.db");
    std::fs::create_dir_all(home(&other)).unwrap();
    std::fs::copy(place.path("shop.db"), &other).unwrap();
    let link = home(&other).join("a");
    std::os::unix::fs::symlink(place.path("disk2/a"), &link).unwrap();
    let before = std::fs::read(&other).unwrap();
    let other = other.to_str().unwrap();
    let word = format!("{other}@a");
    for words in [
        &["revert", &word, "--yes"][..],
        &["drop", other, "a"],
        &["list", other],
    ] {
        let output = windlass(&[&["snapshot"], words].concat());
        let printed = text(&output);
        let code = if words[0] == "list" { 3 } else { 1 };
        assert_eq!(output.status.code(), Some(code), "{printed}");
        let said = format!("leads to a snapshot of another database, {database}");
        assert!(printed.contains(&said), "{printed}");
        assert!(printed.contains("hint: Name that database"), "{printed}");
    }
    assert_eq!(std::fs::read(other).unwrap(), before);
    assert!(link.is_symlink());
    assert_eq!(listed(&database)[0]["state"], "kept");
    let (code, _) = json(&["snapshot", "drop", &database, "a"]);
    assert_eq!(code, 0);
}

/// The calls at whose entry a process is killed. What happens between two of them changes nothing
/// on the disk.
const CALLS: [&str; 9] = [
    "mkdir", "ioctl", "fsync", "rename", "unlink", "unlinkat", "rmdir", "symlink", "write",
];
/// How many calls of one kind a run may have. Each thread counts its own.
const CALLS_MAX: usize = 400;

/// Runs a command once for each call of each kind, and kills it there. `after` looks at what is
/// left.
fn killed_everywhere(words: &[&str], before: impl FnMut(), after: impl FnMut(&str)) {
    killed_at(&CALLS, words, before, after);
}

/// The same for these kinds of calls.
pub fn killed_at(
    calls: &[&str],
    words: &[&str],
    mut before: impl FnMut(),
    mut after: impl FnMut(&str),
) {
    let mut kills = 0;
    for call in calls {
        for number in 1..CALLS_MAX {
            before();
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let mut strace = around("strace");
            strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
            strace.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
            let status = strace.output().unwrap().status;
            after(&format!("{call} {number}"));
            if status.success() {
                break;
            }
            kills += 1;
        }
    }
    // Without a history there are fewer calls.
    assert!(kills > 4, "only {kills} kills");
}

/// What the database's snapshots are after a kill: each that is listed as kept can be read.
fn check_kept(ledger: &CommitLedger, at: &str) -> Vec<String> {
    let database = ledger.path.to_str().unwrap();
    let mut kept = Vec::new();
    for one in listed(database) {
        if one["state"] == "kept" {
            let data = Path::new(one["place"].as_str().unwrap()).join("data/0");
            let copy = ledger.path.with_file_name("copy.db");
            std::fs::copy(data, &copy).unwrap();
            assert_eq!(ledger.check(&copy), 20, "{at}");
            std::fs::remove_file(copy).unwrap();
            kept.push(one["name"].as_str().unwrap().to_owned());
        } else {
            assert_eq!(one["state"], "unfinished", "{at}");
        }
    }
    kept
}

/// Drops these, and checks that nothing is left then.
fn drop_all(ledger: &CommitLedger, names: &[String], at: &str) {
    let database = ledger.path.to_str().unwrap();
    for name in names {
        let (code, document) = json(&["snapshot", "drop", database, name]);
        assert_eq!(code, 0, "{at}: {document}");
    }
    let home = home(&ledger.path);
    assert!(!home.exists(), "{at}: {:?}", std::fs::read_dir(&home));
    let elsewhere = ledger.path.with_file_name("disk2");
    let left = std::fs::read_dir(&elsewhere);
    assert!(left.is_err() || left.unwrap().count() == 0, "{at}");
}

#[test]
fn a_killed_create_leaves_a_whole_snapshot_or_none_and_the_next_removes_the_rest() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    let disk2 = volume.at().join("disk2");
    let disk2 = disk2.to_str().unwrap();
    for elsewhere in [None, Some(disk2)] {
        let mut words = vec!["snapshot", "create", database, "a"];
        let mut next = vec!["snapshot", "create", database, "b"];
        for words in [&mut words, &mut next] {
            words.extend(elsewhere.iter().flat_map(|to| ["--to", to]));
        }
        let after = |at: &str| {
            check_kept(&ledger, at);
            let (code, document) = json(&next);
            assert_eq!(code, 0, "{at}: {document}");
            let kept = check_kept(&ledger, at);
            assert_eq!(listed(database).len(), kept.len(), "{at}");
            drop_all(&ledger, &kept, at);
        };
        killed_everywhere(&words, || {}, after);
    }
}

#[test]
fn a_killed_drop_is_finished_by_the_next() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    let disk2 = volume.at().join("disk2");
    let disk2 = disk2.to_str().unwrap();
    for elsewhere in [None, Some(disk2)] {
        let mut make = vec!["snapshot", "create", database, "a"];
        make.extend(elsewhere.iter().flat_map(|to| ["--to", to]));
        let before = || assert_eq!(json(&make).0, 0);
        let after = |at: &str| {
            check_kept(&ledger, at);
            let mut next = make.clone();
            next[3] = "b";
            assert_eq!(json(&next).0, 0, "{at}");
            let kept = check_kept(&ledger, at);
            assert_eq!(listed(database).len(), kept.len(), "{at}");
            drop_all(&ledger, &kept, at);
        };
        killed_everywhere(&["snapshot", "drop", database, "a"], before, after);
    }
}

/// The name is all that is left to whoever deleted the file.
#[test]
fn snapshots_of_a_file_that_was_deleted_or_moved_are_found_by_its_name_and_put_it_back() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let copies = tempfile::tempdir_in("/var/tmp").unwrap();
    for (directory, method) in [(volume.at(), "clone"), (copies.path(), "copy")] {
        let ledger = ledger(directory);
        let database = ledger.path.to_str().unwrap();
        let (code, made) = json(&["snapshot", "create", database, "then"]);
        assert_eq!((code, &made["method"]), (0, &method.into()), "{made}");
        ledger.commit(21, 40);
        let link = directory.join("link.db");
        std::os::unix::fs::symlink(&ledger.path, &link).unwrap();
        let moved = directory.join("moved.db");
        std::fs::rename(&ledger.path, &moved).unwrap();
        let said = |words: &[&str], code: i32| {
            let output = windlass(words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
            printed
        };
        for name in [database, link.to_str().unwrap()] {
            let listed = said(&["snapshot", "list", name], 0);
            assert!(
                listed.contains("is not there; its snapshots are"),
                "{listed}"
            );
            assert!(listed.contains("then"), "{listed}");
        }
        let word = format!("{database}@then");
        let ask = ["open", "--quiet", &word, "--", "sqlite3", "{}"];
        let rows = said(&[&ask[..], &["SELECT count(*) FROM log"]].concat(), 0);
        assert!(rows.ends_with("20\n"), "{rows}");
        let into = directory.join("extracted");
        said(
            &["extract", &word, "*", "--into", into.to_str().unwrap()],
            0,
        );
        let file = std::fs::read_dir(&into).unwrap().next().unwrap().unwrap();
        assert_eq!(ledger.check(&file.path()), 20);
        for verb in ["create", "undo"] {
            let more: &[&str] = if verb == "create" { &["b"] } else { &["--yes"] };
            let refused = said(&[&["snapshot", verb, database], more].concat(), 1);
            assert!(refused.contains("is not there"), "{refused}");
            assert!(refused.contains("hint: Put a snapshot back"), "{refused}");
        }
        // SQLite would write a log that is left into the new file.
        let log = directory.join("shop.db-wal");
        std::fs::write(&log, b"left").unwrap();
        let revert = ["snapshot", "revert", &word, "--yes"];
        let refused = said(&revert, 1);
        assert!(refused.contains("shop.db-wal is left"), "{refused}");
        assert!(!ledger.path.exists());
        std::fs::remove_file(log).unwrap();
        let asked = said(&["snapshot", "revert", &word], 2);
        assert!(asked.contains("puts it back as it was at"), "{asked}");
        let printed = said(&revert, 0);
        assert!(printed.contains("put back"), "{printed}");
        assert_eq!(ledger.check(&ledger.path), 20);
        assert_eq!(ledger.check(&moved), 40);
        ledger.commit(21, 30);
        assert_eq!(ledger.check(&ledger.path), 30);
        // Now it is there, so the same command goes back in it, and can be undone.
        said(&revert, 0);
        said(&["snapshot", "undo", database, "--yes"], 0);
        assert_eq!(ledger.check(&ledger.path), 30);
        std::fs::remove_file(&ledger.path).unwrap();
        said(&["snapshot", "drop", database, "then"], 0);
        assert!(!home(&ledger.path).exists());
        let none = said(&["snapshot", "list", database], 1);
        assert!(none.contains("does not exist"), "{none}");
    }
}

#[test]
fn a_database_is_restored_to_a_name_in_the_working_directory() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    for words in [
        &["backup", "shop.db", "--to", "set.windlass"][..],
        &["restore", "set.windlass", "--into", "restored.db"],
    ] {
        let output = command().current_dir(place.path()).args(words).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert_eq!(ledger.check(&place.path().join("restored.db")), 20);
}

/// SQLite finds a log by the name of its database. Two programs that have two files of one name
/// open would mix them.
#[test]
fn a_file_that_a_program_still_has_open_is_not_put_back_or_restored() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    assert_eq!(json(&["snapshot", "create", database, "then"]).0, 0);
    let set = place.path().join("set.windlass");
    let set = set.to_str().unwrap();
    assert_eq!(json(&["backup", database, "--to", set]).0, 0);
    let link = place.path().join("link.db");
    std::os::unix::fs::symlink("shop.db", &link).unwrap();
    let word = format!("{}@then", link.display());
    let revert = ["snapshot", "revert", &word, "--yes"];
    let side = |suffix: &str| place.path().join(format!("shop.db{suffix}"));
    let elsewhere = place.path().join("elsewhere.db");
    let delete = || std::fs::remove_file(&ledger.path).unwrap();
    let delete_all = || {
        delete();
        for suffix in ["-wal", "-shm"] {
            std::fs::remove_file(side(suffix)).unwrap();
        }
    };
    let move_away = || std::fs::rename(&ledger.path, &elsewhere).unwrap();
    for (at, leave) in [
        ("deleted", &delete as &dyn Fn()),
        ("deleted with its side files", &delete_all),
        ("moved", &move_away),
    ] {
        let mut shell = ledger.shell();
        shell.run(&ledger.transaction(21));
        shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
        leave();
        let output = windlass(&revert);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{at}: {printed}");
        for part in [
            "(sqlite3) still has ",
            "shop.db",
            "hint: ",
            "End that program",
        ] {
            assert!(printed.contains(part), "{at}: {printed}");
        }
        let output = windlass(&["restore", set, "--into", database, "--force"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{at}: {printed}");
        assert!(printed.contains("is in use by process"), "{at}: {printed}");
        assert!(!ledger.path.exists(), "{at}");
        // It goes on with its own file.
        assert_eq!(shell.run("SELECT count(*) FROM log;"), ["21"], "{at}");
        shell.kill();
        let output = windlass(&revert);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(0), "{at}: {printed}");
        assert_eq!(ledger.check(&ledger.path), 20, "{at}");
    }
}
