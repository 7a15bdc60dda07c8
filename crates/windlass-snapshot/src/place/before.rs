//! The places that a cluster had before: its data directory was moved, and a link has the old name.
//!
//!   /srv/main --> /big/main
//!   /big/main.windlass-snapshots/     the place of today
//!   /srv/main.windlass-snapshots/     the one before: its snapshots are found here, too
//!
//! The hook notes them (`hook/homes.rs`). Nothing new comes there.
//!
//! Never does: show what is of another cluster, which has the old path now.

use std::path::Path;

use super::{Entry, Place};
use crate::error::SnapshotError;
use crate::name::SnapshotName;
use crate::snapshot::Snapshot;
use crate::{hook, numbers};

/// The places that the database with this place had before, and why not all of them are known:
/// the note of them, or one of them, cannot be read.
pub(super) fn places_of(place: &Place) -> (Vec<Place>, Option<SnapshotError>) {
    let homes = match hook::homes_before(&place.database(), &place.home) {
        Ok(homes) => homes,
        Err(error) => return (Vec::new(), Some(error.into())),
    };
    let (mut places, mut unseen) = (Vec::new(), None);
    for place in homes.into_iter().map(Place::at) {
        match place.names() {
            Ok(_) => places.push(place),
            Err(error) => unseen = Some(error),
        }
    }
    (places, unseen)
}

impl Place {
    /// Fails if not all places before are known.
    pub(crate) fn check_seen(&self) -> Result<(), SnapshotError> {
        let Some(what) = &self.unseen else {
            return Ok(());
        };
        // What can be read now is unknown here all the same.
        let what = what.clone();
        let unseen = places_of(self).1;
        Err(unseen.unwrap_or(SnapshotError::Unseen { what }))
    }

    /// Fails if a place before is not where it was.
    pub(crate) fn check_there(&self) -> Result<(), SnapshotError> {
        let missing = hook::homes_missing(&self.database(), &self.home)?;
        match missing.into_iter().next() {
            None => Ok(()),
            Some(path) => Err(SnapshotError::Moved { path }),
        }
    }

    /// What has a name in a place that the database had before. Where one name is in more places,
    /// the newest place counts.
    pub(super) fn list_before(&self) -> Result<Vec<Entry>, SnapshotError> {
        let mut found = Vec::new();
        for place in &self.before {
            for name in place.names()? {
                let is_first = self.holder(&name)?.is_some_and(|holder| holder == place);
                if is_first && !self.has_own(&name)? {
                    found.push(place.entry(name)?);
                }
            }
        }
        Ok(found)
    }

    /// The place before that has this name, for this database.
    pub(super) fn holder(&self, name: &SnapshotName) -> Result<Option<&Self>, SnapshotError> {
        for place in &self.before {
            if !place.has_own(name)? {
                continue;
            }
            let is_of_another = match place.entry(name.clone())? {
                Entry::Snapshot(snapshot) => self.is_of_another(&snapshot),
                // It cannot say whose it is.
                _ => self.has_one_of_another(place)?,
            };
            if !is_of_another {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether a snapshot in a place is of another database than this one.
    fn has_one_of_another(&self, place: &Self) -> Result<bool, SnapshotError> {
        for name in place.names()? {
            if let Entry::Snapshot(snapshot) = place.entry(name)?
                && self.is_of_another(&snapshot)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_of_another(&self, snapshot: &Snapshot) -> bool {
        self.other_with(snapshot).is_some()
    }

    /// Its directory, and those of the places before.
    pub(crate) fn homes(&self) -> impl Iterator<Item = &Path> {
        let before = self.before.iter().map(|place| place.home.as_path());
        before.chain([self.home.as_path()])
    }

    /// Whether one is elsewhere that has its entry in a place before.
    pub(super) fn has_links_before(&self) -> Result<bool, SnapshotError> {
        for place in &self.before {
            for name in place.names()? {
                let is_link = place.path(&name).is_symlink();
                if is_link && self.holder(&name)?.is_some_and(|holder| holder == place) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Leaves the places in which nothing is any more. Call it without a lock.
    pub(super) fn leave_before(&self) {
        if self.before.is_empty() {
            return;
        }
        for place in self.before.iter().chain([self]) {
            // Another cluster may use it: that is so if this one is a copy. Whoever has the lock
            // leaves the place, too.
            if let Some(_alone) = place.lock_if_free() {
                self.leave(place);
            }
        }
    }

    /// Leaves a place of this database if nothing is in it. Call it under the lock of that place.
    pub(super) fn leave(&self, place: &Self) {
        // A place that is noted and gone counts as moved away. So it is forgotten first, and stays
        // as it is if that is impossible now, unless there is no other one.
        let is_only = self.before.is_empty() && self.unseen.is_none();
        let is_left = self.is_empty_in(place)
            && (hook::forget_home(&self.database(), &place.home).is_ok() || is_only);
        if is_left {
            place.remove_if_empty();
        }
    }

    /// Forgets the numbers of states with the last snapshot: without that there are no states.
    pub(super) fn forget_numbers(&self) {
        if self.has_none_before() {
            numbers::forget_if_alone(&self.home);
        }
    }

    /// Whether all places before are known, and none has a snapshot that may be out of sight.
    fn has_none_before(&self) -> bool {
        self.unseen.is_none() && !self.has_links_before().unwrap_or(true)
    }

    /// Whether nothing is in a place of this database, but for numbers that nobody needs: as long
    /// as any of its places leads to a snapshot that may be out of sight, all of them stay.
    fn is_empty_in(&self, place: &Self) -> bool {
        let is_there = self.home.is_dir();
        let has_own = is_there && numbers::has_links(&self.home).unwrap_or(true);
        if !has_own && self.has_none_before() && self.has_numbers_of(place) {
            numbers::forget_if_alone(&place.home);
        }
        std::fs::read_dir(&place.home).is_ok_and(|mut entries| entries.next().is_none())
    }

    /// Whether the place of today, in which counting goes on, has the number that is noted in a
    /// place before; it takes that if it can. Who has the place of today locked leaves both, too.
    fn has_numbers_of(&self, place: &Self) -> bool {
        if place.home == self.home || !self.home.is_dir() {
            return true;
        }
        let alone = self.lock_if_free();
        alone.is_some_and(|_alone| numbers::carry(&place.home, &self.home).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::directory::Locked;
    use crate::record::tests::record;
    use crate::record::{RECORD, Record, Source};

    /// A database that was moved from `main` to `moved`. Another one is `main` now. Both places are
    /// noted.
    struct Moved {
        directory: tempfile::TempDir,
        place: Place,
    }

    impl Moved {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path().canonicalize().unwrap();
            for name in ["main", "moved", "main.windlass-snapshots"] {
                std::fs::create_dir(at.join(name)).unwrap();
            }
            let mut place = Place::at(at.join("moved.windlass-snapshots"));
            place.before = vec![Place::at(at.join("main.windlass-snapshots"))];
            let moved = Self { directory, place };
            hook::note_home(&moved.data(), &moved.place.before[0].home).unwrap();
            moved
        }

        fn data(&self) -> PathBuf {
            self.place.database()
        }

        /// The places before that are noted and there.
        fn noted(&self) -> Vec<PathBuf> {
            hook::homes_before(&self.data(), &self.place.home).unwrap()
        }

        /// The place before.
        fn old(&self) -> PathBuf {
            self.place.before[0].home.clone()
        }

        /// What has this name there.
        fn at(&self, name: &str) -> PathBuf {
            self.old().join(name)
        }

        /// Makes a snapshot there, of a database.
        fn snapshot(&self, name: &str, of: &str) {
            let database = self.directory.path().canonicalize().unwrap().join(of);
            drop(Locked::create(&self.at(name)).unwrap());
            let source = Source {
                kind: "postgresql".to_owned(),
                path: database,
            };
            let record = Record {
                source,
                ..record(name)
            };
            record.write(&self.at(name)).unwrap();
        }

        fn listed(&self) -> Vec<String> {
            let entries = self.place.list().unwrap();
            entries.iter().map(|it| it.name().to_owned()).collect()
        }

        fn remove(&self, name: &str) -> Result<(), SnapshotError> {
            let name = SnapshotName::parse(name).unwrap();
            self.place.remove(&name, &mut |_| {})
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn what_cannot_say_whose_it_is_is_of_the_cluster_of_the_snapshots_beside_it() {
        // Whoever drops one removes all that are unfinished.
        let silent = ["unfinished", "damaged", "missing"];
        for of in ["main", "moved"] {
            let moved = Moved::new();
            moved.snapshot("whole", of);
            for name in ["damaged", "unfinished"] {
                drop(Locked::create(&moved.at(name)).unwrap());
            }
            std::fs::write(moved.at("damaged").join(RECORD), "no record").unwrap();
            std::os::unix::fs::symlink("/nowhere", moved.at("missing")).unwrap();
            let is_ours = of == "moved";
            let expected: &[&str] = match is_ours {
                true => &["whole", "damaged", "missing", "unfinished"],
                false => &[],
            };
            assert_eq!(moved.listed(), expected, "{of}");
            for name in silent {
                assert_eq!(moved.remove(name).is_ok(), is_ours, "{of}: {name}");
                let is_there = moved.at(name).symlink_metadata().is_ok();
                assert_eq!(is_there, !is_ours, "{of}: {name}");
            }
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_damaged_note_keeps_nobody_from_what_is_found() {
        let moved = Moved::new();
        moved.snapshot("before", "moved");
        let place = Place::beside(&moved.data()).unwrap();
        assert_eq!((place.list().unwrap().len(), place.unseen()), (1, None));
        std::fs::create_dir(place.home()).unwrap();
        let path = place.home().join("today");
        drop(Locked::create(&path).unwrap());
        record("today").write(&path).unwrap();
        std::fs::write(hook::note_of_homes(&moved.data()), "broken").unwrap();
        let place = Place::beside(&moved.data()).unwrap();
        assert_eq!(place.list().unwrap().len(), 1);
        assert!(place.unseen().unwrap().contains("homes"));
        let [today, other] = ["today", "before"].map(|name| SnapshotName::parse(name).unwrap());
        place.find(&today).unwrap();
        // Nobody knows whether it is there.
        for error in [
            place.find(&other).unwrap_err(),
            place.remove(&other, &mut |_| {}).unwrap_err(),
            place.reserve(&other, None, &mut |_| {}).unwrap_err(),
        ] {
            assert!(matches!(error, SnapshotError::Hook(_)), "{error}");
        }
        place.remove(&today, &mut |_| {}).unwrap();
        assert!(!path.exists());
        // Whoever did not know it does not know it when it can be read.
        std::fs::remove_file(hook::note_of_homes(&moved.data())).unwrap();
        let error = place.check_seen().unwrap_err();
        assert!(matches!(error, SnapshotError::Unseen { .. }), "{error}");
        let place = Place::beside(&moved.data()).unwrap();
        place.check_seen().unwrap();
    }

    /// A copy of a cluster has the places of the original in its note.
    #[test]
    fn nobody_waits_for_the_lock_of_a_place_before() {
        let moved = Moved::new();
        let lock = moved.place.before[0].lock().unwrap();
        assert!(moved.place.before[0].lock_if_free().is_none());
        assert!(moved.remove("none").is_err());
        assert!(moved.old().is_dir());
        flock(&lock, FlockOperation::Unlock).unwrap();
        assert!(moved.remove("none").is_err());
        assert!(!moved.old().exists());
    }

    /// What the server has of a snapshot whose directory somebody removed would stay for ever.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn the_only_place_does_not_count_as_moved_away_after_its_last_snapshot_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().canonicalize().unwrap().join("main");
        std::fs::create_dir(&data).unwrap();
        let place = Place::beside(&data).unwrap();
        std::fs::create_dir(place.home()).unwrap();
        hook::note_home(&data, place.home()).unwrap();
        let path = place.home().join("last");
        drop(Locked::create(&path).unwrap());
        record("last").write(&path).unwrap();
        let name = SnapshotName::parse("last").unwrap();
        place.remove(&name, &mut |_| {}).unwrap();
        assert!(!place.home().exists());
        place.check_there().unwrap();
        // A note that cannot be read does not keep the only place.
        std::fs::create_dir(place.home()).unwrap();
        std::fs::write(hook::note_of_homes(&data), "broken").unwrap();
        assert!(place.remove(&name, &mut |_| {}).is_err());
        assert!(!place.home().exists());
    }

    /// Killed in between, a place that is noted and gone would count as moved away.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
    fn a_place_is_forgotten_before_it_goes_and_stays_if_it_cannot_be() {
        let moved = Moved::new();
        for name in ["one", "two"] {
            moved.snapshot(name, "moved");
        }
        let note = hook::note_of_homes(&moved.data());
        let noted = std::fs::read(&note).unwrap();
        moved.remove("one").unwrap();
        assert_eq!(moved.noted(), [moved.old()]);
        std::fs::write(&note, "broken").unwrap();
        // The snapshot is gone, so this is no error.
        moved.remove("two").unwrap();
        assert!(moved.old().is_dir());
        std::fs::write(&note, noted).unwrap();
        moved.snapshot("three", "moved");
        moved.remove("three").unwrap();
        assert!(!moved.old().exists());
        let left = std::fs::read(&note).unwrap();
        assert_eq!(left, b"[]");
    }
}
