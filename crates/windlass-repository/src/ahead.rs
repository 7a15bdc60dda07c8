//! Segments that are stored before the server hands them over.
//!
//!   server hands over N --> receipt? -- right --> done: its object is durable
//!                             | being stored --> wait until that has ended, look again
//!                             | none --> pushed now
//!   then, beside the server: N+1, N+2, ... those that it has marked as ready --> objects, receipts
//!
//! A group of segments has one file here. It is locked while the group is being stored, and empty
//! until the object is durable. Then it has a receipt for each segment, and the object's path.
//!
//! Invariants
//! - A receipt is written when the object is durable in the place, and counts only as long as the
//!   segment, and the object if it is a file, are the files that they were, unchanged. Whatever is
//!   wrong here, the segment is pushed as without this.
//! - Nothing is stored ahead of a segment that the place does not have: a place never gets a gap.
//! - An error ends this, and never the server's work. The next call meets the cause itself, or
//!   tells what it was.

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, Locked};
use windlass_media::fitted;
use windlass_postgres::Segment;

use crate::error::{IoContext, RepositoryError};
use crate::file_name::LogFileName;
use crate::push::source::Source;
use crate::push::{Checked, PushRequest, check, data_directory, is_ready, system_of};
use crate::spool::directory::SpoolDirectory;
use crate::writer::MODE;

/// What ended the last run that stored ahead.
const ERROR: &str = "error";
/// Until the file of a group is locked.
const PART: &str = ".part";
const RECEIPT_BYTES: usize = 32;
/// No file here is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is known of the segments that were stored ahead of a server.
#[derive(Debug)]
pub struct Ahead {
    directory: SpoolDirectory,
    /// Whether the place is a directory, in which objects are files that can be looked at.
    is_directory: bool,
}

/// A group of segments and its file.
struct GroupName {
    first: String,
    last: String,
}

impl GroupName {
    fn parse(name: &str) -> Option<Self> {
        let (first, last) = name.split_once('-')?;
        let is_segment = |name| matches!(LogFileName::parse(name), Some(LogFileName::Segment(_)));
        let (first, last) = (first.to_owned(), last.to_owned());
        (is_segment(&first) && is_segment(&last)).then_some(Self { first, last })
    }

    /// Names of one timeline are in the order of their segments.
    fn has(&self, name: &str) -> bool {
        self.first[..8] == name[..8] && *self.first <= *name && *name <= *self.last
    }

    fn file(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }
}

/// Refuses a directory for a spool that lies in the data directory of a file to archive.
pub fn check_spool(root: &Path, file: &Path) -> Result<(), RepositoryError> {
    // Whether the spool is there is another question.
    let Ok(real) = root.canonicalize() else {
        return Ok(());
    };
    let data = data_directory(file);
    let log = file.parent().unwrap_or(Path::new("."));
    let is_data = data.join("global/pg_control").exists();
    // pg_wal may be a link to another disk.
    let owned = [Some(log), is_data.then_some(data.as_path())];
    for own in owned.into_iter().flatten() {
        if own.canonicalize().is_ok_and(|own| real.starts_with(own)) {
            return Err(RepositoryError::SpoolInside {
                path: root.to_owned(),
                data: own.to_owned(),
            });
        }
    }
    Ok(())
}

impl Ahead {
    /// That of a server and a place, below a directory that exists.
    pub fn of(root: &Path, request: &PushRequest) -> Result<Self, RepositoryError> {
        let place = request.place.absolute()?;
        let log = request.path.parent().unwrap_or(Path::new("."));
        let log = std::path::absolute(log).doing("find", log)?;
        let words = [
            b"push".as_slice(),
            place.as_os_str().as_bytes(),
            b"\0",
            log.as_os_str().as_bytes(),
            &system_of(request)?.unwrap_or_default().to_le_bytes(),
        ];
        let directory = SpoolDirectory::of(root, &words)?;
        Ok(Self {
            directory,
            is_directory: request.place.is_directory(),
        })
    }

    /// Whether a segment is durable in the place, stored ahead. Waits while it is being stored.
    pub fn has(&self, path: &Path) -> Result<bool, RepositoryError> {
        let Some(name) = segment_name(path) else {
            return Ok(false);
        };
        for group in self.groups()?.iter().filter(|group| group.has(&name)) {
            if self.is_received(group, path, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the server has marked the next segment as ready, and nobody stores it yet.
    pub fn is_wanted(&self, path: &Path) -> Result<bool, RepositoryError> {
        let Some(next) = next_of(path)? else {
            return Ok(false);
        };
        let name = segment_name(&next).unwrap_or_default();
        let is_ready = is_ready(next.parent().unwrap_or(Path::new(".")), &name);
        let is_new = is_ready && !self.groups()?.iter().any(|group| group.has(&name));
        // Whoever has the turn goes on to it.
        Ok(is_new && self.directory.turn()?.is_some())
    }

    /// What ended the last run that stored ahead, told once.
    pub fn failure(&self) -> Option<String> {
        let path = self.directory.join(ERROR);
        let text = windlass_engine::read_regular_at_most(&path, FILE_BYTES_MAX).ok()?;
        std::fs::remove_file(&path).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Stores the segments after the one that the server handed over, as long as there are some.
    /// Returns how many. Does nothing if another process does it.
    pub fn store(&self, request: &PushRequest) -> Result<usize, RepositoryError> {
        let Some(_turn) = self.directory.turn()? else {
            return Ok(0);
        };
        let stored = self.store_all(request);
        if let Err(error) = &stored {
            let path = self.directory.join(ERROR);
            durable::write_unsynced(&path, error.to_string().as_bytes(), MODE)
                .doing("write", &path)?;
        }
        stored
    }

    fn store_all(&self, request: &PushRequest) -> Result<usize, RepositoryError> {
        self.directory.remove_earlier()?;
        let (mut stored, mut at) = (0, request.path.clone());
        while let Some(next) = next_of(&at)? {
            let directory = next.parent().unwrap_or(Path::new("."));
            let name = segment_name(&next).unwrap_or_default();
            if !is_ready(directory, &name) {
                break;
            }
            self.remove_passed(directory)?;
            let groups = self.groups()?;
            if let Some(known) = groups.iter().find(|group| group.has(&name))
                && self.is_received(known, &next, &name)?
            {
                at = directory.join(&known.last);
                continue;
            }
            let path = next.clone();
            let (last, count) = self.store_group(&PushRequest {
                path,
                ..request.clone()
            })?;
            (stored, at) = (stored + count, last);
        }
        Ok(stored)
    }

    /// Stores a segment, with those after it that go into its object. Returns the last one.
    fn store_group(&self, request: &PushRequest) -> Result<(PathBuf, usize), RepositoryError> {
        match check(request)? {
            Checked::There(source, object, place) => {
                let mut file = self.begin(&source, &source)?;
                place.sync_names(&object)?;
                let (path, seen) = (source.path.clone(), [source.metadata()?]);
                self.receive(&mut file, &object, &seen)?;
                Ok((path, 1))
            }
            Checked::New(group) => {
                let (first, last) = group.ends();
                let mut file = self.begin(first, last)?;
                let (path, count) = (last.path.clone(), group.segments.len());
                // A change while a segment is being read must not go unnoticed.
                let seen = group.segments.iter().map(Source::metadata);
                let seen = seen.collect::<Result<Vec<_>, _>>()?;
                let (object, _) = group.store(request)?;
                self.receive(&mut file, &object, &seen)?;
                Ok((path, count))
            }
        }
    }

    /// Makes the file of a group, which is locked until the value is dropped.
    fn begin(&self, first: &Source, last: &Source) -> Result<Locked<File>, RepositoryError> {
        let name = |source: &Source| source.segment.name(source.segment_bytes);
        let (first, last) = (name(first), name(last));
        let path = self.directory.join(&GroupName { first, last }.file());
        let part = self.directory.join(PART);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true);
        let file = windlass_engine::open_own(&part, options).doing("open", &part)?;
        let file = Locked::take(file).doing("lock", &part)?;
        #[expect(clippy::disallowed_methods, reason = "it need not be durable")]
        let named = std::fs::rename(&part, &path);
        named.doing("name", &path).map(|()| file)
    }

    /// Writes down that an object has these segments, and is durable.
    fn receive(
        &self,
        file: &mut Locked<File>,
        object: &Path,
        segments: &[Metadata],
    ) -> Result<(), RepositoryError> {
        let stored = self.stored(object).doing("examine", object)?;
        let receipts = segments
            .iter()
            .map(|one| receipt(one, object, stored.as_ref()));
        let mut bytes: Vec<u8> = receipts.flatten().collect();
        bytes.extend_from_slice(object.as_os_str().as_bytes());
        (&**file).write_all(&bytes).doing("write", object)
    }

    fn is_received(
        &self,
        group: &GroupName,
        path: &Path,
        name: &str,
    ) -> Result<bool, RepositoryError> {
        let known = self.directory.join(&group.file());
        let mut file = match windlass_engine::open_regular(&known) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.doing("open", &known)?,
        };
        Locked::wait(&file).doing("lock", &known)?;
        let mut bytes = Vec::new();
        let most = (&mut file).take(FILE_BYTES_MAX);
        { most }.read_to_end(&mut bytes).doing("read", &known)?;
        let found = std::fs::symlink_metadata(path).doing("examine", path)?;
        let number = |name| Segment::of_name(name, found.len()).map(|one| one.number);
        let numbers = (number(&group.first), number(name), number(&group.last));
        let (Some(first), Some(own), Some(last)) = numbers else {
            return Ok(false);
        };
        let place = |number: u64| fitted::<usize, u64>(number - first) * RECEIPT_BYTES;
        let (at, end) = (place(own), place(last + 1));
        let (Some(own), Some(object)) = (bytes.get(at..at + RECEIPT_BYTES), bytes.get(end..))
        else {
            return Ok(false);
        };
        let object = Path::new(std::ffi::OsStr::from_bytes(object));
        let stored = self.stored(object);
        Ok(stored.is_ok_and(|stored| own == receipt(&found, object, stored.as_ref())))
    }

    /// The file that an object is. To look at one in a bucket would cost a request for each
    /// segment, and nothing changes or replaces it there.
    fn stored(&self, object: &Path) -> std::io::Result<Option<Metadata>> {
        match self.is_directory {
            true => std::fs::symlink_metadata(object).map(Some),
            false => Ok(None),
        }
    }

    /// Removes the files of groups that the server needs no more.
    fn remove_passed(&self, log: &Path) -> Result<(), RepositoryError> {
        for group in self.groups()? {
            if !is_ready(log, &group.last) {
                let path = self.directory.join(&group.file());
                std::fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }

    fn groups(&self) -> Result<Vec<GroupName>, RepositoryError> {
        let names = self.directory.names()?;
        Ok(names
            .iter()
            .filter_map(|name| GroupName::parse(name))
            .collect())
    }
}

/// The name of a segment; `None` if it is another file.
fn segment_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    match LogFileName::parse(name) {
        Some(LogFileName::Segment(name)) => Some(name),
        _ => None,
    }
}

/// The segment after this one, by the size of this one.
fn next_of(path: &Path) -> Result<Option<PathBuf>, RepositoryError> {
    let Some(name) = segment_name(path) else {
        return Ok(None);
    };
    let bytes = std::fs::symlink_metadata(path)
        .doing("examine", path)?
        .len();
    let own = Segment::of_name(&name, bytes);
    let next = own.map(|own| Segment {
        number: own.number + 1,
        ..own
    });
    Ok(next.map(|next| path.with_file_name(next.name(bytes))))
}

/// What says that this segment is in this object. It differs if one of the files was changed or
/// replaced since, or is in another file system.
fn receipt(segment: &Metadata, object: &Path, stored: Option<&Metadata>) -> [u8; RECEIPT_BYTES] {
    let mut hasher = blake3::Hasher::new();
    for found in std::iter::once(segment).chain(stored) {
        for number in [found.dev(), found.ino(), found.len()] {
            hasher.update(&number.to_le_bytes());
        }
        for time in [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ] {
            hasher.update(&time.to_le_bytes());
        }
    }
    hasher.update(object.as_os_str().as_bytes());
    *hasher.finalize().as_bytes()
}
