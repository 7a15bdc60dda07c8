//! Records a run, and checks what `windlass events` makes of it.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass_testkit::browser::check_page;

use crate::support::*;

/// Runs a command that records its events. Returns what `windlass events --json` says about them.
fn recorded(place: &Place, words: &[&str]) -> Value {
    let events = place.arg("events.jsonl");
    let output = windlass(&[words, &["--events", &events]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let output = windlass(&["events", "--json", &events]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The stages and causes of a table must agree with the report of the same run.
fn agree(table: &Value, report: &Value) {
    let mut waits = table["waits"].as_array().unwrap().clone();
    for stage in report["stages"].as_array().unwrap() {
        for wait in stage["waits"].as_array().unwrap() {
            let same = |row: &Value| row["stage"] == stage["name"] && row["cause"] == wait["cause"];
            let row = waits.remove(waits.iter().position(same).unwrap());
            assert_eq!(row["count"], wait["count"], "{row} and {wait}");
            let (sum, seconds) = (&row["total_seconds"], &wait["seconds"]);
            let off = sum.as_f64().unwrap() - seconds.as_f64().unwrap();
            assert!(off.abs() < 1e-6, "{row} and {wait}");
            assert!(row["p50_seconds"].as_f64() <= row["p99_seconds"].as_f64());
            assert!(row["p99_seconds"].as_f64() <= row["max_seconds"].as_f64());
        }
    }
    assert!(
        waits.is_empty(),
        "waits that the report does not have: {waits:?}"
    );
}

/// What was transferred: the kinds of operations of a table, which has a row for each device.
fn operations(table: &Value) -> BTreeSet<&str> {
    let rows = table["ios"].as_array().unwrap().iter();
    rows.map(|row| row["operation"].as_str().unwrap()).collect()
}

/// The report of the run in the file's last line.
fn report_in(place: &Place) -> Value {
    let file = std::fs::read_to_string(place.path("events.jsonl")).unwrap();
    let end: Value = serde_json::from_str(file.lines().last().unwrap()).unwrap();
    assert_eq!(end["event"], "end");
    end["report"].clone()
}

#[test]
fn events_that_cannot_be_written_are_a_warning_of_every_run() {
    let place = Place::new();
    let set = place.back_up();
    let (set, db) = (set.to_str().unwrap(), place.arg("shop.db"));
    for words in [
        &["backup", &db, "--to", "nul"][..],
        &["verify", set],
        &["restore", set, "--into", &place.arg("new.db")],
    ] {
        let output = windlass(&[words, &["--events", "/dev/full"]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {printed}");
        assert!(printed.contains("warning: "), "{words:?}: {printed}");
        assert!(printed.contains("/dev/full"), "{words:?}: {printed}");
    }
    assert_eq!(place.ledger.check(&place.path("new.db")), 20);
}

#[test]
fn backup_restore_and_verify_record_what_they_report() {
    let place = Place::new();
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let backup = recorded(&place, &["backup", &database, "--to", &sets]);
    assert_eq!(
        (&backup["command"], &backup["outcome"]),
        (&"backup".into(), &"done".into())
    );
    agree(&backup, &report_in(&place));
    assert_eq!(operations(&backup), ["device_write", "source_read"].into());
    let verify = recorded(&place, &["verify", "--latest", &sets]);
    agree(&verify, &report_in(&place));
    assert_eq!(operations(&verify), ["device_read"].into());
    let restore = recorded(&place, &["restore", &sets, "--into", &place.arg("back.db")]);
    agree(&restore, &report_in(&place));
    assert_eq!(operations(&restore), ["device_read", "target_write"].into());
}

/// A chain is read in one run, over the stripes of all its sets: what waits, what moves and what
/// limits it stands in one record.
#[test]
fn the_runs_of_a_chain_record_what_they_report() {
    let place = Place::with_accounts(600);
    let (database, sets) = place.ends();
    // So that there are many transfers.
    let small = ["--transfer-size", "64KiB"];
    let back_up = ["backup", &database, "--to", &sets, "--compress", "none"];
    for (tens, kind) in (2..).zip(["full", "incr", "diff", "incr"]) {
        let backup = recorded(&place, &[&back_up[..], &small, &["--type", kind]].concat());
        let report = report_in(&place);
        agree(&backup, &report);
        assert_eq!(operations(&backup), ["device_write", "source_read"].into());
        assert_ne!(report["verdict"], "");
        place.ledger.commit(tens * 10 + 1, tens * 10 + 10);
    }
    // The newest set builds on the differential, and that on the full one.
    let stripes = |report: &Value| {
        let devices = report["devices"].as_array().unwrap().iter();
        let mut names: Vec<_> = devices.map(|one| one["name"].to_string()).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    let verify = recorded(&place, &["verify", "--latest", &sets]);
    agree(&verify, &report_in(&place));
    assert_eq!(stripes(&report_in(&place)), 3);
    assert_eq!(operations(&verify), ["device_read"].into());
    let back = place.arg("back.db");
    let restore = ["restore", &sets, "--into", &back, "--max-rate", "128KiB"];
    let restore = recorded(&place, &[&restore[..], &small].concat());
    let report = report_in(&place);
    agree(&restore, &report);
    assert_eq!(operations(&restore), ["device_read", "target_write"].into());
    assert_eq!(stripes(&report), 3);
    // Its sets are read one after the other, and each has one stripe.
    assert_eq!(report["stages"][0]["threads"], 1);
    let limit = "the rate limit of 128 KiB/s on reading the stripes";
    assert!(restore["waits"].to_string().contains("rate_limit"));
    assert!(report["verdict"].to_string().contains(limit), "{report}");
    assert_eq!(place.ledger.check(&place.path("back.db")), 50);
}

#[test]
fn a_recorded_run_is_a_page_that_a_browser_shows() {
    let place = Place::with_accounts(40_000);
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let table = recorded(&place, &["backup", &database, "--to", &sets, "--to", &sets]);
    let (events, page) = (place.arg("events.jsonl"), place.arg("page.html"));
    let output = windlass(&["events", &events, "--html", &page]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let printed = text(&output);
    // For what a stage waits depends on which of them is faster just now.
    let waits = table["waits"].as_array().unwrap().iter();
    let mut expected: Vec<_> = waits.map(|row| row["cause"].as_str().unwrap()).collect();
    assert!(!expected.is_empty(), "{table}");
    expected.extend(["backup of shop: done", "device_write", "p99", "verdict"]);
    for words in expected {
        assert!(printed.contains(words), "{words} is missing in {printed}");
    }
    let shown = check_page(&place.path("page.html"), 4);
    for words in [
        "backup of shop",
        "Throughput by device",
        "Buffers",
        "Waits by stage",
        "1of2",
    ] {
        assert!(shown.contains(words), "{words} is missing in {shown}");
    }
}

#[test]
fn a_trace_is_what_perfetto_reads_and_events_refuses() {
    let place = Place::new();
    let trace = place.arg("trace.json");
    let output = windlass(&[
        "backup",
        &place.arg("shop.db"),
        "--to",
        "nul",
        "--events",
        &trace,
        "--events-format",
        "trace",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let document: Value =
        serde_json::from_slice(&std::fs::read(place.path("trace.json")).unwrap()).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let has = |phase: &str, name: &str| {
        events
            .iter()
            .any(|event| event["ph"] == phase && event["name"] == name)
    };
    assert!(has("M", "thread_name") && has("C", "buffers") && has("b", "source_read"));
    let output = windlass(&["events", &trace]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("--events-format jsonl"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_run_is_not_begun_when_its_events_have_no_room_at_all() {
    let place = Place::new();
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let path = place.arg("events");
    let words = ["backup", &database, "--to", &sets, "--events", &path];
    let output = windlass(&[&words[..], &["--events-limit", "1KiB"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(place.sets().is_empty(), "{:?}", place.sets());
}
