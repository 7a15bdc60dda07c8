//! Segments that are fetched before a server asks for them.
//!
//!   server asks for N --> there already? -- yes --> moved to the server
//!                              | no --> fetched from the place
//!   then, beside the server: N+1, N+2, ... --fetched and checked--> directory
//!
//! Invariants
//! - A segment is here only if the place had all of it and every checksum was right. What the log
//!   has of its last segment is never kept: more may come.
//! - Nothing here says that a segment is absent. Whatever is wrong here, the place is asked.
//! - Each place and cluster has a directory of its own. Two places may hold different log under one
//!   name.

pub(crate) mod directory;

use std::io::ErrorKind;
use std::path::Path;

use directory::SpoolDirectory;
use windlass_engine::durable::{self, Locked};
use windlass_postgres::Segment;

use crate::error::{IoContext, RepositoryError};
use crate::fetch::{Fetched, fetch};
use crate::file_name::LogFileName;
use crate::place::LogPlace;
use crate::writer::MODE;

/// While a segment is being fetched.
const PART: &str = ".part";
/// Locked as long as a segment is being fetched.
const BUSY: &str = ".busy";

/// A directory of segments that are fetched ahead.
#[derive(Debug)]
pub struct Spool {
    directory: SpoolDirectory,
}

impl Spool {
    /// That of a place and a cluster, below a directory that exists.
    pub fn of(root: &Path, place: &LogPlace) -> Result<Self, RepositoryError> {
        let of = place.at().absolute()?;
        let system = place.system().to_le_bytes();
        let directory = SpoolDirectory::of(root, &[of.as_os_str().as_encoded_bytes(), &system])?;
        Ok(Self { directory })
    }

    /// Moves a segment to where the server wants it. `None` if it is not here. Waits while it is
    /// being fetched: to fetch it a second time would take as long, and twice the work.
    pub fn take(&self, name: &str, into: &Path) -> Result<Option<u64>, RepositoryError> {
        if let Some(bytes) = self.take_now(name, into)? {
            return Ok(Some(bytes));
        }
        let busy = self.directory.join(&format!("{name}{BUSY}"));
        match windlass_engine::open_regular(&busy) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            opened => {
                let opened = opened.doing("open", &busy)?;
                Locked::wait(&opened).doing("lock", &busy)?;
            }
        }
        self.take_now(name, into)
    }

    fn take_now(&self, name: &str, into: &Path) -> Result<Option<u64>, RepositoryError> {
        let path = self.directory.join(name);
        let found = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found.doing("examine", &path)?,
        };
        #[expect(clippy::disallowed_methods, reason = "the server makes it durable")]
        let moved = std::fs::rename(&path, into);
        match moved {
            Ok(()) => Ok(Some(found.len())),
            // Another server took it.
            Err(error) if error.kind() == ErrorKind::NotFound && into.parent().is_some() => {
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::CrossesDevices => {
                copy(&path, into)?;
                std::fs::remove_file(&path).doing("remove", &path)?;
                Ok(Some(found.len()))
            }
            Err(error) => Err(error).doing("name", into),
        }
    }

    /// Whether the segments after this one are to be fetched: nobody does it, and no more than half
    /// of those that are wanted are here. To start a process for each segment that was taken would
    /// cost as much as to fetch it.
    pub fn is_wanted(&self, (name, ahead): (&str, usize)) -> Result<bool, RepositoryError> {
        let is_segment =
            |one: &str| matches!(LogFileName::parse(one), Some(LogFileName::Segment(_)));
        let names = self.directory.names()?;
        let behind = names
            .iter()
            .filter(|one| is_segment(one) && one.as_str() > name);
        Ok(behind.count() <= ahead / 2 && self.directory.turn()?.is_some())
    }

    /// Fetches the segments after this one, up to the end of the log, and removes all others.
    /// Returns how many are here then. Does nothing if somebody else fetches.
    pub fn fill(
        &self,
        place: &LogPlace,
        (name, ahead): (&str, usize),
        threads: usize,
    ) -> Result<usize, RepositoryError> {
        let Some(_turn) = self.directory.turn()? else {
            return Ok(0);
        };
        let timeline = LogFileName::Segment(name.to_owned()).timeline();
        let Some(bytes) = place.segment_bytes(timeline)? else {
            return Ok(0);
        };
        let Some(asked) = Segment::of_name(name, bytes) else {
            return Ok(0);
        };
        let numbers = asked.number + 1..=asked.number + ahead as u64;
        let name = |number| Segment { timeline, number }.name(bytes);
        let wanted: Vec<_> = numbers.map(name).collect();
        self.remove_others(&wanted)?;
        for (count, name) in wanted.iter().enumerate() {
            if !self.fetch(place, name, threads)? {
                return Ok(count);
            }
        }
        Ok(wanted.len())
    }

    /// Fetches a segment, unless it is here. False if the place does not have all of it.
    fn fetch(&self, place: &LogPlace, name: &str, threads: usize) -> Result<bool, RepositoryError> {
        if self.directory.join(name).exists() {
            return Ok(true);
        }
        let busy = self.directory.join(&format!("{name}{BUSY}"));
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = windlass_engine::open_own(&busy, options).doing("open", &busy)?;
        let _busy = Locked::take(file).doing("lock", &busy)?;
        let fetched = self.fetch_part(place, name, threads);
        std::fs::remove_file(&busy).doing("remove", &busy)?;
        fetched
    }

    fn fetch_part(
        &self,
        place: &LogPlace,
        name: &str,
        threads: usize,
    ) -> Result<bool, RepositoryError> {
        let path = self.directory.join(name);
        let part = self.directory.join(&format!("{name}{PART}"));
        let name = LogFileName::Segment(name.to_owned());
        match fetch(place, &name, &part, (threads, None))? {
            Fetched::Complete { .. } => {
                #[expect(clippy::disallowed_methods, reason = "it need not be durable")]
                let named = std::fs::rename(&part, &path);
                named.doing("name", &path).map(|()| true)
            }
            Fetched::UpTo { .. } => {
                std::fs::remove_file(&part).doing("remove", &part)?;
                Ok(false)
            }
            Fetched::Absent => Ok(false),
        }
    }

    /// Removes what nobody asks for any more: earlier segments, and directories of earlier runs of
    /// the machine.
    fn remove_others(&self, wanted: &[String]) -> Result<(), RepositoryError> {
        for name in self.directory.names()? {
            if !wanted.contains(&name) {
                let path = self.directory.join(&name);
                std::fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        self.directory.remove_earlier()
    }
}

/// Copies a segment to another file system.
fn copy(from: &Path, into: &Path) -> Result<(), RepositoryError> {
    let mut source = windlass_engine::open_regular(from).doing("open", from)?;
    let (mut file, temporary) = durable::create_temporary(into, MODE).doing("create", into)?;
    let copied = std::io::copy(&mut source, &mut file).doing("copy", from);
    #[expect(clippy::disallowed_methods, reason = "the server makes it durable")]
    let named = copied.and_then(|_| std::fs::rename(&temporary, into).doing("name", into));
    if named.is_err() {
        // The file is ours alone and incomplete. The error to show is the one that stopped it.
        std::fs::remove_file(&temporary).unwrap_or_default();
    }
    named
}
