//! All states of a database that reverts and undos overwrote: which there are, which is brought
//! back next, and which go when there are too many.
//!
//! Each is the difference to one of the database's snapshots, in whose directory it lies, and goes
//! with that. So they are looked for in all of them.
//!
//! Invariants
//! - The newest [`STATES_KEPT`] that can be brought back stay. A revert that is typed twice takes
//!   nothing away. One that is lost with its snapshot goes with that, and takes no other's room.
//! - No number is given twice, also while a disk with some of the snapshots is not mounted
//!   (`numbers.rs`).

use jiff::Timestamp;

use crate::error::{Older, SnapshotError};
use crate::numbers;
use crate::overwritten::{UndoNumber, UndoState};
use crate::place::{Entry, Place};
use crate::record::State;
use crate::snapshot::Snapshot;
use crate::undo::{BY_REVERT, UndoRecord};

/// So many states are kept of a database, the newest ones that can be brought back.
pub const STATES_KEPT: usize = 3;

/// A state that can be brought back.
#[derive(Clone, Debug)]
pub struct Undo {
    /// The snapshot that it is the difference to.
    pub snapshot: Snapshot,
    /// Its number.
    pub number: UndoNumber,
    /// What is known about it. `None` if that is damaged.
    pub record: Option<UndoRecord>,
    state: UndoState,
}

impl Undo {
    /// Bytes that it takes on disk.
    pub fn disk_bytes(&self) -> Result<u64, SnapshotError> {
        self.state.disk_bytes()
    }

    /// What is known about it, or why nothing is.
    pub fn known(&self) -> Result<UndoRecord, SnapshotError> {
        let unknown = || SnapshotError::NoState {
            name: self.number.to_string(),
            known: Vec::new(),
        };
        self.state.record()?.ok_or_else(unknown)
    }

    /// Whether it cannot be brought back, because its snapshot is lost. One that outlives a start
    /// of the system may come back.
    fn is_lost(&self) -> bool {
        self.snapshot.record().state != State::Kept
    }

    /// Why it cannot be brought back; `None` if it can.
    fn why_unusable(&self) -> Option<String> {
        match (&self.snapshot.record().state, self.known()) {
            (State::Lost { why }, _) => {
                let snapshot = &self.snapshot.record().name;
                Some(format!("its snapshot {snapshot} is lost: {why}"))
            }
            (State::Kept, Err(error)) => Some(error.to_string()),
            (State::Kept, Ok(_)) => None,
        }
    }

    /// Whether a revert overwrote it. One whose record is damaged counts, so that nobody takes an
    /// older one for the newest.
    fn is_by_revert(&self) -> bool {
        let record = self.record.as_ref();
        record.is_none_or(|record| record.by == BY_REVERT)
    }
}

/// All states of a database, the oldest first.
pub fn undo_states(place: &Place) -> Result<Vec<Undo>, SnapshotError> {
    let mut found = Vec::new();
    for snapshot in snapshots(place)? {
        for state in UndoState::list(snapshot.path())? {
            let record = match state.record() {
                // A process was killed while it removed this one.
                Ok(None) => continue,
                record => record.unwrap_or_default(),
            };
            found.push(Undo {
                snapshot: snapshot.clone(),
                number: state.number(),
                record,
                state,
            });
        }
    }
    // Older versions of Windlass may have given a number twice.
    let at = |undo: &Undo| undo.record.as_ref()?.at.parse::<Timestamp>().ok();
    found.sort_by_key(|undo| (undo.number, at(undo)));
    Ok(found)
}

/// The state with this number.
pub fn find_undo(place: &Place, number: UndoNumber) -> Result<Undo, SnapshotError> {
    let mut all = undo_states(place)?;
    match all.iter().rposition(|undo| undo.number == number) {
        Some(found) => Ok(all.swap_remove(found)),
        None => Err(SnapshotError::NoState {
            name: number.to_string(),
            known: names(&all),
        }),
    }
}

/// The newest state that a revert overwrote and that was not brought back since. If it cannot be
/// brought back, an older one is another state of the whole database than the caller expects, so
/// this only names that.
pub fn newest_undo(place: &Place) -> Result<Undo, SnapshotError> {
    let all = undo_states(place)?;
    let known = names(&all);
    let mut by_reverts = all;
    by_reverts.retain(Undo::is_by_revert);
    let Some(newest) = by_reverts.pop() else {
        let place = place.home().to_owned();
        return Err(SnapshotError::NoUndo { place, known });
    };
    let Some(why) = newest.why_unusable() else {
        return Ok(newest);
    };
    let mut older = by_reverts.iter().rev();
    let older = older.find(|undo| undo.why_unusable().is_none());
    Err(SnapshotError::NewestLost {
        name: newest.number.to_string(),
        why,
        is_damaged: newest.known().is_err_and(|error| error.is_damage()),
        older: older.map(|undo| {
            Box::new(Older {
                name: undo.number.to_string(),
                at: undo
                    .record
                    .as_ref()
                    .map(|it| it.at.clone())
                    .unwrap_or_default(),
                database: place.database(),
            })
        }),
    })
}

fn names(states: &[Undo]) -> Vec<String> {
    let names = states.iter().map(|undo| undo.number.to_string());
    names.collect()
}

/// Removes a state.
pub fn remove_undo(place: &Place, number: UndoNumber) -> Result<(), SnapshotError> {
    let _alone = place.lock()?;
    find_undo(place, number)?.state.discard()
}

/// The states that go when one more is kept for the state that is brought back, if one is.
pub fn leaving(all: &[Undo], brought_back: Option<UndoNumber>) -> Vec<UndoNumber> {
    let can_be_brought_back = all.iter().filter(|undo| !undo.is_lost());
    let numbers = can_be_brought_back.map(|undo| undo.number);
    let mut numbers: Vec<_> = numbers.filter(|it| Some(*it) != brought_back).collect();
    numbers.truncate((numbers.len() + 1).saturating_sub(STATES_KEPT));
    numbers
}

/// The number for the next state. The place must be locked.
pub(crate) fn next_number(place: &Place) -> Result<UndoNumber, SnapshotError> {
    let mut seen = 0;
    for snapshot in snapshots(place)? {
        let states = UndoState::list(snapshot.path())?;
        seen = states.iter().map(|it| it.number().0).fold(seen, u32::max);
    }
    let seen = place.homes().map(numbers::noted).fold(seen, u32::max);
    numbers::next(place.home(), seen, place.has_links()?).map(UndoNumber)
}

/// Removes all but the newest states that can be brought back, and what is left of some that were
/// removed. Those that are lost stay. Returns their numbers. The place must be locked.
pub(crate) fn trim(place: &Place) -> Result<Vec<UndoNumber>, SnapshotError> {
    for snapshot in snapshots(place)? {
        let states = UndoState::list(snapshot.path())?.into_iter();
        let mut partial = states.filter(|state| matches!(state.record(), Ok(None)));
        partial.try_for_each(|state| state.discard())?;
    }
    let mut gone = undo_states(place)?;
    gone.retain(|undo| !undo.is_lost());
    gone.truncate(gone.len().saturating_sub(STATES_KEPT));
    gone.iter().try_for_each(|undo| undo.state.discard())?;
    Ok(gone.iter().map(|undo| undo.number).collect())
}

fn snapshots(place: &Place) -> Result<Vec<Snapshot>, SnapshotError> {
    let entries = place.list()?.into_iter();
    let snapshots = entries.filter_map(|entry| match entry {
        Entry::Snapshot(snapshot) => Some(*snapshot),
        _ => None,
    });
    Ok(snapshots.collect())
}

#[cfg(test)]
mod tests {
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
            let UndoNumber(number) = next_number(&self.place).unwrap();
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
        assert_eq!(numbers::next(&between, 6, true).unwrap(), 7);
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
        for (number, bytes) in [
            (1, &b"\xff\xfe"[..]),
            (2, b"4294967295"),
            (3, b"12345678901"),
        ] {
            std::fs::write(&newest, bytes).unwrap();
            assert_eq!(fixture.keep("here"), number);
        }
        std::fs::remove_file(&newest).unwrap();
        std::fs::create_dir(&newest).unwrap();
        assert_eq!(fixture.keep("here"), 4);
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
}
