//! Sets of a SQLite database that are taken while its log is received: each of them leads into the
//! log, also if SQLite's own log is empty at that moment.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell, run_once};

use crate::receive_sqlite::Receiving;
use crate::support::*;

/// A database in WAL mode below a directory, which nobody has open, so it has no log.
fn without_log(below: &str) -> Receiving {
    let dir = tempfile::tempdir_in(below).unwrap();
    std::fs::create_dir(dir.path().join("sets")).unwrap();
    let spec = LedgerSpec {
        journal: Journal::Wal,
        accounts: 50,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&dir.path().join("shop.db"), spec);
    let place = Place { dir, ledger };
    Receiving { place, child: None }
}

/// Commits one transaction with a connection of its own.
fn commit(receiving: &Receiving, number: u64) {
    let ledger = &receiving.place.ledger;
    run_once(&ledger.path, &ledger.transaction(number)).unwrap();
}

fn empty_the_log(receiving: &Receiving) {
    let mode = "PRAGMA busy_timeout=60000; PRAGMA wal_checkpoint(TRUNCATE);";
    run_once(&receiving.place.ledger.path, mode).unwrap();
}

fn linked_set(receiving: &Receiving) -> String {
    let (code, set) = receiving.back_up("full");
    assert_eq!(code, 0, "{set}");
    set["set_id"].as_str().unwrap().to_owned()
}

fn whole(receiving: &Receiving) {
    let timelines = receiving.timelines();
    assert_eq!(timelines.len(), 1, "{timelines:?}");
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

/// Metrics say of the log of a file what they say of the log of a cluster.
#[test]
fn metrics_say_how_far_the_log_of_a_database_leads() {
    let mut receiving = Receiving::new();
    receiving.start();
    commit(&receiving, 21);
    linked_set(&receiving);
    commit(&receiving, 22);
    receiving.stop();
    let timelines = receiving.timelines();
    assert_eq!(timelines.len(), 1, "{timelines:?}");
    let (timeline, window) = (&timelines[0], &timelines[0]["windows"][0]);
    let printed = windlass(&["info", "--metrics", &receiving.place.arg("sets")]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed));
    let printed = text(&printed);
    let key = receiving.place.key("shop.db");
    let value = |name: &str, rest: &str| {
        let labels = format!("database=\"shop.db\",key=\"{key}\"{rest}");
        let start = format!("windlass_place_{name}{{{labels}}} ");
        let value = printed.lines().find_map(|line| line.strip_prefix(&start));
        let value = value.unwrap_or_else(|| panic!("{start}: {printed}"));
        value.parse::<f64>().unwrap()
    };
    let of = format!(",timeline=\"{}\"", timeline["timeline"]);
    let time = |what: &str| {
        let moment = window[what].as_str().unwrap().parse::<jiff::Timestamp>();
        moment.unwrap().as_millisecond() as f64 / 1e3
    };
    let [start, end] = ["start", "end"].map(|what| {
        let found = value(&format!("restorable_{what}_time_seconds"), &of);
        assert_eq!(found, time(&format!("{what}_time")), "{printed}");
        found
    });
    assert!(start < end, "{printed}");
    assert_eq!(value("log_gaps", &of), 0.0);
    assert_eq!(
        value("log_stored_bytes", &of),
        timeline["stored_bytes"].as_f64().unwrap()
    );
    assert_eq!(value("log_unreadable", ""), 0.0);
}

/// Right after a write, and on tmpfs at any time, the change time of the file proves nothing.
#[test]
fn a_set_without_any_log_leads_to_the_transactions_that_come() {
    for below in ["/var/tmp", "/dev/shm"] {
        let mut receiving = without_log(below);
        receiving.start();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let set = linked_set(&receiving);
        commit(&receiving, 1);
        commit(&receiving, 2);
        receiving.stop();
        assert_eq!(receiving.restored(&[]), Ok(2), "{below}");
        let sets = &receiving.timelines()[0]["sets"];
        assert_eq!(sets, &Value::from(vec![set]), "{below}");
        whole(&receiving);
    }
}

/// A connection that writes first after another one has emptied the log draws its salts anew.
#[test]
fn a_log_that_is_emptied_and_begun_by_two_connections_is_no_gap() {
    let mut receiving = without_log("/dev/shm");
    receiving.start();
    let mut sets = Vec::new();
    for number in 1..=12 {
        if number % 3 == 0 {
            sets.push((linked_set(&receiving), number - 1));
        }
        commit(&receiving, number);
        empty_the_log(&receiving);
        if number % 4 == 0 {
            // The first salt changes each time, though nobody has committed.
            sets.push((linked_set(&receiving), number));
            empty_the_log(&receiving);
        }
    }
    receiving.stop();
    whole(&receiving);
    for (set, number) in &sets {
        assert_eq!(receiving.restored(&["--set", set]), Ok(*number));
        let options = ["--set", set, "--target-latest"];
        assert_eq!(receiving.restored(&options), Ok(12), "from {number}");
    }
    let timeline = &receiving.timelines()[0];
    assert_eq!(timeline["sets"].as_array().unwrap().len(), sets.len());
}

/// The transaction between the set and the log is lost, and nobody claims otherwise.
#[test]
fn a_set_from_before_the_log_does_not_lead_into_it_by_its_looks() {
    for below in ["/var/tmp", "/dev/shm"] {
        let mut receiving = without_log(below);
        let set = linked_set(&receiving);
        commit(&receiving, 1);
        receiving.start();
        commit(&receiving, 2);
        receiving.stop();
        let into = receiving.place.path("restored.db");
        let sets = receiving.place.arg("sets");
        let output = windlass(&["restore", &sets, "--into", into.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert_eq!(receiving.place.ledger.check(&into), 0);
        let (_, shown) = json(&["info", &sets]);
        assert_eq!(shown["logs"][0]["outside"], Value::from(vec![set.clone()]));
        let shown = text(&windlass(&["info", &sets]));
        let line = format!("restorable as they are and no further: {}", &set[..8]);
        assert!(shown.contains(&line), "{shown}");
    }
}

/// Between two receivers the file changed, and the log was emptied afterwards. A set from then does
/// not stand where the first receiver ended, though its file looks as it did when the second began.
#[test]
fn a_receiver_that_goes_on_does_not_take_the_file_for_that_of_the_one_before() {
    let mut receiving = without_log("/var/tmp");
    let mut keeper = receiving.place.ledger.shell();
    let mut run = |receiving: &Receiving, number: u64| {
        let sql = match number {
            0 => "PRAGMA wal_checkpoint(TRUNCATE);".to_owned(),
            number => receiving.place.ledger.transaction(number),
        };
        keeper.run(&format!(".timeout 60000\n{sql}"));
    };
    receiving.start();
    linked_set(&receiving);
    run(&receiving, 1);
    run(&receiving, 0);
    receiving.wait_for(1);
    receiving.stop();
    let then = receiving.timelines()[0]["end_time"]
        .as_str()
        .unwrap()
        .to_owned();
    run(&receiving, 2);
    run(&receiving, 3);
    run_once(
        &receiving.place.ledger.path,
        "PRAGMA wal_checkpoint(PASSIVE);",
    )
    .unwrap();
    // The change time of the file proves something now.
    std::thread::sleep(std::time::Duration::from_millis(3200));
    receiving.start();
    receiving.wait_for(3);
    run(&receiving, 0);
    let set = linked_set(&receiving);
    run(&receiving, 4);
    receiving.stop();
    let options = ["--set", &set, "--target-time", &then];
    assert_eq!(receiving.restored(&options).unwrap_err().0, 1);
    assert_eq!(receiving.restored(&["--target-time", &then]), Ok(1));
    assert_eq!(
        receiving.restored(&["--set", &set, "--target-latest"]),
        Ok(4)
    );
    whole(&receiving);
}

/// The receiver was killed, and the application has emptied the log since.
#[test]
fn a_set_that_its_log_does_not_get_to_is_a_warning() {
    let mut receiving = without_log("/dev/shm");
    receiving.start();
    commit(&receiving, 1);
    linked_set(&receiving);
    receiving.kill();
    commit(&receiving, 2);
    let (code, set) = receiving.back_up("full");
    assert_eq!(
        (code, &set["warnings"][0]["name"]),
        (3, &"not-in-log".into())
    );
    receiving.start();
    receiving.stop();
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(3), "{}", text(&verified));
}

/// Each kill may end a timeline with an object that is never sealed. It goes with the sets that
/// lead to it, and then the log begins with the next timeline, as if there had been no other.
#[test]
fn log_that_a_kill_left_goes_with_its_sets() {
    let mut receiving = without_log("/dev/shm");
    for round in 1..=3 {
        receiving.start();
        commit(&receiving, 2 * round - 1);
        linked_set(&receiving);
        if round < 3 {
            receiving.kill();
            commit(&receiving, 2 * round);
            empty_the_log(&receiving);
        }
    }
    assert_eq!(receiving.timelines().len(), 3);
    let sets = receiving.place.arg("sets");
    let expire = ["expire", &sets, "--keep-full", "1"];
    let (code, done) = json(&expire);
    assert_eq!((code, done["removed"].as_array().unwrap().len()), (0, 2));
    assert_eq!(done["logs_removed"][0]["objects"], 2, "{done}");
    commit(&receiving, 6);
    receiving.wait_for(2);
    receiving.stop();
    whole(&receiving);
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(6));
    let (_, done) = json(&expire);
    assert_eq!(done["logs_removed"], serde_json::json!([]));
}

/// Receives two transactions. Returns what was said first, and at the end.
fn received(receiving: &Receiving, numbers: [u64; 2]) -> (String, String) {
    let (database, sets) = receiving.place.ends();
    let mut command = command();
    command.args(["receive", &database, "--to", &sets, "--interval", "10ms"]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut first = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut first).unwrap();
    // Reads on: otherwise the command would wait for a reader.
    let rest = std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    for number in numbers {
        commit(receiving, number);
    }
    receiving.wait_for(2);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    rest.join().unwrap().unwrap();
    (first, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_receiver_says_what_may_be_lost_and_at_its_end_what_it_captured() {
    let receiving = without_log("/dev/shm");
    std::fs::create_dir(receiving.place.path("sets/log")).unwrap();
    let (first, last) = received(&receiving, [1, 2]);
    assert!(first.contains("captures the transactions"), "{first}");
    assert!(last.starts_with("received      2 transactions, "), "{last}");
    assert!(last.contains("; timeline 1 has 2; writers "), "{last}");
    // Nobody captures this one. The connection is the only one, so SQLite empties the log.
    commit(&receiving, 3);
    let (first, last) = received(&receiving, [4, 5]);
    assert!(
        first.contains("may be missing before timeline 2"),
        "{first}"
    );
    assert!(last.starts_with("received      2 transactions, "), "{last}");
    assert!(last.contains("; timeline 2 has 2; writers "), "{last}");
}

/// It may be the mount point of a disk that is not there.
#[test]
fn an_empty_place_takes_no_log() {
    let mut receiving = without_log("/dev/shm");
    let (database, sets) = receiving.place.ends();
    let words = ["receive", &database, "--to", &sets];
    let output = windlass(&words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its disk may not be mounted"), "{said}");
    assert!(said.contains(&format!("mkdir {sets}/log")), "{said}");
    let segment = receiving.place.arg("000000010000000000000001");
    let output = windlass(&["archive-push", &segment, "--to", &sets]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("its disk may not be mounted"), "{said}");
    assert!(std::fs::read_dir(&sets).unwrap().next().is_none());
    linked_set(&receiving);
    receiving.start();
    receiving.stop();
}

/// A set on two devices that has 21 transactions. The log is beside the second, and has 22.
fn striped(receiving: &Receiving, shell: &mut Shell, more: &[&str]) -> [String; 2] {
    let devices = ["other", "sets"].map(|name| receiving.place.arg(name));
    std::fs::create_dir(&devices[0]).unwrap();
    let commit = |shell: &mut Shell, number| shell.run(&receiving.place.ledger.transaction(number));
    commit(shell, 21);
    // The log begins, without a set.
    assert_eq!(receiving.back_up("log").0, 3);
    let (database, to) = (receiving.place.ends().0, devices.join(","));
    let (code, document) = json(&[&["backup", &database, "--to", &to], more].concat());
    assert_eq!(code, 0, "{document}");
    commit(shell, 22);
    assert_eq!(receiving.back_up("log").0, 0);
    devices
}

/// Restores with these words. Returns the exit code, how many transactions the database has, and
/// what was said.
fn restored_with(receiving: &Receiving, words: &[&str]) -> (Option<i32>, Option<u64>, String) {
    let into = receiving.place.path("restored.db");
    let words = [&["restore", "--into", into.to_str().unwrap()], words].concat();
    let output = windlass(&words);
    let found = into.exists().then(|| receiving.place.ledger.check(&into));
    if found.is_some() {
        std::fs::remove_file(&into).unwrap();
    }
    (output.status.code(), found, text(&output))
}

#[test]
fn the_log_is_found_beside_any_stripe_of_a_set() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    let devices = striped(&receiving, &mut shell, &[]);
    let [other, sets] = [&devices[0], &devices[1]].map(String::as_str);
    for words in [&[other, sets][..], &[sets, other], &[other], &[sets]] {
        let (code, found, said) = restored_with(&receiving, words);
        assert_eq!((code, found), (Some(0), Some(22)), "{words:?}: {said}");
    }
    // Of two places with log the one counts that leads further, whichever is the first.
    let log = format!("{sets}/log");
    let copied = Command::new("cp").args(["-a", &log, other]).status();
    assert!(copied.unwrap().success());
    shell.run(&receiving.place.ledger.transaction(23));
    assert_eq!(receiving.back_up("log").0, 0);
    let (code, found, said) = restored_with(&receiving, &[other, sets]);
    assert_eq!((code, found), (Some(0), Some(23)), "{said}");
    std::fs::remove_dir_all(format!("{other}/log")).unwrap();
    // A device was moved, and the log with it.
    let moved = receiving.place.arg("moved");
    std::fs::rename(sets, &moved).unwrap();
    let (code, found, said) = restored_with(&receiving, &[other, &moved]);
    assert_eq!((code, found), (Some(0), Some(23)), "{said}");
    let words = [other, &moved, "--target-time", "2100-01-01T00:00:00Z"];
    let (code, found, said) = restored_with(&receiving, &words);
    assert_eq!((code, found), (Some(1), None), "{said}");
    assert!(said.contains("what can be restored: "), "{said}");
}

#[test]
fn the_log_is_found_beside_parity_if_the_first_device_is_gone() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    let devices = striped(&receiving, &mut shell, &["--parity", "1"]);
    let [other, sets] = [&devices[0], &devices[1]].map(String::as_str);
    std::fs::remove_dir_all(other).unwrap();
    let (code, found, said) = restored_with(&receiving, &[sets]);
    assert_eq!((code, found), (Some(3), Some(22)), "{said}");
    // The place of the lost device has the log.
    std::fs::create_dir(other).unwrap();
    std::fs::rename(format!("{sets}/log"), format!("{other}/log")).unwrap();
    let (code, found, said) = restored_with(&receiving, &[sets]);
    assert_eq!((code, found), (Some(3), Some(22)), "{said}");
    // That is gone, and maybe the log with it.
    std::fs::remove_dir_all(other).unwrap();
    let (code, found, said) = restored_with(&receiving, &[sets]);
    assert_eq!((code, found), (Some(3), Some(21)), "{said}");
    assert!(said.contains("ends with the set: beside what"), "{said}");
    let (code, found, said) = restored_with(&receiving, &[sets, "--target-latest"]);
    assert_eq!((code, found), (Some(1), None), "{said}");
    assert!(said.contains("--log-from"), "{said}");
}
