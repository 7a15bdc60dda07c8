//! Drills: what they prove, and what they refuse to call proven.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::process::{Command, Output};

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};
use windlass_testkit::sqlite::run_once;

use crate::clusters::{back_up, place};
use crate::opening::Scratch;
use crate::receive_sqlite::Receiving;
use crate::support::{Place, damage_frames, text};

fn command(place: &Place) -> Command {
    let mut command = crate::support::command();
    command.env_remove("WINDLASS_NO_HISTORY");
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    command
}

fn run(place: &Place, words: &[&str]) -> Output {
    command(place).args(words).output().unwrap()
}

fn drilled(place: &Place, code: i32, more: &[&str]) -> (Value, String) {
    let sets = place.arg("sets");
    let output = run(place, &[&["drill", &sets, "--json"], more].concat());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    (
        serde_json::from_slice(&output.stdout).unwrap(),
        text(&output),
    )
}

#[test]
fn a_drill_proves_a_sqlite_set_and_the_history_says_so() {
    let place = Place::new();
    place.back_up();
    let tables = "select count(*) from sqlite_schema where type = 'table'";
    let asked = ["--query", tables, "--query", "select 7, null, 'x'"];
    let (found, _) = drilled(&place, 0, &asked);
    assert_eq!(found["ok"], true);
    assert_eq!(found["answers"][1]["answer"], "7||x");
    assert!(found["first_answer_seconds"].as_f64().unwrap() > 0.0);
    let count = found["answers"][0]["answer"].as_str().unwrap().to_owned();
    let expected = ["--expect", &count, "--expect", "7||x"];
    drilled(&place, 0, &[&asked[..], &expected].concat());
    let history = run(&place, &["history", "--json"]);
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    let proven = &history["databases"][0]["proven"];
    assert_eq!(
        (&proven["command"], &proven["set_id"]),
        (&"drill".into(), &found["set_id"])
    );
    // The metrics tell of it.
    let file = place.arg("w.prom");
    drilled(&place, 0, &["--metrics-file", &file]);
    let metrics = std::fs::read_to_string(&file).unwrap();
    let last = "windlass_last_success_time_seconds{operation=\"drill\"";
    assert!(metrics.contains(last), "{metrics}");
}

/// In a repository the word is the name of a database, and its log goes over the opened set.
#[test]
fn a_drill_in_a_repository_proves_the_log_of_a_sqlite_database_too() {
    let mut receiving = Receiving::new();
    receiving.start();
    assert_eq!(receiving.back_up("full").0, 0);
    let ledger = &receiving.place.ledger;
    run_once(&ledger.path, &ledger.transaction(21)).unwrap();
    receiving.wait_for(1);
    receiving.stop();
    let place = &receiving.place;
    let config = format!("[repository.main]\nto = [\"{}\"]\n", place.arg("sets"));
    std::fs::write(place.path("windlass.toml"), config).unwrap();
    let count = "select count(*) from log";
    let words = [
        "drill", "shop", "--repo", "main", "--query", count, "--expect", "21",
    ];
    let mut command = command(place);
    command.env("WINDLASS_CONFIG", place.path("windlass.toml"));
    let output = command.args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("with its log up to"), "{said}");
}

#[test]
fn a_wrong_answer_and_one_that_is_none_are_no_proof() {
    let place = Place::new();
    place.back_up();
    let (found, words) = drilled(&place, 1, &["--query", "select 1", "--expect", "2"]);
    assert_eq!(
        (&found["ok"], &found["answers"][0]["right"]),
        (&false.into(), &false.into())
    );
    assert!(
        words.contains("gave \"1\", and \"2\" was expected"),
        "{words}"
    );
    let (_, words) = drilled(&place, 1, &["--query", "select * from no_such"]);
    assert!(words.contains("no such table: no_such"), "{words}");
    let history = run(&place, &["history", "--json"]);
    let history: Value = serde_json::from_slice(&history.stdout).unwrap();
    assert_eq!(history["databases"][0]["proven"], Value::Null);
    let sets = place.arg("sets");
    let words = [
        "drill", &sets, "--query", "select 1", "--query", "select 2", "--expect", "1",
    ];
    let output = run(&place, &words);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn damage_is_found_by_a_drill() {
    let place = Place::new();
    let stripe = place.back_up();
    damage_frames(&stripe);
    let output = run(&place, &["drill", &place.arg("sets")]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
}

#[test]
fn a_seed_draws_the_same_set_again_and_seeds_draw_all_of_them() {
    let place = Place::new();
    for _ in 0..3 {
        place.back_up();
    }
    let of = |seed: &str| drilled(&place, 0, &["--random", "--seed", seed]).0;
    let drawn: Vec<_> = (0..8)
        .map(|seed| of(&seed.to_string())["set_id"].clone())
        .collect();
    let mut all: Vec<_> = drawn.iter().map(Value::to_string).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(of("5")["set_id"], drawn[5]);
    let (found, _) = drilled(&place, 0, &["--random"]);
    let seed = found["seed"].as_u64().unwrap().to_string();
    assert_eq!(of(&seed)["set_id"], found["set_id"]);
    let output = run(&place, &["drill", &place.arg("sets"), "--seed", "1"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn a_drill_of_a_cluster_recovers_its_log_and_asks_the_database_that_is_named() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE DATABASE shop");
    source.sql(
        "shop",
        "CREATE TABLE sale AS SELECT i FROM generate_series(1, 700) i",
    );
    let set = back_up(&source, place.path(), &[]);
    source.sql(
        "shop",
        "INSERT INTO sale SELECT i FROM generate_series(1, 7) i",
    );
    let scratch = Scratch::new();
    let conninfo = source.conninfo();
    let words = [
        "backup", &conninfo, "--to", &set, "--type", "log", "--quiet",
    ];
    let output = scratch.run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let drilled = |rows: &str, more: &[&str]| {
        let words = ["drill", &set, "--json", "--dbname", "shop", "--query"];
        let asked = ["select count(*), max(i) from sale", "--expect", rows];
        let output = scratch.run(None, &[&words[..], &asked, more].concat());
        let found: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        (output.status.code(), found)
    };
    // The newest moment has what only the log has; the set itself does not.
    let (code, found) = drilled("707|700", &[]);
    assert_eq!(code, Some(0), "{found}");
    assert!(found["open"]["tables"].as_u64() > Some(100), "{found}");
    let (code, found) = drilled("700|700", &["--set", "latest"]);
    assert_eq!(code, Some(0), "{found}");
    scratch.assert_clean();
}
