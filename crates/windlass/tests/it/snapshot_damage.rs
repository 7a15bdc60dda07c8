//! Files in the directories of snapshots by the hook are changed, exchanged, cut and removed: nobody
//! is shown another moment.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;

use crate::snapshot_forged::forge_older;
use crate::snapshot_hook::run;
use crate::snapshot_orphans::Orphaned;

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
        |bytes| Some(bytes[..100].into()),
        || listed("cut"),
    );
    changed(&document, |_| None, || listed("gone"));
    let table = home.join("one/hook/files");
    let middle = std::fs::read(&table).unwrap().len() / 2;
    changed(&table, flipped(middle), || refused("a bit of the table"));
    changed(&table, |bytes| Some(bytes[..100].into()), || refused("cut"));
    changed(&table, |_| None, || refused("the table is gone"));
    let copies = std::fs::read_dir(home.join("one/hook/copied")).unwrap();
    let copies = copies.map(|entry| entry.unwrap());
    let largest = copies.max_by_key(|entry| entry.metadata().unwrap().len());
    let copy = largest.unwrap().path();
    changed(&copy, flipped(100), || refused("a bit of a copy"));
    changed(&copy, |bytes| Some(bytes[..9].into()), || refused("cut"));
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
