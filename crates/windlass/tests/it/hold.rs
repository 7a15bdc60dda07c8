//! What `windlass hold --json` prints.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs;

use serde_json::json as value;

use crate::support::*;

#[test]
fn a_hold_as_json_says_what_is_held_and_what_is_not() {
    let place = Place::with_accounts(200);
    let (shop, sets) = place.ends();
    let more = place.arg("more");
    fs::create_dir(&more).unwrap();
    let (_, full) = json(&["backup", &shop, "--to", &sets]);
    let full = full["set_id"].as_str().unwrap();
    let build = ["--type", "incr", "--base", &sets];
    let backup = [&["backup", &shop, "--to", &more][..], &build].concat();
    let (_, incr) = json(&backup);
    let incr = incr["set_id"].as_str().unwrap();
    let document = |held: bool, not_held: &[&str]| {
        value!({
            "set_id": incr,
            "held": held,
            "bases": [full],
            "not_held": not_held,
            "absent": [],
            "failed": [],
        })
    };
    // The base lies elsewhere, and is not held.
    let hold = json(&["hold", &more, "--reason", "for the auditors"]);
    assert_eq!(hold, (3, document(true, &[full])));
    let release = json(&["hold", &more, "--release"]);
    assert_eq!(release, (0, document(false, &[full])));
    // There is nothing to release.
    let release = json(&["hold", &more, "--release"]);
    assert_eq!(release, (0, document(false, &[full])));
    // The hold cannot be written: a directory has its name.
    let path = format!("{more}/{incr}.hold");
    fs::create_dir_all(format!("{path}/x")).unwrap();
    let mut failed = document(false, &[full]);
    failed["failed"] = value!([path]);
    assert_eq!(json(&["hold", &more]), (1, failed));
    fs::remove_dir_all(&path).unwrap();
    // Only what was held is printed with --quiet: nothing.
    let output = windlass(&["hold", &sets, "--set", full, "--quiet"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let (_, info) = json(&["info", &sets]);
    assert_eq!(info["holds"][0]["set_id"], full);
}

#[test]
fn a_hold_as_json_names_the_directories_that_are_not_there() {
    let place = Place::with_accounts(200);
    let (shop, _) = place.ends();
    let disks = ["d1", "d2", "d3"].map(|name| place.arg(name));
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    let to = disks.join(",");
    let (code, made) = json(&["backup", &shop, "--to", &to, "--parity", "1"]);
    assert_eq!(code, 0, "{made}");
    let away = place.arg("away");
    fs::rename(&disks[2], &away).unwrap();
    let expected = |held: bool| {
        value!({
            "set_id": made["set_id"],
            "held": held,
            "bases": [],
            "not_held": [],
            "absent": [disks[2]],
            "failed": [],
        })
    };
    let hold = json(&["hold", &disks[0], &disks[1]]);
    assert_eq!(hold, (3, expected(true)));
    let release = json(&["hold", &disks[0], &disks[1], "--release"]);
    assert_eq!(release, (3, expected(false)));
}
