//! `receive` of a SQLite database, killed at drawn moments while others write and copy the log:
//! what it had claimed before is restored, with the content of that moment.
//!
//! WINDLASS_TEST_CASES is the number of kills, WINDLASS_TEST_SEED draws their moments.
//!
//! And copies of the log that are killed at each of their system calls.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::process::Stdio;

use windlass_testkit::counted::{counted, drawn, killed};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec, Random, Storm, run_once};

use crate::receive_sqlite::Receiving;
use crate::support::*;

/// A moment that the log claims, and how many transactions the database had before and after it.
struct Claimed {
    moment: String,
    least: u64,
    most: u64,
}

struct Killing {
    receiving: Receiving,
    storm: Storm,
    random: Random,
}

impl Killing {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        let spec = LedgerSpec {
            accounts: 200,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&dir.path().join("shop.db"), spec);
        let mut random = Random(seed);
        // The log begins again soon after a kill, or goes on until somebody copies it.
        let pages = [50, 100_000][random.below(2) as usize];
        let setup = format!("PRAGMA wal_autocheckpoint={pages};");
        let storm = Storm::start(&ledger, &setup, 100);
        let place = Place { dir, ledger };
        Self {
            receiving: Receiving { place, child: None },
            storm,
            random,
        }
    }

    /// Lets the writer commit up to so many transactions.
    fn advance(&mut self, most: u32) {
        let next = self.storm.committed() + u64::from(self.random.below(most));
        self.storm.wait_for(next);
    }

    /// How many transactions the database has.
    fn count(&self) -> u64 {
        loop {
            let sql = "SELECT ifnull(max(id), 0) FROM log";
            if let Ok(count) = run_once(&self.receiving.place.ledger.path, sql) {
                return count.parse().unwrap();
            }
        }
    }

    /// Waits until the log claims a later moment.
    fn claimed_after(&mut self, moment: &str) -> String {
        loop {
            self.advance(9);
            let timelines = self.receiving.timelines();
            // A timeline that was begun just now claims no time yet.
            let end = timelines.last().and_then(|one| one["end_time"].as_str());
            let is_after =
                |end: &&str| end.parse::<jiff::Timestamp>().unwrap() > moment.parse().unwrap();
            if let Some(end) = end.filter(is_after) {
                return end.to_owned();
            }
        }
    }

    fn claim(&mut self) -> Claimed {
        let least = self.count();
        let now = jiff::Timestamp::now().to_string();
        // The look that found the first of these may have begun before.
        let found = self.claimed_after(&now);
        let moment = self.claimed_after(&found);
        let most = self.count();
        Claimed {
            moment,
            least,
            most,
        }
    }

    /// Starts `receive`, and kills it in its first moments.
    fn kill_early(&mut self) {
        let (database, sets) = self.receiving.place.ends();
        let mut command = command();
        command.args(["receive", &database, "--to", &sets, "--interval", "10ms"]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.receiving.child = Some(child.spawn().unwrap());
        self.advance(40);
        self.receiving.kill();
    }

    /// Copies the log into the database, as any program may.
    fn checkpoint(&mut self) {
        let modes = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"];
        let mode = modes[self.random.below(4) as usize];
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        run_once(&self.receiving.place.ledger.path, &sql).ok();
    }

    /// Receives, makes a set, lets the log claim some moments, and kills.
    fn round(&mut self) -> Vec<Claimed> {
        if self.random.below(3) == 0 {
            self.kill_early();
        }
        self.receiving.start();
        assert_eq!(self.receiving.back_up("full").0, 0);
        let mut claimed = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            self.advance(40);
            self.checkpoint();
            claimed.push(self.claim());
        }
        self.advance(40);
        self.receiving.kill();
        self.advance(60);
        if self.random.below(4) == 0 {
            self.checkpoint();
        }
        claimed
    }
}

#[test]
fn every_moment_that_a_killed_receiver_claimed_is_restored() {
    let number = |name: &str, default: u64| {
        let text = std::env::var(name).unwrap_or_default();
        text.parse().unwrap_or(default)
    };
    let (kills, seed) = (
        number("WINDLASS_TEST_CASES", 5),
        number("WINDLASS_TEST_SEED", 1),
    );
    let mut killing = Killing::new(seed);
    let claimed: Vec<_> = (0..kills).flat_map(|_| killing.round()).collect();
    killing.receiving.start();
    assert_eq!(killing.receiving.back_up("full").0, 0);
    killing.claim();
    let Killing {
        mut receiving,
        storm,
        ..
    } = killing;
    let committed = storm.stop();
    receiving.stop();
    for one in &claimed {
        let restored = receiving.restored(&["--target-time", &one.moment]);
        let Claimed { least, most, .. } = one;
        let is_right = restored
            .as_ref()
            .is_ok_and(|found| (least..=most).contains(&found));
        let moment = &one.moment;
        assert!(
            is_right,
            "seed {seed}, {moment}: {restored:?}, not {least} to {most}"
        );
    }
    assert_eq!(receiving.restored(&["--target-latest"]), Ok(committed));
    let output = windlass(&["verify", &receiving.place.arg("sets")]);
    let has_gap = receiving.timelines().len() > 1;
    let expected = if has_gap { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{}", text(&output));
    println!(
        "seed {seed}: {kills} kills, {} moments, {} timelines",
        claimed.len(),
        receiving.timelines().len()
    );
}

/// Calls by which a copy of the log changes something.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,ftruncate,mkdir,rename,renameat2,unlink,flock";

/// What it leaves is the log before or the whole, and the next copy makes it whole.
#[test]
fn a_copy_of_the_log_that_is_killed_at_any_system_call_leaves_no_gap() {
    let receiving = Receiving::new();
    let mut shell = receiving.place.ledger.shell();
    let mut commit = |number| drop(shell.run(&receiving.place.ledger.transaction(number)));
    commit(21);
    // The log begins.
    assert_eq!(receiving.back_up("log").0, 3);
    assert_eq!(receiving.back_up("full").0, 0);
    commit(22);
    let (database, sets) = receiving.place.ends();
    let mut copy = command();
    copy.args(["backup", &database, "--to", &sets, "--type", "log"]);
    let (output, calls) = counted(&copy, CALLS, &receiving.place.path("trace"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(calls.len() > 12, "{calls:?}");
    for (number, call) in (23..).zip(drawn(calls, 10, 7)) {
        commit(number);
        killed(&copy, &call);
        let found = receiving.restored(&["--target-latest"]);
        let is_right = |found: &u64| (number - 1..=number).contains(found);
        assert!(found.as_ref().is_ok_and(is_right), "{call}: {found:?}");
        assert_eq!(receiving.back_up("log").0, 0, "{call}");
        let whole = receiving.restored(&["--target-latest"]);
        assert_eq!(whole, Ok(number), "{call}");
        assert_eq!(receiving.timelines().len(), 1, "{call}");
    }
    let verified = windlass(&["verify", &sets]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}
