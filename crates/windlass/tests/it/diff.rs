//! Differences between sets of a SQLite database, and between a set and the live database.

use crate::support::*;

/// Runs `windlass diff --json`. Returns its exit code and its document.
fn diff(words: &[&str]) -> (i32, serde_json::Value) {
    let output = windlass(&[&["diff", "--json", "--pages"], words].concat());
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    (output.status.code().unwrap(), document)
}

#[test]
fn a_live_database_is_compared_with_what_is_in_its_log_only() {
    let place = Place::new();
    place.ledger.commit(21, 400);
    let set = place.back_up();
    let (set, live) = (set.to_str().unwrap(), place.arg("shop.db"));
    let (code, same) = diff(&[set, &live]);
    assert_eq!((code, &same["same"]), (0, &true.into()), "{same}");
    // A writer that stays open: the commit is in the log, and the file has not changed.
    let file = std::fs::read(&live).unwrap();
    let mut shell = place.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0; CREATE TABLE later (i); INSERT INTO later VALUES (1);");
    assert!(
        std::fs::read(&live).unwrap() == file,
        "the log was folded in"
    );
    let (code, report) = diff(&[set, &live]);
    assert_eq!(code, 3);
    let changed = &report["files"][0];
    assert_eq!(changed["path"], "database");
    assert_eq!(changed["ranges"][0][0], 1, "pages count from 1: {changed}");
    let newer = place.back_up();
    let newer = newer.to_str().unwrap();
    let (code, same) = diff(&[newer, &live]);
    assert_eq!(code, 0, "{same}");
    for words in [
        vec![set, newer],
        vec![set, newer, "--quick"],
        vec![set, newer, "--every-byte"],
    ] {
        let (code, between) = diff(&words);
        assert_eq!(code, 3);
        assert_eq!(between["files"][0]["ranges"], changed["ranges"]);
        let believed = between["bytes_by_checksum"].as_u64().unwrap();
        assert_eq!(believed > 0, words.contains(&"--quick"), "{between}");
    }
    shell.close();
}
