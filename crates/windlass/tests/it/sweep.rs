//! `windlass lab sweep` on SQLite databases, as its users see it.

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use windlass_testkit::browser::check_page;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

use crate::support::{Place, command, interrupted_at_its_first_line, text};

fn run(place: &Place, words: &[&str]) -> Output {
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    // The user's own settings for backups must not reach the runs of a sweep.
    command
        .env("WINDLASS_BUFFERS", "9")
        .env("WINDLASS_COMPRESS", "lz4");
    command.args(["lab", "sweep"]).args(words);
    command.output().unwrap()
}

fn json(place: &Place, words: &[&str]) -> Value {
    let output = run(place, &[words, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn array<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

fn words(list: &Value) -> String {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Runs each case of an experiment with its own axes once, and checks what is true for all.
fn once(place: &Place, experiment: &str, more: &[&str]) -> Value {
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let words = [experiment, &database, "--to", &sets, "--repeat", "1"];
    let document = json(place, &[&words[..], more].concat());
    let series = &document["series"];
    let (cases, runs) = (array(series, "cases"), array(series, "runs"));
    assert_eq!(runs.len(), cases.len());
    let file = std::fs::metadata(&database).unwrap().len();
    for run in runs {
        let case = &cases[usize::try_from(run["case"].as_u64().unwrap()).unwrap()];
        let report = &run["report"];
        assert_eq!(report["transfer_bytes"], case["transfer_bytes"]);
        if !case["buffers"].is_null() {
            assert_eq!(report["buffers"], case["buffers"]);
        }
        assert!(report["bytes_read"].as_u64().unwrap() > 0);
        assert_eq!(
            array(report, "devices").len() as u64,
            case["devices"].as_u64().unwrap()
        );
        assert!(report["peak_memory_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(run["process_cpu_seconds"].as_f64().unwrap() > 0.0);
    }
    assert!(series["inputs"]["database_bytes"].as_u64().unwrap() >= file);
    assert!(place.sets().is_empty(), "left behind: {:?}", place.sets());
    document
}

#[test]
fn each_experiment_runs_its_own_grid() {
    let place = Place::new();
    for (experiment, runs, charts) in [
        ("waits", 2, 3),
        ("buffers", 7, 7),
        ("stripes", 4, 4),
        ("blocksize", 4, 6),
        ("disk", 53, 9),
        ("grid", 1, 1),
    ] {
        let document = once(&place, experiment, &[]);
        let series = &document["series"];
        assert_eq!(array(series, "runs").len(), runs, "{experiment}");
        assert_eq!(series["inputs"]["experiment"], experiment);
        assert!(words(&document["findings"]["method"]).contains("repeat the runs"));
        check_page(Path::new(document["kept"][1].as_str().unwrap()), charts);
    }
}

#[test]
fn restores_are_swept_like_backups() {
    let place = Place::new();
    let more = ["--restore", "--devices", "1,3", "--compress", "none,auto"];
    let document = once(&place, "grid", &more);
    let series = &document["series"];
    assert_eq!(array(series, "runs").len(), 4);
    assert_eq!(series["inputs"]["direction"], "restore");
    for run in array(series, "runs") {
        assert!(run["report"]["bytes_written"].as_u64().unwrap() > 0);
    }
}

#[test]
fn databases_of_different_sizes_are_an_axis() {
    let (place, larger) = (Place::new(), Place::with_accounts(4000));
    let (one, other) = (place.arg("shop.db"), larger.arg("shop.db"));
    let sets = place.arg("sets");
    let words = ["grid", &one, &other, "--to", &sets, "--restore"];
    let more = ["--repeat", "1", "--compress", "none,zstd"];
    let document = json(&place, &[&words[..], &more].concat());
    assert!(place.sets().is_empty(), "left behind: {:?}", place.sets());
    let cases = array(&document["series"], "cases");
    assert_eq!(cases.len(), 4);
    let restored: Vec<_> = array(&document["series"], "runs").iter().collect();
    let bytes = |case: usize| {
        let run = restored.iter().find(|run| run["case"] == case);
        run.unwrap()["report"]["bytes_written"].as_u64().unwrap()
    };
    let size = |case: usize| cases[case]["source"]["bytes"].as_u64().unwrap();
    // There is a set of each database with each codec.
    assert!(size(0) == size(1) && size(2) == size(3) && size(2) > 2 * size(0));
    assert!(bytes(2) > 2 * bytes(0) && bytes(3) > 2 * bytes(1));
    let page = std::fs::read_to_string(document["kept"][1].as_str().unwrap()).unwrap();
    assert!(page.contains("By database"));
    // The kept series contains neither the path nor other words of the command line.
    assert!(!document["series"].to_string().contains("shop.db"));
}

#[test]
fn one_to_five_devices_have_the_buffers_they_always_had() {
    let place = Place::new();
    let document = json(&place, &["buffer-defaults", &place.arg("shop.db")]);
    let mut runs = array(&document["series"], "runs").clone();
    runs.sort_by_key(|run| run["case"].as_u64().unwrap());
    let buffers: Vec<_> = runs
        .iter()
        .map(|run| run["report"]["buffers"].as_u64().unwrap())
        .collect();
    assert_eq!(buffers, [7, 12, 17, 22, 27]);
    assert_eq!(document["series"]["inputs"]["to"][0], "nul");
    let found = words(&document["findings"]["found"]);
    assert!(
        found.contains("7 for 1 device, 12 for 2 devices"),
        "{found}"
    );
}

#[test]
fn waiting_for_buffers_falls_as_buffers_rise() {
    let place = Place::new();
    let database = place.path("large.db");
    let spec = LedgerSpec {
        journal: Journal::Wal,
        accounts: 8000,
        ..LedgerSpec::default()
    };
    drop(CommitLedger::create(&database, spec));
    // About 100 transfers to a slow device, with few buffers and with one for each transfer. How
    // often it waits follows from the buffers; how long, from what else the machine does, too.
    let database = database.to_str().unwrap();
    let words = [
        "grid",
        database,
        "--emulate",
        "target=rate:10MB/s",
        "--transfer-size",
        "64KiB",
        "--buffers",
        "4,50,400",
        "--repeat",
        "2",
    ];
    let document = json(&place, &words);
    let series = &document["series"];
    let waits = |case: u64| {
        let of = |run: &&Value| run["case"] == case;
        let runs: Vec<_> = array(series, "runs").iter().filter(of).collect();
        assert_eq!(runs.len(), 2);
        let mut sum = (0, 0.0);
        for run in runs {
            let stages = array(&run["report"], "stages");
            let waits = array(&stages[0], "waits").iter();
            for wait in waits.filter(|wait| wait["cause"] == "free_buffer") {
                sum.0 += wait["count"].as_u64().unwrap();
                sum.1 += wait["seconds"].as_f64().unwrap();
            }
        }
        sum
    };
    let [few, more, all] = [waits(0), waits(1), waits(2)];
    assert!(few.0 > more.0, "{few:?} {more:?}");
    assert!(more.0 > 0 && more.1 > 0.0, "{more:?}");
    assert_eq!(
        all,
        (0, 0.0),
        "with a buffer for each transfer nobody waits for one"
    );
}

#[test]
fn a_series_is_kept_and_shown_again() {
    let place = Place::new();
    let out = place.arg("out");
    let words = [
        "nul",
        &place.arg("shop.db"),
        "--devices",
        "1,2",
        "--transfer-size",
        "64KiB,1MiB",
        "--buffers",
        "default",
        "--repeat",
        "3",
        "--out",
        &out,
    ];
    let document = json(&place, &words);
    assert_eq!(array(&document["series"], "runs").len(), 12);
    let kept = document["kept"][0].as_str().unwrap();
    assert!(Path::new(kept).starts_with(&out), "{kept}");
    let report = document["kept"][1].as_str().unwrap();
    let drawn = std::fs::read_to_string(report).unwrap();
    let shown = check_page(Path::new(report), 6);
    for part in [
        "Duration by transfer size",
        "Speed-up against the baseline",
        "What was found",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let again = json(&place, &["--from", kept]);
    assert_eq!(again["findings"], document["findings"]);
    assert_eq!(
        again["kept"],
        serde_json::json!([]),
        "it is shown, and that is all"
    );
    std::fs::remove_file(report).unwrap();
    json(&place, &["--from", kept, "--out", &out]);
    let again = std::fs::read_to_string(report).unwrap();
    assert!(again == drawn, "the same series, the same report");
    let shown = text(&run(&place, &["--from", kept]));
    for part in [
        "speed-up",
        "baseline",
        "reader: ",
        "peak memory",
        "noise: durations",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    assert!(
        !place.path("state").exists(),
        "with --out nothing is written elsewhere"
    );
    std::fs::copy(place.path("shop.db"), place.path("out/no.json")).unwrap();
    let output = run(&place, &["--from", &place.arg("out/no.json")]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("is not a series of a sweep"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_path_is_probed_in_rounds() {
    let place = Place::new();
    let words = [
        "device",
        &place.arg("sets"),
        "--budget",
        "4s",
        "--repeat",
        "2",
    ];
    let document = json(&place, &words);
    assert_eq!(array(&document["series"], "probes").len(), 2);
    let found = self::words(&document["findings"]["found"]);
    for kind in [
        "sequential read",
        "random read",
        "sequential write",
        "random write",
    ] {
        assert!(found.contains(kind), "{found}");
    }
    check_page(Path::new(document["kept"][1].as_str().unwrap()), 3);
    assert!(place.sets().is_empty());
}

#[test]
fn what_cannot_be_swept_is_refused_and_leaves_nothing() {
    let place = Place::new();
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    for (words, code, says) in [
        (vec!["tape", &database], 2, "invalid value"),
        (vec!["grid"], 2, "DATABASE"),
        (vec!["grid", "nowhere.db"], 2, "no file"),
        (vec!["grid", &database, "--compress", "zip"], 2, "no codec"),
        (
            vec!["grid", &database, "--restore", "--to", "nul"],
            2,
            "from nothing",
        ),
        (
            vec!["grid", &database, "--to", "/nowhere"],
            1,
            "cannot make",
        ),
        (
            vec!["grid", &database, "--to", &sets, "--block-size", "1000"],
            2,
            "--block-size",
        ),
        (
            vec!["grid", &database, "--emulate", "source=tape"],
            2,
            "no kind of storage",
        ),
        (vec!["grid", &database, "--", "--colour"], 2, "--colour"),
        (vec!["device", &database], 2, "no directory"),
    ] {
        let output = run(&place, &words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    assert!(place.sets().is_empty(), "left behind: {:?}", place.sets());
    assert!(!place.path("state").exists());
}

#[test]
fn an_interrupted_sweep_leaves_nothing() {
    let place = Place::new();
    let mut command = command();
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    command.args([
        "lab",
        "sweep",
        "grid",
        &place.arg("shop.db"),
        "--to",
        &place.arg("sets"),
    ]);
    command.args(["--emulate", "target=rate:10KB/s"]);
    // After the first line comes a run that would take minutes.
    interrupted_at_its_first_line(&mut command);
    assert!(place.sets().is_empty(), "left behind: {:?}", place.sets());
    assert!(!place.path("state").exists());
}
