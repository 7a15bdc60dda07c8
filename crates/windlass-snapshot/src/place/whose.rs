//! Whose a snapshot is that has its entry in a place. Somebody may have copied the directory of
//! another database with it: then links lead to the snapshots of that one, and what was copied of
//! a snapshot by the hook names the one that its server has. So does a copy in the same place.
//!
//! Never does: take a snapshot for another database's because its own is not where it was. That may
//! have been moved or renamed, with its place.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Place;
use crate::cluster::CONTROL_PATH;
use crate::directory;
use crate::error::SnapshotError;
use crate::hook::{self, Document};
use crate::method::Method;
use crate::name::SnapshotName;
use crate::record::{Record, State};
use crate::snapshot::Snapshot;

impl Place {
    /// The other database whose snapshot is in a directory, if that is certain and an entry here is
    /// only a link to it.
    pub(super) fn owner_elsewhere(
        &self,
        (entry, path): (&Path, &Path),
        record: &Record,
    ) -> Option<PathBuf> {
        // The directory of the place may be a link, too.
        if path == entry {
            return None;
        }
        let other = self.other_database(path, record)?;
        let is_there = |home: &Path| {
            let found = home.join(&record.name).canonicalize();
            found.is_ok_and(|found| found == path)
        };
        let own = self.database();
        let is_others = is_of_other_kind(&own, record)
            || is_of_other_system(&own, record)
            || has_entry(&other, is_there);
        is_others.then_some(other)
    }

    /// Whether an entry is a link that gives another name to a snapshot with an entry of its own.
    pub(super) fn is_other_name(&self, entry: &Path) -> bool {
        let Ok(path) = entry.canonicalize() else {
            return false;
        };
        let Ok(Some(record)) = Record::read(&path) else {
            return false;
        };
        let is_own = |home: &Path| {
            let found = home.join(&record.name).canonicalize();
            found.is_ok_and(|found| found == path)
        };
        entry.is_symlink()
            && entry.file_name() != Some(OsStr::new(&record.name))
            && self.homes().any(is_own)
    }

    /// Whether a directory has a copy of a snapshot by the hook that has its own entry: with this
    /// database, or with the one whose server has it. Whatever else the directory lacks, or has of
    /// another snapshot.
    pub(super) fn is_copy(&self, directory: &Path) -> bool {
        let (Ok(path), Ok(Some(document))) = (
            directory.canonicalize(),
            Document::read(&content(directory)),
        ) else {
            return false;
        };
        let own = directory::record_of(&path);
        let is_original = |entry: &Path| {
            let Ok(Some(record)) = Record::read(entry) else {
                return false;
            };
            let has_same_id = own.as_ref().is_some_and(|own| own.id == record.id);
            record.method == Method::Hook
                && entry.file_name() == Some(OsStr::new(&record.name))
                && entry.canonicalize().is_ok_and(|found| found != path)
                && (has_same_id || Document::is_same(&content(entry), &content(&path)))
        };
        let has_original = |home: &Path| {
            let mut entries = home.read_dir().into_iter().flatten().flatten();
            entries.any(|entry| is_original(&entry.path()))
        };
        has_entry(&document.data, has_original) || self.homes().any(has_original)
    }

    /// Whether a directory has a snapshot by the hook that is in the server of another database. It
    /// is a copy, also if the original is out of sight.
    pub(super) fn is_served_elsewhere(&self, directory: &Path) -> bool {
        let Ok(Some(record)) = Record::read(directory) else {
            return false;
        };
        let document = Document::read_of(&content(directory), record.files_crc32c);
        record.method == Method::Hook
            && matches!(document, Ok(Some(_)))
            && self.other_database(directory, &record).is_some()
    }

    /// Why a name cannot be given: something is at this path already, and whether the list of the
    /// database has that name.
    pub(super) fn taken(
        &self,
        (name, is_listed): (&SnapshotName, bool),
        path: &Path,
    ) -> SnapshotError {
        // What cannot be read says nothing of its database.
        let record = Record::read(path).ok().flatten();
        SnapshotError::Taken {
            name: name.to_string(),
            path: path.to_owned(),
            owner: record.and_then(|record| self.other_database(path, &record)),
            is_listed,
        }
    }

    /// Whether a snapshot is of another cluster than the one whose data directory this is now.
    pub fn is_of_other_cluster(&self, snapshot: &Snapshot) -> bool {
        is_of_other_system(&self.database(), snapshot.record())
    }

    /// The database whose server keeps the pages of a snapshot by the hook, if that is not the one
    /// with this place: somebody copied the other one with its snapshots. What the pages are over
    /// is the original alone.
    pub fn owner_of(&self, snapshot: &Snapshot) -> Option<PathBuf> {
        let record = snapshot.record();
        let is_served = record.method == Method::Hook && record.state == State::Kept;
        match is_served {
            true => self.other_with(snapshot),
            false => None,
        }
    }

    /// Refuses a snapshot that the cluster can never go back to, as far as is known without a look
    /// at its data.
    pub fn check_own(&self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        if let Some(database) = self.owner_of(snapshot) {
            let link = snapshot.path().to_owned();
            return Err(SnapshotError::OfAnother { link, database });
        }
        match self.is_of_other_cluster(snapshot) {
            true => Err(SnapshotError::OtherCluster {
                name: snapshot.record().name.clone(),
            }),
            false => Ok(()),
        }
    }

    /// The database whose snapshot is in a directory, if that is there and is not the one with this
    /// place.
    pub(super) fn other_database(&self, path: &Path, record: &Record) -> Option<PathBuf> {
        self.other_than_own(&source_of(path, record))
    }

    /// The same of a snapshot that was found. What that look told is not read again.
    pub(super) fn other_with(&self, snapshot: &Snapshot) -> Option<PathBuf> {
        match snapshot.server_data() {
            Some(data) => self.other_than_own(data),
            None => self.other_database(snapshot.path(), snapshot.record()),
        }
    }

    /// A database, if it is there and is not the one with this place.
    fn other_than_own(&self, source: &Path) -> Option<PathBuf> {
        let own = self.database();
        if source == own {
            return None;
        }
        // Where nothing is, there is no other one.
        let other = source.canonicalize().ok()?;
        (!is_same(&other, &own)).then_some(other)
    }
}

/// The database of a snapshot. The server of one by the hook may have another name by now, and
/// another cluster the old one.
fn source_of(path: &Path, record: &Record) -> PathBuf {
    let document = match record.method {
        Method::Hook => Document::read_of(&content(path), record.files_crc32c),
        _ => Ok(None),
    };
    match document {
        Ok(Some(document)) => document.data,
        _ => record.source.path.clone(),
    }
}

/// Where the hook's controller wrote what it knows, in the directory of a snapshot.
fn content(directory: &Path) -> PathBuf {
    directory.join(hook::CONTENT)
}

/// Whether a database has an entry of a kind in one of its places.
fn has_entry(database: &Path, is_it: impl Fn(&Path) -> bool) -> bool {
    Place::beside(database).is_ok_and(|place| place.homes().any(is_it))
}

/// Whether two paths lead to the same file or directory. A directory may be mounted in two places.
fn is_same(one: &Path, other: &Path) -> bool {
    let key = |path: &Path| {
        let found = path.metadata().ok()?;
        Some((found.dev(), found.ino()))
    };
    key(one).is_some_and(|one| key(other) == Some(one))
}

/// Whether one of a file and a data directory has a snapshot of the other.
fn is_of_other_kind(own: &Path, record: &Record) -> bool {
    let is_file = record.source.kind == windlass_sqlite::KIND;
    own.metadata().is_ok_and(|found| found.is_dir() == is_file)
}

/// Whether a data directory is of another cluster than the snapshot.
fn is_of_other_system(own: &Path, record: &Record) -> bool {
    let known = record.facts.database.get("system_identifier");
    let Some(known) = known.and_then(serde_json::Value::as_str) else {
        return false;
    };
    let mut bytes = [0; 8];
    let read = File::open(own.join(CONTROL_PATH)).and_then(|mut file| file.read_exact(&mut bytes));
    read.is_ok() && known != u64::from_le_bytes(bytes).to_string()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "fixtures need no durability")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::directory::Locked;
    use crate::place::Entry;
    use crate::record::Source;
    use crate::record::tests::record;

    /// A database `a.db` with a snapshot on another disk, and a copy `b.db` with the same link.
    struct Copied(tempfile::TempDir);

    impl Copied {
        fn new() -> Self {
            let copied = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(copied.at("disk")).unwrap();
            drop(Locked::create(&copied.snapshot()).unwrap());
            let source = Source {
                kind: "sqlite".to_owned(),
                path: copied.at("a.db"),
            };
            let record = Record {
                source,
                ..record("one")
            };
            record.write(&copied.snapshot()).unwrap();
            for name in ["a.db", "b.db"] {
                std::fs::write(copied.at(name), "rows").unwrap();
                let home = copied.place(name).home().to_owned();
                std::fs::create_dir(&home).unwrap();
                symlink(copied.snapshot(), home.join("one")).unwrap();
            }
            copied
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn snapshot(&self) -> PathBuf {
            self.at("disk/one")
        }

        fn place(&self, name: &str) -> Place {
            Place::beside(&self.at(name)).unwrap()
        }

        fn find(&self, name: &str) -> Result<(), SnapshotError> {
            let one = SnapshotName::parse("one").unwrap();
            self.place(name).find(&one).map(|_| ())
        }

        fn remove(&self, name: &str) -> Result<(), SnapshotError> {
            let one = SnapshotName::parse("one").unwrap();
            self.place(name).remove(&one, &mut |_| {})
        }

        fn assert_is_of_a(&self, ended: Result<(), SnapshotError>) {
            let error = ended.unwrap_err();
            let is_named = matches!(
                &error,
                SnapshotError::OfAnother { database, .. } if *database == self.at("a.db")
            );
            assert!(is_named, "{error}");
        }
    }

    #[test]
    fn a_link_to_the_snapshot_of_another_database_is_neither_followed_nor_dropped() {
        let copied = Copied::new();
        copied.find("a.db").unwrap();
        copied.assert_is_of_a(copied.find("b.db"));
        copied.assert_is_of_a(copied.remove("b.db"));
        // Also if the copy is gone: nobody puts the other one in its place.
        std::fs::remove_file(copied.at("b.db")).unwrap();
        copied.assert_is_of_a(copied.find("b.db"));
        assert!(matches!(
            &copied.place("b.db").list().unwrap()[..],
            [Entry::Unreadable { .. }]
        ));
        copied.find("a.db").unwrap();
        copied.remove("a.db").unwrap();
        assert!(!copied.snapshot().exists());
    }

    #[test]
    fn whoever_finds_a_name_in_use_learns_which_database_has_it() {
        let copied = Copied::new();
        let one = SnapshotName::parse("one").unwrap();
        let owner = |name: &str| {
            let place = copied.place(name);
            let reserved = place.reserve(&one, Some(&copied.at("disk")), &mut |_| {});
            match reserved.err() {
                Some(SnapshotError::Taken { owner, .. }) => owner,
                other => panic!("{other:?}"),
            }
        };
        std::fs::remove_file(copied.place("b.db").home().join("one")).unwrap();
        assert_eq!(owner("b.db"), Some(copied.at("a.db")));
        assert_eq!(owner("a.db"), None);
    }

    #[test]
    fn a_database_that_was_moved_with_its_place_keeps_its_snapshots() {
        let copied = Copied::new();
        let rename = |from: &str, to: &str| {
            std::fs::rename(copied.at(from), copied.at(to)).unwrap();
        };
        for name in ["b.db", "b.db.windlass-snapshots/one"] {
            std::fs::remove_file(copied.at(name)).unwrap();
        }
        std::fs::remove_dir(copied.at("b.db.windlass-snapshots")).unwrap();
        rename("a.db", "b.db");
        rename("a.db.windlass-snapshots", "b.db.windlass-snapshots");
        copied.find("b.db").unwrap();
        // Another one has the old name, and no snapshots or other ones.
        std::fs::write(copied.at("a.db"), "other rows").unwrap();
        copied.find("b.db").unwrap();
        // The directory is mounted in two places, or somebody wrote its name in another way.
        std::fs::remove_file(copied.at("a.db")).unwrap();
        std::fs::hard_link(copied.at("b.db"), copied.at("a.db")).unwrap();
        symlink(
            "b.db.windlass-snapshots",
            copied.at("a.db.windlass-snapshots"),
        )
        .unwrap();
        copied.find("b.db").unwrap();
        std::fs::remove_file(copied.at("a.db.windlass-snapshots")).unwrap();
        copied.remove("b.db").unwrap();
        assert!(!copied.snapshot().exists());
    }

    #[test]
    fn a_snapshot_of_another_kind_or_cluster_is_of_another_database() {
        let copied = Copied::new();
        let place = copied.place("b.db");
        let of_cluster = |system: &str| {
            let mut record = record("one");
            record.source.kind = "postgresql".to_owned();
            record.source.path = copied.at("disk");
            record.facts.database = serde_json::json!({"system_identifier": system});
            record
        };
        let (link, nowhere) = (place.home().join("one"), copied.at("disk/other"));
        let owner = |place: &Place, system: &str| {
            place.owner_elsewhere((&link, &nowhere), &of_cluster(system))
        };
        assert!(owner(&place, "7").is_some());
        std::fs::create_dir_all(copied.at("main/global")).unwrap();
        std::fs::write(copied.at("main").join(CONTROL_PATH), 7_u64.to_le_bytes()).unwrap();
        let place = copied.place("main");
        assert_eq!(owner(&place, "7"), None);
        assert_eq!(owner(&place, "8"), Some(copied.at("disk")));
    }
}
