//! Bad input: a clear error, a hint, the right exit code, and nothing lost.

use crate::support::*;

/// Runs; asserts the exit code, an `error:` line with `says`, and a `hint:` line.
fn refused(words: &[&str], code: i32, says: &str) {
    let output = windlass(words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
    assert!(
        printed.contains("error: ") && printed.contains(says),
        "{words:?}: {printed}"
    );
    assert!(printed.contains("hint: "), "{words:?}: {printed}");
}

#[test]
fn sources_and_devices_that_are_none_are_named() {
    let place = Place::new();
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    refused(&["backup", "nowhere.db", "--to", &sets], 2, "nowhere.db");
    refused(&["backup", &sets, "--to", &sets], 2, "is a directory");
    refused(
        &["backup", &db, "--to", &place.arg("no/such/place")],
        1,
        "there is no directory",
    );
    refused(
        &["backup", &db, "--to", "s3://bucket/x"],
        2,
        "object stores",
    );
    refused(&["backup", &db, "--to", &sets, "--to", "nul"], 2, "nul");
    let twice = place.arg("twice");
    refused(
        &["backup", &db, "--to", &twice, "--to", &twice],
        2,
        "named twice",
    );
    assert!(
        place.sets().is_empty(),
        "nothing was left behind: {:?}",
        place.sets()
    );
}

#[test]
fn options_out_of_range_are_named() {
    let place = Place::new();
    let db = place.arg("shop.db");
    let run = |option: &str, value: &str, says: &str| {
        refused(&["backup", &db, "--to", "nul", option, value], 2, says);
    };
    run("--compress", "zip", "--compress");
    run("--compress", "zstd:99", "--compress");
    run("--transfer-size", "100000", "--transfer-size");
    run("--transfer-size", "8MiB", "--transfer-size");
    run("--block-size", "1000", "--block-size");
    run("--buffers", "1", "--buffers");
    run("--max-memory", "1MiB", "above the limit");
}

#[test]
fn a_stripe_that_is_there_is_not_overwritten_unasked() {
    let place = Place::new();
    let (db, stripe) = (place.arg("shop.db"), place.arg("stripe"));
    assert_eq!(
        windlass(&["backup", &db, "--to", &stripe]).status.code(),
        Some(0)
    );
    let before = std::fs::read(place.path("stripe")).unwrap();
    refused(&["backup", &db, "--to", &stripe], 1, "exists");
    assert_eq!(std::fs::read(place.path("stripe")).unwrap(), before);
    place.ledger.commit(21, 22);
    let words = ["backup", &db, "--to", &stripe, "--overwrite"];
    assert_eq!(windlass(&words).status.code(), Some(0));
    assert_eq!(place.restored(&place.path("stripe")), 22);
}

#[test]
fn a_restore_touches_nothing_that_is_there() {
    let place = Place::new();
    let set = place.back_up();
    let db = place.arg("shop.db");
    let before = std::fs::read(place.path("shop.db")).unwrap();
    refused(
        &["restore", set.to_str().unwrap(), "--into", &db],
        1,
        "shop.db",
    );
    assert_eq!(std::fs::read(place.path("shop.db")).unwrap(), before);
}

#[test]
fn damage_has_an_exit_code_of_its_own_and_leaves_no_half_restore() {
    let place = Place::new();
    let set = place.back_up();
    let mut bytes = std::fs::read(&set).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    #[allow(clippy::disallowed_methods)]
    std::fs::write(&set, bytes).unwrap();
    let name = set.to_str().unwrap();
    refused(&["verify", name], 4, "at offset");
    let into = place.arg("restored.db");
    refused(&["restore", name, "--into", &into], 4, "at offset");
    let left: Vec<_> = std::fs::read_dir(place.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("restored"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_missing_stripe_is_named_with_its_place() {
    let place = Place::new();
    let (a, b) = (place.arg("a"), place.arg("b"));
    let words = ["backup", &place.arg("shop.db"), "--to", &a, "--to", &b];
    assert_eq!(windlass(&words).status.code(), Some(0));
    std::fs::remove_file(&b).unwrap();
    refused(&["verify", &a], 4, &b);
    let info = windlass(&["info", &a]);
    assert_eq!(info.status.code(), Some(4));
    assert!(
        text(&info).contains("recoverable   1 of 2 stripes are sound"),
        "{}",
        text(&info)
    );
}
