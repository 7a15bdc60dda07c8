//! The log of a SQLite database: every transaction that was received can be restored, and what may
//! be lost is named.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec, Random, Shell, Storm, run_once};

use crate::support::*;

/// A place whose database has 20 transactions.
pub struct Receiving {
    pub place: Place,
    pub child: Option<Child>,
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap_or_default();
            child.wait().ok();
        }
    }
}

impl Receiving {
    pub fn new() -> Self {
        let place = Place::with_accounts(200);
        Self { place, child: None }
    }

    /// Starts `receive`, and waits until it captures. Returns what it said first.
    pub fn start(&mut self) -> String {
        let (database, sets) = self.place.ends();
        std::fs::create_dir_all(self.place.path("sets/log")).unwrap();
        let mut command = command();
        command.args(["receive", &database, "--to", &sets, "--interval", "10ms"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("timeline"), "{line}");
        // Reads on: otherwise the command would wait for a reader.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        self.child = Some(child);
        line
    }

    pub fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        signal(&child, "INT");
        assert!(child.wait().unwrap().success());
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn back_up(&self, kind: &str) -> (i32, Value) {
        let (database, sets) = self.place.ends();
        json(&["backup", &database, "--to", &sets, "--type", kind])
    }

    /// The timelines of the log.
    pub fn timelines(&self) -> Vec<Value> {
        let (_, document) = json(&["info", &self.place.arg("sets")]);
        let timelines = document["logs"][0]["timelines"].as_array();
        timelines.cloned().unwrap_or_default()
    }

    /// How many transactions the newest timeline has.
    fn received(&self) -> u64 {
        let timelines = self.timelines();
        let last = timelines
            .last()
            .map(|one| one["transactions"].as_u64().unwrap());
        last.unwrap_or_default()
    }

    pub fn wait_for(&self, number: u64) {
        while self.received() < number {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Restores with these options. Returns how many transactions the database has, or the exit
    /// code and what was said.
    pub fn restored(&self, options: &[&str]) -> Result<u64, (i32, String)> {
        let into = self.place.path("restored.db");
        let sets = self.place.arg("sets");
        let words = ["restore", &sets, "--into", into.to_str().unwrap()];
        let output = windlass(&[&words[..], options].concat());
        let code = output.status.code().unwrap();
        if code != 0 {
            assert!(!into.exists());
            return Err((code, text(&output)));
        }
        let found = self.place.ledger.check(&into);
        std::fs::remove_file(&into).unwrap();
        Ok(found)
    }
}

fn commit(place: &Place, shell: &mut Shell, number: u64) {
    shell.run(&place.ledger.transaction(number));
}

#[test]
fn every_moment_that_was_received_can_be_restored() {
    let mut receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    receiving.start();
    commit(&receiving.place, &mut shell, 21);
    assert_eq!(receiving.back_up("full").0, 0);
    let mut moments = Vec::new();
    let between = [
        "PRAGMA wal_checkpoint(PASSIVE);",
        "PRAGMA wal_checkpoint(FULL);",
        "PRAGMA wal_checkpoint(RESTART);",
        "VACUUM;",
        "PRAGMA wal_checkpoint(TRUNCATE);",
        "",
        "PRAGMA journal_mode=delete;",
    ];
    let mut extra = 0;
    for (number, sql) in (22..).zip(between) {
        commit(&receiving.place, &mut shell, number);
        if sql == "VACUUM;" {
            // A transaction more. The receiver may keep writers away for a moment.
            let patient = format!("PRAGMA busy_timeout=60000; {sql}");
            run_once(&receiving.place.ledger.path, &patient).unwrap();
            extra += 1;
        } else {
            // A change of the journal mode fails, because somebody else reads.
            run_once(&receiving.place.ledger.path, sql).ok();
        }
        receiving.wait_for(number - 20 + extra);
        moments.push((jiff::Timestamp::now().to_string(), number));
    }
    let (code, link) = receiving.back_up("incr");
    assert_eq!((code, &link["type"]), (0, &Value::from("incr")));
    commit(&receiving.place, &mut shell, 29);
    receiving.stop();
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(29));
    assert_eq!(receiving.restored(&["--target-immediate"]), Ok(28));
    assert_eq!(receiving.restored(&[]), Ok(29));
    assert_eq!(receiving.restored(&["--set", "latest"]), Ok(28));
    for (moment, number) in &moments {
        // Windlass takes the older set if the newer one comes too late.
        assert_eq!(
            receiving.restored(&["--target-time", moment]),
            Ok(*number),
            "{moment}"
        );
    }
    let timelines = receiving.timelines();
    assert_eq!(timelines.len(), 1);
    assert_eq!(timelines[0]["sets"].as_array().unwrap().len(), 2);
    let refused = |options: &[&str]| receiving.restored(options).unwrap_err();
    for options in [
        ["--target-lsn", "0/1"],
        ["--target-xid", "7"],
        ["--target-name", "here"],
        ["--target-timeline", "1"],
    ] {
        let (code, said) = refused(&options);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("SQLite database"), "{said}");
    }
    let (code, said) = refused(&["--target-time", "2100-01-01T00:00:00Z"]);
    assert!(
        code == 1 && said.contains("is not in the log, which has every"),
        "{said}"
    );
    let (code, said) = refused(&["--target-time", "2020-01-01T00:00:00Z"]);
    assert!(
        code == 1 && said.contains("lies before the end of the backup"),
        "{said}"
    );
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

/// Nobody empties the log meanwhile, so nothing is lost, and no gap is claimed.
#[test]
fn a_receiver_that_is_killed_goes_on_where_it_was() {
    let mut receiving = Receiving::new();
    let keeper = receiving.place.ledger.shell();
    receiving.start();
    let mut random = Random(12);
    let mut shell = receiving.place.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0;");
    let mut number = 21;
    commit(&receiving.place, &mut shell, number);
    assert_eq!(receiving.back_up("full").0, 0);
    for _ in 0..8 {
        for _ in 0..1 + random.below(6) {
            number += 1;
            commit(&receiving.place, &mut shell, number);
        }
        receiving.kill();
        receiving.start();
    }
    receiving.stop();
    assert_eq!(receiving.timelines().len(), 1);
    assert_eq!(receiving.received(), number - 20);
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(number));
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    keeper.close();
}

/// The same place, copied while the log was received, or damaged: it leads as far as it goes.
#[test]
fn a_log_that_has_lost_its_end_leads_as_far_as_it_goes() {
    let mut receiving = Receiving::new();
    let keeper = receiving.place.ledger.shell();
    receiving.start();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving.place, &mut shell, 22);
    receiving.wait_for(2);
    let moment = jiff::Timestamp::now().to_string();
    commit(&receiving.place, &mut shell, 23);
    receiving.wait_for(3);
    let growing = |path: &std::path::PathBuf| path.to_string_lossy().ends_with("-open.wlog");
    let object = objects(&receiving.place).into_iter().find(growing).unwrap();
    let copied = std::fs::read(&object).unwrap();
    commit(&receiving.place, &mut shell, 24);
    receiving.wait_for(4);
    // What comes next is written when the mark tells of what came before.
    commit(&receiving.place, &mut shell, 25);
    receiving.wait_for(5);
    receiving.kill();
    let end = jiff::Timestamp::now().to_string();
    let sets = receiving.place.arg("sets");
    // Nothing of the only object can be read.
    std::fs::write(&object, &copied[..20]).unwrap();
    for command in ["verify", "info"] {
        let output = windlass(&[command, &sets]);
        assert_eq!(output.status.code(), Some(4), "{}", text(&output));
        assert!(text(&output).contains("was durable"), "{}", text(&output));
    }
    std::fs::write(&object, copied).unwrap();
    assert_eq!(receiving.restored(&["--target-time", &moment]), Ok(22));
    let (code, said) = receiving.restored(&["--target-time", &end]).unwrap_err();
    assert!(code == 4 && said.contains("was durable"), "{said}");
    for options in [&["--target-latest"][..], &[]] {
        let into = receiving.place.arg("latest.db");
        let output = windlass(&[&["restore", &sets, "--into", &into], options].concat());
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("was durable"), "{}", text(&output));
        let into = receiving.place.path("latest.db");
        assert_eq!(receiving.place.ledger.check(&into), 23);
        std::fs::remove_file(into).unwrap();
    }
    for command in ["verify", "info"] {
        let output = windlass(&[command, &sets]);
        assert_eq!(output.status.code(), Some(4), "{}", text(&output));
        assert!(text(&output).contains("was durable"), "{}", text(&output));
    }
    // What was lost comes again, and then nothing tells of it any more.
    let (database, _) = receiving.place.ends();
    let words = ["backup", &database, "--to", &sets, "--type", "log"];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("was durable"), "{}", text(&output));
    let output = windlass(&["verify", &sets]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(receiving.timelines().len(), 1);
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(25));
    keeper.close();
}

/// The writer empties its log as soon as nobody reads it. Each kill either loses nothing, or a new
/// timeline begins; and each set leads to the end of its own timeline.
#[test]
fn kills_beside_a_writer_lose_nothing_that_is_not_named() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(dir.path().join("sets")).unwrap();
    let ledger = CommitLedger::create(&dir.path().join("shop.db"), LedgerSpec::default());
    let place = Place { dir, ledger };
    let mut receiving = Receiving { place, child: None };
    let storm = Storm::start(
        &receiving.place.ledger,
        "PRAGMA wal_autocheckpoint=20;",
        100,
    );
    let mut random = Random(3);
    for round in 1..=6 {
        receiving.start();
        let committed = storm.committed();
        storm.wait_for(committed + 10);
        assert_eq!(receiving.back_up("full").0, 0, "round {round}");
        let before = receiving.received();
        let committed = storm.committed();
        storm.wait_for(committed + 10 + u64::from(random.below(60)));
        receiving.wait_for(before + 5);
        receiving.kill();
    }
    receiving.start();
    let committed = storm.committed();
    storm.wait_for(committed + 10);
    assert_eq!(receiving.back_up("full").0, 0);
    let committed = storm.stop();
    receiving.stop();
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(committed));
    let timelines = receiving.timelines();
    for timeline in &timelines {
        let is_first = timeline["timeline"] == 1;
        assert_eq!(timeline["lost"].is_null(), is_first, "{timeline}");
        for set in timeline["sets"].as_array().unwrap() {
            let end = timeline["end_time"].as_str().unwrap();
            let options = ["--set", set.as_str().unwrap(), "--target-time", end];
            assert!(receiving.restored(&options).unwrap() >= 10, "{timeline}");
        }
    }
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    let expected = if timelines.len() > 1 { 3 } else { 0 };
    assert_eq!(
        verified.status.code(),
        Some(expected),
        "{}",
        text(&verified)
    );
}

#[test]
fn a_log_that_was_emptied_between_two_copies_is_a_gap() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    let (code, document) = receiving.back_up("log");
    assert_eq!(
        (code, &document["warnings"][0]["name"]),
        (3, &"log-without-set".into())
    );
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving.place, &mut shell, 22);
    let (code, document) = receiving.back_up("log");
    assert_eq!(
        (code, &document["transactions"]),
        (0, &1.into()),
        "{document}"
    );
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(22));
    // Somebody empties the log, and goes on.
    shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
    commit(&receiving.place, &mut shell, 23);
    let (code, document) = receiving.back_up("log");
    assert_eq!(
        (code, &document["warnings"][0]["name"]),
        (3, &"log-gap".into())
    );
    let (code, said) = receiving.restored(&["--target-latest"]).unwrap_err();
    assert!(
        code == 1 && said.contains("may lack transactions"),
        "{said}"
    );
    let shown = text(&windlass(&["info", &receiving.place.arg("sets")]));
    assert!(
        shown.contains("transactions before timeline 2 may be missing"),
        "{shown}"
    );
    let verified = windlass(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(3), "{}", text(&verified));
    // A new set leads to what comes.
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving.place, &mut shell, 24);
    assert_eq!(receiving.back_up("log").0, 0);
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(24));
}

#[test]
fn the_newest_state_is_never_that_of_an_older_set() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    // The log begins.
    assert_eq!(receiving.back_up("log").0, 3);
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving.place, &mut shell, 22);
    assert_eq!(receiving.back_up("log").0, 0);
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(22));
    commit(&receiving.place, &mut shell, 23);
    // No log goes on from this set.
    assert_eq!(receiving.back_up("full").0, 0);
    assert_eq!(receiving.restored(&[]), Ok(23));
    let (code, said) = receiving.restored(&["--target-latest"]).unwrap_err();
    assert!(code == 1 && said.contains("hint: "), "{said}");
}

/// A set that the log does not have is restored alone, and nobody takes it for the newest state.
#[test]
fn transactions_behind_a_set_that_cannot_be_reached_are_a_warning() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    assert_eq!(receiving.back_up("log").0, 3);
    commit(&receiving.place, &mut shell, 22);
    assert_eq!(receiving.back_up("full").0, 0);
    // Nobody captures this transaction before the log begins again.
    shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
    commit(&receiving.place, &mut shell, 23);
    shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
    commit(&receiving.place, &mut shell, 24);
    assert_eq!(receiving.back_up("log").0, 3);
    let into = receiving.place.path("restored.db");
    let sets = receiving.place.arg("sets");
    let words = [
        "restore",
        &sets,
        "--into",
        into.to_str().unwrap(),
        "--quiet",
    ];
    let output = windlass(&words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("it ends later"), "{said}");
    assert_eq!(receiving.place.ledger.check(&into), 22);
}

/// Killed at each of its first durable writes, it has claimed no time whose transactions it lacks.
#[test]
fn a_killed_copy_of_the_log_claims_no_time_that_it_did_not_capture() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    // The log begins.
    assert_eq!(receiving.back_up("log").0, 3);
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving.place, &mut shell, 22);
    assert_eq!(receiving.back_up("log").0, 0);
    let (database, sets) = receiving.place.ends();
    let mut kills = 0;
    for (number, write) in (23..).zip(1..20) {
        commit(&receiving.place, &mut shell, number);
        let moment = jiff::Timestamp::now().to_string();
        let mut strace = std::process::Command::new("strace");
        let inject = format!("inject=fdatasync,fsync:signal=KILL:when={write}");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
        strace.arg(env!("CARGO_BIN_EXE_windlass"));
        strace.args(["backup", &database, "--to", &sets, "--type", "log"]);
        strace
            .args(["--config", "/dev/null"])
            .env("WINDLASS_STATE_DIR", receiving.place.arg("state"));
        let was_killed = !strace.output().unwrap().status.success();
        // A transaction has the time of the look that found it, which comes after the moment.
        if receiving.restored(&["--target-time", &moment]).is_ok() {
            let latest = receiving.restored(&["--target-latest"]);
            assert_eq!(latest, Ok(number), "killed at write {write}");
        }
        if !was_killed {
            break;
        }
        kills += 1;
        assert_eq!(receiving.back_up("log").0, 0);
    }
    assert!(kills > 2, "{kills}");
}

#[test]
fn a_database_that_is_replaced_begins_a_timeline_and_one_that_is_deleted_ends_the_command() {
    let mut receiving = Receiving::new();
    receiving.start();
    let path = receiving.place.ledger.path.clone();
    let other = receiving.place.path("other.db");
    std::fs::copy(&path, &other).unwrap();
    std::fs::rename(&other, &path).unwrap();
    while receiving.timelines().len() < 2 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::fs::remove_file(&path).unwrap();
    let status = receiving.child.take().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn two_receivers_and_a_slot_are_refused() {
    let mut receiving = Receiving::new();
    receiving.start();
    let (database, sets) = receiving.place.ends();
    let words = ["receive", &database, "--to", &sets];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("another process receives this log"));
    let output = windlass(&[&words[..], &["--slot", "a"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    let before = receiving.received();
    receiving.place.ledger.commit(21, 22);
    receiving.wait_for(before + 2);
    receiving.stop();
}

/// The objects of the log of a place, oldest first.
pub fn objects(place: &Place) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![place.path("sets/log")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

/// A log of three objects and more, with a set in front of the transactions of each.
struct Copied {
    receiving: Receiving,
    /// The sets, oldest first.
    sets: Vec<String>,
    /// After each copy: the moment, and how many transactions there were.
    moments: Vec<(String, u64)>,
    /// Keeps SQLite from emptying the log.
    shell: Shell,
}

impl Copied {
    fn new() -> Self {
        let receiving = Receiving::new();
        let mut shell = receiving.place.ledger.shell();
        commit(&receiving.place, &mut shell, 21);
        assert_eq!(receiving.back_up("log").0, 3);
        let (mut sets, mut moments) = (Vec::new(), Vec::new());
        for number in [22, 24, 26] {
            let (_, document) = receiving.back_up("full");
            sets.push(document["set_id"].as_str().unwrap().to_owned());
            commit(&receiving.place, &mut shell, number);
            commit(&receiving.place, &mut shell, number + 1);
            assert_eq!(receiving.back_up("log").0, 0);
            moments.push((
                receiving.timelines()[0]["end_time"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
                number + 1,
            ));
        }
        Self {
            receiving,
            sets,
            moments,
            shell,
        }
    }

    fn objects(&self) -> Vec<std::path::PathBuf> {
        objects(&self.receiving.place)
    }

    fn verify(&self) -> (i32, String) {
        let output = windlass(&["verify", &self.receiving.place.arg("sets")]);
        (output.status.code().unwrap(), text(&output))
    }
}

#[test]
fn an_object_that_is_missing_in_the_middle_of_a_log_is_a_gap() {
    let mut copied = Copied::new();
    let restored = |copied: &Copied, set: usize, options: &[&str]| {
        let set = ["--set", copied.sets[set].as_str()];
        copied.receiving.restored(&[&set[..], options].concat())
    };
    assert_eq!(copied.verify().0, 0);
    let objects = copied.objects();
    assert_eq!(objects.len(), 4);
    std::fs::remove_file(&objects[2]).unwrap();

    let (code, said) = copied.verify();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("is missing, 2 transactions"), "{said}");
    let shown = text(&windlass(&["info", &copied.receiving.place.arg("sets")]));
    assert!(shown.contains("is missing, 2 transactions"), "{shown}");
    assert_eq!(shown.matches("restorable ").count(), 2, "{shown}");
    let timeline = &copied.receiving.timelines()[0];
    assert_eq!(timeline["gaps"][0]["transactions"], 2, "{timeline}");
    assert_eq!(
        timeline["gaps"][0]["start_time"],
        copied.moments[0].0.as_str()
    );
    assert_eq!(timeline["windows"].as_array().unwrap().len(), 2);

    // Before the gap and behind it, every moment is there; across it is none.
    let [first, second, third] = &copied.moments[..] else {
        panic!()
    };
    assert_eq!(
        restored(&copied, 0, &["--target-time", &first.0]),
        Ok(first.1)
    );
    for options in [&["--target-time", &second.0][..], &["--target-latest"]] {
        let (code, said) = restored(&copied, 0, options).unwrap_err();
        assert!(
            code == 1 && said.contains("has every transaction up to"),
            "{said}"
        );
    }
    let end: jiff::Timestamp = second.0.parse().unwrap();
    let lost = (end - jiff::SignedDuration::from_nanos(1)).to_string();
    let between = copied.receiving.restored(&["--target-time", &lost]);
    let (code, said) = between.unwrap_err();
    let windows = said.split_once("what can be restored: ").unwrap().1;
    assert_eq!(
        (code, windows.matches(" on timeline 1").count()),
        (1, 2),
        "{said}"
    );
    assert!(said.contains("hint: Choose a moment that can"), "{said}");
    assert_eq!(
        restored(&copied, 2, &["--target-time", &third.0]),
        Ok(third.1)
    );
    assert_eq!(restored(&copied, 2, &["--target-latest"]), Ok(third.1));
    // The log goes on.
    commit(&copied.receiving.place, &mut copied.shell, 28);
    assert_eq!(copied.receiving.back_up("log").0, 0);
    assert_eq!(restored(&copied, 2, &["--target-latest"]), Ok(28));
}

#[test]
fn an_object_that_is_missing_at_the_beginning_of_a_log_is_a_gap() {
    let copied = Copied::new();
    let objects = copied.objects();
    objects[..2]
        .iter()
        .for_each(|path| std::fs::remove_file(path).unwrap());
    let (code, said) = copied.verify();
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("what comes before"), "{said}");
    assert!(said.contains("is missing, 2 transactions"), "{said}");
}

/// A set without its base restores nothing, so it leads nowhere.
#[test]
fn a_set_without_its_base_leads_into_no_log() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    assert_eq!(receiving.back_up("log").0, 3);
    let full = receiving.place.back_up();
    commit(&receiving.place, &mut shell, 22);
    let (code, link) = receiving.back_up("incr");
    assert_eq!((code, &link["type"]), (0, &Value::from("incr")));
    assert_eq!(
        receiving.timelines()[0]["sets"].as_array().unwrap().len(),
        1
    );
    commit(&receiving.place, &mut shell, 23);
    assert_eq!(receiving.back_up("log").0, 0);
    let both = receiving.timelines()[0]["sets"].as_array().unwrap().len();
    assert_eq!(both, 2);

    std::fs::remove_file(full).unwrap();
    assert_eq!(
        receiving.timelines()[0]["sets"].as_array().unwrap().len(),
        0
    );
    commit(&receiving.place, &mut shell, 24);
    let (code, document) = receiving.back_up("log");
    assert_eq!(
        (code, &document["warnings"][0]["name"]),
        (3, &"log-without-set".into())
    );
    assert_eq!(receiving.back_up("full").0, 0);
    let (code, verified) = json(&["verify", &receiving.place.arg("sets")]);
    assert_eq!(code, 4, "{verified}");
    let timeline = &verified["logs"][0]["timelines"][0];
    assert_eq!(timeline["sets"].as_array().unwrap().len(), 1, "{verified}");
}

/// Killed at each of its calls while it begins a new timeline, it never hides what is lost.
#[test]
fn a_kill_while_a_timeline_begins_hides_no_gap() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    commit(&receiving.place, &mut shell, 21);
    assert_eq!(receiving.back_up("log").0, 3);
    let (database, sets) = receiving.place.ends();
    let mut kills = 0;
    for (number, call) in (22..).zip(1..60) {
        // The log begins again, and what was in it is lost.
        commit(&receiving.place, &mut shell, number);
        shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
        let before = receiving.timelines().len();
        let mut strace = std::process::Command::new("strace");
        let inject = format!("inject=mkdir,write,fdatasync,fsync:signal=KILL:when={call}");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
        strace.arg(env!("CARGO_BIN_EXE_windlass"));
        strace.args(["backup", &database, "--to", &sets, "--type", "log"]);
        strace
            .args(["--config", "/dev/null"])
            .env("WINDLASS_STATE_DIR", receiving.place.arg("state"));
        let was_killed = !matches!(strace.output().unwrap().status.code(), Some(0 | 3));
        assert_eq!(receiving.back_up("log").0, 3);
        let timelines = receiving.timelines();
        assert!(timelines.len() > before, "killed at call {call}");
        let is_named = |one: &Value| one["timeline"] == 1 || one["lost"].is_string();
        assert!(
            timelines.iter().all(is_named),
            "killed at call {call}: {timelines:?}"
        );
        if !was_killed {
            break;
        }
        kills += 1;
    }
    assert!(kills > 5, "{kills}");
}

/// In the configuration they are for the backups of other types.
#[test]
fn options_of_a_set_are_refused_for_a_backup_of_the_log() {
    let receiving = Receiving::new();
    let (database, sets) = receiving.place.ends();
    let words = ["backup", &database, "--to", &sets, "--type", "log"];
    for option in [
        &["--base", "latest"][..],
        &["--strict"],
        &["--pages", "auto"],
        &["--no-frame-proof"],
        &["--overwrite"],
    ] {
        let output = windlass(&[&words, option].concat());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(option[0]) && said.contains("hint: "),
            "{said}"
        );
    }
    assert!(!receiving.place.path("sets/log").exists());
    let mut configured = command();
    configured
        .args(words)
        .envs([("WINDLASS_PAGES", "auto"), ("WINDLASS_STRICT", "true")]);
    let output = configured.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
}
