//! `backup --mirror`: one set in several places.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;

use serde_json::Value;

use crate::buckets::Shop;
use crate::support::*;

fn ends(words: &[&str], code: i32) -> String {
    let output = windlass(words);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {}",
        text(&output)
    );
    text(&output)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
    names.sort();
    names
}

/// What a mirror alone restores to.
fn restored(place: &Place, mirror: &str) -> u64 {
    let into = place.arg("again.db");
    ends(&["restore", mirror, "--into", &into], 0);
    let state = place.ledger.check(Path::new(&into));
    std::fs::remove_file(&into).unwrap();
    state
}

#[test]
fn a_mirror_alone_restores_the_chain_and_one_that_fails_costs_nothing() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let (more, gone) = (place.arg("more"), place.arg("gone"));
    for name in ["sets/2", "more", "third"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    let config = place.arg("windlass.toml");
    let text = format!(
        "[repository.offsite]\nto = [{more:?}, {:?}]\n",
        place.arg("third")
    );
    std::fs::write(&config, text).unwrap();
    let two = format!("{sets},{}", place.arg("sets/2"));
    let backup = ["backup", &database, "--to", &two, "--config", &config];
    let backup = [&backup[..], &["--mirror", "offsite"]].concat();
    let said = ends(&backup, 0);
    assert!(said.contains("mirror        offsite: 2 stripes"), "{said}");
    place.ledger.commit(21, 25);
    let both = [
        &backup[..],
        &["--type", "incr", "--mirror", &gone, "--json"],
    ]
    .concat();
    let output = windlass(&both);
    assert_eq!(output.status.code(), Some(3), "{}", text_of(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        document["warnings"][0]["name"], "mirror-failed",
        "{document}"
    );
    assert_eq!(document["mirrors"][0]["ok"], true, "{document}");
    assert_eq!(document["mirrors"][1]["ok"], false, "{document}");
    assert!(!Path::new(&gone).exists(), "its disk may not be mounted");
    // The same bytes, and nothing else.
    for (from, to) in [("sets", "more"), ("sets/2", "third")] {
        let there = names(&place.path(to));
        assert_eq!(there.len(), 2);
        for name in there {
            let read = |at: &str| std::fs::read(place.path(at).join(&name)).unwrap();
            assert!(read(from) == read(to), "{name}");
        }
    }
    // The first place is lost.
    std::fs::remove_dir_all(place.path("sets")).unwrap();
    ends(&["verify", &more, &place.arg("third")], 0);
    let words = [
        "restore",
        "offsite",
        "--config",
        &config,
        "--into",
        &place.arg("again.db"),
    ];
    ends(&words, 0);
    assert_eq!(place.ledger.check(&place.path("again.db")), 25);
}

fn text_of(output: &std::process::Output) -> String {
    text(output)
}

#[test]
fn a_mirror_without_the_base_and_a_name_that_is_taken_are_said() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let mirror = place.arg("mirror");
    std::fs::create_dir(&mirror).unwrap();
    place.back_up();
    let incr = [
        "backup", &database, "--to", &sets, "--type", "incr", "--mirror", &mirror,
    ];
    let said = ends(&incr, 3);
    assert!(said.contains("mirror-lacks-base"), "{said}");
    let full = ["backup", &database, "--to", &sets, "--mirror", &mirror];
    ends(&full, 0);
    ends(&incr, 0);
    assert_eq!(restored(&place, &mirror), 20);
    // A place is no mirror of itself, and no mirror lies in a bucket that nobody named.
    for other in [sets.as_str(), &place.arg("./sets")] {
        let said = ends(&["backup", &database, "--to", &sets, "--mirror", other], 2);
        assert!(said.contains("needs a place of its own"), "{said}");
    }
    ends(
        &[
            "backup", &database, "--to", &sets, "--type", "log", "--mirror", &mirror,
        ],
        2,
    );
}

/// A set was not copied one night. Nothing that builds on it can be restored from the mirror alone,
/// and each backup says so, not only the next one.
#[test]
fn a_mirror_that_lacks_a_set_in_the_middle_says_so_until_the_next_full_one() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let (mirror, away) = (place.arg("mirror"), place.arg("away"));
    std::fs::create_dir(&mirror).unwrap();
    let backup = |kind: &str, code: i32| {
        let words = ["backup", &database, "--to", &sets, "--type", kind];
        ends(&[&words[..], &["--mirror", &mirror]].concat(), code)
    };
    backup("full", 0);
    ends(&["backup", &database, "--to", &sets, "--type", "incr"], 0);
    for number in 21..24 {
        place.ledger.commit(number, number);
        let said = backup("incr", 3);
        assert!(said.contains("mirror-lacks-base"), "{number}: {said}");
    }
    std::fs::rename(&sets, &away).unwrap();
    ends(&["restore", &mirror, "--into", &place.arg("again.db")], 4);
    std::fs::rename(&away, &sets).unwrap();
    // A differential builds on the full one, which is there.
    backup("diff", 0);
    place.ledger.commit(24, 24);
    backup("incr", 0);
    std::fs::rename(&sets, &away).unwrap();
    assert_eq!(restored(&place, &mirror), 24);
}

/// Killed at any write, a copy is no stripe, and the next backup goes on.
#[test]
fn a_copy_that_is_killed_is_never_a_set() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let mirror = place.arg("mirror");
    std::fs::create_dir(&mirror).unwrap();
    let mut kills = 0;
    // Calls are counted for each thread, so only the first of a kind is sure to come.
    for (call, numbers) in [("fadvise64", 1..3), ("renameat2", 1..3), ("fsync", 1..7)] {
        for number in numbers {
            let words = ["backup", &database, "--to", &sets, "--mirror", &mirror];
            kills += u32::from(killed_at((call, number), &words));
            let left = names(Path::new(&mirror));
            let whole = left
                .iter()
                .filter(|name| name.ends_with(".windlass"))
                .count();
            if whole > 0 {
                ends(&["verify", &mirror], 0);
            }
            ends(&words, 0);
            ends(&["verify", &mirror], 0);
            std::fs::remove_dir_all(&mirror).unwrap();
            std::fs::create_dir(&mirror).unwrap();
        }
    }
    assert!(kills >= 2, "{kills}");
}

#[test]
fn a_bucket_is_a_mirror_of_a_directory_and_the_other_way_round() {
    let shop = Shop::new();
    let database = shop.database(9000);
    let (sets, bucket) = (shop.word("sets"), "s3://shop/mirror");
    std::fs::create_dir(&sets).unwrap();
    let said = shop.done(&["backup", &database, "--to", &sets, "--mirror", bucket]);
    // Five parts of 5 MiB, and twice what is read at a time.
    assert!(said.contains("mirror        33 MiB of memory"), "{said}");
    std::fs::remove_dir_all(&sets).unwrap();
    std::fs::create_dir(&sets).unwrap();
    shop.done(&["verify", bucket]);
    let into = shop.word("again.db");
    shop.done(&["restore", bucket, "--into", &into]);
    assert!(std::fs::read(&into).unwrap() == std::fs::read(&database).unwrap());
    shop.done(&["backup", &database, "--to", bucket, "--mirror", &sets]);
    shop.done(&["verify", &sets]);
    // A bucket that cannot be reached costs the mirror, and nothing else.
    shop.configure("http://127.0.0.1:9", "x", "1s");
    let said = shop.ends(&["backup", &database, "--to", &sets, "--mirror", bucket], 3);
    assert!(said.contains("mirror-failed"), "{said}");
    shop.done(&["verify", &sets]);
}
