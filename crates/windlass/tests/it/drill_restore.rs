//! `windlass drill --restore`: the whole restore, timed, and nothing of it stays.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::Output;

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters::{back_up, directory, place};
use crate::opening::Scratch;
use crate::support::{Place, text};

fn run(place: &Place, words: &[&str]) -> Output {
    let mut command = crate::support::command();
    command.env_remove("WINDLASS_NO_HISTORY");
    command.env("WINDLASS_STATE_DIR", place.path("state"));
    command.args(words).output().unwrap()
}

fn document(output: &Output) -> Value {
    let document = serde_json::from_slice(&output.stdout);
    document.unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn assert_empty(directory: &Path) {
    let left: Vec<_> = std::fs::read_dir(directory).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_restore_of_a_drill_is_timed_and_nothing_of_it_stays() {
    let place = Place::new();
    place.back_up();
    let (sets, into) = (place.arg("sets"), place.arg("into"));
    let drill = ["drill", &sets, "--restore", "--into", &into];
    // The directory must be there: it may be a disk that is not mounted.
    let output = run(&place, &drill);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("--into: there is no directory"),
        "{}",
        text(&output)
    );
    std::fs::create_dir(&into).unwrap();
    // What a killed drill left there goes with the next one.
    let left = place.path("into").join("windlass-open-0123abcd");
    std::fs::create_dir_all(left.join("restored")).unwrap();
    std::fs::write(place.path("into").join("mine"), "stays").unwrap();
    let output = run(&place, &[&drill[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let found = document(&output);
    let restored = &found["restore"];
    let length = place.path("shop.db").metadata().unwrap().len();
    assert_eq!(restored["bytes"].as_u64(), Some(length), "{found}");
    assert!(restored["seconds"].as_f64().unwrap() > 0.0, "{found}");
    assert!(!restored["verdict"].as_str().unwrap().is_empty(), "{found}");
    std::fs::remove_file(place.path("into").join("mine")).unwrap();
    assert_empty(Path::new(&into));
    // The history has one run, which knows both times.
    let history = document(&run(&place, &["history", "--json"]));
    let runs = history["runs"].as_array().unwrap();
    let drills: Vec<_> = runs
        .iter()
        .filter(|run| run["command"] != "backup")
        .collect();
    assert_eq!(drills.len(), 2, "{history}");
    let options = &drills[1]["settings"]["options"];
    assert_eq!(options["restore_seconds"], restored["seconds"]);
    assert_eq!(options["restored_bytes"], restored["bytes"]);
    // People read it, too.
    let printed = text(&run(&place, &drill));
    assert!(
        printed.contains("restored ") && printed.contains("the plan says nothing"),
        "{printed}"
    );
    // Only together do the two options mean something.
    assert_eq!(
        run(&place, &["drill", &sets, "--restore"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_restore_on_slow_storage_is_compared_with_its_plan() {
    let place = Place::with_accounts(4000);
    place.back_up();
    std::fs::create_dir(place.path("into")).unwrap();
    let (sets, into) = (place.arg("sets"), place.arg("into"));
    let drill = ["drill", &sets, "--restore", "--into", &into, "--json"];
    let slow = ["source=rate:2MB/s", "target=rate:200MB/s"];
    let slow = slow.map(|model| ["--emulate", model]).concat();
    let output = run(&place, &[&drill[..], &slow].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let restored = &document(&output)["restore"];
    let (took, predicted) = (&restored["seconds"], &restored["predicted_seconds"]);
    let (took, predicted) = (took.as_f64().unwrap(), predicted.as_f64().unwrap());
    assert!(took > 0.7 * predicted, "{took} of {predicted}");
    assert_empty(Path::new(&into));
}

#[test]
fn a_restore_that_fails_leaves_nothing_and_the_drill_fails() {
    let place = Place::with_accounts(20_000);
    place.back_up();
    std::fs::create_dir(place.path("into")).unwrap();
    let (sets, into) = (place.arg("sets"), place.arg("into"));
    // No file may become as long as the database.
    let mut limited = std::process::Command::new("prlimit");
    let plain = crate::support::command();
    limited
        .args(["--fsize=4194304", "--"])
        .arg(plain.get_program())
        .args(plain.get_args());
    limited.args(["drill", &sets, "--restore", "--into", &into]);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert_empty(Path::new(&into));
    // A file where the directory should be.
    let file = place.arg("shop.db");
    let output = run(&place, &["drill", &sets, "--restore", "--into", &file]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn a_cluster_with_a_tablespace_is_restored_beside_nothing_of_its_source() {
    let place = place();
    let space = directory(place.path(), "space");
    let source = PrivateCluster::start(&ClusterOptions::default());
    let sql = |text: &str| source.sql("postgres", text);
    sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'",
        space.display()
    ));
    sql("CREATE TABLE sale TABLESPACE s AS SELECT i FROM generate_series(1, 700) i");
    let set = back_up(
        &source,
        place.path(),
        &["--accept", "configuration-outside"],
    );
    let into = directory(place.path(), "into");
    let into = into.to_str().unwrap();
    let scratch = Scratch::new();
    let count = ["--query", "select count(*) from sale", "--expect", "700"];
    let words = ["drill", &set, "--json", "--restore", "--into", into];
    // Twice: the second night finds the directory as the first one left it.
    for _ in 0..2 {
        let output = scratch.run(None, &[&words[..], &count].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let found = document(&output);
        assert!(
            found["restore"]["bytes"].as_u64() > Some(1 << 20),
            "{found}"
        );
        assert_empty(Path::new(into));
    }
    assert_eq!(sql("SELECT count(*) FROM sale"), "700");
    // Where the owner of the database may not write, nothing is begun.
    let closed = place.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let closed = closed.to_str().unwrap();
    let output = scratch.run(None, &["drill", &set, "--restore", "--into", closed]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("may not enter"), "{}", text(&output));
    scratch.assert_clean();
}

/// A restore of hours that ends with a full disk proves nothing, and fills a disk of others.
#[test]
fn a_restore_that_does_not_fit_is_refused_before_anything_is_opened() {
    let place = Place::with_accounts(20_000);
    place.back_up();
    std::fs::create_dir(place.path("into")).unwrap();
    let script = r#"mount -t tmpfs -o size=1m none "$1" && shift && exec "$@""#;
    let mut unshare = std::process::Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    unshare.args([&place.arg("into"), env!("CARGO_BIN_EXE_windlass")]);
    unshare.args([
        "drill",
        &place.arg("sets"),
        "--restore",
        "--into",
        &place.arg("into"),
    ]);
    let query = ["--query", "SELECT count(*) FROM accounts"];
    let output = unshare.args(query).env("WINDLASS_CONFIG", "/dev/null");
    let output = output.env("WINDLASS_NO_HISTORY", "1").output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("it needs") && said.contains("are free"),
        "{said}"
    );
    assert!(!said.contains("first answer"), "{said}");
}
