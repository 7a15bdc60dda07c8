//! Machines whose databases have the same path, and whose sets and log go to one place: each has
//! its own.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::*;

/// The sets of both machines, and which configuration they have.
struct Fleet {
    place: Place,
    /// How many transactions the newest set of each machine has.
    counts: [u64; 2],
}

const HOSTS: [&str; 2] = ["app1", "app2"];

impl Fleet {
    /// Two sets of the first machine, then two of the second.
    fn new() -> Self {
        let place = Place::new();
        let (source, sets) = place.ends();
        let text = format!("[database.shop]\nsource = \"{source}\"\nto = [\"{sets}\"]\n");
        std::fs::write(place.path("windlass.toml"), text).unwrap();
        let mut fleet = Self {
            place,
            counts: [0; 2],
        };
        for (number, host) in HOSTS.into_iter().enumerate() {
            for _ in 0..2 {
                fleet.counts[number] = fleet.write();
                fleet.done(host, &["backup", "shop"]);
            }
        }
        fleet
    }

    /// Some transactions more. Returns how many there are.
    fn write(&self) -> u64 {
        let ledger = &self.place.ledger;
        let count = ledger.check(&ledger.path);
        ledger.commit(count + 1, count + 3);
        count + 3
    }

    fn run(&self, host: &str, words: &[&str]) -> Output {
        let mut command = command();
        command.env("WINDLASS_CONFIG", self.place.path("windlass.toml"));
        command.env("WINDLASS_HOSTNAME", host);
        command.args(words).arg("--json").output().unwrap()
    }

    fn done(&self, host: &str, words: &[&str]) -> Value {
        let output = self.run(host, words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{host} {words:?}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Restores on a machine. Returns how many transactions the database has.
    fn restored(&self, host: &str, more: &[&str]) -> u64 {
        let into = self.place.arg("restored.db");
        let words = ["restore", "shop", "--into", &into];
        self.done(host, &[&words, more].concat());
        let count = self.place.ledger.check(Path::new(&into));
        std::fs::remove_file(&into).unwrap();
        count
    }

    fn key(&self, host: &str) -> String {
        format!("{host}:{}", self.place.arg("shop.db"))
    }
}

#[test]
fn rules_keep_as_many_sets_of_each_machine() {
    let fleet = Fleet::new();
    let sets = fleet.place.arg("sets");
    let keep = ["expire", &sets, "--keep-full", "1"];
    let expired = fleet.done("app1", &keep);
    assert_eq!(expired["databases"].as_array().unwrap().len(), 2);
    for (host, count) in HOSTS.iter().zip(fleet.counts) {
        assert_eq!(fleet.restored(host, &[]), count, "{host}");
    }
    // A machine removes only what is its own.
    fleet.write();
    fleet.done("app2", &["backup", "shop"]);
    fleet.done("app1", &["expire", "shop", "--keep-full", "1"]);
    let left = fleet.done("app1", &["info", &sets]);
    assert_eq!(left["sets"].as_array().unwrap().len(), 3, "{left}");
}

#[test]
fn a_set_builds_on_no_set_of_another_machine() {
    let fleet = Fleet::new();
    let newest = fleet.write();
    let differential = ["backup", "shop", "--type", "diff"];
    let first = fleet.done("app1", &differential);
    let sets = fleet.place.arg("sets");
    let all = fleet.done("app1", &["info", &sets, "--long"]);
    let is_first = |set: &&Value| set["set_id"] == first["set_id"];
    let set = all["sets"].as_array().unwrap().iter().find(is_first);
    let base = set.unwrap()["base"].to_string();
    let of_first = all["sets"].as_array().unwrap()[1]["set_id"].clone();
    assert!(base.contains(of_first.as_str().unwrap()), "{base}: {all}");
    assert_eq!(fleet.restored("app1", &[]), newest);
    let third = fleet.run("app3", &differential);
    assert_eq!(third.status.code(), Some(3), "{}", text(&third));
    let renamed = "Those of app1 have its path";
    assert!(text(&third).contains(renamed), "{}", text(&third));
    let told = fleet.done(
        "app3",
        &[&differential[..], &["--hostname", "app1"]].concat(),
    );
    assert_eq!(told["base"], first["base"], "{told}");
}

#[test]
fn on_a_new_machine_one_has_to_say_whose_sets_are_meant() {
    let fleet = Fleet::new();
    let into = fleet.place.arg("restored.db");
    let guessed = fleet.run("app3", &["restore", "shop", "--into", &into]);
    let said = text(&guessed);
    assert_eq!(guessed.status.code(), Some(2), "{said}");
    for host in HOSTS {
        assert!(said.contains(&fleet.key(host)), "{said}");
    }
    assert!(!Path::new(&into).exists());
    let key = fleet.key("app1");
    let count = fleet.restored("app3", &["--database", &key]);
    assert_eq!(count, fleet.counts[0]);
    assert_eq!(fleet.restored("app2", &[]), fleet.counts[1]);
    let wrong = fleet.run("a/b", &["info", "shop"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
}

#[test]
fn each_machine_has_its_own_log() {
    let fleet = Fleet::new();
    let log = ["backup", "shop", "--type", "log"];
    // Nobody empties the log while a program reads from it.
    let mut keeper = fleet.place.ledger.shell();
    fleet.write();
    keeper.run("BEGIN; SELECT count(*) FROM log;");
    let counts = HOSTS.map(|host| {
        let first = fleet.run(host, &log);
        assert_eq!(first.status.code(), Some(3), "no set leads to it yet");
        fleet.done(host, &["backup", "shop"]);
        let count = fleet.write();
        fleet.done(host, &log);
        count
    });
    for (host, count) in HOSTS.iter().zip(counts) {
        assert_eq!(fleet.restored(host, &["--target-latest"]), count, "{host}");
    }
    let sets = fleet.place.arg("sets");
    let all = fleet.done("app1", &["info", &sets]);
    let logs = all["logs"].to_string();
    for host in HOSTS {
        assert!(logs.contains(&fleet.key(host)), "{logs}");
    }
    fleet.done("app2", &["verify", &sets]);
    keeper.close();
}
