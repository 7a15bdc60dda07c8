//! The log of one cluster in a place: its directories, and the objects in them.
//!
//! Invariants
//! - A list is complete, or an error. A directory that cannot be read never looks like an empty
//!   one, because recovery would then end early.
//! - A new directory is durable before anything is stored in it.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, Locked};
use windlass_media::{LOG_HEADER_BYTES, LogContent};
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, RepositoryError};

/// The directory of a place that holds logs.
const LOG: &str = "log";
/// The directory for files that belong to a log.
const FILES: &str = "files";
/// The end of every object's name.
const SUFFIX: &str = ".wlog";
/// Instead of the end of its range, for an object that grows.
const GROWING: &str = "open";

/// In front of the number of a SQLite database.
const OF_DATABASE: &str = "sqlite-";

/// The archived log of a cluster, or of a SQLite database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPlace {
    place: PathBuf,
    root: PathBuf,
    system: u64,
    content: LogContent,
}

/// The name of an object: what it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Position of its first byte.
    pub start: Lsn,
    /// Position of the first byte behind it; `None` while it grows.
    pub end: Option<Lsn>,
    /// The file.
    pub path: PathBuf,
}

impl ObjectName {
    fn parse(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
        let (start, end) = name.split_once('-')?;
        let end = match end {
            GROWING => None,
            end => Some(hex(end, 16)?),
        };
        let start = hex(start, 16)?;
        if end.is_some_and(|end| end <= start) {
            return None;
        }
        Some(Self {
            start: Lsn(start),
            end: end.map(Lsn),
            path,
        })
    }

    /// Whether the object may hold this position.
    pub fn may_hold(&self, at: Lsn) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }
}

fn hex(text: &str, digits: usize) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}

impl LogPlace {
    /// The log of a cluster in a place. Nothing is looked up.
    pub fn new(place: impl AsRef<Path>, system: u64) -> Self {
        let place = place.as_ref().to_owned();
        let root = place.join(LOG).join(system.to_string());
        Self {
            place,
            root,
            system,
            content: LogContent::Log,
        }
    }

    /// The log of a SQLite database in a place. Nothing is looked up.
    pub fn of_database(place: impl AsRef<Path>, database: u64) -> Self {
        let place = place.as_ref().to_owned();
        let name = format!("{OF_DATABASE}{database:016X}");
        Self {
            root: place.join(LOG).join(name),
            place,
            system: database,
            content: LogContent::Commits,
        }
    }

    /// The log of a cluster in a place that has some. Without a system identifier, the place must
    /// hold the log of one cluster only.
    pub fn open(place: impl AsRef<Path>, system: Option<u64>) -> Result<Self, RepositoryError> {
        let place = place.as_ref();
        let mut systems = log_systems(place)?;
        match system {
            Some(wanted) => systems.retain(|one| *one == wanted),
            None if systems.len() > 1 => {
                let place = place.to_owned();
                return Err(RepositoryError::SeveralSystems { place, systems });
            }
            None => {}
        }
        match systems.first() {
            Some(found) => Ok(Self::new(place, *found)),
            None => Err(RepositoryError::NoLog {
                place: place.to_owned(),
                system,
            }),
        }
    }

    /// The cluster, or the database.
    pub fn system(&self) -> u64 {
        self.system
    }

    /// The directory of this log.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What the objects of the log hold.
    pub(crate) fn content(&self) -> &LogContent {
        &self.content
    }

    /// Makes the directory of this log, durably. While the value lives that is returned, no other
    /// process writes this log.
    pub(crate) fn lock(&self) -> Result<Option<Locked<File>>, RepositoryError> {
        self.make_directory_of(&self.root.join(FILES))?;
        let directory = File::open(&self.root).doing("open", &self.root)?;
        match Locked::take(directory) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let path = self.root.clone();
                Err(RepositoryError::Locked { path })
            }
            // Without locks there is no other process that could be asked.
            Err(_) => Ok(None),
        }
    }

    /// The place, as it was named.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// The timelines that have log here, in ascending order.
    pub fn timelines(&self) -> Result<Vec<Timeline>, RepositoryError> {
        let numbers = self.numbers_in(&self.root)?.into_iter();
        let timelines = numbers.filter_map(|number| u32::try_from(number).ok());
        Ok(timelines.map(Timeline).collect())
    }

    /// Whether somebody receives this log, or was killed while receiving it: its last object grows.
    pub fn is_received(&self) -> Result<bool, RepositoryError> {
        let Some(newest) = self.timelines()?.pop() else {
            return Ok(false);
        };
        let last = self.objects(newest)?.pop();
        Ok(last.is_some_and(|last| last.end.is_none()))
    }

    /// The objects of a timeline whose positions have this upper half, by their beginnings.
    pub fn objects_at(
        &self,
        timeline: Timeline,
        at: Lsn,
    ) -> Result<Vec<ObjectName>, RepositoryError> {
        self.objects_in(&self.directory(timeline, at))
    }

    /// Objects that were begun at a position or before it, also those that hold nothing.
    pub(crate) fn begun_at(
        &self,
        timeline: Timeline,
        at: Lsn,
    ) -> Result<Vec<ObjectName>, RepositoryError> {
        let mut begun = self.names_of_objects(&self.directory(timeline, at))?;
        begun.retain(|name| name.end.is_none() && name.start <= at);
        Ok(begun)
    }

    /// All objects of a timeline, by their beginnings.
    pub fn objects(&self, timeline: Timeline) -> Result<Vec<ObjectName>, RepositoryError> {
        let mut found = Vec::new();
        for high in self.upper_halves(timeline)? {
            found.extend(self.objects_at(timeline, Lsn(high << 32))?);
        }
        Ok(found)
    }

    /// The upper halves of positions of which a timeline has log, in ascending order.
    pub fn upper_halves(&self, timeline: Timeline) -> Result<Vec<u64>, RepositoryError> {
        self.numbers_in(&self.timeline_directory(timeline))
    }

    /// The names of the files that belong to the log.
    pub fn files(&self) -> Result<Vec<String>, RepositoryError> {
        let names = names_in(&self.root.join(FILES))?;
        let names = names.iter().filter_map(|name| name.strip_suffix(SUFFIX));
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Where an object is that holds this range.
    pub(crate) fn object_path(&self, timeline: Timeline, start: Lsn, end: Lsn) -> PathBuf {
        let name = format!("{:016X}-{:016X}{SUFFIX}", start.0, end.0);
        self.directory(timeline, start).join(name)
    }

    /// Where an object is that grows from this position on.
    pub(crate) fn growing_path(&self, timeline: Timeline, start: Lsn) -> PathBuf {
        let name = format!("{:016X}-{GROWING}{SUFFIX}", start.0);
        self.directory(timeline, start).join(name)
    }

    /// Where a file is that belongs to the log.
    pub(crate) fn file_path(&self, name: &str) -> PathBuf {
        self.root.join(FILES).join(format!("{name}{SUFFIX}"))
    }

    fn timeline_directory(&self, timeline: Timeline) -> PathBuf {
        self.root.join(format!("{:08X}", timeline.0))
    }

    fn directory(&self, timeline: Timeline, at: Lsn) -> PathBuf {
        let high = at.0 >> 32;
        self.timeline_directory(timeline)
            .join(format!("{high:08X}"))
    }

    fn objects_in(&self, directory: &Path) -> Result<Vec<ObjectName>, RepositoryError> {
        let mut objects = Vec::new();
        for name in self.names_of_objects(directory)? {
            // A receiver that was killed before it wrote a header never told anybody of log there.
            if name.end.is_some() || has_header(&name.path)? {
                objects.push(name);
            }
        }
        Ok(objects)
    }

    fn names_of_objects(&self, directory: &Path) -> Result<Vec<ObjectName>, RepositoryError> {
        let names = names_in(directory)?.into_iter();
        let mut objects: Vec<_> = names
            .filter_map(|name| ObjectName::parse(directory.join(name)))
            .collect();
        objects.sort();
        Ok(objects)
    }

    /// The names in a directory that are numbers of eight digits, in ascending order.
    fn numbers_in(&self, directory: &Path) -> Result<Vec<u64>, RepositoryError> {
        let names = names_in(directory)?;
        let mut numbers: Vec<_> = names.iter().filter_map(|name| hex(name, 8)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes the directory of a path below this place, and those above it, durably. The place
    /// itself must exist: a disk may not be mounted.
    pub(crate) fn make_directory_of(&self, path: &Path) -> Result<(), RepositoryError> {
        let directory = path.parent().unwrap_or(&self.root);
        for made in self.directories_of(directory) {
            let mut builder = std::fs::DirBuilder::new();
            match builder.mode(0o700).create(&made) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error).doing("make directory", &made),
            }
            durable::sync_parent(&made).doing("sync the directory of", &made)?;
        }
        // What an earlier run left is in our way nowhere else.
        durable::remove_all_left(directory);
        Ok(())
    }

    /// Makes the name of an object durable that exists already: a run that was killed may have left
    /// it, or its directories, without a sync.
    pub(crate) fn sync_names(&self, path: &Path) -> Result<(), RepositoryError> {
        let directory = path.parent().unwrap_or(&self.root);
        let above = std::iter::once(self.place.clone());
        for one in above.chain(self.directories_of(directory)) {
            let opened = File::open(&one).doing("open", &one)?;
            opened.sync_all().doing("sync", &one)?;
        }
        Ok(())
    }

    /// The directories from below the place to this one.
    fn directories_of(&self, directory: &Path) -> Vec<PathBuf> {
        let below = directory.strip_prefix(&self.place).unwrap_or(directory);
        let mut path = self.place.clone();
        let step = |part: std::path::Component<'_>| {
            path.push(part);
            path.clone()
        };
        below.components().map(step).collect()
    }
}

/// Whether a growing object has a header. A receiver may have been killed before it wrote one;
/// after a power cut there may be zeros.
pub(crate) fn has_header(path: &Path) -> Result<bool, RepositoryError> {
    let file = match windlass_engine::open_regular(path) {
        // It was sealed, and has another name now.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened.doing("open", path)?,
    };
    let mut header = [0; LOG_HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read
            .doing("read", path)
            .map(|()| header != [0; LOG_HEADER_BYTES]),
    }
}

/// The clusters whose log a place holds, in ascending order. Fails if the place is not there.
pub fn log_systems(place: &Path) -> Result<Vec<u64>, RepositoryError> {
    // A place that cannot be read, or that is not mounted, is no place without log.
    std::fs::read_dir(place).doing("list", place)?;
    let names = names_in(&place.join(LOG))?;
    let mut systems: Vec<u64> = names.iter().filter_map(|name| name.parse().ok()).collect();
    systems.sort_unstable();
    Ok(systems)
}

/// Whether a place has a directory for logs. Fails if the place is not there.
pub fn has_log(place: &Path) -> Result<bool, RepositoryError> {
    std::fs::read_dir(place).doing("list", place)?;
    Ok(place.join(LOG).is_dir())
}

/// The SQLite databases whose log a place holds, in ascending order.
pub fn log_databases(place: &Path) -> Result<Vec<u64>, RepositoryError> {
    std::fs::read_dir(place).doing("list", place)?;
    let names = names_in(&place.join(LOG))?;
    let number = |name: &String| hex(name.strip_prefix(OF_DATABASE)?, 16);
    let mut found: Vec<u64> = names.iter().filter_map(number).collect();
    found.sort_unstable();
    Ok(found)
}

/// The names in a directory; none if it does not exist.
pub(crate) fn names_in(directory: &Path) -> Result<Vec<String>, RepositoryError> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.doing("list", directory)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.doing("list", directory)?.file_name();
        names.extend(name.to_str().map(str::to_owned));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_others_are_passed_over() {
        let place = LogPlace::new("/place", 77);
        let (timeline, start, end) = (Timeline(2), Lsn(0xA_0300_0000), Lsn(0xA_0400_0000));
        let path = place.object_path(timeline, start, end);
        let expected = "/place/log/77/00000002/0000000A/0000000A03000000-0000000A04000000.wlog";
        assert_eq!(path, Path::new(expected));
        let name = ObjectName::parse(path).unwrap();
        assert_eq!((name.start, name.end), (start, Some(end)));
        assert!(name.may_hold(start) && !name.may_hold(end));
        let growing = ObjectName::parse(place.growing_path(timeline, start)).unwrap();
        assert_eq!((growing.start, growing.end), (start, None));
        for other in [
            "x.wlog",
            "0-1.wlog",
            "0000000A04000000-0000000A03000000.wlog",
            "a",
        ] {
            assert_eq!(ObjectName::parse(other.into()), None, "{other}");
        }
    }
}
