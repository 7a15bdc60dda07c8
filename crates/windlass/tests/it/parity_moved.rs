//! Sets with parity whose devices all lie elsewhere than they were written: every command finds
//! the files with parity in the directories that are named.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::parity::{back_up, devices, place, restored, words};
use crate::parity_cut::{IDENTITY, RECIPIENT, ends, identity};
use crate::support::*;

/// Moves the devices: each has another directory from now on.
fn moved(disks: &[String]) -> Vec<String> {
    let moved: Vec<_> = disks.iter().map(|disk| format!("{disk}-moved")).collect();
    for (disk, to) in disks.iter().zip(&moved) {
        fs::rename(disk, to).unwrap();
    }
    moved
}

fn empty(disk: &str) {
    for file in devices(&[disk.to_owned()]) {
        fs::remove_file(file).unwrap();
    }
}

/// What `info` says of these places: the exit code, and the sets.
fn info(command: &[&str], disks: &[String]) -> (i32, Vec<Value>) {
    let (code, document) = json(&words(command, disks));
    (code, document["sets"].as_array().unwrap().clone())
}

#[test]
fn info_finds_the_parity_of_every_set_where_it_was_moved_to() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let parity = devices(&disks[3..]).remove(0);
    let (code, alone) = info(&["info", parity.to_str().unwrap()], &[]);
    assert_eq!((code, alone.len()), (0, 1), "{alone:?}");
    place.ledger.commit(21, 40);
    back_up(&place, &disks, &["--type", "incr"]);
    let disks = moved(&disks);
    let (code, sets) = info(&["info"], &disks);
    assert_eq!((code, sets.len()), (0, 2), "{sets:?}");
    for set in &sets {
        let parity = &set["parities"][0];
        assert_eq!(parity["fault"], Value::Null, "{set}");
        let place = parity["location"].as_str().unwrap();
        assert!(place.starts_with(&disks[3]), "{set}");
    }
    let ids: Vec<_> = sets.iter().map(|set| set["set_id"].clone()).collect();
    empty(&disks[1]);
    let (code, sets) = info(&["info"], &disks);
    assert_eq!((code, sets.len()), (3, 2), "{sets:?}");
    let is_mended = |set: &Value| {
        assert_eq!(set["restorable"], true, "{set}");
        assert_eq!(set["stripes"][1]["fault"], "is missing", "{set}");
        assert_eq!(set["parities"][0]["fault"], Value::Null, "{set}");
    };
    sets.iter().for_each(is_mended);
    for id in ids {
        let (code, sets) = info(&["info", "--set", id.as_str().unwrap()], &disks);
        assert_eq!((code, sets.len()), (3, 1), "{sets:?}");
        sets.iter().for_each(is_mended);
    }
}

#[test]
fn a_set_builds_on_a_base_that_was_moved_and_lost_a_device() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let disks = moved(&disks);
    empty(&disks[1]);
    place.ledger.commit(21, 40);
    let (database, to) = (place.ends().0, disks.join(","));
    let backup = ["backup", &database, "--to", &to, "--parity", "1"];
    let incremental = ["--type", "incr", "--strict"];
    let (code, document) = json(&[&backup[..], &incremental].concat());
    assert!(matches!(code, 0 | 3), "{code}: {document}");
    assert_eq!(document["type"], "incr", "{document}");
    let (code, whole, said) = restored(&place, &disks);
    assert_eq!((code, whole.is_empty()), (Some(3), false), "{said}");
}

#[test]
fn a_key_opens_a_set_that_was_moved_and_lost_a_device() {
    let (place, disks) = place();
    let own = identity(&place, "id", IDENTITY);
    back_up(&place, &disks, &["--encrypt", RECIPIENT]);
    let disks = moved(&disks);
    empty(&disks[1]);
    ends(&words(&["key", "check", "--key", &own], &disks), 0);
}

#[test]
fn a_base_of_which_only_parity_is_left_is_rebuilt() {
    let (place, disks) = place();
    let disks = &disks[..2];
    back_up(&place, disks, &[]);
    let base = devices(disks);
    place.ledger.commit(21, 40);
    back_up(&place, disks, &["--type", "incr"]);
    let newest = devices(&disks[..1]);
    let newest = newest.iter().find(|path| **path != base[0]).unwrap();
    let (code, whole, said) = restored(&place, disks);
    assert_eq!(code, Some(0), "{said}");
    fs::remove_file(&base[0]).unwrap();
    // One stripe leads to its own parity, and that of the base lies beside it.
    let stripe = [newest.to_str().unwrap().to_owned()];
    for places in [&stripe[..], disks] {
        let (code, found, said) = restored(&place, places);
        assert_eq!((code, found == whole), (Some(3), true), "{said}");
    }
    let disks = moved(disks);
    let (code, found, said) = restored(&place, &disks);
    assert_eq!((code, found == whole), (Some(3), true), "{said}");
    let (code, sets) = info(&["info"], &disks);
    assert_eq!((code, sets.len()), (3, 2), "{sets:?}");
    assert!(sets.iter().all(|set| set["restorable"] == true), "{sets:?}");
}

#[test]
fn a_base_that_lost_more_devices_than_it_has_parity_is_refused() {
    let (place, disks) = place();
    back_up(&place, &disks, &[]);
    let base = devices(&disks);
    place.ledger.commit(21, 40);
    back_up(&place, &disks, &["--type", "incr"]);
    let disks = moved(&disks);
    let names = base[..2].iter().map(|path| path.file_name().unwrap());
    let names: Vec<_> = names.map(|name| name.to_str().unwrap()).collect();
    for (disk, name) in disks.iter().zip(&names) {
        fs::remove_file(PathBuf::from(disk).join(name)).unwrap();
    }
    let (code, found, said) = restored(&place, &disks);
    assert_eq!((code, found.is_empty()), (Some(4), true), "{said}");
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
}
