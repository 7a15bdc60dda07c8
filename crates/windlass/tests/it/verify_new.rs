//! `windlass verify --new`, and what `info` and its metrics say of earlier verifications and
//! drills.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Place, text};

fn command(place: &Place) -> Command {
    let mut command = crate::support::command();
    command.env_remove("WINDLASS_NO_HISTORY");
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    command
}

fn run(place: &Place, words: &[&str]) -> Output {
    command(place).args(words).output().unwrap()
}

/// How many sets a verification read, and how many it left out.
fn verified(place: &Place, code: i32, words: &[&str]) -> (usize, u64) {
    let output = run(place, &[words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let read = found["sets"].as_array().unwrap().len();
    (read, found["verified_earlier"].as_u64().unwrap())
}

#[test]
fn only_sets_that_nobody_has_read_are_read() {
    let place = Place::new();
    let first = place.back_up();
    place.back_up();
    let (_, sets) = place.ends();
    let new = ["verify", &sets, "--new", "7d"];
    assert_eq!(verified(&place, 0, &new), (2, 0));
    place.back_up();
    assert_eq!(verified(&place, 0, &new), (1, 2));
    assert_eq!(verified(&place, 0, &new), (0, 3));
    let printed = text(&run(&place, &new));
    assert_eq!(printed, "verified      nothing new: 3 sets read earlier\n");
    // Metrics and history tell of it, so that nobody thinks that nothing runs any more.
    let file = place.arg("w.prom");
    run(&place, &[&new[..], &["--metrics-file", &file]].concat());
    let metrics = std::fs::read_to_string(&file).unwrap();
    let last = "windlass_last_success_time_seconds{operation=\"verify\"";
    assert!(metrics.contains(last), "{metrics}");
    // Since a moment after that, nothing was read.
    let now = jiff::Timestamp::now().to_string();
    assert_eq!(
        verified(&place, 0, &["verify", &sets, "--new", &now]),
        (3, 0)
    );
    // What is only looked at is not read.
    let quick = place.arg("quick");
    std::fs::create_dir(&quick).unwrap();
    std::fs::copy(&first, place.path("quick").join(first.file_name().unwrap())).unwrap();
    assert_eq!(
        run(&place, &["verify", &quick, "--quick"]).status.code(),
        Some(0)
    );
    // A copy of a set that was read is another file: nobody has read it.
    assert_eq!(
        verified(&place, 0, &["verify", &quick, "--new", "7d"]),
        (1, 0)
    );
    // Without a history, all are read.
    let mut without = crate::support::command();
    let output = without.args(new).arg("--json").output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["verified_earlier"], 0, "{found}");
    assert_eq!(found["sets"].as_array().unwrap().len(), 3);
    for wrong in [&["--latest"][..], &["--quick"], &["--set", "latest"]] {
        let output = run(&place, &[&new[..], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    }
}

#[test]
fn a_set_that_was_changed_since_or_is_damaged_is_read_again() {
    let place = Place::new();
    let (first, _) = (place.back_up(), place.back_up());
    let (_, sets) = place.ends();
    let new = ["verify", &sets, "--new", "7d"];
    assert_eq!(verified(&place, 0, &new), (2, 0));
    let mut bytes = std::fs::read(&first).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    // Damage is no reason to leave a set out the next time.
    assert_eq!(verified(&place, 4, &new), (1, 1));
    assert_eq!(verified(&place, 4, &new), (1, 1));
    bytes[middle] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    assert_eq!(verified(&place, 0, &new), (1, 1));
    assert_eq!(verified(&place, 0, &new), (0, 2));
    // A missing stripe is told, whatever was read before.
    std::fs::write(&first, b"short").unwrap();
    assert_eq!(run(&place, &new).status.code(), Some(4));
}

#[test]
fn the_configuration_may_say_it_and_a_stripe_is_read_all_the_same() {
    let place = Place::new();
    let set = place.back_up();
    let text = format!(
        "[verify]\nnew = \"30d\"\n\n[database.shop]\nsource = \"{}\"\nto = \"{}\"\n",
        place.arg("shop.db"),
        place.arg("sets"),
    );
    std::fs::write(place.path("windlass.toml"), text).unwrap();
    let config = place.arg("windlass.toml");
    let words = ["verify", "shop", "--config", &config];
    assert_eq!(verified(&place, 0, &words), (1, 0));
    assert_eq!(verified(&place, 0, &words), (0, 1));
    let stripe = set.to_str().unwrap();
    for named in [&[stripe][..], &["shop", "--latest"], &["shop", "--quick"]] {
        let words = [&["verify", "--config", &config], named].concat();
        let output = run(&place, &words);
        let printed = crate::support::text(&output);
        assert_eq!(output.status.code(), Some(0), "{printed}");
        assert!(!printed.contains("nothing new"), "{printed}");
    }
}

/// Asks Prometheus's own tool whether it accepts the metrics.
fn prometheus_accepts(metrics: &str) {
    let program = std::env::var_os("WINDLASS_TEST_PROMTOOL");
    let mut promtool = Command::new(program.unwrap_or_else(|| "promtool".into()))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool of Debian's package `prometheus`, or WINDLASS_TEST_PROMTOOL");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(metrics.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let clean = output.status.success() && output.stdout.is_empty() && output.stderr.is_empty();
    assert!(clean, "{} of {metrics}", text(&output));
}

#[test]
fn info_and_metrics_say_since_when_a_set_is_verified_and_proven() {
    let place = Place::new();
    place.back_up();
    let (_, sets) = place.ends();
    let info = |words: &[&str]| {
        let output = run(&place, &[&["info", &sets], words].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        text(&output)
    };
    let document = || serde_json::from_str::<Value>(&info(&["--json"])).unwrap();
    assert!(!info(&[]).contains("verified"));
    assert_eq!(document()["sets"][0]["verified"], Value::Null);
    assert!(!info(&["--metrics"]).contains("windlass_place_last"));
    assert!(!place.path("state").exists(), "a question makes no history");
    assert_eq!(run(&place, &["verify", &sets]).status.code(), Some(0));
    assert_eq!(run(&place, &["drill", &sets]).status.code(), Some(0));
    let found = document();
    let time = |key: &str| {
        let text = found["sets"][0][key].as_str().unwrap();
        text.parse::<jiff::Timestamp>().unwrap()
    };
    assert!(time("verified") <= time("proven"), "{found}");
    let head = info(&[]);
    let head = head.lines().next().unwrap();
    assert!(
        head.contains("verified") && head.contains("proven"),
        "{head}"
    );
    let metrics = info(&["--metrics"]);
    prometheus_accepts(&metrics);
    for (name, at) in [("verify", time("verified")), ("proof", time("proven"))] {
        let name = format!("windlass_place_last_{name}_time_seconds{{");
        let line = metrics.lines().find(|line| line.starts_with(&name));
        let line = line.unwrap_or_else(|| panic!("{name}: {metrics}"));
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let millis = u32::try_from(at.as_millisecond() % 1000).unwrap();
        let seconds = i32::try_from(at.as_second()).unwrap();
        let wanted = f64::from(seconds) + f64::from(millis) / 1000.0;
        assert!((value - wanted).abs() < 0.01, "{line}: {at}");
    }
}
