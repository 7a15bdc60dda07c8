//! `windlass merge`: a chain becomes one full set with the same bytes, whatever kills it meanwhile.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters::{bindir, directory};
use crate::opening::Scratch;
use crate::support::*;

fn id(document: &Value) -> String {
    document["set_id"].as_str().unwrap().to_owned()
}

/// A database with a chain of three sets. Returns their ids.
fn chain() -> (Place, Vec<String>) {
    let place = Place::with_accounts(400);
    let mut ids = Vec::new();
    for (kind, number) in [("full", 30), ("incr", 40), ("incr", 50)] {
        place.ledger.commit(number - 9, number);
        let (database, sets) = place.ends();
        let (code, document) = json(&["backup", &database, "--to", &sets, "--type", kind]);
        assert_eq!(code, 0, "{document}");
        ids.push(id(&document));
    }
    (place, ids)
}

/// The sets of a place, oldest first, with their bases.
fn sets(place: &str) -> Vec<(String, Option<String>)> {
    let (code, document) = json(&["info", place]);
    assert_eq!(code, 0, "{document}");
    let sets = document["sets"].as_array().unwrap().iter();
    let base = |set: &Value| set["base"].as_str().map(str::to_owned);
    sets.map(|set| (id(set), base(set))).collect()
}

fn merge(words: &[&str]) -> Value {
    let (code, document) = json(&[&["merge"], words].concat());
    assert_eq!(code, 0, "{document}");
    document
}

/// What a set restores to.
fn restored(place: &Place, set: &str) -> Vec<u8> {
    let (sets, into) = (place.arg("sets"), place.arg("into.db"));
    let output = windlass(&["restore", &sets, "--set", set, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let bytes = std::fs::read(&into).unwrap();
    std::fs::remove_file(&into).unwrap();
    bytes
}

fn remove(place: &str, ids: &[String]) {
    let (_, document) = json(&["info", place, "--long"]);
    for set in document["sets"].as_array().unwrap() {
        if ids.contains(&id(set)) {
            for stripe in set["stripes"].as_array().unwrap() {
                std::fs::remove_file(stripe["location"].as_str().unwrap()).unwrap();
            }
        }
    }
}

#[test]
fn a_merged_chain_is_one_set_with_the_same_bytes_at_the_same_place_in_time() {
    let (place, ids) = chain();
    let (database, sets_place) = place.ends();
    // An older chain does not become the newest set.
    let older = merge(&[&sets_place, "--set", &ids[1], "--to", &sets_place]);
    assert_eq!(older["type"], "full");
    assert_eq!(older["base"], Value::Null);
    let order: Vec<_> = sets(&sets_place).into_iter().map(|(id, _)| id).collect();
    let expected = [&ids[0], &ids[1], &id(&older), &ids[2]];
    assert_eq!(order.iter().collect::<Vec<_>>(), expected);
    assert!(restored(&place, &id(&older)) == restored(&place, &ids[1]));
    // The newest one goes to several devices, with another codec.
    let whole = restored(&place, &ids[2]);
    let [a, b] = ["sets/a.windlass", "sets/b.windlass"].map(|name| place.arg(name));
    let newest = merge(&[&sets_place, "--to", &a, "--to", &b, "--compress", "lz4"]);
    let merged = newest["database"]["merged"].as_array().unwrap();
    let expected: Vec<_> = ids.iter().rev().map(|id| Value::from(&**id)).collect();
    assert_eq!(merged, &expected);
    assert!(restored(&place, &id(&newest)) == whole);
    // Nothing needs the chain any more, and later sets build on the merged one.
    remove(&sets_place, &[&ids[..], &[id(&older)]].concat());
    assert!(restored(&place, "latest") == whole);
    place.ledger.commit(51, 60);
    let words = ["backup", &database, "--to", &sets_place, "--type", "incr"];
    let (code, next) = json(&words);
    assert_eq!(code, 0, "{next}");
    assert_eq!(next["base"], newest["set_id"]);
    assert_eq!(place.restored(&place.path("sets")), 60);
    let verified = windlass(&["verify", &sets_place]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

#[test]
fn a_hook_is_told_the_type_of_the_set_that_was_made() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let told = place.arg("told");
    let hook = format!("sh -c 'echo $WINDLASS_HOOK_COMMAND $WINDLASS_HOOK_TYPE >> {told}'");
    // The first one has nothing to build on.
    for (kind, code) in [("incr", 3), ("incr", 0), ("diff", 0)] {
        let words = [
            "backup", &database, "--to", &sets, "--type", kind, "--after", &hook,
        ];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    }
    merge(&[&sets, "--to", &sets, "--after", &hook]);
    let found = std::fs::read_to_string(&told).unwrap();
    assert_eq!(found, "backup full\nbackup incr\nbackup diff\nmerge full\n");
}

#[test]
fn a_merge_that_is_killed_leaves_nothing_that_looks_whole() {
    let (place, ids) = chain();
    let (_, sets_place) = place.ends();
    let whole = restored(&place, "latest");
    let words = ["merge", &sets_place, "--to", &sets_place, "--buffered"];
    let plain = ["--no-ring", "--transfer-size", "64KiB", "--quiet"];
    let words = [&words[..], &plain].concat();
    let mut kills = 0;
    for (call, step) in [
        ("pwrite64", 1),
        ("fsync", 1),
        ("fdatasync", 1),
        ("ftruncate", 1),
        ("renameat2", 1),
        ("linkat", 1),
        ("unlink", 1),
        ("pread64", 40),
        ("openat", 20),
    ] {
        for number in (1..).step_by(step) {
            let was_killed = killed_at((call, number), &words);
            let found = sets(&sets_place);
            let new: Vec<_> = found.iter().filter(|(id, _)| !ids.contains(id)).collect();
            assert!(new.len() <= 1, "{call} {number}: {found:?}");
            if let Some((id, base)) = new.first() {
                // What looks whole is whole.
                assert_eq!(*base, None);
                assert!(restored(&place, id) == whole, "{call} {number}");
                remove(&sets_place, std::slice::from_ref(id));
            } else {
                assert!(was_killed, "{call} {number}");
            }
            assert!(restored(&place, "latest") == whole, "{call} {number}");
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    // strace counts the calls of each thread, so it depends on the machine how many there are.
    assert!(kills > 4, "only {kills} kills");
    // The next one removes what the killed ones left.
    let merged = merge(&[&sets_place, "--to", &sets_place]);
    assert!(restored(&place, &id(&merged)) == whole);
    assert_eq!(place.sets().len(), 4, "{:?}", place.sets());
}

#[test]
fn a_merge_writes_over_nothing_and_needs_the_whole_chain() {
    let (place, ids) = chain();
    let (_, sets_place) = place.ends();
    let stripe = place.path("sets").join(&place.sets()[0]);
    let stripe = stripe.to_str().unwrap();
    let refused = |words: &[&str], code: i32, says: &str| {
        let output = windlass(&[&["merge", &sets_place], words].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(says), "{printed}");
    };
    refused(&["--to", stripe], 1, "stripe");
    refused(&[], 2, "--to");
    remove(&sets_place, &ids[..1]);
    refused(&["--to", &sets_place], 4, &ids[0]);
    assert_eq!(place.sets().len(), 2);
}

fn run(words: &[&str]) {
    let output = Scratch::new().run(None, words);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{words:?}: {}",
        text(&output)
    );
}

#[test]
fn a_merged_chain_of_a_cluster_restores_to_the_same_files() {
    let place = crate::clusters::place();
    let options = ClusterOptions {
        bin: bindir(18),
        ..ClusterOptions::default()
    };
    let source = PrivateCluster::start(&options.setting("summarize_wal = on"));
    let sql = |sql: &str| source.sql("postgres", sql);
    sql("CREATE TABLE t AS SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i");
    let sets = directory(place.path(), "sets");
    let (sets, conninfo) = (sets.to_str().unwrap(), source.conninfo());
    for (kind, statement) in [
        ("full", "SELECT 1"),
        ("incr", "DELETE FROM t WHERE i % 7 = 0; VACUUM t"),
        (
            "incr",
            "CREATE TABLE u AS SELECT i FROM t; DELETE FROM t WHERE i > 15000; VACUUM t",
        ),
    ] {
        statement.split("; ").for_each(|one| drop(sql(one)));
        run(&["backup", &conninfo, "--to", sets, "--type", kind, "--quiet"]);
    }
    let into = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (chain, merged) = (into("chain"), into("merged"));
    run(&["restore", sets, "--into", &chain, "--quiet"]);
    let one = directory(place.path(), "one");
    let one = one.to_str().unwrap();
    run(&["merge", sets, "--to", one, "--quiet"]);
    run(&["verify", one, "--quiet"]);
    run(&["restore", one, "--into", &merged, "--quiet"]);
    // Each restore writes a number of its own there.
    let words = [
        "-r",
        "-q",
        "--exclude=postgresql.auto.conf",
        &chain,
        &merged,
    ];
    let compared = Command::new("diff").args(words).output().unwrap();
    assert!(compared.status.success(), "{}", text(&compared));
    let server = PrivateCluster::adopt(Path::new(&merged), source.bin());
    let rows = "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)";
    assert_eq!(server.sql("postgres", rows), sql(rows));
    // The server's next backup builds on the merged set.
    sql("INSERT INTO u VALUES (0)");
    run(&[
        "backup", &conninfo, "--to", one, "--type", "incr", "--strict", "--quiet",
    ]);
    let last = into("last");
    run(&["restore", one, "--into", &last, "--quiet"]);
    let server = PrivateCluster::adopt(Path::new(&last), source.bin());
    assert_eq!(server.sql("postgres", rows), sql(rows));
}
