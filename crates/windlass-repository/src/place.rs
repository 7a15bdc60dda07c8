//! The log of one cluster in a place: its folders, and the objects in them.
//!
//! Invariants
//! - A list is complete, or an error. A folder that cannot be read never looks like an empty one,
//!   because recovery would then end early.

mod at;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::durable::Locked;
use windlass_engine::{Keep, Listing, ReadAt, Reading};
use windlass_media::LogContent;
use windlass_postgres::{Lsn, Timeline};

use crate::error::{IoContext, RepositoryError};
use crate::locked::is_begun;
pub use at::{Place, has_log, log_databases, log_systems};

/// The folder of a place that holds logs.
const LOG: &str = "log";
/// The folder for files that belong to a log.
const FILES: &str = "files";
/// The end of every object's name.
const SUFFIX: &str = ".wlog";
/// Instead of the end of its range, for an object that grows.
const GROWING: &str = "open";

/// In front of the number of a SQLite database.
const OF_DATABASE: &str = "sqlite-";

/// No object of a timeline is longer than this, decoded, unless a segment is.
pub(crate) const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// The archived log of a cluster, or of a SQLite database.
#[derive(Clone, Debug)]
pub struct LogPlace {
    place: Place,
    root: PathBuf,
    system: u64,
    content: LogContent,
    /// What makes this process the only one that writes it, where nothing can be locked.
    note: Option<Arc<dyn Keep>>,
}

/// The name of an object: what it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Position of its first byte.
    pub start: Lsn,
    /// Position of the first byte behind it; `None` while it grows.
    pub end: Option<Lsn>,
    /// Where it is.
    pub path: PathBuf,
    /// Its length, if the list says it.
    pub(crate) bytes: Option<u64>,
}

impl ObjectName {
    fn parse((path, bytes): (PathBuf, Option<u64>)) -> Option<Self> {
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
            bytes,
        })
    }

    /// Whether the object may hold this position.
    pub fn may_hold(&self, at: Lsn) -> bool {
        self.start <= at && self.end.is_none_or(|end| at < end)
    }

    /// Whether another object has all that this one has, and more.
    pub(crate) fn lies_within(&self, other: &Self) -> bool {
        let (Some(end), Some(other_end)) = (self.end, other.end) else {
            return false;
        };
        let is_inside = other.start <= self.start && end <= other_end;
        is_inside && (self.start, end) != (other.start, other_end)
    }
}

fn hex(text: &str, digits: usize) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    is_number
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}

/// Where the log of a place is, if that is a directory.
pub fn log_directory(place: &Path) -> PathBuf {
    place.join(LOG)
}

impl LogPlace {
    /// The log of a cluster in a place. Nothing is looked up.
    pub fn new(place: &Place, system: u64) -> Self {
        Self {
            place: place.clone(),
            root: place.path().join(LOG).join(system.to_string()),
            system,
            content: LogContent::Log,
            note: None,
        }
    }

    /// The log of a SQLite database in a place. Nothing is looked up.
    pub fn of_database(place: &Place, database: u64) -> Self {
        let name = format!("{OF_DATABASE}{database:016X}");
        Self {
            root: place.path().join(LOG).join(name),
            place: place.clone(),
            system: database,
            content: LogContent::Commits,
            note: None,
        }
    }

    /// The same log. It is written only as long as this keeps others from it.
    pub fn held_by(self, note: Option<Arc<dyn Keep>>) -> Self {
        Self { note, ..self }
    }

    /// Fails if others were not kept from this log all the time.
    pub(crate) fn check_held(&self) -> Result<(), RepositoryError> {
        let place = self.place.path();
        let has_kept = match &self.note {
            Some(note) => note.has_kept(),
            None => Ok(true),
        };
        match has_kept.doing("look for the note of a receiver in", place)? {
            true => Ok(()),
            false => Err(RepositoryError::NoteGone {
                place: place.to_owned(),
            }),
        }
    }

    /// The log of a cluster in a place that has some. Without a system identifier, the place must
    /// hold the log of one cluster only.
    pub fn open(place: &Place, system: Option<u64>) -> Result<Self, RepositoryError> {
        let mut systems = log_systems(place)?;
        match system {
            Some(wanted) => systems.retain(|one| *one == wanted),
            None if systems.len() > 1 => {
                let place = place.path().to_owned();
                return Err(RepositoryError::SeveralSystems { place, systems });
            }
            None => {}
        }
        match systems.first() {
            Some(found) => Ok(Self::new(place, *found)),
            None => Err(RepositoryError::NoLog {
                place: place.path().to_owned(),
                system,
            }),
        }
    }

    /// The cluster, or the database.
    pub fn system(&self) -> u64 {
        self.system
    }

    /// The folder of this log.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What the objects of the log hold.
    pub(crate) fn content(&self) -> &LogContent {
        &self.content
    }

    /// Makes the directory of this log, durably. While the value lives that is returned, no other
    /// process writes this log. In a bucket nothing can be locked: whoever writes there leaves a
    /// note before.
    pub(crate) fn lock(&self) -> Result<Option<Locked<File>>, RepositoryError> {
        if !self.place.is_directory() {
            return Ok(None);
        }
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
        self.place.path()
    }

    /// The place.
    pub fn at(&self) -> &Place {
        &self.place
    }

    /// The same log. What is written to it is not encrypted.
    pub(crate) fn in_clear(&self) -> Self {
        Self {
            place: self.place.clone().encrypting(None),
            ..self.clone()
        }
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
        let folder = self.directory(timeline, at);
        self.with_headers(self.names_of_objects(&folder, Listing::Own)?)
    }

    /// The same, but objects that end before this position may be left out.
    pub(crate) fn objects_from(
        &self,
        timeline: Timeline,
        (at, segment_bytes): (Lsn, u64),
    ) -> Result<Vec<ObjectName>, RepositoryError> {
        let before = OBJECT_BYTES_MAX.max(segment_bytes);
        let first = at.0.saturating_sub(before).max(at.0 >> 32 << 32);
        let folder = self.directory(timeline, at);
        let first = format!("{first:016X}");
        self.with_headers(self.names_of_objects(&folder, Listing::From(&first))?)
    }

    /// Objects that were begun at a position or before it, also those that hold nothing.
    pub(crate) fn begun_at(
        &self,
        timeline: Timeline,
        at: Lsn,
    ) -> Result<Vec<ObjectName>, RepositoryError> {
        // An object is in the folder of its beginning.
        let before = Lsn(at.0.saturating_sub(1));
        let mut folders = vec![
            self.directory(timeline, before),
            self.directory(timeline, at),
        ];
        folders.dedup();
        let mut begun = Vec::new();
        for folder in folders {
            begun.append(&mut self.names_of_objects(&folder, Listing::Own)?);
        }
        begun.retain(|name| name.end.is_none() && name.start <= at);
        Ok(begun)
    }

    /// All objects of a timeline, by their beginnings.
    pub fn objects(&self, timeline: Timeline) -> Result<Vec<ObjectName>, RepositoryError> {
        let folder = self.timeline_directory(timeline);
        let mut found = self.names_of_objects(&folder, Listing::Below)?;
        let is_half = |name: &ObjectName| {
            let half = name.path.parent().and_then(Path::file_name);
            half.and_then(|half| hex(half.to_str()?, 8)) == Some(name.start.0 >> 32)
        };
        found.retain(is_half);
        self.with_headers(found)
    }

    /// The upper halves of positions of which a timeline has log, in ascending order.
    pub fn upper_halves(&self, timeline: Timeline) -> Result<Vec<u64>, RepositoryError> {
        self.numbers_in(&self.timeline_directory(timeline))
    }

    /// The names of the files that belong to the log.
    pub fn files(&self) -> Result<Vec<String>, RepositoryError> {
        let folder = self.root.join(FILES);
        let listed = self.place.objects().objects(&folder, Listing::Own);
        let listed = listed.doing("list", &folder)?;
        let names = listed.iter().filter_map(|one| {
            let name = one.location.file_name()?.to_str()?;
            name.strip_suffix(SUFFIX).map(str::to_owned)
        });
        let mut names: Vec<_> = names.collect();
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

    fn with_headers(&self, names: Vec<ObjectName>) -> Result<Vec<ObjectName>, RepositoryError> {
        let mut objects = Vec::with_capacity(names.len());
        for name in names {
            // A receiver that was killed before it wrote a header never told anybody of log there.
            let is_sealed = name.end.is_some();
            if is_sealed || self.has_header(&name)? || self.marked(&name)?.is_there() {
                objects.push(name);
            }
        }
        Ok(objects)
    }

    /// Whether a growing object was begun. A receiver may have been killed before it wrote the
    /// header; after a power cut there may be zeros.
    pub(crate) fn has_header(&self, name: &ObjectName) -> Result<bool, RepositoryError> {
        let path = &name.path;
        let opened = match self.open_bytes(name, Reading::Ends) {
            // It was sealed, and has another name now.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.doing("open", path)?,
        };
        is_begun(&*opened).doing("read", path)
    }

    pub(crate) fn open_bytes(
        &self,
        name: &ObjectName,
        reading: Reading,
    ) -> std::io::Result<Arc<dyn ReadAt>> {
        self.place.objects().open(&name.path, name.bytes, reading)
    }

    /// How many bytes an object has.
    pub(crate) fn stored_bytes(&self, name: &ObjectName) -> std::io::Result<u64> {
        match name.bytes {
            Some(bytes) => Ok(bytes),
            None => self.open_bytes(name, Reading::Ends)?.length(),
        }
    }

    fn names_of_objects(
        &self,
        folder: &Path,
        listing: Listing<'_>,
    ) -> Result<Vec<ObjectName>, RepositoryError> {
        let listed = self.place.objects().objects(folder, listing);
        let listed = listed.doing("list", folder)?.into_iter();
        let mut objects: Vec<_> = listed
            .filter_map(|one| ObjectName::parse((one.location, one.bytes)))
            .collect();
        objects.sort();
        Ok(objects)
    }

    /// The folders of a folder whose names are numbers of eight digits, in ascending order.
    fn numbers_in(&self, folder: &Path) -> Result<Vec<u64>, RepositoryError> {
        let names = self.place.folders(folder)?;
        let mut numbers: Vec<_> = names.iter().filter_map(|name| hex(name, 8)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes the directory of a path below this place, and those above it, durably. The place
    /// itself must exist: a disk may not be mounted.
    pub(crate) fn make_directory_of(&self, path: &Path) -> Result<(), RepositoryError> {
        match self.place.objects().directory() {
            Some(directory) => directory
                .make_parents(self.place.path(), path)
                .doing("make the directory of", path),
            None => Ok(()),
        }
    }

    /// Makes the names durable of what ends at a position, whoever stored it.
    pub(crate) fn sync_names_before(
        &self,
        timeline: Timeline,
        at: Lsn,
    ) -> Result<(), RepositoryError> {
        let path = self.growing_path(timeline, Lsn(at.0.saturating_sub(1)));
        let is_there = path.parent().is_some_and(Path::is_dir);
        match self.place.is_directory() && is_there {
            true => self.sync_names(&path),
            false => Ok(()),
        }
    }

    /// Makes the name of an object durable that exists already: a run that was killed may have left
    /// it, or its directories, without a sync.
    pub(crate) fn sync_names(&self, path: &Path) -> Result<(), RepositoryError> {
        let settled = self.place.objects().settle(self.place.path(), path);
        settled.doing("sync the directory of", path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_others_are_passed_over() {
        let place = LogPlace::new(&Place::directory("/place"), 77);
        let (timeline, start, end) = (Timeline(2), Lsn(0xA_0300_0000), Lsn(0xA_0400_0000));
        let path = place.object_path(timeline, start, end);
        let expected = "/place/log/77/00000002/0000000A/0000000A03000000-0000000A04000000.wlog";
        assert_eq!(path, Path::new(expected));
        let name = ObjectName::parse((path, None)).unwrap();
        assert_eq!((name.start, name.end), (start, Some(end)));
        assert!(name.may_hold(start) && !name.may_hold(end));
        let growing = ObjectName::parse((place.growing_path(timeline, start), None)).unwrap();
        assert_eq!((growing.start, growing.end), (start, None));
        for other in [
            "x.wlog",
            "0-1.wlog",
            "0000000A04000000-0000000A03000000.wlog",
            "a",
        ] {
            assert_eq!(ObjectName::parse((other.into(), None)), None, "{other}");
        }
    }
}
