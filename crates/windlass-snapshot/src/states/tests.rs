//! States of snapshots that are directories with records, and with nothing in them.

use std::path::Path;

use super::*;
use crate::directory::Locked;
use crate::overwritten;
use crate::record::tests::record;
use crate::undo::UndoWriter;

/// A place with a directory for each of these snapshots.
struct Fixture {
    directory: tempfile::TempDir,
    place: Place,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::beside(&directory.path().join("shop.db")).unwrap();
        std::fs::create_dir(place.home()).unwrap();
        Self { directory, place }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.home().join(name)
    }

    fn snapshot(&self, name: &str, state: State) {
        self.snapshot_at(&self.path(name), name, state);
    }

    fn snapshot_at(&self, path: &Path, name: &str, state: State) {
        drop(Locked::create(path).unwrap());
        let record = crate::record::Record {
            state,
            ..record(name)
        };
        record.write(path).unwrap();
    }

    /// Says that a snapshot was given up.
    fn lose(&self, name: &str) {
        let path = self.path(name);
        std::fs::remove_file(path.join(crate::record::RECORD)).unwrap();
        let why = "it was given up".to_owned();
        let record = crate::record::Record {
            state: State::Lost { why },
            ..record(name)
        };
        record.write(&path).unwrap();
    }

    /// Keeps a state over a snapshot, as a revert does. Returns its number.
    fn keep(&self, name: &str) -> u32 {
        let next = next_number(&self.place).unwrap();
        note_number(&self.place, next).unwrap();
        let UndoNumber(number) = next;
        let path = self.path(name).canonicalize().unwrap();
        let record = UndoRecord {
            number,
            ..crate::undo::tests::record()
        };
        UndoWriter::create(&path)
            .unwrap()
            .complete(record.clone())
            .unwrap();
        overwritten::finish(&path, &record).unwrap();
        trim(&self.place).unwrap();
        number
    }

    fn numbers(&self) -> Vec<u32> {
        let states = undo_states(&self.place).unwrap();
        states.iter().map(|undo| undo.number.0).collect()
    }
}

/// Whoever noted the name of a state brings back nothing else with it.
#[test]
fn no_number_is_given_twice_after_the_newest_states_were_removed() {
    let fixture = Fixture::new();
    fixture.snapshot("one", State::Kept);
    fixture.snapshot("two", State::Kept);
    assert_eq!(["one", "two"].map(|name| fixture.keep(name)), [1, 2]);
    remove_undo(&fixture.place, UndoNumber(2)).unwrap();
    assert_eq!(fixture.keep("one"), 3);
    for number in fixture.numbers() {
        remove_undo(&fixture.place, UndoNumber(number)).unwrap();
    }
    assert_eq!(fixture.keep("two"), 4);
    // With the snapshot goes its state.
    let remove = |name: &str| {
        let name = crate::SnapshotName::parse(name).unwrap();
        fixture.place.remove(&name, &mut |_| {}).unwrap();
    };
    remove("two");
    assert_eq!(fixture.keep("one"), 5);
    remove("one");
    assert!(!fixture.place.home().exists());
}

/// An older state is another one of the whole database.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_older_state_is_taken_for_the_newest_while_its_disk_is_not_mounted() {
    let fixture = Fixture::new();
    let at = |name: &str| fixture.directory.path().join(name);
    let (disk, unmounted) = (at("disk"), at("unmounted"));
    std::fs::create_dir(&disk).unwrap();
    fixture.snapshot("here", State::Kept);
    fixture.snapshot_at(&disk.join("far"), "far", State::Kept);
    std::os::unix::fs::symlink(disk.join("far"), fixture.path("far")).unwrap();
    let newest = || newest_undo(&fixture.place).map(|undo| undo.number.0);
    assert_eq!(["here", "far"].map(|name| fixture.keep(name)), [1, 2]);
    assert_eq!(newest().unwrap(), 2);
    std::fs::rename(&disk, &unmounted).unwrap();
    let SnapshotError::NewestLost {
        name, why, older, ..
    } = newest().unwrap_err()
    else {
        panic!("an older one was taken");
    };
    assert_eq!([name, older.unwrap().name], ["undo:2", "undo:1"]);
    assert!(why.contains("far"), "{why}");
    // One that is newer than all that were there is known to be the newest.
    assert_eq!(fixture.keep("here"), 3);
    assert_eq!(newest().unwrap(), 3);
    std::fs::rename(&unmounted, &disk).unwrap();
    assert_eq!(newest().unwrap(), 3);
}

/// Whoever lists the snapshots meanwhile would see an error.
#[test]
fn a_snapshot_that_was_dropped_since_it_was_listed_has_no_states() {
    let fixture = Fixture::new();
    fixture.snapshot("one", State::Kept);
    fixture.keep("one");
    let name = crate::SnapshotName::parse("one").unwrap();
    let snapshot = fixture.place.find(&name).unwrap();
    assert_eq!(states_over(&snapshot).unwrap().len(), 1);
    fixture.place.remove(&name, &mut |_| {}).unwrap();
    assert!(states_over(&snapshot).unwrap().is_empty());
}

/// Older versions of Windlass noted a number only while a snapshot was elsewhere.
#[test]
fn no_number_is_given_twice_after_states_of_an_older_version_were_removed() {
    let fixture = Fixture::new();
    for name in ["one", "two"] {
        fixture.snapshot(name, State::Kept);
    }
    let forget = || std::fs::remove_file(fixture.path(".undo-newest")).unwrap();
    assert_eq!(["one", "two"].map(|name| fixture.keep(name)), [1, 2]);
    forget();
    remove_undo(&fixture.place, UndoNumber(2)).unwrap();
    assert_eq!(fixture.keep("two"), 3);
    forget();
    let name = crate::SnapshotName::parse("two").unwrap();
    fixture.place.remove(&name, &mut |_| {}).unwrap();
    assert_eq!(fixture.keep("one"), 4);
}

/// A place before that is left hands its number on.
#[test]
fn no_number_is_given_twice_after_a_place_before_was_left() {
    let mut fixture = Fixture::new();
    let moved = fixture.directory.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    fixture.snapshot("old", State::Kept);
    assert_eq!(["old", "old"].map(|name| fixture.keep(name)), [1, 2]);
    crate::hook::note_home(&moved, fixture.place.home()).unwrap();
    let before = std::mem::replace(&mut fixture.place, Place::beside(&moved).unwrap());
    std::fs::create_dir(fixture.place.home()).unwrap();
    fixture.snapshot("new", State::Kept);
    let name = crate::SnapshotName::parse("old").unwrap();
    fixture.place.remove(&name, &mut |_| {}).unwrap();
    assert!(!before.home().exists());
    fixture.place = Place::beside(&moved).unwrap();
    assert_eq!(fixture.keep("new"), 3);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_number_is_given_twice_while_a_disk_is_not_mounted() {
    let fixture = Fixture::new();
    let (disk, unmounted) = (
        fixture.directory.path().join("disk"),
        fixture.directory.path().join("unmounted"),
    );
    std::fs::create_dir(&disk).unwrap();
    fixture.snapshot("here", State::Kept);
    fixture.snapshot_at(&disk.join("far"), "far", State::Kept);
    std::os::unix::fs::symlink(disk.join("far"), fixture.path("far")).unwrap();
    assert_eq!(
        ["here", "here", "far"].map(|name| fixture.keep(name)),
        [1, 2, 3]
    );
    std::fs::rename(&disk, &unmounted).unwrap();
    assert_eq!(fixture.numbers(), [1, 2]);
    assert_eq!(fixture.keep("here"), 4);
    std::fs::rename(&unmounted, &disk).unwrap();
    assert_eq!(fixture.numbers(), [1, 2, 3, 4]);
    let found = find_undo(&fixture.place, UndoNumber(3)).unwrap();
    assert_eq!(found.snapshot.record().name, "far");
    // The number goes with the last snapshot.
    for name in ["here", "far"] {
        let name = crate::SnapshotName::parse(name).unwrap();
        fixture.place.remove(&name, &mut |_| {}).unwrap();
    }
    assert!(!fixture.place.home().exists());
}

/// Nobody knows what a revert would overwrite, but the directory says which numbers it has.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_number_is_given_twice_while_a_record_cannot_be_read() {
    let fixture = Fixture::new();
    for name in ["one", "two"] {
        fixture.snapshot(name, State::Kept);
    }
    assert_eq!(["one", "two"].map(|name| fixture.keep(name)), [1, 2]);
    let record = fixture.path("two").join(crate::record::RECORD);
    let whole = std::fs::read(&record).unwrap();
    std::fs::write(&record, "no record").unwrap();
    std::fs::write(fixture.path("stray"), "no snapshot").unwrap();
    assert_eq!(fixture.numbers(), [1]);
    assert_eq!(fixture.keep("one"), 3);
    std::fs::remove_file(&record).unwrap();
    assert_eq!(fixture.keep("one"), 4);
    std::fs::write(&record, whole).unwrap();
    assert_eq!(fixture.numbers(), [1, 2, 3, 4]);
}

/// The note is all that says which numbers the disk has that is not mounted.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_number_is_given_twice_if_nobody_knows_the_newest() {
    let fixture = Fixture::new();
    let at = |name: &str| fixture.directory.path().join(name);
    let (disk, unmounted) = (at("disk"), at("unmounted"));
    std::fs::create_dir(&disk).unwrap();
    fixture.snapshot("here", State::Kept);
    fixture.snapshot_at(&disk.join("far"), "far", State::Kept);
    std::os::unix::fs::symlink(disk.join("far"), fixture.path("far")).unwrap();
    assert_eq!(["here", "far"].map(|name| fixture.keep(name)), [1, 2]);
    let note = fixture.path(".undo-newest");
    std::fs::write(&note, "no number").unwrap();
    // One may have been removed that had the newest.
    let third = fixture.keep("here");
    assert!(third > 1000, "{third}");
    std::fs::write(&note, "no number").unwrap();
    std::fs::rename(&disk, &unmounted).unwrap();
    assert_eq!(fixture.numbers(), [1, third]);
    let number = fixture.keep("here");
    assert!(number > third, "{number}");
    assert_eq!(fixture.keep("here"), number + 1);
    std::fs::rename(&unmounted, &disk).unwrap();
    assert_eq!(fixture.numbers(), [2, third, number, number + 1]);
}

/// The states of a cluster that was moved are in the place before. Where that is, a note says.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_number_is_given_twice_while_a_place_before_is_out_of_sight() {
    for is_moved_away in [false, true] {
        let mut fixture = Fixture::new();
        let at = |name: &str| fixture.directory.path().join(name);
        let (moved, away) = (at("moved"), at("away"));
        std::fs::create_dir(&moved).unwrap();
        fixture.snapshot("old", State::Kept);
        assert_eq!(["old", "old"].map(|name| fixture.keep(name)), [1, 2]);
        let old = fixture.place.home().to_owned();
        crate::hook::note_home(&moved, &old).unwrap();
        let note = crate::hook::note_of_homes(&moved);
        let noted = std::fs::read(&note).unwrap();
        match is_moved_away {
            true => std::fs::rename(&old, &away).unwrap(),
            false => std::fs::write(&note, "broken").unwrap(),
        }
        fixture.place = Place::beside(&moved).unwrap();
        std::fs::create_dir(fixture.place.home()).unwrap();
        fixture.snapshot("new", State::Kept);
        let number = fixture.keep("new");
        assert!(number > 1000, "{number}");
        match is_moved_away {
            true => std::fs::rename(&away, &old).unwrap(),
            false => std::fs::write(&note, noted).unwrap(),
        }
        fixture.place = Place::beside(&moved).unwrap();
        assert_eq!(fixture.numbers(), [1, 2, number]);
        assert_eq!(fixture.keep("new"), number + 1);
    }
}

/// The snapshot that is out of sight has its entry in the place before.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn no_number_is_given_twice_after_the_data_directory_was_moved() {
    let mut fixture = Fixture::new();
    let at = |name: &str| fixture.directory.path().join(name);
    let (disk, unmounted, moved) = (at("disk"), at("unmounted"), at("moved"));
    std::fs::create_dir(&disk).unwrap();
    fixture.snapshot_at(&disk.join("far"), "far", State::Kept);
    std::os::unix::fs::symlink(disk.join("far"), fixture.path("far")).unwrap();
    assert_eq!(fixture.keep("far"), 1);
    std::fs::create_dir(&moved).unwrap();
    crate::hook::note_home(&moved, fixture.place.home()).unwrap();
    let before = std::mem::replace(&mut fixture.place, Place::beside(&moved).unwrap());
    std::fs::create_dir(fixture.place.home()).unwrap();
    std::fs::rename(&disk, &unmounted).unwrap();
    fixture.snapshot("new", State::Kept);
    assert_eq!(["new", "new"].map(|name| fixture.keep(name)), [2, 3]);
    // The number does not go with the last snapshot of the place of today.
    let remove = |fixture: &Fixture, name: &str| {
        let name = crate::SnapshotName::parse(name).unwrap();
        fixture.place.remove(&name, &mut |_| {}).unwrap();
    };
    remove(&fixture, "new");
    fixture.snapshot("newer", State::Kept);
    assert_eq!(fixture.keep("newer"), 4);
    std::fs::rename(&unmounted, &disk).unwrap();
    assert_eq!(fixture.numbers(), [1, 4]);
    for name in ["far", "newer"] {
        remove(&fixture, name);
    }
    for place in [&before, &fixture.place] {
        assert!(!place.home().exists(), "{}", place.home().display());
    }
}

/// The place in between has nothing but the number of a state that is out of sight.
#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn a_number_stays_noted_after_the_data_directory_was_moved_twice() {
    let mut fixture = Fixture::new();
    let at = |name: &str| fixture.directory.path().join(name);
    let (disk, between, moved) = (at("disk"), at("between"), at("moved"));
    for path in [&disk, &between, &moved] {
        std::fs::create_dir(path).unwrap();
    }
    fixture.snapshot_at(&disk.join("far"), "far", State::Kept);
    std::os::unix::fs::symlink(disk.join("far"), fixture.path("far")).unwrap();
    numbers::note(&between, 7).unwrap();
    for home in [fixture.place.home(), between.as_path()] {
        crate::hook::note_home(&moved, home).unwrap();
    }
    std::fs::rename(&disk, fixture.directory.path().join("unmounted")).unwrap();
    fixture.place = Place::beside(&moved).unwrap();
    std::fs::create_dir(fixture.place.home()).unwrap();
    fixture.snapshot("new", State::Kept);
    let name = crate::SnapshotName::parse("new").unwrap();
    fixture.place.remove(&name, &mut |_| {}).unwrap();
    std::fs::create_dir_all(fixture.place.home()).unwrap();
    fixture.snapshot("newer", State::Kept);
    assert_eq!(fixture.keep("newer"), 8);
}

#[test]
fn a_state_that_is_lost_with_its_snapshot_takes_no_room_of_others() {
    let fixture = Fixture::new();
    fixture.snapshot("good", State::Kept);
    fixture.snapshot("lost", State::Kept);
    assert_eq!(
        ["good", "lost", "lost", "good"].map(|name| fixture.keep(name)),
        [1, 2, 3, 4]
    );
    assert_eq!(fixture.numbers(), [2, 3, 4], "none is lost yet");
    fixture.lose("lost");
    let all = undo_states(&fixture.place).unwrap();
    assert_eq!(leaving(&all, None), [], "only one can be brought back");
    assert_eq!(["good", "good"].map(|name| fixture.keep(name)), [5, 6]);
    assert_eq!(fixture.numbers(), [2, 3, 4, 5, 6]);
    let all = undo_states(&fixture.place).unwrap();
    assert_eq!(leaving(&all, None), [UndoNumber(4)]);
    assert_eq!(leaving(&all, Some(UndoNumber(5))), []);
    fixture.keep("good");
    assert_eq!(fixture.numbers(), [2, 3, 5, 6, 7]);
}

/// Nobody who wants the newest state expects an older one of the whole database.
#[test]
fn the_newest_state_is_not_passed_over_if_it_is_lost_and_the_next_is_named() {
    let fixture = Fixture::new();
    for name in ["good", "bad", "worse"] {
        fixture.snapshot(name, State::Kept);
        fixture.keep(name);
    }
    assert_eq!(newest_undo(&fixture.place).unwrap().number, UndoNumber(3));
    let lost = |left: Option<&str>| {
        let error = newest_undo(&fixture.place).unwrap_err();
        let SnapshotError::NewestLost {
            name, why, older, ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(name, "undo:3");
        assert_eq!(why, "its snapshot worse is lost: it was given up");
        assert_eq!(older.as_ref().map(|it| it.name.as_str()), left);
    };
    fixture.lose("worse");
    lost(Some("undo:2"));
    fixture.lose("bad");
    lost(Some("undo:1"));
    fixture.lose("good");
    lost(None);
    // What is named is taken.
    let found = find_undo(&fixture.place, UndoNumber(1)).unwrap();
    assert_eq!(found.snapshot.record().name, "good");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn what_somebody_else_put_in_place_of_the_newest_number_keeps_nobody_from_going_back() {
    let fixture = Fixture::new();
    fixture.snapshot("here", State::Kept);
    let newest = fixture.path(".undo-newest");
    let mut last = 1000;
    for bytes in [&b"\xff\xfe"[..], b"4294967295", b"12345678901"] {
        std::fs::write(&newest, bytes).unwrap();
        let number = fixture.keep("here");
        assert!(number > last, "{number} after {last}");
        last = number;
    }
    std::fs::remove_file(&newest).unwrap();
    std::fs::create_dir(&newest).unwrap();
    assert!(fixture.keep("here") > last);
    assert!(newest.is_dir());
}

#[test]
fn states_of_one_number_are_in_the_order_of_time() {
    let fixture = Fixture::new();
    // A text with a fraction of a second would come before one without.
    for (name, at) in [
        ("b", "2026-11-23T08:00:00Z"),
        ("a", "2026-11-23T08:00:00.5Z"),
    ] {
        fixture.snapshot(name, State::Kept);
        let record = UndoRecord {
            at: at.to_owned(),
            ..crate::undo::tests::record()
        };
        let writer = UndoWriter::create(&fixture.path(name)).unwrap();
        writer.complete(record.clone()).unwrap();
        overwritten::finish(&fixture.path(name), &record).unwrap();
    }
    let found = find_undo(&fixture.place, UndoNumber(1)).unwrap();
    assert_eq!(found.snapshot.record().name, "a");
}
