//! The prediction for a run is kept beside what it took: in the run's report, and in the ledger.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Place, text};

/// The run is long enough to be judged, and emulated storage takes nearly all of its time.
const EMULATED: [&str; 4] = [
    "--emulate",
    "source=rate:200MB/s",
    "--emulate",
    "target=rate:2MB/s",
];

/// The command, with a state directory of its own.
fn command(place: &Place) -> Command {
    let mut command = crate::support::command();
    command.env_remove("WINDLASS_NO_PREDICTION");
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    command
}

/// Runs the command. Returns its JSON object.
fn run(place: &Place, words: &[&str]) -> Value {
    let mut command = command(place);
    let output = command.args(words).arg("--json").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn back_up(place: &Place, more: &[&str]) -> Value {
    let (database, set) = (place.arg("shop.db"), place.arg("one.stripe"));
    let words = ["backup", &database, "--to", &set, "--overwrite"];
    run(place, &[&words[..], more].concat())
}

fn restore(place: &Place, more: &[&str]) -> Value {
    let (set, into) = (place.arg("one.stripe"), place.arg("restored.db"));
    let words = ["restore", &set, "--into", &into];
    run(place, &[&words[..], more].concat())
}

/// The lines of the ledger.
fn ledger(state: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(state.join("predictions.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The prediction is that of the model: bytes divided by the rate. The measured values are those of
/// the report.
fn assert_kept(record: &Value, report: &Value, stored: &str) {
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(record["set_id"], report["set_id"]);
    assert_eq!(record["measured_seconds"], report["seconds"]);
    assert_eq!(record["predicted_seconds"], report["prediction"]["seconds"]);
    assert_eq!(report["prediction"]["limit"], "device");
    let expected = number(&report[stored]) / 2e6;
    let share = number(&record["predicted_seconds"]) / expected;
    assert!((0.9..1.1).contains(&share), "{share} of {expected} s");
}

#[test]
fn a_backup_and_a_restore_are_kept_beside_their_predictions() {
    let place = Place::with_accounts(5000);
    let backup = back_up(&place, &[&EMULATED[..], &["--compress", "none"]].concat());
    let restored = restore(&place, &EMULATED);
    let records = ledger(&place.path("state"));
    assert_eq!(records.len(), 2);
    assert_kept(&records[0], &backup, "bytes_written");
    assert_kept(&records[1], &restored, "bytes_read");
    assert_eq!(records[0]["direction"], "backup");
    assert_eq!(records[1]["direction"], "restore");
    let accuracy = run(&place, &["plan", "--accuracy"]);
    assert_eq!(accuracy["runs"], 2);
    let judged = accuracy["accuracy"].as_array().unwrap();
    assert_eq!(judged.len(), 2, "{accuracy}");
}

/// The dry run says the same, so the line is what the plan says, and not what the run took.
#[test]
fn a_restore_says_how_long_it_will_take() {
    let place = Place::with_accounts(5000);
    back_up(&place, &["--compress", "none"]);
    let (set, into) = (place.arg("one.stripe"), place.arg("restored.db"));
    let words = ["restore", &set, "--into", &into];
    let said = |more: &[&str], begins: &str| {
        let mut command = command(&place);
        let output = command
            .args([&words, &EMULATED[..], more].concat())
            .output();
        let said = text(&output.unwrap());
        let line = said.lines().find(|line| line.starts_with(begins));
        line.map(|line| line[begins.len()..].trim().to_owned())
    };
    let before = said(&["--dry-run"], "would take");
    assert!(before.as_ref().unwrap().starts_with("about "), "{before:?}");
    // Who keeps no prediction gets none.
    assert_eq!(said(&["--no-prediction"], "will take"), None);
    std::fs::remove_file(&into).unwrap();
    assert_eq!(said(&[], "will take"), before);
}

#[test]
fn a_run_too_short_to_predict_is_kept_and_told_apart_from_no_run() {
    let place = Place::with_accounts(100);
    let accuracy = |place: &Place| {
        text(
            &command(place)
                .args(["plan", "--accuracy"])
                .output()
                .unwrap(),
        )
    };
    assert!(accuracy(&place).contains("no run has been predicted yet"));
    let fast = [
        "--emulate",
        "source=rate:1GB/s",
        "--emulate",
        "target=rate:1GB/s",
    ];
    let prediction = &back_up(&place, &fast)["prediction"];
    assert_eq!(prediction["too_short"], true);
    assert!(prediction["seconds"].is_null(), "{prediction}");
    let said = accuracy(&place);
    assert!(
        said.contains("no prediction can be judged yet: 1 run took less than 1 s"),
        "{said}"
    );
    assert_eq!(run(&place, &["plan", "--accuracy"])["too_short"], 1);
    // The dry run, and the report for people, say the same.
    let (database, set) = (place.arg("shop.db"), place.arg("one.stripe"));
    let words = ["backup", &database, "--to", &set, "--overwrite"];
    for (more, said) in [
        (&["--dry-run"][..], "would take    too short to predict"),
        (&[], "predicted     too short to predict"),
    ] {
        let mut command = command(&place);
        let output = command
            .args([&words, &fast[..], more].concat())
            .output()
            .unwrap();
        assert!(text(&output).contains(said), "{}", text(&output));
    }
}

#[test]
fn root_keeps_the_prediction_of_a_run_that_became_the_databases_owner() {
    let place = Place::with_accounts(100);
    let nobody = Some(65534);
    for path in [".", "shop.db"] {
        chown(place.path(path), nobody, nobody).unwrap();
    }
    back_up(&place, &EMULATED);
    let set = std::fs::metadata(place.path("one.stripe")).unwrap();
    let kept = std::fs::metadata(place.path("state/predictions.jsonl")).unwrap();
    let owner = |file: std::fs::Metadata| std::os::unix::fs::MetadataExt::uid(&file);
    assert_eq!((owner(set), owner(kept)), (65534, 0));
    assert_eq!(ledger(&place.path("state")).len(), 1);
}

#[test]
fn nothing_is_foretold_of_what_is_not_known() {
    let place = Place::with_accounts(100);
    // The storage is neither probed nor emulated. Nothing is left behind either.
    assert_eq!(back_up(&place, &[])["prediction"], Value::Null);
    assert!(!place.path("state").exists());
    // The prediction is made but not kept.
    let unkept = back_up(&place, &[&EMULATED[..], &["--no-prediction"]].concat());
    assert!(unkept["prediction"]["limit"].is_string());
    assert!(!place.path("state").exists());
    // One known end is not enough.
    assert_eq!(back_up(&place, &EMULATED[2..])["prediction"], Value::Null);
    // Nobody can say before which codec such a run will choose.
    let adaptive = back_up(&place, &[&EMULATED[..], &["--compress", "auto"]].concat());
    assert_eq!(adaptive["prediction"], Value::Null);
    assert_eq!(restore(&place, &EMULATED)["prediction"], Value::Null);
    assert!(ledger(&place.path("state")).is_empty());
}

#[test]
fn a_ledger_that_cannot_be_written_costs_no_backup() {
    let place = Place::with_accounts(100);
    std::fs::create_dir_all(place.path("state/predictions.jsonl")).unwrap();
    let mut command = command(&place);
    let (database, set) = (place.arg("shop.db"), place.arg("one.stripe"));
    command
        .args(["backup", &database, "--to", &set])
        .args(EMULATED);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let shown = text(&output);
    assert!(shown.contains("note: no prediction is kept: "), "{shown}");
    assert!(shown.contains("predicted     "), "{shown}");
    assert!(place.path("one.stripe").is_file());
}
