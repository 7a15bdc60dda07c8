//! What a run tells beside its result: metrics, events and the log never make it fail, and never
//! tell of a backup that does not exist.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::*;

/// The value of a series in a file of metrics.
fn series(file: &Path, name: &str, operation: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let begin = format!("{name}{{operation=\"{operation}\"");
    let line = text.lines().find(|line| line.starts_with(&begin))?;
    line.rsplit_once(' ').map(|(_, value)| value.to_owned())
}

#[test]
fn a_run_that_keeps_nothing_is_no_backup_for_metrics_and_hooks() {
    let place = Place::new();
    let (db, sets, file) = (
        place.arg("shop.db"),
        place.arg("sets"),
        place.path("w.prom"),
    );
    let hook = format!("--after=touch {}", place.arg("told"));
    let failure = format!("--on-failure=touch {}", place.arg("failed"));
    let run = |to: &str| {
        let words = ["backup", &db, "--to", to, &hook, &failure, "--metrics-file"];
        windlass(&[&words[..], &[file.to_str().unwrap()]].concat())
    };
    // Last night's backup failed. A run to nul does not hide that.
    let missing = place.arg("no/such/place");
    assert_eq!(run(&missing).status.code(), Some(1));
    assert!(place.path("failed").exists());
    std::fs::remove_file(place.path("failed")).unwrap();
    let output = run("nul");
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(
        printed.contains("note: no hook runs, because nul keeps nothing"),
        "{printed}"
    );
    assert!(!place.path("told").exists());
    let (last, success) = ("windlass_last_success_time_seconds", "windlass_run_success");
    assert_eq!(series(&file, last, "backup"), None);
    assert_eq!(series(&file, success, "backup").as_deref(), Some("0"));
    assert_eq!(series(&file, success, "trial").as_deref(), Some("1"));
    // The JSON object names no set, because there is none.
    let (code, document) = json(&["backup", &db, "--to", "nul"]);
    assert_eq!((code, &document["set_id"]), (0, &serde_json::Value::Null));
    // A run to nul that fails early is no failed backup.
    assert_eq!(run(&sets).status.code(), Some(0));
    assert!(place.path("told").exists());
    let words = [
        "backup",
        &db,
        "--to",
        "nul",
        "--compress",
        "gzip",
        "--metrics-file",
    ];
    let failed = windlass(&[&words[..], &[file.to_str().unwrap(), &failure]].concat());
    assert_eq!(failed.status.code(), Some(2), "{}", text(&failed));
    assert!(!place.path("failed").exists());
    assert_eq!(series(&file, success, "backup").as_deref(), Some("1"));
}

/// Places at which no file can be written, not even by root.
fn closed(place: &Place) -> [String; 2] {
    std::fs::write(place.path("plain"), "").unwrap();
    ["missing/x", "plain/x"].map(|name| place.arg(name))
}

#[test]
fn no_sink_that_cannot_be_written_fails_a_run() {
    let place = Place::new();
    let set = place.back_up();
    let (set, db, sets) = (
        set.to_str().unwrap(),
        place.arg("shop.db"),
        place.arg("sets"),
    );
    let (new, mut count) = (place.arg("new.db"), 1);
    for path in closed(&place) {
        let path = path.as_str();
        for option in ["--metrics-file", "--events", "--log"] {
            for words in [
                &["backup", &db, "--to", &sets][..],
                &["restore", set, "--into", &new],
                &["verify", set],
            ] {
                let output = windlass(&[words, &[option, path]].concat());
                let printed = text(&output);
                let about = format!("{words:?} {option} {path}: {printed}");
                assert_eq!(output.status.code(), Some(3), "{about}");
                assert_eq!(printed.matches("warning: ").count(), 1, "{about}");
                assert!(printed.contains(path), "{about}");
                count += usize::from(words[0] == "backup");
            }
            assert_eq!(place.sets().len(), count);
            std::fs::remove_file(&new).unwrap();
            // What the backup warns of, the check of it warns of too.
            let words = ["check", &db, "--to", &sets, option, path];
            let checked = windlass(&words);
            assert_eq!(
                checked.status.code(),
                Some(3),
                "{words:?}: {}",
                text(&checked)
            );
        }
    }
}

/// Runs the command where no file may be larger than so many KiB.
fn limited(kibibytes: u32, words: &[&str]) -> Output {
    let script = format!("ulimit -f {kibibytes}; exec \"$0\" \"$@\"");
    let mut command = around("bash");
    command
        .args(["-c", &script, env!("CARGO_BIN_EXE_windlass")])
        .args(words);
    command.output().unwrap()
}

/// The names of all files below a directory.
fn names(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.collect();
    let inner: Vec<_> = all
        .iter()
        .filter(|path| path.is_dir())
        .flat_map(|it| names(it))
        .collect();
    all.extend(inner);
    all.sort();
    all
}

#[test]
fn the_limit_on_the_size_of_a_file_is_an_error_with_a_hint_and_without_leftovers() {
    let place = Place::with_accounts(2000);
    let set = place.back_up();
    let (set, db, sets) = (
        set.to_str().unwrap(),
        place.arg("shop.db"),
        place.arg("sets"),
    );
    let (new, out, page) = (
        place.arg("new.db"),
        place.arg("out"),
        place.arg("page.html"),
    );
    let events = place.arg("events.jsonl");
    let recorded = windlass(&["verify", set, "--events", &events]);
    assert_eq!(recorded.status.code(), Some(0));
    // A file that was extracted before another one failed stays, and so does the directory.
    std::fs::create_dir(&out).unwrap();
    let before = names(place.dir.path());
    for (kibibytes, words) in [
        (
            100,
            &["backup", &db, "--to", &sets, "--compress", "none"][..],
        ),
        (
            100,
            &[
                "backup",
                &db,
                "--to",
                &sets,
                "--compress",
                "none",
                "--no-ring",
            ],
        ),
        (
            100,
            &[
                "backup",
                &db,
                "--to",
                &sets,
                "--compress",
                "none",
                "--buffered",
            ],
        ),
        (100, &["restore", set, "--into", &new]),
        (100, &["extract", set, "shop.db", "--into", &out]),
        (2, &["events", &events, "--html", &page]),
    ] {
        let output = limited(kibibytes, words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.contains("File too large"), "{words:?}: {printed}");
        assert!(
            printed.contains("hint: Raise the limit on the size of a file"),
            "{printed}"
        );
        assert_eq!(names(place.dir.path()), before, "{words:?}");
    }
    // A small set is not refused for the room that Windlass would reserve for a large one.
    let roomy = limited(8 * 1024, &["backup", &db, "--to", &sets]);
    assert_eq!(roomy.status.code(), Some(0), "{}", text(&roomy));
    // Sinks only warn.
    for option in ["--metrics-file", "--events", "--log"] {
        let sink = place.arg(&option[2..]);
        if option == "--log" {
            let line = "2026-11-22T14:45:19.009Z windlass[19503] info: status: started\n";
            std::fs::write(&sink, line.repeat(40)).unwrap();
        }
        let output = limited(2, &["verify", set, option, &sink]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(3), "{option}: {printed}");
        assert!(printed.contains("warning: "), "{option}: {printed}");
    }
}

#[test]
fn a_mistake_in_one_output_is_told_in_the_file_of_metrics() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let set = place.back_up().to_str().unwrap().to_owned();
    let into = place.arg("new.db");
    let runs = [
        ("backup", vec!["backup", &db, "--to", &sets]),
        ("restore", vec!["restore", &set, "--into", &into]),
        ("verify", vec!["verify", &set]),
        ("verify", vec!["verify", &sets]),
    ];
    for (number, (operation, words)) in runs.into_iter().enumerate() {
        let file = place.path(&format!("{number}.prom"));
        let metrics = ["--metrics", "nonsense", "--metrics-file"];
        let output = windlass(&[&words[..], &metrics[..], &[file.to_str().unwrap()]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains("is no address"), "{printed}");
        let success = series(&file, "windlass_run_success", operation);
        assert_eq!(success.as_deref(), Some("0"), "{printed}");
    }
}

#[test]
fn an_address_that_is_none_is_refused_before_anything_is_done() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let set = place.back_up().to_str().unwrap().to_owned();
    let (into, there) = (place.arg("new.db"), place.arg("there"));
    let marker = place.arg("marker");
    let before = format!("touch {marker}");
    let missing = place.arg("missing");
    for words in [
        vec!["backup", &db, "--to", &sets, "--before", &before],
        vec!["backup", &db, "--to", &sets, "--dry-run"],
        vec!["check", &db, "--to", &sets],
        vec!["restore", &set, "--into", &into, "--before", &before],
        vec!["restore", &set, "--into", &into, "--dry-run"],
        vec!["verify", &set],
        vec!["verify", &set, "--quick"],
        vec!["verify", &sets, "--quick"],
        vec!["verify", &sets],
        // The address is wrong whatever else is.
        vec!["backup", &missing, "--to", &there],
        vec!["verify", &missing],
    ] {
        let output = windlass(&[&words[..], &["--metrics", "nonsense"]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {printed}");
        let error = "error: --metrics: \"nonsense\" is no address\nhint: Write ADDRESS:PORT for \
                     --metrics, as in 127.0.0.1:9187.\n";
        assert_eq!(printed, error, "{words:?}");
    }
    assert_eq!(place.sets().len(), 1);
    for path in [&into, &there, &marker] {
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
}

#[test]
fn a_refused_output_is_told_in_no_file() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let file = place.path("w.prom");
    let metrics = ["--events", &db, "--metrics-file", file.to_str().unwrap()];
    let output = windlass(&[&["backup", &db, "--to", &sets][..], &metrics[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(!file.exists());
}
