//! `backup --type diff` and `incr`: what a person sees, and which base is taken.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters::{bindir, directory, place};
use crate::opening::Scratch;
use crate::support::text;

fn run(words: &[&str]) -> Output {
    Scratch::new().run(None, words)
}

/// Runs a command that ends with this code. Returns its JSON.
fn json(words: &[&str], code: i32) -> Value {
    let output = run(&[words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn options() -> ClusterOptions {
    let options = ClusterOptions {
        bin: bindir(18),
        ..ClusterOptions::default()
    };
    options.setting("summarize_wal = on")
}

fn cluster() -> PrivateCluster {
    PrivateCluster::start(&options())
}

fn word<'a>(document: &'a Value, field: &str) -> &'a str {
    document[field].as_str().unwrap()
}

/// Which base each of these sets has, from `info`.
fn bases(sets: &str) -> Vec<(String, Option<String>)> {
    let document = json(&["info", sets], 0);
    let sets = document["sets"].as_array().unwrap().iter();
    let base = |set: &Value| set["base"].as_str().map(str::to_owned);
    sets.map(|set| (word(&set["facts"], "type").to_owned(), base(set)))
        .collect()
}

fn restored_rows(sets: &str, place: &Path, source: &PrivateCluster) -> String {
    let into = place.join("restored");
    let output = run(&["restore", sets, "--into", into.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let server = PrivateCluster::adopt(&into, source.bin());
    let rows = server.sql("postgres", "SELECT count(*) FROM t");
    drop(server);
    std::fs::remove_dir_all(&into).unwrap();
    rows
}

#[test]
fn a_backup_builds_on_the_newest_set_that_fits_and_says_so() {
    let place = place();
    let source = cluster();
    source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 1000) i",
    );
    let sets = directory(place.path(), "sets");
    let (sets, conninfo) = (sets.to_str().unwrap(), source.conninfo());
    let back_up = |kind: &str, more: &[&str], code: i32| {
        let words = ["backup", &conninfo, "--to", sets, "--type", kind];
        json(&[&words, more].concat(), code)
    };
    // Nothing is there yet.
    let words = [
        "backup", &conninfo, "--to", sets, "--type", "diff", "--strict",
    ];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output);
    assert!(said.contains("there is nothing to build on"), "{said}");
    assert!(
        said.contains(&format!("no full backup of it in {sets}")),
        "{said}"
    );
    assert!(said.contains("hint: "), "{said}");
    let check = || text(&run(&["check", &conninfo, "--to", sets, "--type", "incr"]));
    let said = check();
    assert!(said.contains("(full-instead)"), "{said}");
    let first = back_up("incr", &[], 3);
    assert_eq!(
        (word(&first, "type"), &first["base"]),
        ("full", &Value::Null)
    );
    assert_eq!(first["warnings"][0]["name"], "full-instead");
    source.sql("postgres", "INSERT INTO t SELECT generate_series(1, 100)");
    let second = back_up("incr", &["--strict"], 0);
    assert_eq!(word(&second, "base"), word(&first, "set_id"));
    let said = check();
    let base = format!(
        "builds on set {} (incr): reads about ",
        word(&second, "set_id")
    );
    assert!(said.contains(&base), "{said}");
    let words = ["plan", &conninfo, "--type", "incr", "--in", sets];
    let planned = json(
        &[&words[..], &["--source", "hdd", "--target", "hdd"]].concat(),
        0,
    );
    let note = planned["notes"][0].as_str().unwrap();
    assert!(note.contains("by the WAL summaries"), "{note}");
    assert!(note.contains(word(&second, "set_id")), "{note}");
    let third = back_up("incr", &["--strict"], 0);
    // The log comes in addition.
    let read = third["bytes_read"].as_u64().unwrap();
    let planned = planned["used_bytes"].as_u64().unwrap();
    assert!(
        planned <= read && read < planned + (2 << 20),
        "{planned} {read}"
    );
    assert_eq!(word(&third, "base"), word(&second, "set_id"));
    let fourth = back_up("diff", &["--strict"], 0);
    assert_eq!(word(&fourth, "base"), word(&first, "set_id"));
    assert_eq!(word(&fourth, "type"), "diff");
    let fifth = back_up("incr", &["--base", &word(&second, "set_id")[..8]], 0);
    assert_eq!(word(&fifth, "base"), word(&second, "set_id"));
    let id = |document: &Value| Some(word(document, "set_id").to_owned());
    let expected = [
        ("full".to_owned(), None),
        ("incr".to_owned(), id(&first)),
        ("incr".to_owned(), id(&second)),
        ("diff".to_owned(), id(&first)),
        ("incr".to_owned(), id(&second)),
    ];
    assert_eq!(bases(sets), expected);
    assert_eq!(restored_rows(sets, place.path(), &source), "1100");
    let verified = run(&["verify", sets]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let listed = text(&run(&["info", sets]));
    assert!(listed.contains("  base  "), "{listed}");
    assert!(listed.contains(&word(&second, "set_id")[..8]), "{listed}");
    let one = text(&run(&["info", sets, "--set", &word(&fifth, "set_id")[..8]]));
    let line = format!("builds on     {}", word(&second, "set_id"));
    assert!(one.contains(&line), "{one}");
}

#[test]
fn a_base_that_was_named_is_used_or_refused() {
    let place = place();
    let (source, other) = (cluster(), cluster());
    let (own, foreign) = (
        directory(place.path(), "own"),
        directory(place.path(), "foreign"),
    );
    let (own, foreign) = (own.to_str().unwrap(), foreign.to_str().unwrap());
    let conninfo = source.conninfo();
    json(&["backup", &conninfo, "--to", own], 0);
    json(&["backup", &other.conninfo(), "--to", foreign], 0);
    let more = |kind: &str, base: &str| {
        let words = [
            "backup", &conninfo, "--to", own, "--type", kind, "--base", base,
        ];
        let output = run(&words);
        (output.status.code(), text(&output))
    };
    let (code, said) = more("incr", foreign);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the base is of the cluster"), "{said}");
    let (code, said) = more("full", own);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--base"), "{said}");
    assert_eq!(more("incr", own).0, Some(0));
    // The newest set in the place is now an incremental one.
    let (code, said) = more("diff", own);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("builds on a full one"), "{said}");
    // A set of another cluster is never taken by itself.
    let words = [
        "backup", &conninfo, "--to", foreign, "--type", "incr", "--strict",
    ];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_eq!(bases(foreign).len(), 1);
}

#[test]
fn a_backup_never_replaces_the_set_on_which_it_builds() {
    let place = place();
    let source = cluster();
    let sets = directory(place.path(), "sets");
    let stripe = sets.join("night.windlass");
    let (stripe, conninfo) = (stripe.to_str().unwrap(), source.conninfo());
    json(&["backup", &conninfo, "--to", stripe], 0);
    let words = [
        "backup",
        &conninfo,
        "--to",
        stripe,
        "--overwrite",
        "--type",
        "incr",
    ];
    let output = run(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("night.windlass"),
        "{}",
        text(&output)
    );
    assert_eq!(bases(sets.to_str().unwrap()), [("full".to_owned(), None)]);
}

#[test]
fn a_restored_server_never_builds_on_what_its_source_did_afterwards() {
    let place = place();
    let options = options().initdb("--wal-segsize=1");
    let source = PrivateCluster::start(&options.setting("wal_keep_size = '100MB'"));
    let rows = "CREATE TABLE t AS SELECT generate_series(1, 20000) i";
    source.sql("postgres", rows);
    let sets = directory(place.path(), "sets");
    let sets = sets.to_str().unwrap();
    // Backs up. Returns the set, and on which one it builds.
    let back_up = |server: &PrivateCluster, kind: &str| {
        let conninfo = server.conninfo();
        let set = json(&["backup", &conninfo, "--to", sets, "--type", kind], 0);
        let (_, base) = bases(sets).pop().unwrap();
        (word(&set, "set_id").to_owned(), base)
    };
    let (full, _) = back_up(&source, "full");
    let mut copies = ["one", "two"].map(|name| {
        let into = place.path().join(name);
        let output = run(&["restore", sets, "--into", into.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        PrivateCluster::adopt(&into, source.bin())
    });
    // A copy that somebody else made has no mark. Its log tells it from the source.
    copies[1].sql("postgres", "ALTER SYSTEM RESET windlass.restored");
    copies[1].stop("fast");
    copies[1].run();
    // All go on, on the same timeline. Only the source loses rows.
    source.sql("postgres", "DELETE FROM t WHERE i > 10; CHECKPOINT");
    let (mut newest, _) = back_up(&source, "incr");
    let position = source.sql("postgres", "SELECT pg_current_wal_lsn() + 4194304");
    for copy in &copies {
        let is_behind = format!("SELECT pg_current_wal_lsn() < '{position}'");
        let segment = "SELECT pg_logical_emit_message(true, '', 'x'); SELECT pg_switch_wal()";
        while copy.sql("postgres", &is_behind) == "t" {
            copy.sql("postgres", segment);
        }
        copy.sql("postgres", "INSERT INTO t VALUES (0); CHECKPOINT");
        let (set, base) = back_up(copy, "incr");
        assert_eq!(base.as_ref(), Some(&full));
        assert_eq!(restored_rows(sets, place.path(), copy), "20001");
        // The next one builds on its own.
        assert_eq!(back_up(copy, "incr").1, Some(set));
        if copy.data().ends_with("one") {
            // And the source takes none of those.
            let (set, base) = back_up(&source, "incr");
            assert_eq!(base.as_ref(), Some(&newest));
            assert_eq!(restored_rows(sets, place.path(), &source), "10");
            newest = set;
        }
    }
}
