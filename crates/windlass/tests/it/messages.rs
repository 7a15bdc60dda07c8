//! Messages name the real cause, and say what to do about it.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use windlass_testkit::sqlite::run_once;

use crate::support::*;

/// Runs the command with a limit on open files.
fn with_open_files(limit: u32, words: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    shell.env("WINDLASS_CONFIG", "/dev/null").output().unwrap()
}

#[test]
fn a_limit_on_open_files_is_not_told_as_a_missing_right() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let set = place.back_up().to_str().unwrap().to_owned();
    let mut refused = 0;
    for limit in 5..20 {
        let into = place.arg(&format!("{limit}.db"));
        for words in [
            &["backup", &db, "--to", &sets][..],
            &["restore", &set, "--into", &into],
        ] {
            let output = with_open_files(limit, words);
            let printed = text(&output);
            if output.status.code() == Some(0) {
                continue;
            }
            refused += 1;
            assert_eq!(output.status.code(), Some(1), "{limit}: {printed}");
            assert!(
                printed.contains("Too many open files"),
                "{limit}: {printed}"
            );
            assert!(printed.contains("ulimit -n"), "{limit}: {printed}");
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_set_of_another_database_is_told_as_such() {
    let place = Place::new();
    let (_, sets) = place.ends();
    place.back_up();
    let other = place.arg("other.db");
    run_once(&place.path("other.db"), "CREATE TABLE t(a);").unwrap();
    let made = windlass(&["backup", &other, "--to", &sets]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    let (_, list) = json(&["info", &sets]);
    let list = list["sets"].as_array().unwrap();
    let of_shop = list.iter().find(|set| set.to_string().contains("shop.db"));
    let id = &of_shop.unwrap()["set_id"].as_str().unwrap()[..8];
    let into = place.arg("new.db");
    let words = ["--set", id, "--database", "other", "--into", &into];
    let output = windlass(&[&["restore", &sets][..], &words].concat());
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let says = format!("set {id} in {sets} is of shop.db");
    assert!(printed.contains(&says), "{printed}");
    assert!(printed.contains("not of other"), "{printed}");
}

#[test]
fn an_option_without_a_variable_is_named() {
    for (name, option) in [("WINDLASS_SET", "--set"), ("WINDLASS_LATEST", "--latest")] {
        let mut command = command();
        let output = command.args(["info", "."]).env(name, "x").output().unwrap();
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(name), "{printed}");
        let says = format!("hint: {option} has no variable");
        assert!(printed.contains(&says), "{printed}");
    }
}

#[test]
fn an_output_that_is_a_link_to_nowhere_is_a_warning_that_says_so() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let link = place.arg("link");
    symlink(place.path("unmounted/file"), &link).unwrap();
    for option in ["--log", "--events", "--metrics-file"] {
        let output = windlass(&["backup", &db, "--to", &sets, option, &link]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(3), "{option}: {printed}");
        assert!(
            printed.contains("it is a symbolic link to") && printed.contains("unmounted/file"),
            "{option}: {printed}"
        );
        let checked = windlass(&["check", &db, "--to", &sets, option, &link]);
        assert_eq!(checked.status.code(), Some(3), "{}", text(&checked));
    }
    assert!(!place.path("unmounted").exists());
    assert_eq!(place.sets().len(), 3);
}

/// A file with the name of a stripe would make every later verification of the place fail.
#[test]
fn no_output_has_the_name_of_a_stripe() {
    let place = Place::new();
    let (db, sets) = place.ends();
    let set = place.back_up().to_str().unwrap().to_owned();
    for name in ["sets/run.windlass", "run.windlass.partial"] {
        let path = place.arg(name);
        for option in ["--log", "--events", "--metrics-file"] {
            for words in [&["backup", &db, "--to", &sets][..], &["verify", &set]] {
                let output = windlass(&[words, &[option, &path][..]].concat());
                let printed = text(&output);
                assert_eq!(output.status.code(), Some(1), "{option}: {printed}");
                assert!(printed.contains("is for stripes"), "{option}: {printed}");
                assert!(!place.path(name).exists(), "{option}");
            }
        }
    }
    assert_eq!(place.sets().len(), 1);
    let output = windlass(&["verify", &sets]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn no_wait_at_all_is_told_in_seconds() {
    let place = Place::new();
    let db = place.arg("other.db");
    run_once(&place.path("other.db"), "CREATE TABLE t(a);").unwrap();
    let mut shell = windlass_testkit::sqlite::Shell::open(&place.path("other.db"));
    shell.run("BEGIN EXCLUSIVE;");
    let output = windlass(&["backup", &db, "--to", "nul", "--lock-wait", "0"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("by another process for 0 s"), "{printed}");
}

#[test]
fn no_older_set_is_promised_where_there_is_none() {
    let place = Place::new();
    let (_, sets) = place.ends();
    let db = place.arg("bad.db");
    let sql = "CREATE TABLE t(a); INSERT INTO t VALUES(randomblob(9000)); \
               PRAGMA writable_schema=1; UPDATE sqlite_schema SET rootpage=4;";
    run_once(&place.path("bad.db"), sql).unwrap();
    for sets_before in [0, 1] {
        let made = windlass(&["backup", &db, "--to", &sets]);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made));
        let output = windlass(&["verify", &sets, "--latest", "--open"]);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(4), "{printed}");
        let promises = printed.contains("An older set may be without it");
        assert_eq!(promises, sets_before > 0, "{printed}");
    }
}
