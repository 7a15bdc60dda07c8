//! The outputs of one command are different files, and a pipe is no file.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::refused;
use crate::support::*;

/// The options that name an output beside the set or the restored database.
const OPTIONS: [&str; 2] = ["--events", "--metrics-file"];

#[test]
fn no_output_of_a_backup_is_a_stripe_that_it_writes() {
    let place = Place::new();
    let (db, set, sets) = (
        place.arg("shop.db"),
        place.arg("q.windlass"),
        place.arg("sets"),
    );
    fs::create_dir(place.path("links")).unwrap();
    symlink(place.dir.path(), place.path("links/up")).unwrap();
    symlink(place.path("q.windlass.partial"), place.path("links/soft")).unwrap();
    let names = [
        "q.windlass",
        "q.windlass.partial",
        "links/up/q.windlass",
        "links/up/q.windlass.partial",
        "links/../q.windlass.partial",
        "links/soft",
    ];
    let refuse_all = || {
        for name in names.map(|name| place.arg(name)) {
            for option in OPTIONS {
                for words in [&["--to", &set][..], &["--to", &sets, "--to", &set]] {
                    let words = [&["backup", &db], words, &[option, &name]].concat();
                    refused(&place, &words);
                    refused(&place, &[&words[..], &["--overwrite"]].concat());
                }
            }
        }
    };
    refuse_all();
    let output = windlass(&["backup", &db, "--to", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    refuse_all();
    // An empty file counts as one of every kind. Here the stripe would be written into it.
    fs::File::create(place.path("q.windlass.partial")).unwrap();
    fs::hard_link(place.path("q.windlass.partial"), place.path("hard")).unwrap();
    refuse_all();
    for option in OPTIONS {
        let words = ["backup", &db, "--to", &set, "--overwrite"];
        refused(
            &place,
            &[&words[..], &[option, &place.arg("hard")]].concat(),
        );
    }
    // Stripes are counted from 1.
    let words = ["backup", &db, "--to", &set, "--overwrite", "--events", &set];
    let printed = text(&windlass(&words));
    assert!(printed.contains("this run writes stripe 1 of its set there"));
    assert_eq!(place.restored(&place.path("q.windlass")), 20);
}

#[test]
fn no_two_stripes_of_a_backup_are_one_file() {
    let place = Place::new();
    let db = place.arg("shop.db");
    symlink(place.dir.path(), place.path("up")).unwrap();
    // An existing name is a file, whatever its ending.
    fs::File::create(place.path("q.windlass.partial")).unwrap();
    fs::File::create(place.path("q")).unwrap();
    fs::hard_link(place.path("q"), place.path("hard")).unwrap();
    for (one, other, says) in [
        ("q.windlass", "q.windlass", "is named twice"),
        ("q.windlass", "up/q.windlass", "are the same file"),
        ("q", "hard", "are the same file"),
        (
            "q.windlass",
            "q.windlass.partial",
            "until its set is sealed",
        ),
        (
            "q.windlass.partial",
            "up/q.windlass",
            "until its set is sealed",
        ),
    ] {
        let (one, other) = (place.arg(one), place.arg(other));
        let words = ["backup", &db, "--to", &one, "--to", &other];
        for words in [words.to_vec(), [&words[..], &["--overwrite"]].concat()] {
            let before = super::everything(place.dir.path());
            let output = windlass(&words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(2), "{words:?}: {printed}");
            assert!(printed.contains(says), "{words:?}: {printed}");
            assert!(printed.contains(&one) && printed.contains(&other));
            assert!(printed.contains("hint: Each stripe"), "{printed}");
            assert!(before == super::everything(place.dir.path()), "{words:?}");
        }
    }
}

#[test]
fn no_two_outputs_beside_the_set_are_one_file() {
    let place = Place::new();
    let (db, one) = (place.arg("shop.db"), place.arg("one"));
    let set = place.back_up();
    let set = set.to_str().unwrap();
    symlink(place.dir.path(), place.path("up")).unwrap();
    let into = place.arg("new.db");
    for other in [&one, &place.arg("up/one")] {
        let outputs = ["--events", &one, "--metrics-file", other];
        refused(
            &place,
            &[&["backup", &db, "--to", "nul"], &outputs[..]].concat(),
        );
        refused(&place, &[&["verify", set], &outputs[..]].concat());
        refused(
            &place,
            &[&["restore", set, "--into", &into], &outputs[..]].concat(),
        );
    }
    // With this level, the log is empty, and so no file of another kind.
    fs::File::create(&one).unwrap();
    let log = ["--log", &one, "--log-level", "error"];
    for option in OPTIONS {
        let words = ["verify", set, option, &one];
        let output = windlass(&[&words[..], &log].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("cannot "), "{}", text(&output));
    }
}

#[test]
fn no_output_of_a_restore_is_what_it_restores() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let into = place.arg("new.db");
    symlink(place.dir.path(), place.path("up")).unwrap();
    for name in [
        "new.db",
        "new.db-wal",
        "new.db-shm",
        "new.db-journal",
        "up/new.db",
        "up/new.db-journal",
        "new.db.windlass-restore/shop.db",
    ] {
        for option in OPTIONS {
            let words = ["restore", set, "--into", &into, option, &place.arg(name)];
            refused(&place, &words);
            refused(&place, &[&words[..], &["--force"]].concat());
        }
    }
}

#[test]
fn no_extract_creates_a_directory_with_the_name_of_a_side_file() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    for name in [
        "shop.db-wal",
        "shop.db-shm",
        "shop.db-journal",
        "shop.db-wal/below/it",
    ] {
        refused(&place, &["extract", set, "*", "--into", &place.arg(name)]);
    }
}

/// Runs a command that must end by itself with this code and a hint.
fn ends_at_once(words: &[&str], code: i32) {
    // After this time `timeout` kills the command, and its exit code is 137.
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_windlass")]);
    command.env("WINDLASS_STATE_DIR", "/nonexistent");
    if !words.contains(&"--config") {
        command.env("WINDLASS_CONFIG", "/dev/null");
    }
    let output = command.args(words).stdin(Stdio::null()).output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    assert!(printed.contains("hint: "), "{words:?}: {printed}");
}

#[test]
fn a_pipe_that_nobody_writes_to_is_refused_at_once() {
    let place = Place::new();
    let (db, pipe) = (place.arg("shop.db"), place.arg("pipe"));
    let set = place.back_up();
    let set = set.to_str().unwrap();
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    ends_at_once(&["backup", &pipe, "--to", "nul"], 2);
    ends_at_once(&["check", &pipe], 2);
    ends_at_once(&["events", &pipe], 1);
    ends_at_once(&["--config", &pipe, "backup", &db, "--to", "nul"], 2);
    let metrics = ["--metrics-file", &pipe];
    let into = place.arg("new.db");
    for words in [
        &["backup", &db, "--to", "nul"][..],
        &["backup", &pipe, "--to", "nul"],
        &["verify", set],
        &["restore", set, "--into", &into],
    ] {
        let code = if words.contains(&pipe.as_str()) { 2 } else { 1 };
        ends_at_once(&[words, &metrics].concat(), code);
    }
    assert!(!place.path("new.db").exists());
}

/// The log is opened before anything else, so it must not create a file for another purpose.
#[test]
fn no_log_is_a_file_that_the_command_line_names() {
    let place = Place::new();
    let (db, new, sets) = (place.arg("shop.db"), place.arg("new"), place.arg("sets"));
    let set = place.back_up();
    let set = set.to_str().unwrap();
    symlink(place.dir.path(), place.path("up")).unwrap();
    let restore = ["restore", set, "--into"];
    for words in [
        &["backup", &db, "--to", &new][..],
        &["backup", &new, "--to", "nul"],
        &["backup", &db, "--to", &sets, "--events", &new],
        &["backup", &db, "--to", &sets, "--metrics-file", &new],
        &["check", &db, "--to", &new],
        &["restore", set, "--into", &new],
        &["restore", set, "--into", &new, "--force"],
        &["restore", set, "--into", &new, "--dry-run"],
        &[&restore[..], &[&place.arg("r.db"), "--events", &new]].concat(),
        &["verify", set, "--events", &new],
        &["verify", &new],
        &["info", &new],
        &["diff", set, &new],
        &["extract", set, "*", "--into", &new],
        &["mount", set, &new],
        &["mount", set, &place.arg("sets"), "--overlay", &new],
        &["events", &new],
        &["man", &new],
        &["tune", &db, "--to", &new],
    ] {
        for log in [&new, &place.arg("up/new")] {
            let words = [words, &["--log", log]].concat();
            let before = super::everything(place.dir.path());
            let output = windlass(&words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
            let says = format!("cannot append to the log {log}, which --log names: ");
            assert!(printed.contains(&says), "{words:?}: {printed}");
            assert!(printed.contains("hint: "), "{words:?}: {printed}");
            assert!(before == super::everything(place.dir.path()), "{words:?}");
        }
    }
    for name in ["new-wal", "new-journal", "new-shm"] {
        refused_log(&place, &[&restore[..], &[&new]].concat(), name);
    }
}

/// Runs a command with a log of this name, which it must refuse, and which it must not leave there.
fn refused_log(place: &Place, words: &[&str], name: &str) {
    let log = place.arg(name);
    let before = super::everything(place.dir.path());
    let output = windlass(&[words, &["--log", &log]].concat());
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
    let says = [
        format!("cannot append to the log {log}"),
        format!("cannot write {log}: this run restores the database "),
    ];
    assert!(
        says.iter().any(|it| printed.contains(it)),
        "{words:?}: {printed}"
    );
    assert!(before == super::everything(place.dir.path()), "{words:?}");
}

/// Only the set says how the restored file is called.
#[test]
fn a_log_with_the_name_of_the_restored_file_is_removed_again() {
    let place = Place::new();
    let set = place.back_up();
    let set = set.to_str().unwrap();
    fs::create_dir(place.path("into")).unwrap();
    let into = place.arg("into");
    for name in ["into/shop.db", "into/shop.db-wal", "into/shop.db-journal"] {
        refused_log(&place, &["restore", set, "--into", &into], name);
        refused_log(&place, &["restore", set, "--into", &into, "--force"], name);
    }
    // A log beside it is no problem.
    let log = place.arg("into/log");
    let output = windlass(&["restore", set, "--into", &into, "--log", &log]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(place.path("into/log").is_file());
}
