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
//! - A file is used only in the run of the machine in which it was written, so that it need not be
//!   durable: after a power cut it could be empty under its name.
//! - Each place and cluster has a directory of its own. Two places may hold different log under one
//!   name.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use windlass_engine::durable::{self, Locked};
use windlass_postgres::Segment;

use crate::error::{IoContext, RepositoryError};
use crate::fetch::{Fetched, fetch, segment_bytes};
use crate::file_name::LogFileName;
use crate::place::LogPlace;
use crate::writer::MODE;

/// The kernel draws it anew at each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const PREFIX: &str = "windlass-";
const LOCK: &str = "lock";
/// While a segment is being fetched.
const PART: &str = ".part";

/// A directory of segments that are fetched ahead.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
}

impl Spool {
    /// That of a place and a cluster, below a directory that exists.
    pub fn of(root: &Path, place: &LogPlace) -> Result<Self, RepositoryError> {
        let boot = std::fs::read_to_string(BOOT_ID).doing("read", BOOT_ID)?;
        let boot = boot.trim().replace('-', "");
        let of = std::path::absolute(place.place()).doing("find", place.place())?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(of.as_os_str().as_encoded_bytes());
        hasher.update(&place.system().to_le_bytes());
        let key = hasher.finalize().to_hex();
        let directory = root.join(format!("{PREFIX}{boot}-{}", &key[..16]));
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).doing("make directory", &directory);
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(&directory).doing("examine", &directory)?;
        match is_own(&found) {
            true => Ok(Self { directory }),
            false => Err(RepositoryError::Spool { path: directory }),
        }
    }

    /// Moves a segment to where the server wants it. `None` if it is not here.
    pub fn take(&self, name: &str, into: &Path) -> Result<Option<u64>, RepositoryError> {
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

    /// Fetches the segments after this one, up to the end of the log, and removes all others.
    /// Returns how many are here then. Does nothing if somebody else fetches.
    pub fn fill(
        &self,
        place: &LogPlace,
        (name, ahead): (&str, usize),
        threads: usize,
    ) -> Result<usize, RepositoryError> {
        let Some(_turn) = self.turn()? else {
            return Ok(0);
        };
        let timeline = LogFileName::Segment(name.to_owned()).timeline();
        let Some(bytes) = segment_bytes(place, timeline)? else {
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
        let path = self.directory.join(name);
        if path.exists() {
            return Ok(true);
        }
        let part = self.directory.join(format!("{name}{PART}"));
        let name = LogFileName::Segment(name.to_owned());
        match fetch(place, &name, &part, threads)? {
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

    /// The right to write here. `None` if another process has it.
    fn turn(&self) -> Result<Option<Locked<File>>, RepositoryError> {
        let path = self.directory.join(LOCK);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(false);
        let file = windlass_engine::open_own(&path, options).doing("open", &path)?;
        match Locked::take(file) {
            Ok(lock) => Ok(Some(lock)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).doing("lock", &path),
        }
    }

    /// Removes what nobody asks for any more: earlier segments, and directories of earlier runs of
    /// the machine.
    fn remove_others(&self, wanted: &[String]) -> Result<(), RepositoryError> {
        for entry in std::fs::read_dir(&self.directory).doing("list", &self.directory)? {
            let entry = entry.doing("list", &self.directory)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != LOCK && !wanted.contains(&name) {
                let path = entry.path();
                std::fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        let own = self.directory.file_name().unwrap_or_default();
        let own = own.to_string_lossy().into_owned();
        let root = self.directory.parent().unwrap_or(Path::new("."));
        let boot = own.rsplit_once('-').map_or(own.as_str(), |(boot, _)| boot);
        for entry in std::fs::read_dir(root).doing("list", root)? {
            let entry = entry.doing("list", root)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_earlier = name.starts_with(PREFIX) && !name.starts_with(boot);
            if is_earlier && entry.metadata().is_ok_and(|found| is_own(&found)) {
                let path = entry.path();
                std::fs::remove_dir_all(&path).doing("remove", &path)?;
            }
        }
        Ok(())
    }
}

/// Whether this is a directory of this user, to which nobody else may write.
fn is_own(found: &Metadata) -> bool {
    let us = rustix::process::geteuid().as_raw();
    found.is_dir() && found.uid() == us && found.mode() & 0o022 == 0
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
