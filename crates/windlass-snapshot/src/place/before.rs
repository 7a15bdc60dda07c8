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
use crate::hook;
use crate::name::SnapshotName;

/// The places that the database with this place had before.
pub(super) fn places_of(place: &Place) -> Result<Vec<Place>, SnapshotError> {
    let homes = hook::homes_before(&place.database(), &place.home)?;
    let before = homes.into_iter().map(|home| Place {
        home,
        before: Vec::new(),
    });
    Ok(before.collect())
}

impl Place {
    /// What has a name in a place that the database had before. Where one name is in more places,
    /// the newest place counts.
    pub(super) fn list_before(&self) -> Result<Vec<Entry>, SnapshotError> {
        let mut found = Vec::new();
        for place in &self.before {
            for name in place.names()? {
                let is_first = self.holder(&name)?.is_some_and(|holder| holder == place);
                if is_first && !self.has_own(&name) {
                    found.push(place.entry(name)?);
                }
            }
        }
        Ok(found)
    }

    /// The place before that has this name, for this database.
    pub(super) fn holder(&self, name: &SnapshotName) -> Result<Option<&Self>, SnapshotError> {
        for place in self.before.iter().filter(|place| place.has_own(name)) {
            let is_of_another = match place.entry(name.clone())? {
                Entry::Snapshot(snapshot) => {
                    is_of_another(&snapshot.record().source.path, &self.database())
                }
                // It cannot say whose it is.
                _ => place.has_one_of_another(&self.database())?,
            };
            if !is_of_another {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Whether a snapshot here is of a database that is elsewhere.
    fn has_one_of_another(&self, database: &Path) -> Result<bool, SnapshotError> {
        for name in self.names()? {
            if let Entry::Snapshot(snapshot) = self.entry(name)?
                && is_of_another(&snapshot.record().source.path, database)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Leaves the places in which nothing is any more. Call it without a lock.
    pub(super) fn leave_before(&self) -> Result<(), SnapshotError> {
        if self.before.is_empty() {
            return Ok(());
        }
        for place in self.before.iter().chain([self]) {
            if place.home.is_dir() {
                let _alone = place.make()?;
                place.remove_if_empty();
            }
        }
        for place in self.before.iter().filter(|place| !place.home.exists()) {
            hook::forget_home(&self.database(), &place.home)?;
        }
        Ok(())
    }
}

/// Whether the path of a snapshot's database leads to another one today.
fn is_of_another(path: &Path, database: &Path) -> bool {
    // Where nothing is, there is no other one.
    path.canonicalize().is_ok_and(|path| path != database)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::directory::Locked;
    use crate::record::tests::record;
    use crate::record::{RECORD, Record, Source};

    /// A database that was moved from `main` to `moved`. Another one is `main` now.
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
            let before = Place {
                home: at.join("main.windlass-snapshots"),
                before: Vec::new(),
            };
            let place = Place {
                home: at.join("moved.windlass-snapshots"),
                before: vec![before],
            };
            Self { directory, place }
        }

        /// What has this name in the place before.
        fn at(&self, name: &str) -> PathBuf {
            self.place.before[0].home.join(name)
        }

        /// Makes a snapshot there.
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
}
