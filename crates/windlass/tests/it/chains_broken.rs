//! A chain of which a set is lost or damaged, each in turn: what can still be restored is, what
//! cannot is refused with what is lost and what to take instead, and the next backup builds on the
//! newest set that is whole.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_testkit::sets::flip;

use crate::support::*;

/// Each set with the one that it builds on.
const LINKS: [(&str, Option<usize>); 5] = [
    ("full", None),
    ("incr", Some(0)),
    ("incr", Some(1)),
    ("diff", Some(0)),
    ("incr", Some(3)),
];

/// A database with a chain.
struct Broken {
    place: Place,
    ids: Vec<String>,
    /// Which of them is broken.
    broken: usize,
}

/// The transactions that a set has.
fn count(link: usize) -> u64 {
    20 + 5 * link as u64
}

impl Broken {
    fn new() -> Self {
        let place = Place::with_accounts(200);
        let mut ids: Vec<String> = Vec::new();
        for (link, (kind, base)) in LINKS.into_iter().enumerate() {
            if link > 0 {
                place.ledger.commit(count(link - 1) + 1, count(link));
            }
            let (code, document) = back_up(&place, &["--type", kind]);
            assert_eq!((code, &document["type"]), (0, &kind.into()), "{document}");
            let base = base.map(|base| ids[base].as_str());
            assert_eq!(document["base"].as_str(), base, "{document}");
            ids.push(document["set_id"].as_str().unwrap().to_owned());
        }
        let broken = usize::MAX;
        Self { place, ids, broken }
    }

    /// The file of a set.
    fn stripe(&self, link: usize) -> PathBuf {
        stripe_in(&self.place.path("sets"), &self.ids[link])
    }

    /// Whether a set can be restored.
    fn is_whole(&self, link: usize) -> bool {
        link != self.broken && LINKS[link].1.is_none_or(|base| self.is_whole(base))
    }

    fn newest_whole(&self, links: std::ops::Range<usize>) -> Option<&str> {
        let newest = links.rev().find(|link| self.is_whole(*link));
        newest.map(|link| self.ids[link].as_str())
    }

    /// What to take instead of a set that cannot be restored.
    fn instead(&self, link: usize) -> String {
        let all = 0..LINKS.len();
        match (self.newest_whole(0..link), self.newest_whole(all)) {
            (Some(older), _) => format!("The next older sound set is {}", &older[..8]),
            (None, Some(newer)) => format!("The newest sound set is {}", &newer[..8]),
            (None, None) => "No other sound set of this database is in".to_owned(),
        }
    }

    /// Restores a set that is there, or is refused.
    fn restore(&self, link: usize) {
        let (sets, into) = (self.place.arg("sets"), self.place.arg("into.db"));
        let words = ["restore", &sets, "--set", &self.ids[link], "--into", &into];
        let output = windlass(&words);
        let (code, said) = (output.status.code(), text(&output));
        let case = format!("{link} without {}: {said}", self.broken);
        if self.is_whole(link) {
            assert_eq!(code, Some(0), "{case}");
            let found = self.place.ledger.check(Path::new(&into));
            assert_eq!(found, count(link), "{case}");
            std::fs::remove_file(&into).unwrap();
            return;
        }
        assert_eq!(code, Some(4), "{case}");
        assert!(said.contains(&self.ids[self.broken][..8]), "{case}");
        assert!(said.contains(&self.instead(link)), "{case}");
        assert!(!Path::new(&into).exists(), "{case}");
    }

    /// What the list says of each set that is there.
    fn listed(&self, is_there: bool) {
        let (code, document) = json(&["info", &self.place.arg("sets")]);
        let sets = document["chains"][0]["sets"].as_array().unwrap().iter();
        let mut faulty: Vec<_> = sets
            .filter(|set| set["fault"].is_string())
            .map(|set| set["set_id"].as_str().unwrap())
            .collect();
        faulty.sort_unstable();
        let there = (0..LINKS.len()).filter(|link| is_there || *link != self.broken);
        let lost = there.filter(|link| !self.is_whole(*link));
        let mut expected: Vec<_> = lost.map(|link| self.ids[link].as_str()).collect();
        expected.sort_unstable();
        assert_eq!(faulty, expected, "without {}: {document}", self.broken);
        let expected = if expected.is_empty() { 0 } else { 4 };
        assert_eq!(code, expected, "without {}: {document}", self.broken);
    }

    /// The next backup builds on the newest set that is whole. Afterwards its set goes.
    fn go_on(&self) {
        let incr = ["--type", "incr"];
        let base = self.newest_whole(0..LINKS.len());
        if base.is_none() {
            let (sets, shop) = (self.place.arg("sets"), self.place.arg("shop.db"));
            let words = ["backup", &shop, "--to", &sets, "--strict"];
            let output = windlass(&[&words[..], &incr].concat());
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            assert!(text(&output).contains("hint: "), "{}", text(&output));
        }
        let (code, document) = back_up(&self.place, &incr);
        assert_eq!(document["base"].as_str(), base, "{document}");
        match base {
            Some(_) => assert_eq!(code, 0, "{document}"),
            None => {
                let name = &document["warnings"][0]["name"];
                assert_eq!((code, name), (3, &"full-instead".into()), "{document}");
            }
        }
        let sets = self.place.path("sets");
        assert_eq!(self.place.restored(&sets), count(LINKS.len() - 1));
        let new = document["set_id"].as_str().unwrap();
        std::fs::remove_file(stripe_in(&sets, new)).unwrap();
    }
}

fn back_up(place: &Place, more: &[&str]) -> (i32, Value) {
    let (shop, sets) = place.ends();
    json(&[&["backup", &shop, "--to", &sets], more].concat())
}

/// The file of a set in a directory.
fn stripe_in(sets: &Path, id: &str) -> PathBuf {
    let entries = std::fs::read_dir(sets).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.to_string_lossy().contains(&id[..8]);
    paths.find(is_it).unwrap()
}

#[test]
fn a_set_that_is_lost_takes_only_what_builds_on_it_with_it() {
    let mut chain = Broken::new();
    for broken in 0..LINKS.len() {
        chain.broken = broken;
        let stripe = chain.stripe(broken);
        let away = chain.place.path("away");
        std::fs::rename(&stripe, &away).unwrap();
        chain.listed(false);
        for link in (0..LINKS.len()).filter(|link| *link != broken) {
            chain.restore(link);
        }
        chain.go_on();
        std::fs::rename(&away, &stripe).unwrap();
    }
}

#[test]
fn a_set_that_is_damaged_takes_only_what_builds_on_it_with_it() {
    let mut chain = Broken::new();
    for broken in 0..LINKS.len() {
        chain.broken = broken;
        let stripe = chain.stripe(broken);
        flip(&stripe, 40);
        chain.listed(true);
        chain.restore(broken);
        chain.restore(LINKS.len() - 1);
        chain.go_on();
        flip(&stripe, 40);
    }
}

/// What a lost set needs stays as long as a set is there that needs the lost one.
#[test]
fn a_chain_without_its_middle_is_merged_no_more_and_expires_when_it_is_whole() {
    let mut chain = Broken::new();
    chain.broken = 1;
    let (stripe, away) = (chain.stripe(1), chain.place.path("away"));
    std::fs::rename(&stripe, &away).unwrap();
    let sets = chain.place.arg("sets");
    let ids = chain.ids.clone();
    let merge = ["merge", &sets, "--to", &sets, "--set"];
    let output = windlass(&[&merge[..], &[ids[2].as_str()]].concat());
    let said = text(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(&ids[1]), "{said}");
    assert_eq!(chain.place.sets().len(), 4, "{:?}", chain.place.sets());
    let (code, newest) = back_up(&chain.place, &[]);
    assert_eq!(code, 0, "{newest}");
    let expire = ["expire", &sets, "--keep-full", "1"];
    let (code, done) = json(&expire);
    let gone = serde_json::json!([ids[4], ids[3]]);
    assert_eq!((code, &done["removed"]), (0, &gone), "{done}");
    let fates = done["databases"][0]["sets"].as_array().unwrap().iter();
    let fates: Vec<_> = fates.map(|set| set["fate"].as_str().unwrap()).collect();
    assert_eq!(fates, ["stays", "faulty", "goes", "goes", "stays"]);
    // It is found again.
    std::fs::rename(&away, &stripe).unwrap();
    chain.broken = usize::MAX;
    chain.restore(2);
    let (code, done) = json(&expire);
    let gone = serde_json::json!([ids[2], ids[1], ids[0]]);
    assert_eq!((code, &done["removed"]), (0, &gone), "{done}");
}

/// The same set is lost in the first place and damaged in a mirror. Another mirror is whole.
#[test]
fn a_mirror_has_what_is_lost_elsewhere() {
    let place = Place::new();
    let sets = place.path("sets");
    let mirrors = ["one", "two"].map(|name| place.path(name));
    let mut words = Vec::new();
    for mirror in &mirrors {
        std::fs::create_dir(mirror).unwrap();
        words.extend(["--mirror", mirror.to_str().unwrap()]);
    }
    let mut ids = Vec::new();
    for (kind, number) in [("full", 21), ("incr", 22), ("incr", 23)] {
        place.ledger.commit(number, number);
        let (code, document) = back_up(&place, &[&["--type", kind], &words[..]].concat());
        assert_eq!(code, 0, "{document}");
        ids.push(document["set_id"].as_str().unwrap().to_owned());
    }
    let lost = stripe_in(&sets, &ids[1]);
    std::fs::remove_file(&lost).unwrap();
    flip(&stripe_in(&mirrors[0], &ids[1]), 40);
    let into = place.arg("into.db");
    for from in [&sets, &mirrors[0]] {
        let output = windlass(&["restore", from.to_str().unwrap(), "--into", &into]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(4), "{said}");
        let instead = format!("The next older sound set is {}", &ids[0][..8]);
        assert!(said.contains(&instead), "{said}");
        assert!(!Path::new(&into).exists());
    }
    assert_eq!(place.restored(&mirrors[1]), 23);
    // The first place goes on with what all three have.
    place.ledger.commit(24, 24);
    let (code, next) = back_up(&place, &[&["--type", "incr"], &words[..]].concat());
    assert_eq!(
        (code, &next["base"]),
        (0, &ids[0].as_str().into()),
        "{next}"
    );
    for from in [&sets, &mirrors[0], &mirrors[1]] {
        assert_eq!(place.restored(from), 24);
    }
    // A copy of what the mirror has makes the place whole.
    std::fs::copy(stripe_in(&mirrors[1], &ids[1]), &lost).unwrap();
    let output = windlass(&["verify", sets.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
