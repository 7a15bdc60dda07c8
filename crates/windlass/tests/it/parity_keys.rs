//! New envelopes of sets on several devices: who reads what is left of a set after `key rotate`,
//! also if a device was away meanwhile.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs;

use crate::parity::{back_up, devices, place, restored, words};
use crate::parity_cut::{IDENTITY, OTHER_IDENTITY, OTHER_RECIPIENT, RECIPIENT, ends, identity};
use crate::support::*;

/// A place with a set on these devices, and the words for the key that it was written to, and for
/// that of a later reader.
fn encrypted(place: &Place, disks: &[String]) -> [String; 2] {
    back_up(place, disks, &["--encrypt", RECIPIENT]);
    let own = identity(place, "id", IDENTITY);
    [own, identity(place, "other", OTHER_IDENTITY)]
}

/// Restores with a key. Returns the exit code, the database, and what was said.
fn with_key(place: &Place, disks: &[String], key: &str) -> (Option<i32>, Vec<u8>, String) {
    let key = ["--key".to_owned(), key.to_owned()];
    restored(place, &[disks, &key[..]].concat())
}

fn rotate(disks: &[String], key: &str, code: i32) -> String {
    let command = ["key", "rotate", "--encrypt", OTHER_RECIPIENT, "--key", key];
    ends(&words(&command, disks), code)
}

#[test]
fn the_new_key_opens_what_only_parity_is_left_of() {
    let (place, disks) = place();
    let disks = &disks[..2];
    let [own, other] = encrypted(&place, disks);
    rotate(disks, &own, 0);
    let (code, whole, said) = with_key(&place, disks, &other);
    assert_eq!((code, whole.is_empty()), (Some(0), false), "{said}");
    fs::remove_dir_all(&disks[0]).unwrap();
    let (code, found, said) = with_key(&place, &disks[1..], &other);
    assert_eq!((code, found == whole), (Some(3), true), "{said}");
    let list = ends(&words(&["key", "list"], &disks[1..]), 0);
    assert!(list.contains("rotated"), "{list}");
    ends(&words(&["key", "check", "--key", &other], &disks[1..]), 0);
    rotate(&disks[1..], &other, 3);
    // The device is written anew, with the envelopes beside it.
    fs::create_dir(&disks[0]).unwrap();
    ends(&words(&["repair-set"], disks), 0);
    assert_eq!(devices(&disks[..1]).len(), 2);
    let (code, found, said) = with_key(&place, disks, &other);
    assert_eq!((code, found == whole), (Some(0), true), "{said}");
}

#[test]
fn a_device_that_was_away_during_a_rotation_is_named_and_read_with_the_new_key() {
    let (place, disks) = place();
    let [own, other] = encrypted(&place, &disks);
    let (code, whole, said) = with_key(&place, &disks, &own);
    assert_eq!(code, Some(0), "{said}");
    let away = place.path("away");
    for lost in [0, 3] {
        let there: Vec<_> = disks
            .iter()
            .filter(|it| **it != disks[lost])
            .cloned()
            .collect();
        fs::rename(&disks[lost], &away).unwrap();
        let said = rotate(&there, &own, 3);
        let file = fs::read_dir(&away).unwrap().next().unwrap().unwrap();
        let missing = format!("{}/{}", disks[lost], file.file_name().display());
        assert!(
            said.contains(&format!("warning: {missing} is not there")),
            "{said}"
        );
        fs::rename(&away, &disks[lost]).unwrap();
        let (code, found, said) = with_key(&place, &disks, &other);
        assert_eq!((code, found == whole), (Some(0), true), "{said}");
        ends(&words(&["verify", "--key", &other], &disks), 0);
        // The next one writes beside all of them.
        assert!(!rotate(&disks, &own, 0).contains("is not there"));
        for disk in &disks {
            let files = devices(std::slice::from_ref(disk));
            assert_eq!(files.len(), 2, "{files:?}");
            let keys = files
                .iter()
                .find(|it| it.extension().unwrap() == "windlass-keys");
            fs::remove_file(keys.unwrap()).unwrap();
        }
    }
}
