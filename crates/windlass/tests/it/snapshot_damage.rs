//! Files in the directories of snapshots are changed, exchanged, cut and removed: nobody is shown
//! another moment.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};

use windlass_testkit::sqlite::CommitLedger;
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::snapshot_forged::forge_older;
use crate::snapshot_hook::run;
use crate::snapshot_orphans::Orphaned;
use crate::snapshots::ledger;
use crate::support::*;

/// Whoever reads a snapshot learns that it is damaged, and what to do.
fn assert_refused(source: &Orphaned, name: &str, other: &str, what: &str) {
    let word = |name: &str| format!("{}@{name}", source.cluster.conninfo());
    let into = source.scratch.path().join("into");
    let (one, other, into) = (word(name), word(other), into.display().to_string());
    for words in [
        &["open", "--quiet", &one, "--", "true"][..],
        &["verify", &one],
        &["diff", &one, &other],
        &["extract", &one, "PG_VERSION", "--into", &into],
        &["snapshot", "revert", &one, "--yes"],
    ] {
        let said = run(&source.scratch, 4, words);
        assert!(said.contains("hint: "), "{what}, {words:?}: {said}");
    }
}

/// Changes a file, and changes it back after `look`.
fn changed(path: &Path, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>, look: impl FnOnce()) {
    let bytes = std::fs::read(path).unwrap();
    match change(bytes.clone()) {
        Some(other) => {
            assert_ne!(other, bytes);
            std::fs::write(path, other).unwrap();
        }
        None => std::fs::remove_file(path).unwrap(),
    }
    look();
    std::fs::write(path, bytes).unwrap();
}

/// One bit of a byte is another one.
fn flipped(at: usize) -> impl FnOnce(Vec<u8>) -> Option<Vec<u8>> {
    move |mut bytes| {
        bytes[at] ^= 2;
        Some(bytes)
    }
}

#[test]
fn no_changed_file_of_a_snapshot_by_the_hook_shows_another_moment() {
    let source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    source.create(0, "two");
    let home = source.home();
    let document = home.join("one/hook/hook.json");
    let text = std::fs::read_to_string(&document).unwrap();
    let number = text.find("\"number\":").unwrap() + "\"number\":".len();
    let refused = |what: &str| assert_refused(&source, "one", "two", what);
    let listed = |what: &str| {
        refused(what);
        let listed = source.snapshot(4, "list", &[]);
        assert!(listed.contains("hint: "), "{what}: {listed}");
    };
    changed(&document, flipped(number), || listed("the number"));
    // The name of the last key.
    changed(&document, flipped(text.len() - 15), || listed("the key"));
    let others = std::fs::read(home.join("two/hook/hook.json")).unwrap();
    changed(&document, |_| Some(others), || listed("that of the other"));
    changed(
        &document,
        |bytes| Some(bytes[..100].to_vec()),
        || listed("cut"),
    );
    changed(&document, |_| None, || listed("gone"));
    let table = home.join("one/hook/files");
    let middle = std::fs::read(&table).unwrap().len() / 2;
    changed(&table, flipped(middle), || refused("a bit of the table"));
    changed(
        &table,
        |bytes| Some(bytes[..100].to_vec()),
        || refused("cut"),
    );
    changed(&table, |_| None, || refused("the table is gone"));
    let copies = std::fs::read_dir(home.join("one/hook/copied")).unwrap();
    let copies = copies.map(|entry| entry.unwrap());
    let largest = copies.max_by_key(|entry| entry.metadata().unwrap().len());
    let copy = largest.unwrap().path();
    changed(&copy, flipped(100), || refused("a bit of a copy"));
    changed(&copy, |bytes| Some(bytes[..9].to_vec()), || refused("cut"));
    changed(&copy, |_| None, || refused("a copy is gone"));
    source.assert_shows("one", &rows);
    // Older versions wrote no checksums.
    forge_older(&home.join("one"));
    source.assert_shows("one", &rows);
    for name in ["one", "two"] {
        source.snapshot(0, "drop", &[name]);
    }
    source.assert_nothing_left();
}

/// What a damaged document says of the server's memory counts for nothing.
#[test]
fn a_snapshot_whose_document_is_damaged_is_dropped_and_hinders_no_other() {
    let source = Orphaned::new();
    let mut rows = Vec::new();
    for name in ["k0", "k1", "k2", "k3"] {
        rows.push(source.rows());
        source.create(0, name);
        source.write();
    }
    let document = |name: &str| source.home().join(name).join("hook/hook.json");
    let zeros = vec![0; std::fs::read(document("k1")).unwrap().len()];
    std::fs::write(document("k1"), &zeros).unwrap();
    let listed = source.snapshot(4, "list", &[]);
    assert!(listed.contains("Drop the snapshot"), "{listed}");
    // Others come and go beside it.
    source.create(0, "k4");
    source.snapshot(0, "drop", &["k0"]);
    source.snapshot(0, "drop", &["k1"]);
    assert!(!source.home().join("k1").exists());
    source.snapshot(0, "list", &[]);
    assert_eq!(source.links(), 3, "the server keeps nothing for it");
    // That of another one would take that one out.
    std::fs::copy(document("k2"), document("k3")).unwrap();
    source.snapshot(0, "drop", &["k3"]);
    assert_eq!(source.links(), 2);
    source.assert_shows("k2", &rows[2]);
    // An older version of Windlass removed the record and failed then.
    std::fs::remove_file(source.home().join("k4/record")).unwrap();
    std::fs::write(document("k4"), &zeros).unwrap();
    source.create(0, "k5");
    assert_eq!(source.links(), 2);
    std::fs::remove_file(document("k5")).unwrap();
    std::fs::create_dir(document("k5")).unwrap();
    source.snapshot(4, "list", &[]);
    source.snapshot(0, "drop", &["k5"]);
    source.assert_shows("k2", &rows[2]);
    source.snapshot(0, "drop", &["k2"]);
    source.assert_nothing_left();
}

/// A database of SQLite with snapshots by the method copy, each after 20 transactions more.
struct Copies {
    place: tempfile::TempDir,
    ledger: CommitLedger,
}

impl Copies {
    fn new(names: &[&str]) -> Self {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let copies = Self {
            ledger: ledger(place.path()),
            place,
        };
        for (name, last) in names.iter().zip((20..).step_by(20)) {
            let database = copies.database();
            let create = ["snapshot", "create", &database, *name];
            copies.said(0, &[&create[..], &["--method", "copy"]].concat());
            copies.ledger.commit(last + 1, last + 20);
        }
        copies
    }

    fn database(&self) -> String {
        self.ledger.path.to_str().unwrap().to_owned()
    }

    fn word(&self, name: &str) -> String {
        format!("{}@{name}", self.database())
    }

    /// A file in the directory of a snapshot.
    fn file(&self, path: &str) -> PathBuf {
        let home = self.place.path().join("shop.db.windlass-snapshots");
        home.join(path)
    }

    fn said(&self, code: i32, words: &[&str]) -> String {
        let output = windlass(words);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    /// Exchanges a file of one snapshot with that of another one.
    fn exchange(&self, name: &str) {
        let [one, two] = ["one", "two"].map(|snapshot| self.file(snapshot).join(name));
        let aside = self.place.path().join("aside");
        std::fs::rename(&one, &aside).unwrap();
        std::fs::rename(&two, &one).unwrap();
        std::fs::rename(&aside, &two).unwrap();
    }

    fn assert_refused(&self, name: &str) {
        let (word, into) = (self.word(name), self.place.path().join("into"));
        let into = into.to_str().unwrap();
        for words in [
            &["open", "--quiet", &word, "--", "true"][..],
            &["verify", &word],
            &["restore", &word, "--into", into],
            &["backup", &word, "--to", into],
            &["snapshot", "revert", &word, "--yes"],
        ] {
            let said = self.said(4, words);
            assert!(
                said.contains("Drop the snapshot, and make another one"),
                "{said}"
            );
        }
    }
}

#[test]
fn what_belongs_to_another_snapshot_is_not_taken_for_that_of_this_one() {
    let copies = Copies::new(&["one", "two"]);
    let database = copies.database();
    let list = ["snapshot", "list", &database];
    for (name, code) in [("snapshot.windlass", 0), ("record", 4)] {
        copies.exchange(name);
        for snapshot in ["one", "two"] {
            copies.assert_refused(snapshot);
        }
        copies.said(code, &list);
        copies.exchange(name);
        copies.said(0, &list);
    }
    assert_eq!(copies.ledger.check(&copies.ledger.path), 60);
    let word = copies.word("one");
    copies.said(0, &["snapshot", "revert", &word, "--yes"]);
    assert_eq!(copies.ledger.check(&copies.ledger.path), 20);
    copies.exchange("record");
    for name in ["one", "two"] {
        copies.said(0, &["snapshot", "drop", &database, name]);
    }
    assert!(!copies.file("").exists());
}

#[test]
fn a_list_says_if_the_data_of_a_snapshot_are_gone_empty_or_cut() {
    let copies = Copies::new(&["one"]);
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let cloned = ledger(volume.at());
    let clones = cloned.path.to_str().unwrap();
    copies.said(0, &["snapshot", "create", clones, "one"]);
    let home = volume.at().join("shop.db.windlass-snapshots/one");
    let database = copies.database();
    for (database, file) in [
        (database.as_str(), copies.file("one/snapshot.windlass")),
        (clones, home.join("data/0")),
        (clones, home.join("files")),
    ] {
        let list = ["snapshot", "list", database];
        let whole = std::fs::read(&file).unwrap();
        let half = whole[..whole.len() / 2].to_vec();
        for left in [None, Some(Vec::new()), Some(half)] {
            let look = || {
                let said = copies.said(4, &list);
                assert!(said.contains(file.to_str().unwrap()), "{said}");
                assert!(said.contains("Drop the snapshot"), "{said}");
            };
            changed(&file, |_| left, look);
            copies.said(0, &list);
        }
    }
    for database in [database.as_str(), clones] {
        copies.said(0, &["snapshot", "drop", database, "one"]);
    }
}

#[test]
fn a_snapshot_without_its_mark_or_with_something_else_for_a_record_is_dropped() {
    let copies = Copies::new(&["one"]);
    let (database, word) = (copies.database(), copies.word("one"));
    let mark = copies.file("one/windlass-snapshot");
    let remove = || std::fs::remove_file(&mark).unwrap();
    let link = || {
        remove();
        std::os::unix::fs::symlink(&copies.ledger.path, &mark).unwrap();
    };
    let directory = || {
        remove();
        std::fs::create_dir(&mark).unwrap();
    };
    let revert = ["snapshot", "revert", &word, "--yes"];
    let undo = ["snapshot", "undo", &database, "--yes"];
    let place = mark.parent().unwrap().to_str().unwrap();
    for damage in [&remove as &dyn Fn(), &link, &directory] {
        damage();
        copies.said(0, &["snapshot", "list", &database]);
        copies.said(0, &["open", "--quiet", place, "--", "true"]);
        copies.said(0, &revert);
        damage();
        assert_eq!(copies.ledger.check(&copies.ledger.path), 20);
        copies.said(0, &undo);
        assert_eq!(copies.ledger.check(&copies.ledger.path), 40);
    }
    remove();
    copies.said(0, &["snapshot", "drop", &database, "one"]);
    copies.said(0, &["snapshot", "create", &database, "one"]);
    let record = copies.file("one/record");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir_all(record.join("inside")).unwrap();
    let said = copies.said(4, &["snapshot", "list", &database]);
    assert!(said.contains(record.to_str().unwrap()), "{said}");
    copies.said(0, &["snapshot", "drop", &database, "one"]);
    assert!(!copies.file("").exists());
}

#[test]
fn a_list_says_if_what_a_revert_kept_is_cut_and_names_what_to_remove() {
    let copies = Copies::new(&["one"]);
    let (database, word) = (copies.database(), copies.word("one"));
    copies.said(0, &["snapshot", "revert", &word, "--yes"]);
    let (list, undo) = (["snapshot", "list", &database], copies.file("one/undo.1"));
    let look = || {
        let said = copies.said(4, &list);
        assert!(said.contains("cannot be read"), "{said}");
        assert!(said.contains(undo.to_str().unwrap()), "{said}");
        assert!(said.contains("drop DATABASE undo:1"), "{said}");
    };
    changed(&undo, |bytes| Some(bytes[..bytes.len() / 2].to_vec()), look);
    copies.said(0, &list);
    copies.said(0, &["snapshot", "undo", &database, "--yes"]);
}

#[test]
fn what_a_revert_kept_is_named_and_stays_if_the_record_of_its_snapshot_is_damaged_or_lost() {
    let copies = Copies::new(&["one", "two"]);
    let (database, one, two) = (copies.database(), copies.word("one"), copies.word("two"));
    copies.said(0, &["snapshot", "revert", &one, "--yes"]);
    let record = copies.file("one/record");
    let whole = std::fs::read(&record).unwrap();
    let list = ["snapshot", "list", &database];
    let refused = || {
        let said = copies.said(4, &["snapshot", "undo", &database, "--yes"]);
        assert!(said.contains("undo:1"), "{said}");
        assert!(said.contains(record.to_str().unwrap()), "{said}");
        let said = copies.said(4, &["snapshot", "undo", &database, "undo:1", "--yes"]);
        assert!(said.contains(record.to_str().unwrap()), "{said}");
        let said = copies.said(4, &list);
        assert!(said.contains(record.to_str().unwrap()), "{said}");
    };
    changed(&record, flipped(100), refused);
    changed(&record, |_| None, refused);
    std::fs::remove_file(&record).unwrap();
    // No number is given twice, and nobody removes it.
    let said = copies.said(0, &["snapshot", "revert", &two, "--yes"]);
    assert!(said.contains("undo:2"), "{said}");
    copies.said(0, &["snapshot", "create", &database, "three"]);
    copies.said(0, &["snapshot", "drop", &database, "two"]);
    refused();
    std::fs::write(&record, whole).unwrap();
    copies.said(0, &["snapshot", "undo", &database, "undo:1", "--yes"]);
    assert_eq!(copies.ledger.check(&copies.ledger.path), 60);
    // Whoever drops it is understood, also if that was cut off.
    std::fs::remove_file(&record).unwrap();
    copies.said(0, &["snapshot", "drop", &database, "one"]);
    copies.said(0, &["snapshot", "revert", &copies.word("three"), "--yes"]);
    let three = copies.file("three/record");
    std::fs::rename(&three, three.with_file_name("dropped")).unwrap();
    copies.said(0, &["snapshot", "create", &database, "four"]);
    assert!(!three.parent().unwrap().exists());
    copies.said(0, &["snapshot", "drop", &database, "four"]);
    assert!(!copies.file("").exists());
}

/// Once its drop has begun, nobody looks for the original again: its disk may not be mounted now.
#[test]
fn a_copy_whose_drop_was_killed_goes_without_the_original() {
    let (mut source, rows) = Orphaned::stopped();
    let (copy, copy_home) = source.copied_beside();
    let (home, away) = (source.home(), copy.with_file_name("away"));
    std::fs::rename(&home, &away).unwrap();
    let entry = copy_home.join("one");
    std::fs::rename(entry.join("record"), entry.join("dropped-copy")).unwrap();
    let database = copy.to_str().unwrap();
    run(&source.scratch, 0, &["snapshot", "drop", database, "one"]);
    assert!(!entry.exists());
    std::fs::remove_dir_all(copy).unwrap();
    std::fs::rename(&away, &home).unwrap();
    source.cluster.run();
    source.write();
    source.assert_shows("one", &rows);
    source.snapshot(0, "drop", &["one"]);
    source.assert_nothing_left();
}

/// What was copied names the pages that the server of the original keeps.
#[test]
fn a_copied_snapshot_beside_a_copied_cluster_is_that_of_the_original() {
    let (mut source, rows) = Orphaned::stopped();
    let (copy, copy_home) = source.copied_beside();
    let (data, home) = (source.cluster.data().to_owned(), source.home());
    let database = copy.to_str().unwrap();
    let listed = run(&source.scratch, 3, &["snapshot", "list", database]);
    assert!(listed.contains("of another database"), "{listed}");
    assert!(listed.contains(data.to_str().unwrap()), "{listed}");
    let word = format!("{database}@one");
    let ends: [&[&str]; 2] = [&[], &["--yes"]];
    for end in ends {
        let words = [&["snapshot", "revert", &word], end].concat();
        let said = run(&source.scratch, 1, &words);
        assert!(said.contains("of another database"), "{said}");
    }
    // The server keeps the original, also if that is out of sight while the copy is dropped.
    let away = home.with_extension("away");
    std::fs::rename(&home, &away).unwrap();
    run(&source.scratch, 0, &["snapshot", "drop", database, "one"]);
    assert!(!copy_home.join("one").exists());
    std::fs::rename(&away, &home).unwrap();
    source.cluster.run();
    assert!(source.snapshot(0, "list", &[]).contains("kept"));
    source.write();
    source.assert_shows("one", &rows);
    source.snapshot(0, "drop", &["one"]);
    source.assert_nothing_left();
    std::fs::remove_dir_all(copy).unwrap();
}

/// The hint must not be to destroy the database, which is whole.
#[test]
fn a_revert_names_the_side_that_is_damaged() {
    let copies = Copies::new(&[]);
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    copies.said(0, &["snapshot", "create", database, "one"]);
    ledger.commit(21, 40);
    let word = format!("{database}@one");
    let revert = ["snapshot", "revert", &word, "--yes"];
    copies.said(0, &revert);
    ledger.commit(21, 50);
    let data = volume.at().join("shop.db.windlass-snapshots/one/data/0");
    let length = std::fs::read(&data).unwrap().len();
    let refused = |words: &[&str]| {
        let said = copies.said(4, words);
        assert!(said.contains(data.to_str().unwrap()), "{said}");
        assert!(said.contains("rop the snapshot"), "{said}");
        assert!(!said.contains("Restore a backup over"), "{said}");
        assert_eq!(ledger.check(&ledger.path), 50);
    };
    let undo = ["snapshot", "undo", database, "--yes"];
    let goes = || {
        refused(&revert);
        refused(&undo);
    };
    let zeros = vec![0; length];
    changed(&data, |_| Some(zeros), goes);
    let verify = ["verify", &word];
    let all = || {
        goes();
        refused(&verify);
    };
    changed(&data, |bytes| Some(bytes[..length / 2].to_vec()), all);
    changed(&data, |_| None, all);
    // What is in its place is not waited for.
    let aside = data.with_file_name("aside");
    std::fs::rename(&data, &aside).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&data).status();
    assert!(made.unwrap().success());
    all();
    refused(&["snapshot", "list", database]);
    std::fs::remove_file(&data).unwrap();
    std::os::unix::fs::symlink(&aside, &data).unwrap();
    all();
    std::fs::rename(&aside, &data).unwrap();
    copies.said(0, &undo);
    assert_eq!(ledger.check(&ledger.path), 40);
}
