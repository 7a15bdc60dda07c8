//! Differential and incremental backups of SQLite: the restored file is the database as it was,
//! whatever wrote to it in between.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use serde_json::Value;
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_testkit::sets::flip;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Storm, run_once};

use crate::support::*;

/// A database of about 3 MB that writes its journal in this way.
fn place(journal: Journal) -> Place {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(dir.path().join("sets")).unwrap();
    let spec = LedgerSpec {
        journal,
        accounts: 3000,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&dir.path().join("shop.db"), spec);
    Place { dir, ledger }
}

/// Backs up, and restores the set. Returns the document of the backup, and how many transactions
/// the restored database has: its content is exactly that of so many.
fn link(place: &Place, kind: &str) -> (Value, u64) {
    let (database, sets) = place.ends();
    let plain = ["--compress", "none", "--strict", "--json"];
    let words = ["backup", &database, "--to", &sets, "--type", kind];
    let output = windlass(&[&words[..], &plain].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["type"], kind);
    let restored = place.restored(&place.path("sets"));
    (document, restored)
}

fn base(document: &Value) -> &str {
    document["base"].as_str().unwrap()
}

fn id(document: &Value) -> &str {
    document["set_id"].as_str().unwrap()
}

fn written(document: &Value) -> u64 {
    document["bytes_written"].as_u64().unwrap()
}

#[test]
fn every_link_of_a_chain_is_the_database_as_it_was() {
    for journal in [Journal::Wal, Journal::Delete] {
        let place = place(journal);
        let sql = |sql: &str| run_once(&place.ledger.path, sql).unwrap();
        let (full, found) = link(&place, "full");
        assert_eq!(found, 0);
        place.ledger.commit(1, 3);
        let (one, found) = link(&place, "incr");
        assert_eq!((found, base(&one)), (3, id(&full)));
        assert!(written(&one) * 4 < written(&full), "{}", written(&one));
        let (two, found) = link(&place, "incr");
        assert_eq!((found, base(&two)), (3, id(&one)));
        if journal == Journal::Wal {
            // The log holds pages that the file lacks, then the file has them.
            for (number, mode) in (4..).zip(["PASSIVE", "FULL", "RESTART", "TRUNCATE"]) {
                place.ledger.commit(number, number);
                sql(&format!("PRAGMA wal_checkpoint({mode})"));
                assert_eq!(link(&place, "incr").1, number, "{mode}");
            }
        } else {
            place.ledger.commit(4, 7);
        }
        let (diff, found) = link(&place, "diff");
        assert_eq!((found, base(&diff)), (7, id(&full)));
        // Rows move to other pages, and the file becomes shorter.
        sql("DELETE FROM account WHERE 0; VACUUM");
        assert_eq!(link(&place, "incr").1, 7);
        sql("PRAGMA journal_mode = delete; PRAGMA page_size = 8192; VACUUM");
        place.ledger.commit(8, 9);
        assert_eq!(link(&place, "incr").1, 9);
        assert_eq!(link(&place, "diff").1, 9);
        let verified = windlass(&["verify", &place.arg("sets")]);
        assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    }
}

#[test]
fn a_chain_that_is_made_while_a_writer_commits_holds_one_committed_state_at_each_link() {
    for journal in [Journal::Wal, Journal::Persist] {
        let place = place(journal);
        link(&place, "full");
        let setup = match journal {
            Journal::Wal => "PRAGMA wal_autocheckpoint = 20;",
            _ => "PRAGMA busy_timeout = 60000;",
        };
        let storm = Storm::start(&place.ledger, setup, 200);
        for round in 1..=3 {
            storm.wait_for(round * 40);
            let (_, found) = link(&place, "incr");
            assert!(found >= round * 40, "{found} in round {round}");
        }
        let committed = storm.stop();
        assert_eq!(link(&place, "diff").1, committed);
    }
}

/// The pages of the base are damaged, and its hashes are not: they stand behind the pages.
#[test]
fn a_set_builds_on_the_hashes_of_its_base_and_reads_none_of_its_pages() {
    for journal in [Journal::Wal, Journal::Delete] {
        let place = place(journal);
        let (full, _) = link(&place, "full");
        let stripe = place.path("sets").join(&place.sets()[0]);
        let whole = std::fs::read(&stripe).unwrap();
        let mut damaged = whole.clone();
        let middle = whole.len() / 2;
        damaged[middle - 1_000_000..middle + 1_000_000].fill(0x55);
        place.ledger.commit(1, 3);
        std::fs::write(&stripe, &damaged).unwrap();
        let (database, sets) = place.ends();
        let words = ["--type", "incr", "--strict", "--compress", "none"];
        let (code, one) = json(&[&["backup", &database, "--to", &sets], &words[..]].concat());
        assert_eq!(code, 0, "{one}");
        assert_eq!(base(&one), id(&full));
        assert!(written(&one) * 4 < written(&full), "{}", written(&one));
        // A set has the hashes of all pages, so the next one does not ask the full set either.
        let (code, two) = json(&[&["backup", &database, "--to", &sets], &words[..]].concat());
        assert_eq!((code, base(&two)), (0, id(&one)), "{two}");
        std::fs::write(&stripe, &whole).unwrap();
        assert_eq!(place.restored(&place.path("sets")), 3);
        let verified = windlass(&["verify", &place.arg("sets")]);
        assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    }
}

#[test]
fn a_set_whose_index_is_damaged_is_no_base_and_the_one_before_it_is() {
    let place = place(Journal::Wal);
    let (full, _) = link(&place, "full");
    let before = place.sets();
    place.ledger.commit(1, 3);
    link(&place, "incr");
    let mut names = place.sets();
    names.retain(|name| !before.contains(name));
    let stripe = place.path("sets").join(&names[0]);
    let set = OpenSet::open(std::slice::from_ref(&stripe), METADATA_LIMIT_DEFAULT).unwrap();
    let block = set.stripes()[0].directory()[0].offset;
    drop(set);
    flip(&stripe, block + 40);
    place.ledger.commit(4, 5);
    let (next, found) = link(&place, "incr");
    assert_eq!((found, base(&next)), (5, id(&full)));
}

/// Frames of the only base are damaged, those with its hashes among them, and its index is not: the
/// set opens, and only reading the hashes shows the damage.
#[test]
fn a_set_whose_hashes_are_damaged_is_no_base_and_the_backup_is_the_next_one() {
    for journal in [Journal::Wal, Journal::Delete] {
        let place = place(journal);
        link(&place, "full");
        let before = place.sets();
        damage_frames(&place.path("sets").join(&before[0]));
        place.ledger.commit(1, 3);
        let (database, sets) = place.ends();
        let words = ["backup", &database, "--to", &sets, "--type", "incr"];
        // Without a log, its pages are read first.
        let reason = "pages cannot be read: ";
        let strict = windlass(&[&words[..], &["--strict"]].concat());
        let said = text(&strict);
        assert_eq!(strict.status.code(), Some(1), "{said}");
        for part in ["there is nothing to build on: ", reason, "hint: "] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(place.sets(), before, "a failed backup leaves nothing");
        let (code, instead) = json(&words);
        let warning = &instead["warnings"][0];
        assert_eq!((code, &instead["type"]), (3, &"full".into()), "{instead}");
        assert_eq!(warning["name"], "full-instead", "{instead}");
        assert!(warning.to_string().contains(reason), "{instead}");
        assert_eq!(place.restored(&place.path("sets")), 3);
        place.ledger.commit(4, 5);
        let (next, found) = link(&place, "incr");
        assert_eq!((found, base(&next)), (5, id(&instead)));
    }
}

/// The same damage in the newest set, which is not the only one.
#[test]
fn a_set_whose_hashes_are_damaged_is_no_base_and_the_one_before_it_is() {
    let place = place(Journal::Wal);
    let (full, _) = link(&place, "full");
    let before = place.sets();
    place.ledger.commit(1, 3);
    link(&place, "incr");
    let mut names = place.sets();
    names.retain(|name| !before.contains(name));
    damage_frames(&place.path("sets").join(&names[0]));
    place.ledger.commit(4, 5);
    let (next, found) = link(&place, "incr");
    assert_eq!((found, base(&next)), (5, id(&full)));
}

#[test]
fn a_database_without_an_earlier_set_is_backed_up_as_a_whole_with_a_warning() {
    let place = Place::new();
    let (database, sets) = place.ends();
    let words = [
        "backup", &database, "--to", &sets, "--type", "incr", "--json",
    ];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["type"], "full");
    assert_eq!(document["warnings"][0]["name"], "full-instead");
}

#[test]
fn a_set_that_lacks_the_same_base_is_not_named_as_another_one() {
    let place = place(Journal::Wal);
    let full = place.back_up();
    link(&place, "incr");
    link(&place, "incr");
    std::fs::remove_file(full).unwrap();
    let words = ["restore", &place.arg("sets"), "--into", &place.arg("x.db")];
    let output = windlass(&words);
    let said = text(&output);
    assert_ne!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("No other sound set of this database"),
        "{said}"
    );
}
