//! How snapshots come and go: names, other places, leftovers, and damage.

use std::path::{Path, PathBuf};

use windlass_snapshot::{Entry, Method, Place, Snapshot, SnapshotError};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

use crate::support::*;

fn database() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = place.path().join("shop.db");
    let spec = LedgerSpec {
        journal: Journal::Wal,
        accounts: 10,
        ..LedgerSpec::default()
    };
    CommitLedger::create(&path, spec);
    (place, path)
}

fn names(place: &Place) -> Vec<String> {
    let entries = place.list().unwrap();
    entries
        .iter()
        .map(|entry| entry.name().to_owned())
        .collect()
}

fn drop_it(place: &Place, text: &str) -> Result<(), SnapshotError> {
    place.remove(&name(text), &mut |_| {})
}

#[test]
fn snapshots_are_listed_in_the_order_in_which_they_were_made_and_leave_nothing() {
    let (_dir, database) = database();
    let place = Place::beside(&database).unwrap();
    assert!(names(&place).is_empty());
    for text in ["zebra", "ape", "2026-11-23"] {
        snapshot(&database, text, None).unwrap();
    }
    assert_eq!(names(&place), ["zebra", "ape", "2026-11-23"]);
    let error = snapshot(&database, "ape", None).unwrap_err();
    assert!(matches!(error, SnapshotError::Taken { .. }), "{error}");
    drop_it(&place, "ape").unwrap();
    assert_eq!(names(&place), ["zebra", "2026-11-23"]);
    let error = drop_it(&place, "ape").unwrap_err();
    assert!(matches!(&error, SnapshotError::Unknown { known, .. } if known.len() == 2));
    drop_it(&place, "zebra").unwrap();
    drop_it(&place, "2026-11-23").unwrap();
    assert!(!place.home().exists());
}

#[test]
fn a_snapshot_elsewhere_is_found_from_the_database_and_missed_when_it_is_gone() {
    let (dir, database) = database();
    let elsewhere = dir.path().join("disk2");
    std::fs::create_dir(&elsewhere).unwrap();
    let place = Place::beside(&database).unwrap();
    let make = || {
        let reserved = place.reserve(&name("far"), Some(&elsewhere), &mut |_| {})?;
        let mut maker = choose_copy(&database);
        let source = source(&database);
        let (progress, cancel) = Default::default();
        windlass_snapshot::create(reserved, &mut *maker, source, &progress, &cancel)
    };
    let made = make().unwrap().snapshot;
    assert_eq!(made.path(), elsewhere.join("far"));
    assert!(Snapshot::is_at(&elsewhere.join("far")));
    assert_eq!(place.find(&name("far")).unwrap().path(), made.path());
    // The disk is not mounted.
    let aside = dir.path().join("aside");
    std::fs::rename(&elsewhere, &aside).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    assert!(matches!(
        &place.list().unwrap()[..],
        [Entry::Missing { .. }]
    ));
    let error = place.find(&name("far")).unwrap_err();
    assert!(matches!(error, SnapshotError::Missing { .. }), "{error}");
    let error = make().unwrap_err();
    assert!(matches!(error, SnapshotError::Taken { .. }), "{error}");
    std::fs::remove_dir(&elsewhere).unwrap();
    std::fs::rename(&aside, &elsewhere).unwrap();
    place.find(&name("far")).unwrap();
    drop_it(&place, "far").unwrap();
    assert!(!place.home().exists());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// Somebody moved the directory of the snapshots to another disk, and left a link.
#[test]
fn a_place_that_is_a_link_is_used_like_any_other_and_missed_when_its_disk_is_away() {
    let (dir, database) = database();
    let place = Place::beside(&database).unwrap();
    let moved = dir.path().join("moved");
    snapshot(&database, "old", None).unwrap();
    std::fs::rename(place.home(), &moved).unwrap();
    std::os::unix::fs::symlink(&moved, place.home()).unwrap();
    snapshot(&database, "new", None).unwrap();
    assert_eq!(names(&place), ["old", "new"]);
    assert!(moved.join("new/record").exists());
    drop_it(&place, "old").unwrap();
    place.find(&name("new")).unwrap();
    let away = dir.path().join("away");
    std::fs::rename(&moved, &away).unwrap();
    for error in [
        place.list().unwrap_err(),
        place.find(&name("new")).unwrap_err(),
        drop_it(&place, "new").unwrap_err(),
        snapshot(&database, "newer", None).unwrap_err(),
    ] {
        let is_away = matches!(&error, SnapshotError::PlaceAway { path, .. } if *path == moved);
        assert!(is_away, "{error}");
    }
    std::fs::rename(&away, &moved).unwrap();
    drop_it(&place, "new").unwrap();
    assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0);
    // Somebody names the directory itself.
    let reserved = place.reserve(&name("here"), Some(&moved), &mut |_| {});
    reserved.unwrap().take_back().unwrap();
    assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0);
    // Another database has the same link.
    let other = dir.path().join("other.db");
    std::fs::copy(&database, &other).unwrap();
    snapshot(&database, "one", None).unwrap();
    let others = Place::beside(&other).unwrap();
    std::os::unix::fs::symlink(&moved, others.home()).unwrap();
    let error = drop_it(&others, "one").unwrap_err();
    assert!(matches!(error, SnapshotError::OfAnother { .. }), "{error}");
    place.find(&name("one")).unwrap();
}

#[test]
fn an_entry_that_leads_to_no_snapshot_is_not_in_use_and_stays() {
    let (dir, database) = database();
    let place = Place::beside(&database).unwrap();
    snapshot(&database, "a", None).unwrap();
    let photos = dir.path().join("photos");
    std::fs::create_dir(&photos).unwrap();
    std::fs::write(photos.join("one.jpg"), b"jpg").unwrap();
    for (text, target) in [("photos", &photos), ("photo", &photos.join("one.jpg"))] {
        std::os::unix::fs::symlink(target, place.home().join(text)).unwrap();
        let error = drop_it(&place, text).unwrap_err();
        let is_told = matches!(&error, SnapshotError::NotASnapshot { path } if path == target);
        assert!(is_told, "{error}");
    }
    // A file is no snapshot, and no damaged one.
    std::fs::write(place.home().join("notes"), b"notes").unwrap();
    assert_eq!(names(&place), ["a", "photo", "photos"]);
    assert!(photos.join("one.jpg").exists());
}

#[test]
fn a_link_with_another_name_is_dropped_without_the_snapshot() {
    let (dir, database) = database();
    let place = Place::beside(&database).unwrap();
    snapshot(&database, "here", None).unwrap();
    let to = dir.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let reserved = place.reserve(&name("there"), Some(&to), &mut |_| {});
    let mut maker = choose_copy(&database);
    let source = source(&database);
    let (progress, cancel) = Default::default();
    let made =
        windlass_snapshot::create(reserved.unwrap(), &mut *maker, source, &progress, &cancel);
    made.unwrap();
    let there = to.join("there");
    for (text, target) in [("here", Path::new("here")), ("there", there.as_path())] {
        std::os::unix::fs::symlink(target, place.home().join("newest")).unwrap();
        drop_it(&place, "newest").unwrap();
        assert_eq!(names(&place), ["here", "there"]);
        place.find(&name(text)).unwrap();
    }
    drop_it(&place, "there").unwrap();
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0);
}

fn choose_copy(database: &Path) -> Box<dyn windlass_snapshot::Maker> {
    let last = makers(database).pop().unwrap();
    assert_eq!(last.method(), Method::Copy);
    last
}

#[test]
fn a_snapshot_that_is_read_or_made_cannot_be_dropped() {
    let (_dir, database) = database();
    let place = Place::beside(&database).unwrap();
    let made = snapshot(&database, "a", None).unwrap().snapshot;
    let hold = made.hold().unwrap();
    let error = drop_it(&place, "a").unwrap_err();
    assert!(matches!(error, SnapshotError::InUse { .. }), "{error}");
    drop(hold);
    let reserved = place.reserve(&name("b"), None, &mut |_| {}).unwrap();
    let error = drop_it(&place, "b").unwrap_err();
    assert!(matches!(error, SnapshotError::InUse { .. }), "{error}");
    assert!(matches!(
        &place.list().unwrap()[..],
        [_, Entry::Unfinished { .. }]
    ));
    let error = place.find(&name("b")).unwrap_err();
    let is_unfinished = matches!(&error, SnapshotError::Unfinished { name } if name == "b");
    assert!(is_unfinished, "{error}");
    reserved.take_back().unwrap();
    drop_it(&place, "a").unwrap();
    // A snapshot that is gone cannot be held.
    assert!(made.hold().is_err());
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_and_nothing_else_does() {
    let (_dir, database) = database();
    let place = Place::beside(&database).unwrap();
    snapshot(&database, "kept", None).unwrap();
    let home = place.home().to_owned();
    // Killed after each of its first steps: the directory, the mark, some content.
    std::fs::create_dir(home.join("empty")).unwrap();
    for left in ["marked", "filled"] {
        std::fs::create_dir(home.join(left)).unwrap();
        std::fs::write(home.join(left).join("windlass-snapshot"), b"").unwrap();
    }
    std::fs::create_dir(home.join("filled/data")).unwrap();
    std::fs::write(home.join("filled/data/0"), b"half").unwrap();
    // Somebody else's.
    std::fs::create_dir(home.join("photos")).unwrap();
    std::fs::write(home.join("photos/one.jpg"), b"jpg").unwrap();
    std::fs::write(home.join(".hidden"), b"x").unwrap();
    let mut removed = Vec::new();
    let mut tell = |path: &Path| removed.push(path.file_name().unwrap().to_owned());
    let reserved = place.reserve(&name("next"), None, &mut tell).unwrap();
    reserved.take_back().unwrap();
    assert_eq!(removed, ["empty", "filled", "marked"]);
    assert!(home.join("photos/one.jpg").exists() && home.join(".hidden").exists());
    place.find(&name("kept")).unwrap();
}

#[test]
fn damage_of_a_record_is_told_and_the_snapshot_can_be_dropped() {
    let (_dir, database) = database();
    let place = Place::beside(&database).unwrap();
    let made = snapshot(&database, "a", None).unwrap().snapshot;
    let record = made.path().join("record");
    let mut bytes = std::fs::read(&record).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&record, bytes).unwrap();
    let error = place.find(&name("a")).unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(matches!(
        &place.list().unwrap()[..],
        [Entry::Unreadable { .. }]
    ));
    drop_it(&place, "a").unwrap();
}
