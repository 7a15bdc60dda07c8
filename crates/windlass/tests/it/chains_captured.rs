//! Differentials of a SQLite database whose log is received: after a checkpoint, what the received
//! log says was written is read, and nothing else. If anybody else may have written to the file,
//! everything is.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use windlass_testkit::sqlite::Shell;

use crate::receive_sqlite::Receiving;
use crate::support::*;

/// A database of about 2 MB with 20 transactions, and a shell in which the log grows until it is
/// told otherwise.
fn receiving() -> (Receiving, Shell) {
    let place = Place::with_accounts(2000);
    let mut shell = place.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint = 0;");
    (Receiving { place, child: None }, shell)
}

/// Whether the file system says when a file was changed through a map. Elsewhere, everything is
/// always read.
pub fn is_known(receiving: &Receiving) -> bool {
    let mut command = Command::new("stat");
    let command = command.args(["-f", "-c", "%T"]);
    let output = command.arg(receiving.place.path("sets")).output().unwrap();
    let name = String::from_utf8(output.stdout).unwrap();
    ["ext2/ext3", "xfs", "btrfs"].contains(&name.trim())
}

/// Copies all of the log into the file. The receiver's pin allows that a moment after it has
/// received what was committed.
fn copy(shell: &mut Shell) {
    loop {
        // Whether it was busy, the frames of the log, and those that are copied.
        let lines = shell.run("PRAGMA wal_checkpoint(PASSIVE);");
        let numbers: Vec<_> = lines[0].split('|').collect();
        if numbers[0] == "0" && numbers[1] == numbers[2] {
            break;
        }
    }
}

/// Commits this transaction, which is received. The receiver has done with the one before.
fn commit(receiving: &Receiving, shell: &mut Shell, number: u64) {
    shell.run(&receiving.place.ledger.transaction(number));
    receiving.wait_for(number - 20);
}

/// The same, and copies it into the file.
fn commit_and_copy(receiving: &Receiving, shell: &mut Shell, number: u64) {
    commit(receiving, shell, number);
    copy(shell);
}

/// Touches the file until its time of change is another one.
fn touch(receiving: &Receiving) {
    let path = &receiving.place.ledger.path;
    let changed = || {
        let found = std::fs::metadata(path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed();
    while changed() == before {
        let touched = Command::new("touch").arg(path).status();
        assert!(touched.unwrap().success());
    }
}

/// A set that builds on another, of which the backup says what it was made by. Its content is that
/// of so many transactions.
fn link(receiving: &Receiving, base: &str, number: u64) -> (String, Value) {
    let (database, sets) = receiving.place.ends();
    let words = ["backup", &database, "--to", &sets, "--type", "incr"];
    let (code, set) = json(&[&words[..], &["--strict", "--base", base]].concat());
    assert_eq!((code, &set["base"]), (0, &Value::from(base)), "{set}");
    let id = set["set_id"].as_str().unwrap();
    assert_eq!(receiving.restored(&["--set", id]), Ok(number));
    let by = set["database"]["changes_from"].as_str().unwrap();
    (by.to_owned(), set)
}

/// Links to the same base until the log says what was written. The receiver has to see first that
/// the file is at rest.
fn link_by_log(receiving: &Receiving, base: &str, number: u64) -> Value {
    for _ in 0..600 {
        let (by, set) = link(receiving, base, number);
        if by == "log" {
            return set;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    panic!("the log never said what was written since {base}");
}

fn id(set: &Value) -> &str {
    set["set_id"].as_str().unwrap()
}

fn full(receiving: &Receiving) -> Value {
    let (code, set) = receiving.back_up("full");
    assert_eq!(code, 0, "{set}");
    set
}

#[test]
fn a_received_log_says_what_was_written_before_a_checkpoint() {
    let (mut receiving, mut shell) = receiving();
    if !is_known(&receiving) {
        return;
    }
    receiving.start();
    commit_and_copy(&receiving, &mut shell, 21);
    let base = full(&receiving);
    commit_and_copy(&receiving, &mut shell, 22);
    commit_and_copy(&receiving, &mut shell, 23);
    let set = link_by_log(&receiving, id(&base), 23);
    let number = |key: &str| set[key].as_u64().unwrap();
    let bytes = set["database"]["bytes"].as_u64().unwrap();
    let read = number("bytes_read");
    assert!(read > 0 && read * 2 < bytes, "{read} of {bytes}");
    // What came since is in the database's own log. It begins again, with other salts.
    commit(&receiving, &mut shell, 24);
    assert_eq!(link(&receiving, id(&base), 24).0, "log");
    // The hashes of a set that was made so are those of all pages.
    commit(&receiving, &mut shell, 25);
    touch(&receiving);
    assert_eq!(link(&receiving, id(&set), 25).0, "pages");
    receiving.stop();
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

/// The receiver goes on, and the log has every transaction, but nobody watched the file.
#[test]
fn what_may_have_been_written_while_nothing_was_received_is_looked_for() {
    let (mut receiving, mut shell) = receiving();
    if !is_known(&receiving) {
        return;
    }
    receiving.start();
    commit_and_copy(&receiving, &mut shell, 21);
    let before = full(&receiving);
    commit(&receiving, &mut shell, 22);
    receiving.stop();
    copy(&mut shell);
    receiving.start();
    commit(&receiving, &mut shell, 23);
    commit_and_copy(&receiving, &mut shell, 24);
    let after = full(&receiving);
    commit_and_copy(&receiving, &mut shell, 25);
    link_by_log(&receiving, id(&after), 25);
    assert_eq!(link(&receiving, id(&before), 25).0, "pages");
    receiving.stop();
    assert_eq!(receiving.timelines().len(), 1);
}

#[test]
fn a_file_that_somebody_else_touched_is_read() {
    let (mut receiving, mut shell) = receiving();
    if !is_known(&receiving) {
        return;
    }
    receiving.start();
    commit_and_copy(&receiving, &mut shell, 21);
    let before = full(&receiving);
    // The receiver has looked at the file after the checkpoint and before this, and after it.
    commit(&receiving, &mut shell, 22);
    commit(&receiving, &mut shell, 23);
    touch(&receiving);
    commit(&receiving, &mut shell, 24);
    commit(&receiving, &mut shell, 25);
    commit_and_copy(&receiving, &mut shell, 26);
    let after = full(&receiving);
    commit_and_copy(&receiving, &mut shell, 27);
    link_by_log(&receiving, id(&after), 27);
    assert_eq!(link(&receiving, id(&before), 27).0, "pages");
    receiving.stop();
}

/// Starts a receiver that looks when a checkpoint waits for it, and otherwise not in an hour.
pub fn start_patient(receiving: &mut Receiving) {
    let (database, sets) = receiving.place.ends();
    std::fs::create_dir_all(receiving.place.path("sets/log")).unwrap();
    let mut command = command();
    command.args(["receive", &database, "--to", &sets, "--interval", "3600s"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    receiving.child = Some(child);
    until_it_waits(receiving);
}

/// Waits until the receiver has ended its look: no look gives way so often as it does while it
/// waits for the next one.
pub fn until_it_waits(receiving: &Receiving) {
    let before = gave_way(receiving);
    while gave_way(receiving) < before + 100 {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How often the receiver gave its processor away to wait for something.
pub fn gave_way(receiving: &Receiving) -> u64 {
    let id = receiving.child.as_ref().unwrap().id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// Waits until a write to the file must show in its time of change.
pub fn until_at_rest(receiving: &Receiving) {
    let age = || {
        let found = std::fs::metadata(&receiving.place.ledger.path).unwrap();
        let changed = Duration::from_secs(found.ctime().try_into().unwrap());
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + changed);
        since.unwrap_or_default()
    };
    while age() <= Duration::from_millis(3100) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Commits, and copies all of the log into the file with a checkpoint that waits for the receiver:
/// it looks, and has received the transaction then.
fn commit_and_wake(receiving: &Receiving, shell: &mut Shell, number: u64) {
    shell.run(&receiving.place.ledger.transaction(number));
    let lines = shell.run("PRAGMA wal_checkpoint(RESTART);");
    assert!(lines[0].starts_with("0|"), "{lines:?}");
    until_it_waits(receiving);
}

/// The look that finds the file touched would find the log begun again and copied, too.
#[test]
fn what_somebody_wrote_between_two_looks_does_not_hide_behind_a_checkpoint_of_the_second_one() {
    let (mut receiving, mut shell) = receiving();
    if !is_known(&receiving) {
        return;
    }
    until_at_rest(&receiving);
    start_patient(&mut receiving);
    let before = full(&receiving);
    touch(&receiving);
    for number in [21, 22] {
        commit_and_wake(&receiving, &mut shell, number);
    }
    let after = full(&receiving);
    commit_and_wake(&receiving, &mut shell, 23);
    until_at_rest(&receiving);
    receiving.stop();
    assert_eq!(link(&receiving, id(&after), 23).0, "log");
    assert_eq!(link(&receiving, id(&before), 23).0, "pages");
}
