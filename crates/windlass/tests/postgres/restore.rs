//! Restores of clusters that are stopped before their end.

use std::process::Stdio;

use crate::support::*;

#[test]
fn an_interrupted_restore_does_not_start_and_says_what_it_leaves() {
    let place = Place::new();
    let set = place.back_up("set");
    let into = place.arg("into");
    let mut restore = command();
    restore.args(["restore", &set, "--into", &into, "--transfer-size", "64KiB"]);
    restore.args(["--max-rate", "64KiB"]).stderr(Stdio::piped());
    let child = restore.spawn().unwrap();
    // Wait until it writes, so that the signal meets a restore at work.
    while !place.path("into/base").exists() {
        std::thread::yield_now();
    }
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    let hint = format!("hint: What is in {into} does not start: remove it before the next try.");
    assert!(printed.contains(&hint), "{printed}");
    assert!(!place.path("into/global/pg_control").exists());
    // A new restore does not overwrite it either.
    let output = windlass(&["restore", &set, "--into", &into]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("is not empty"), "{}", text(&output));
}
