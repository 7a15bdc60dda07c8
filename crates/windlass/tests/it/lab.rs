//! `windlass plan` and `windlass lab probe`, as their users see them.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::{Place, command, text};

/// Runs the command with a state directory of its own.
fn run(state: &Path, words: &[&str]) -> Output {
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", state).args(words);
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_plan_has_minutes_and_a_limit_for_every_alternative() {
    let place = Place::new();
    let words = "plan --used-bytes 1TB --ratio 2 --source gp2:1.5TB --target s3:100MB/s \
                 --files 1,4 --compress none,zstd --cores 8 --within 2h --json";
    let words: Vec<_> = words.split_whitespace().collect();
    let plan = json(&run(&place.path("state"), &words));
    let alternatives = plan["alternatives"].as_array().unwrap();
    let minutes = |index: usize| alternatives[index]["minutes"].as_f64().unwrap().round();
    let stage = |index: usize| alternatives[index]["limit"]["stage"].as_str().unwrap();
    assert_eq!([0, 1, 2, 3].map(minutes), [167.0, 64.0, 83.0, 64.0]);
    assert_eq!(
        [0, 1, 2, 3].map(stage),
        ["device", "source", "device", "source"]
    );
    // One compressed file ends within the window, and keeps the fewest bytes.
    assert_eq!(plan["choice"]["index"], 2);
    assert_eq!(plan["choice"]["meets"], true);
}

#[test]
fn a_restore_is_planned_by_the_sizes_of_its_files() {
    let place = Place::new();
    let words = "plan --restore --used-bytes 100GB --file-bytes 200GB --source rate:1GB/s \
                 --target rate:100MB/s --compress none --cores 4 --json";
    let words: Vec<_> = words.split_whitespace().collect();
    let plan = json(&run(&place.path("state"), &words));
    let minutes = plan["alternatives"][0]["minutes"].as_f64().unwrap();
    assert!((minutes / (2000.0 / 60.0) - 1.0).abs() < 0.01, "{minutes}");
    assert_eq!(plan["alternatives"][0]["limit"]["stage"], "target");
}

#[test]
fn a_database_is_measured() {
    let place = Place::new();
    let database = place.arg("shop.db");
    let words = [
        "plan", &database, "--source", "hdd", "--target", "nul", "--json",
    ];
    let plan = json(&run(&place.path("state"), &words));
    let file = std::fs::metadata(place.path("shop.db")).unwrap().len();
    assert!(plan["used_bytes"].as_u64().unwrap() >= file);
    let stored = plan["alternatives"][0]["stored_bytes"].as_f64().unwrap();
    assert!(stored > 0.0 && stored < plan["used_bytes"].as_f64().unwrap());
}

#[test]
fn what_cannot_be_planned_is_a_matter_of_usage() {
    let place = Place::new();
    for (words, says) in [
        ("plan --source hdd --target nul", "no size"),
        ("plan --used-bytes 1TB --target nul", "--source is missing"),
        (
            "plan --used-bytes 1TB --source gp9 --target nul",
            "no kind of storage",
        ),
        (
            "plan --used-bytes 1TB --source /var/tmp --target nul",
            "has not been probed",
        ),
        (
            "plan --used-bytes 1TB --source hdd --target nul --instance x",
            "not known",
        ),
    ] {
        let words: Vec<_> = words.split_whitespace().collect();
        let output = run(&place.path("state"), &words);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains(says), "{}", text(&output));
    }
    assert!(!place.path("state").exists(), "a plan writes nothing");
}

#[test]
fn a_probe_is_kept_and_planned_with() {
    let place = Place::new();
    let (state, sets) = (place.path("state"), place.arg("sets"));
    let words = [
        "lab",
        "probe",
        &sets,
        "--budget",
        "1s",
        "--scratch-bytes",
        "16MiB",
        "--json",
    ];
    let found = json(&run(&state, &words));
    assert_eq!(found["kept"].as_array().unwrap().len(), 2);
    assert!(found["io"]["points"].as_array().unwrap().len() > 8);
    assert!(
        found["cpu"]["memory"]["crc32c_bytes_per_second"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert!(
        place.sets().is_empty(),
        "something was left: {:?}",
        place.sets()
    );
    let words = [
        "plan",
        "--used-bytes",
        "1TB",
        "--source",
        &sets,
        "--target",
        "nul",
        "--json",
    ];
    let plan = json(&run(&state, &words));
    assert!(
        plan["source"][0]
            .as_str()
            .unwrap()
            .starts_with("profile of ")
    );
    let accuracy = json(&run(&state, &["plan", "--accuracy", "--json"]));
    assert_eq!(accuracy["runs"], 0);
}

#[test]
fn an_interrupted_probe_leaves_nothing() {
    let place = Place::new();
    let (state, sets) = (place.path("state"), place.arg("sets"));
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", &state);
    command.args([
        "lab",
        "probe",
        &sets,
        "--budget",
        "10m",
        "--scratch-bytes",
        "16MiB",
    ]);
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The first line comes once signals are handled.
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    assert!(line.contains("probing"), "{line}");
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &id])
        .status();
    assert!(sent.unwrap().success());
    std::io::copy(&mut lines, &mut std::io::sink()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(place.sets().is_empty());
    assert!(!state.exists(), "half a probe is no profile");
}

#[test]
fn a_rehearsal_stands_beside_its_plan_and_leaves_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("there")).unwrap();
    let there = place.arg("there");
    let words = [
        "lab",
        "rehearse",
        &there,
        "--bytes",
        "16MiB",
        "--only",
        "slow device, zstd",
        "--json",
    ];
    let found = json(&run(&place.path("state"), &words));
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        // 16 MiB, at best halved, to or from 30 MB/s: neither plan nor run may be faster.
        let seconds = |key: &str| run[key].as_f64().unwrap();
        assert!(seconds("predicted_seconds") > 0.25, "{run}");
        assert!(seconds("measured_seconds") > 0.25, "{run}");
        assert_eq!(run["predicted_limit"], "device");
        assert_eq!(run["measured_limit"], "device");
    }
    assert!(found["error_worst"].as_f64().unwrap() >= found["error_median"].as_f64().unwrap());
    let left = std::fs::read_dir(place.path("there")).unwrap().count();
    assert_eq!(left, 0);
}
