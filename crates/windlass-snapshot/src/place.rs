//! The place of a database's snapshots: a directory beside the database, with an entry for each.
//!
//!   /data/shop.db
//!   /data/shop.db.windlass-snapshots/before-upgrade/          a snapshot
//!   /data/shop.db.windlass-snapshots/nightly -> /disk2/nightly  one that is elsewhere
//!
//! So whoever knows the database finds its snapshots, wherever they are. A data directory that was
//! moved has the snapshots of its place before, too (`before`).
//!
//! Locking: the directory of the place is locked while a name is given or taken away. Content is
//! made and read under the lock of the snapshot alone (`directory.rs`).

mod around;
mod before;
mod beside;
mod dropping;
mod leftover;
mod locking;
mod whose;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use windlass_engine::durable;

use crate::directory::{self, Locked};
use crate::error::{Doing, SnapshotError};
use crate::hook;
use crate::name::SnapshotName;
use crate::record::{RECORD, Record};
use crate::snapshot::Snapshot;
pub use around::snapshot_around;
use leftover::{has_lost_record, pending};

/// The place of a database's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    home: PathBuf,
    before: Vec<Place>,
    /// Why not all places before are known.
    unseen: Option<String>,
}

/// What has a name in a place.
#[derive(Debug)]
pub enum Entry {
    /// A snapshot.
    Snapshot(Box<Snapshot>),
    /// One that is being made or dropped, or was when its process ended.
    Unfinished {
        /// Its name.
        name: SnapshotName,
        /// Its directory.
        path: PathBuf,
    },
    /// One whose directory is elsewhere and not there: a disk may not be mounted.
    Missing {
        /// Its name.
        name: SnapshotName,
        /// Where it should be.
        path: PathBuf,
    },
    /// One that cannot be read: its record, or what that says of the rest.
    Unreadable {
        /// Its name.
        name: SnapshotName,
        /// Its directory.
        path: PathBuf,
        /// Why.
        error: SnapshotError,
    },
}

impl Entry {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Snapshot(snapshot) => &snapshot.record().name,
            Self::Unfinished { name, .. }
            | Self::Missing { name, .. }
            | Self::Unreadable { name, .. } => name.as_str(),
        }
    }
}

/// A name that is taken for a snapshot, and the directory for its content.
#[derive(Debug)]
pub struct Reserved {
    place: Place,
    name: SnapshotName,
    directory: Locked,
}

impl Place {
    /// The place for the snapshots of this database file or data directory. It is known also when
    /// the database is gone.
    pub fn beside(database: &Path) -> Result<Self, SnapshotError> {
        let home = beside::home_of(database).doing("find", database)?;
        let mut place = Self::at(home);
        hook::note_named(&place.database());
        let (before, unseen) = before::places_of(&place);
        place.before = before;
        // By another method than the hook, nobody noted it.
        let beside_link = beside::home_of_link(database).filter(|home| home.is_dir());
        if let Some(home) = beside_link {
            let is_known = place.homes().any(|known| known == home);
            if !is_known {
                place.before.insert(0, Self::at(home));
            }
        }
        place.unseen = unseen.map(|error| error.to_string());
        Ok(place)
    }

    fn at(home: PathBuf) -> Self {
        Self {
            home,
            before: Vec::new(),
            unseen: None,
        }
    }

    /// Why there may be snapshots that a list does not have; `None` if there are none.
    pub fn unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }

    /// Its directory, which need not exist.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The database whose snapshots are here. If its name is a link, this is where that leads.
    pub fn database(&self) -> PathBuf {
        beside::database_of(&self.home)
    }

    /// Everything that has a name here. The oldest snapshot comes first, and what is no snapshot
    /// last.
    pub fn list(&self) -> Result<Vec<Entry>, SnapshotError> {
        let mut found = Vec::new();
        for name in self.names()? {
            found.push(self.entry(name)?);
        }
        found.extend(self.list_before()?);
        found.retain(|entry| !matches!(entry, Entry::Unfinished { path, .. } if !path.exists()));
        found.sort_by_key(|entry| match entry {
            Entry::Snapshot(snapshot) => (false, snapshot.created()),
            _ => (true, jiff::Timestamp::MAX),
        });
        Ok(found)
    }

    /// The snapshot of this name.
    pub fn find(&self, name: &SnapshotName) -> Result<Snapshot, SnapshotError> {
        if !self.has_own(name)? {
            let holder = self.holder(name)?.ok_or_else(|| self.unknown(name))?;
            return holder.find(name);
        }
        match self.entry(name.clone())? {
            Entry::Snapshot(snapshot) => Ok(*snapshot),
            Entry::Unfinished { .. } => Err(SnapshotError::Unfinished {
                name: name.to_string(),
            }),
            Entry::Missing { path, .. } => Err(SnapshotError::Missing {
                name: name.to_string(),
                path,
            }),
            Entry::Unreadable { error, .. } => Err(error),
        }
    }

    /// Whether something has this name, or may have it.
    pub fn has(&self, name: &SnapshotName) -> bool {
        let has_own = self.has_own(name).unwrap_or(true);
        has_own || self.holder(name).is_ok_and(|holder| holder.is_some())
    }

    fn has_own(&self, name: &SnapshotName) -> Result<bool, SnapshotError> {
        let path = self.path(name);
        match path.symlink_metadata() {
            Err(error) if durable::is_absent(&error) => Ok(false),
            found => found.doing("inspect", &path).map(|_| true),
        }
    }

    /// Takes a name for a new snapshot, and makes its directory, here or in another one. First
    /// removes what killed processes left; `removed` learns of each directory.
    pub fn reserve(
        &self,
        name: &SnapshotName,
        elsewhere: Option<&Path>,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<Reserved, SnapshotError> {
        // The name may be taken where nobody can look.
        self.check_seen()?;
        let lock = self.make()?;
        let reserved = self.reserve_alone(name, elsewhere, removed);
        if reserved.is_err() {
            self.remove_if_empty();
        }
        drop(lock);
        reserved
    }

    fn reserve_alone(
        &self,
        name: &SnapshotName,
        elsewhere: Option<&Path>,
        removed: &mut dyn FnMut(&Path),
    ) -> Result<Reserved, SnapshotError> {
        self.clean(self, removed)?;
        let link = self.path(name);
        let path = match elsewhere {
            Some(elsewhere) => {
                let elsewhere = real(elsewhere)?;
                // The directory of the place may be a link.
                match real(&self.home)? == elsewhere {
                    true => link.clone(),
                    false => elsewhere.join(name.as_str()),
                }
            }
            None => link.clone(),
        };
        let before = self.holder(name)?.map(|holder| holder.path(name));
        for taken in [&link, &path].into_iter().chain(&before) {
            if taken.symlink_metadata().is_ok() {
                let is_listed = link.symlink_metadata().is_ok() || before.is_some();
                return Err(self.taken((name, is_listed), taken));
            }
        }
        let directory = match path == link {
            true => Locked::create(&path)?,
            false => self.create_elsewhere(&path, &link)?,
        };
        Ok(Reserved {
            place: self.clone(),
            name: name.clone(),
            directory,
        })
    }

    /// Makes a directory elsewhere, and the link to it. Until the directory has its mark, the link
    /// is pending.
    fn create_elsewhere(&self, path: &Path, link: &Path) -> Result<Locked, SnapshotError> {
        let pending = pending(link);
        std::os::unix::fs::symlink(path, &pending).doing("create", &pending)?;
        directory::sync(&self.home)?;
        let directory = Locked::create(path)?;
        durable::rename(&pending, link).doing("rename", &pending)?;
        Ok(directory)
    }

    /// Removes the directory of the place if nothing is in it. Call it under the lock.
    pub(crate) fn remove_if_empty(&self) {
        self.forget_numbers();
        // A directory that is not empty stays, and so does one that cannot be removed: it does no
        // harm.
        std::fs::remove_dir(&self.home).unwrap_or_default();
    }

    fn names(&self) -> Result<Vec<SnapshotName>, SnapshotError> {
        let entries = match std::fs::read_dir(&self.home) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.check_not_away()?;
                return Ok(Vec::new());
            }
            entries => entries.doing("list", &self.home)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.doing("list", &self.home)?;
            // Something else in here is not ours.
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                continue;
            }
            let name = entry.file_name();
            let name = name
                .to_str()
                .and_then(|name| SnapshotName::parse(name).ok());
            names.extend(name);
        }
        names.sort();
        Ok(names)
    }

    fn entry_if_there(&self, name: &SnapshotName) -> Result<Option<Entry>, SnapshotError> {
        match self.has_own(name)? {
            true => self.entry(name.clone()).map(Some),
            false => Ok(None),
        }
    }

    fn entry(&self, name: SnapshotName) -> Result<Entry, SnapshotError> {
        let link = self.path(&name);
        let path = match real(&link) {
            Err(error) if error.is_denied() => {
                let path = link;
                return Ok(Entry::Unreadable { name, path, error });
            }
            Err(_) => {
                let path = std::fs::read_link(&link);
                return Ok(match durable::if_there(path).doing("read", &link)? {
                    Some(path) => Entry::Missing { name, path },
                    // It was dropped meanwhile.
                    None => Entry::Unfinished { name, path: link },
                });
            }
            Ok(path) => path,
        };
        Ok(match Record::read(&path) {
            Ok(Some(record)) => match self.owner_elsewhere((&link, &path), &record) {
                Some(database) => Entry::Unreadable {
                    error: SnapshotError::OfAnother { link, database },
                    name,
                    path,
                },
                None => match Snapshot::new(path.clone(), record, name.as_str()) {
                    Ok(snapshot) => Entry::Snapshot(Box::new(snapshot)),
                    // It was dropped meanwhile.
                    Err(_) if !directory::is_complete(&path) => Entry::Unfinished { name, path },
                    Err(error) => Entry::Unreadable { name, path, error },
                },
            },
            Ok(None) if has_lost_record(&path) => {
                let error = SnapshotError::Damaged {
                    path: path.join(RECORD),
                    what: "it is not there",
                };
                Entry::Unreadable { name, path, error }
            }
            Ok(None) => Entry::Unfinished { name, path },
            Err(error) => Entry::Unreadable { name, path, error },
        })
    }

    fn path(&self, name: &SnapshotName) -> PathBuf {
        self.home.join(name.as_str())
    }

    fn unknown(&self, name: &SnapshotName) -> SnapshotError {
        // It may be where nobody can look.
        if let Err(error) = self.check_seen() {
            return error;
        }
        // Nobody knows it if this user may not look, or if the directory of the place is away.
        if let Err(error) = self.names() {
            return error;
        }
        // The name is what matters. Without a list there is no advice.
        let known = self.list().unwrap_or_default();
        SnapshotError::Unknown {
            name: name.to_string(),
            place: self.home.clone(),
            known: known.iter().map(|entry| entry.name().to_owned()).collect(),
        }
    }
}

impl Reserved {
    /// The name.
    pub fn name(&self) -> &SnapshotName {
        &self.name
    }

    /// The directory for the content.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes the snapshot exist. Its content is durable already.
    pub(crate) fn complete(self, record: Record) -> Result<Snapshot, SnapshotError> {
        directory::sync(self.directory.path())?;
        record.write(self.directory.path())?;
        let path = self.directory.path().to_owned();
        Snapshot::new(path, record, self.name.as_str())
    }

    /// Gives the name back, and removes what was made.
    pub fn take_back(self) -> Result<(), SnapshotError> {
        let lock = self.place.make()?;
        let link = self.place.path(&self.name);
        let ended = self.place.end(&self.place, self.directory, &link);
        self.place.leave(&self.place);
        drop(lock);
        ended
    }
}

/// Where a snapshot's entry leads.
fn real(link: &Path) -> Result<PathBuf, SnapshotError> {
    link.canonicalize().doing("find", link)
}
