//! `windlass lab sweep` on real PostgreSQL clusters, with emulated storage.

use std::path::Path;

use serde_json::Value;
use windlass_testkit::browser::check_page;

use crate::support::{Place, json};

/// The speed of emulated storage compared with real storage. The small cluster takes fractions of a
/// second.
const SCALE: f64 = 4.0;

fn sweep(place: &Place, words: &[&str]) -> Value {
    let (out, scale) = (place.arg("out"), SCALE.to_string());
    let server = place.server.conninfo();
    let all = [
        "lab", "sweep", words[0], &server, "--repeat", "1", "--out", &out, "--scale", &scale,
    ];
    let (code, document) = json(&[&all[..], &words[1..]].concat());
    assert_eq!(code, 0, "{document}");
    document
}

/// Every run of a series, with its case.
fn runs(document: &Value) -> Vec<(Value, Value)> {
    let series = &document["series"];
    let runs = series["runs"].as_array().unwrap().iter();
    let case = |run: &Value| {
        let index = usize::try_from(run["case"].as_u64().unwrap()).unwrap();
        series["cases"][index].clone()
    };
    runs.map(|run| (case(run), run["report"].clone())).collect()
}

/// A run is never faster than its models: each device takes at most `stream` bytes per second.
fn assert_bound(case: &Value, report: &Value, bytes: &str, stream: f64) {
    let streams = case["devices"].as_f64().unwrap();
    let least = report[bytes].as_f64().unwrap() / (stream * SCALE * streams);
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(
        seconds > 0.9 * least,
        "{seconds} s is less than {least} s: {case}"
    );
}

#[test]
fn the_published_comparison_runs_at_a_small_scale() {
    let place = Place::new();
    place.sql("CREATE TABLE filled AS SELECT i, md5(i::text) FROM generate_series(1, 150000) i");
    let document = sweep(&place, &["matrix", "--devices", "1,4"]);
    let all = runs(&document);
    assert_eq!(all.len(), 4 * 2 * 2);
    for (case, report) in &all {
        assert_bound(case, report, "bytes_written", 97.2e6);
    }
    check_page(Path::new(document["kept"][1].as_str().unwrap()), 5);
    let found = document["findings"]["found"].to_string();
    assert!(found.contains("against published minutes"), "{found}");
    let document = sweep(
        &place,
        &[
            "matrix",
            "--restore",
            "--devices",
            "1",
            "--compress",
            "none",
        ],
    );
    assert_eq!(runs(&document).len(), 4);
    for (case, report) in &runs(&document) {
        assert_bound(case, report, "bytes_read", 73.9e6);
        assert!(report["bytes_written"].as_u64().unwrap() > 0);
    }
}

#[test]
fn more_operations_are_tried_on_both_volumes() {
    let place = Place::new();
    let document = sweep(&place, &["iops-step"]);
    let all = runs(&document);
    assert_eq!(all.len(), 4);
    let names: Vec<_> = all
        .iter()
        .map(|(case, _)| case["set_up"]["name"].as_str().unwrap())
        .collect();
    for name in ["io1-30000", "io1-35000"] {
        assert_eq!(names.iter().filter(|one| **one == name).count(), 2);
    }
    assert_eq!(document["series"]["inputs"]["kind"], "PostgreSQL");
}
