//! Restores of clusters that are stopped before their end.

use std::process::Stdio;

use serde_json::json;
use windlass_testkit::reforge::reforge;

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

/// The oldest version of this program did not list tablespaces, and did not search the log. In its
/// sets nothing but the links says where the tablespaces were.
#[test]
fn a_set_that_does_not_list_its_tablespaces_is_restored_only_to_named_places() {
    let place = Place::new();
    let space = place.path("space");
    std::fs::create_dir(&space).unwrap();
    let live = space.display();
    place.sql(&format!("CREATE TABLESPACE s LOCATION '{live}'"));
    place.sql("CREATE TABLE t TABLESPACE s AS SELECT 1 AS i");
    let set = place.back_up("set");
    let stripe = std::fs::read_dir(&set).unwrap().next().unwrap().unwrap();
    reforge(&stripe.path(), |parts| {
        let facts = parts.description.facts.database.as_object_mut().unwrap();
        facts["tablespaces"] = json!([]);
        facts.remove("log_surveyed");
        facts.remove("earlier_windows");
    });
    let into = place.arg("into");
    let output = windlass(&["restore", &set, "--into", &into]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let says = format!("which its facts do not list: its directory {live} may belong");
    assert!(printed.contains(&says), "{printed}");
    let hint = "hint: Map that directory to an empty one: --tablespace-map OLD=NEW";
    assert!(printed.contains(hint), "{printed}");
    assert!(!place.path("into").exists(), "nothing was made");
    // The set itself is sound: with a place for the tablespace it is restored.
    let output = windlass(&["verify", &set]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let map = format!("{live}={}", place.arg("moved"));
    let output = windlass(&["restore", &set, "--into", &into, "--tablespace-map", &map]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let links = std::fs::read_dir(place.path("into/pg_tblspc")).unwrap();
    let targets: Vec<_> = links
        .map(|link| std::fs::read_link(link.unwrap().path()).unwrap())
        .collect();
    assert_eq!(targets, [place.path("moved")]);
}

/// The next try meets the tablespaces of a restore that was cut off, if only its data directory was
/// removed. Nothing tells such a tablespace from a live one, but the answer must fit both.
#[test]
fn a_tablespace_that_an_earlier_restore_left_is_not_empty_and_no_source() {
    let place = Place::new();
    let space = place.path("space");
    std::fs::create_dir(&space).unwrap();
    place.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'",
        space.display()
    ));
    place.sql("CREATE TABLE t TABLESPACE s AS SELECT 1 AS i");
    let (set, into, moved) = (place.back_up("set"), place.arg("into"), place.arg("moved"));
    let map = format!("{}={moved}", space.display());
    let words = ["restore", &set, "--into", &into, "--tablespace-map", &map];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    std::fs::remove_dir_all(&into).unwrap();
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&format!("{moved} is not empty")),
        "{printed}"
    );
    assert!(
        printed.contains("If a restore that was cut off left these"),
        "{printed}"
    );
    assert!(!printed.contains("no source"), "{printed}");
    assert!(!place.path("into").exists());
    std::fs::remove_dir_all(&moved).unwrap();
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
