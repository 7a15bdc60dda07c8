//! Sets whose times cannot be right, because the clock of a machine was wrong for a night: what
//! they say about each other decides which one is the newest.

use std::path::Path;

use windlass_testkit::reforge::reforge;
use windlass_testkit::sqlite::run_once;

use crate::receive_sqlite::Receiving;
use crate::support::*;

/// Makes it say that it was begun at this time.
fn say(stripe: &Path, started: &str) {
    reforge(stripe, |parts| {
        parts.description.facts.started = started.to_owned();
    });
}

/// The id of the set of a stripe, as far as names and messages show it.
fn short(stripe: &Path) -> String {
    let name = stripe.file_name().unwrap().to_str().unwrap();
    let (_, id) = name.split_once('.').unwrap().0.rsplit_once('-').unwrap();
    id.to_owned()
}

/// One more transaction, and a backup. Returns its document, and what it said besides.
fn night(place: &Place, kind: &str) -> (serde_json::Value, String) {
    let (database, sets) = place.ends();
    let count = place.ledger.check(&place.ledger.path);
    place.ledger.commit(count + 1, count + 1);
    let words = ["backup", &database, "--to", &sets, "--type", kind];
    let output = windlass(&[&words[..], &["--strict", "--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// What is restored from the place: its number of transactions, and what was said.
fn newest(place: &Place) -> (u64, String) {
    let into = place.path("restored.db");
    let words = ["restore", &place.arg("sets"), "--into"];
    let output = windlass(&[&words[..], &[into.to_str().unwrap()]].concat());
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let count = place.ledger.check(&into);
    std::fs::remove_file(&into).unwrap();
    (count, said)
}

/// Commits a transaction, and waits until it is received.
fn commit(receiving: &Receiving, number: u64) {
    let ledger = &receiving.place.ledger;
    let transaction = ledger.transaction(number);
    let patient = format!("PRAGMA busy_timeout=60000; {transaction}");
    run_once(&ledger.path, &patient).unwrap();
    receiving.wait_for(number - 20);
}

#[test]
fn nights_behind_a_set_from_the_future_build_on_each_other_and_are_newer() {
    let place = Place::new();
    let fast = place.back_up();
    say(&fast, "2199-01-01T03:00:00Z");
    let fast = short(&fast);
    let note = format!("note: set {fast} says that it was begun at 2199-01-01");
    // Nothing says yet that this set is not the newest.
    let (first, said) = night(&place, "incr");
    assert!(
        first["base"].as_str().unwrap().starts_with(&fast),
        "{first}"
    );
    assert!(!said.contains("note: set"), "{said}");
    let (second, said) = night(&place, "incr");
    assert_eq!(second["base"], first["set_id"], "{said}");
    let by = format!(
        "but set {} builds on it",
        &first["set_id"].as_str().unwrap()[..8]
    );
    assert!(said.contains(&note) && said.contains(&by), "{said}");
    let (count, said) = newest(&place);
    assert_eq!(count, 22, "{said}");
    assert!(said.contains(&note) && !said.contains("warning"), "{said}");
    // A set that builds on none of them is the newest after them, and a differential takes it.
    let (full, _) = night(&place, "full");
    assert_eq!(newest(&place).0, 23);
    let (third, said) = night(&place, "diff");
    assert_eq!(third["base"], full["set_id"], "{said}");
    let verified = windlass(&["verify", &place.arg("sets")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

#[test]
fn a_set_that_says_it_is_older_than_its_base_is_newer() {
    let place = Place::new();
    night(&place, "full");
    let before = place.sets();
    night(&place, "incr");
    let mut names = place.sets();
    names.retain(|name| !before.contains(name));
    let slow = place.path("sets").join(&names[0]);
    say(&slow, "2001-01-01T03:00:00Z");
    let (count, said) = newest(&place);
    assert_eq!(count, 22, "{said}");
    let note = format!(
        "note: set {} says that it was begun at 2001-01-01",
        short(&slow)
    );
    assert!(said.contains(&note), "{said}");
    let (third, said) = night(&place, "incr");
    assert!(
        third["base"].as_str().unwrap().starts_with(&short(&slow)),
        "{said}"
    );
    assert_eq!(newest(&place).0, 23);
}

/// Nobody knows which clock was wrong. Where a set says that it is of that time, an older
/// one is never taken without a word.
#[test]
fn a_set_that_says_it_was_begun_by_then_and_may_not_be_is_named() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("sets")).unwrap();
    let made = |kind: &str| {
        let before = place.sets();
        night(&place, kind);
        let mut names = place.sets();
        names.retain(|name| !before.contains(name));
        place.path("sets").join(&names[0])
    };
    say(&made("full"), "2000-01-01T03:00:00Z");
    made("full");
    let slow = made("incr");
    say(&slow, "2001-01-01T03:00:00Z");
    let into = place.path("restored.db");
    let words = ["restore", &place.arg("sets"), "--into"];
    let then = [into.to_str().unwrap(), "--set", "2002-01-01T00:00:00Z"];
    let output = windlass(&[&words[..], &then].concat());
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(place.ledger.check(&into), 21, "{said}");
    let note = format!(
        "note: set {} says that it was begun at 2001-01-01",
        short(&slow)
    );
    assert!(said.contains(&note), "{said}");
}

#[test]
fn a_moment_before_a_set_from_the_future_is_found() {
    let mut receiving = Receiving::new();
    receiving.start();
    assert_eq!(receiving.back_up("full").0, 0);
    commit(&receiving, 21);
    let moment = jiff::Timestamp::now().to_string();
    commit(&receiving, 22);
    let fast = receiving.place.back_up();
    say(&fast, "2199-01-01T03:00:00Z");
    commit(&receiving, 23);
    let then = ["--target-time", moment.as_str()];
    assert_eq!(receiving.restored(&then), Ok(21));
    // Nor do the sets behind it lead back to it for ever.
    for number in 24..=25 {
        assert_eq!(receiving.back_up("incr").0, 0);
        commit(&receiving, number);
    }
    receiving.stop();
    assert_eq!(receiving.restored(&then), Ok(21));
    assert_eq!(receiving.restored(&[]), Ok(25));
}
