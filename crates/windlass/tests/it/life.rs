//! The life of a set: backup, info, verify, extract, restore.

use crate::support::*;

#[test]
fn a_database_comes_back_through_the_command_line() {
    let place = Place::new();
    let set = place.back_up();
    assert_eq!(place.restored(&set), 20);
    let verified = windlass(&["verify", &place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    assert!(text(&verified).contains("verdict"), "{}", text(&verified));
    let quick = windlass(&["verify", "--quick", &place.arg("sets")]);
    assert_eq!(quick.status.code(), Some(0), "{}", text(&quick));
}

#[test]
fn the_configuration_is_printed_before_the_run() {
    let place = Place::new();
    let words = [
        "backup",
        &place.arg("shop.db"),
        "--to",
        "nul",
        "--to",
        "nul",
        "--details",
    ];
    let printed = text(&windlass(&words));
    assert!(
        printed.contains("buffers       12 x 1 MiB = 12 MiB of memory, max 72 MiB"),
        "{printed}"
    );
    assert!(
        printed.contains("layout        2 devices, 1 source volume, blocks of 4096"),
        "{printed}"
    );
}

#[test]
fn json_is_one_object_with_every_promised_field() {
    let place = Place::new();
    let words = [
        "backup",
        &place.arg("shop.db"),
        "--to",
        &place.arg("sets"),
        "--json",
    ];
    let output = windlass(&words);
    assert!(output.stderr.is_empty(), "{}", text(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in [
        "set_id",
        "type",
        "seconds",
        "cpu_seconds",
        "bytes_read",
        "bytes_written",
        "buffers",
        "transfer_bytes",
        "buffer_bytes",
        "stages",
        "devices",
        "limit",
        "verdict",
    ] {
        assert!(!report[field].is_null(), "{field} is missing");
    }
    for field in ["stage", "device", "rate", "share_of_probed", "next"] {
        assert!(
            report["limit"].as_object().unwrap().contains_key(field),
            "limit.{field}"
        );
    }
    assert_eq!(report["type"], "full");
    assert_eq!(report["buffers"], 7);
    let (set, into) = (place.arg("sets"), place.arg("new.db"));
    for words in [
        vec!["verify", &set],
        vec!["verify", "--quick", &set],
        vec!["info", "--files", &set],
        vec!["restore", &set, "--into", &into],
    ] {
        let output = windlass(&[words, vec!["--json"]].concat());
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
}

#[test]
fn extract_writes_the_named_file_alone() {
    let place = Place::new();
    let set = place.back_up();
    let into = place.arg("out");
    let words = ["extract", set.to_str().unwrap(), "shop.db", "--into", &into];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(place.ledger.check(&place.path("out/shop.db")), 20);
    // Nothing is ever overwritten.
    assert_eq!(windlass(&words).status.code(), Some(1));
}

#[test]
fn stripes_on_several_devices_restore_from_any_one_of_them() {
    let place = Place::new();
    let (a, b, c) = (
        place.arg("a.stripe"),
        place.arg("b.stripe"),
        place.arg("c.stripe"),
    );
    let words = [
        "backup",
        &place.arg("shop.db"),
        "--to",
        &a,
        "--to",
        &b,
        "--to",
        &c,
    ];
    assert_eq!(windlass(&words).status.code(), Some(0));
    for stripe in [a, b, c] {
        assert_eq!(place.restored(stripe.as_ref()), 20);
    }
}

#[test]
fn the_waits_may_choose_the_codec() {
    let place = Place::new();
    let (database, sets) = (place.arg("shop.db"), place.arg("sets"));
    let words = [
        "backup",
        &database,
        "--to",
        &sets,
        "--compress",
        "auto",
        "--json",
    ];
    let output = windlass(&words);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let compression = &report["compression"];
    assert_eq!(compression["range"], "lz4..zstd:9");
    let used = compression["used"].as_array().unwrap();
    let raw: u64 = used
        .iter()
        .map(|one| one["raw_bytes"].as_u64().unwrap())
        .sum();
    // Beside what was read, frames hold a hash of each page: docs/format.md, Hashes of pages.
    let read = report["bytes_read"].as_u64().unwrap();
    assert_eq!(raw, read + 32 + read / 4096 * 16);
    let stored: u64 = used
        .iter()
        .map(|one| one["stored_bytes"].as_u64().unwrap())
        .sum();
    assert!(stored < raw && stored < report["bytes_written"].as_u64().unwrap());
    let set = place.path("sets").join(&place.sets()[0]);
    assert_eq!(place.restored(&set), 20);
    for (range, code) in [
        ("auto:none..zstd:19", 0),
        ("auto:zstd:3..lz4", 2),
        ("auto:9", 2),
    ] {
        let words = ["backup", &database, "--to", "nul", "--compress", range];
        assert_eq!(windlass(&words).status.code(), Some(code), "{range}");
    }
}
