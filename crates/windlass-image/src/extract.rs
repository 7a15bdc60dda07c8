//! Taking files out of an image: what matches a pattern is written to a directory.
//!
//!   image --> [reader: group N + 1] --> writer: group N --> a temporary file --> its name
//!
//! Invariants
//! - Nothing is overwritten: a file that exists is an error. Below the directory that the caller
//!   named, no links are followed.
//! - A file has its name only when it is complete. One that could not be read to its end is removed
//!   again, and so is one whose bytes do not have the checksum that the image keeps of the whole
//!   file. What a killed extract left goes when another one writes to the same directory.
//! - An extract that is cancelled ends soon: the flag is looked at between small steps, and what
//!   waits to be made durable is bounded for each file.
//! - All extracted files are durable when the call returns.

mod pump;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use globset::{GlobBuilder, GlobSet};
use rustix::fs::{Mode, OFlags};
use windlass_engine::media::{FileEntry, FileKind, check_path};
use windlass_engine::{Cancel, durable};

use crate::error::ImageError;
use crate::image::Image;
use pump::Pump;
pub use pump::{EXTRACT_FLUSH_BYTES, EXTRACT_GROUP_BYTES};

/// Up to this many files are synced one by one.
const SYNCED_ALONE_MAX: usize = 64;

/// What was extracted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtractReport {
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Links that matched. They are not created, because they could lead anywhere.
    pub links_skipped: u64,
    /// Patterns that matched nothing.
    pub unmatched: Vec<String>,
}

/// Glob patterns for paths of an image, and which of them have matched.
#[derive(Debug)]
pub struct Patterns {
    globs: GlobSet,
    texts: Vec<String>,
    matched: Vec<bool>,
}

impl Patterns {
    /// `*` and `?` stay within a name, `**` does not. A pattern that matches a directory takes
    /// everything in it.
    pub fn new(patterns: &[String]) -> Result<Self, ImageError> {
        let fault = |pattern: &str| {
            let pattern = pattern.to_owned();
            move |source| ImageError::Pattern { pattern, source }
        };
        let mut builder = GlobSet::builder();
        for pattern in patterns {
            let plain = pattern.trim_start_matches("./").trim_matches('/');
            let glob = GlobBuilder::new(plain)
                .literal_separator(true)
                .backslash_escape(true)
                .build();
            builder.add(glob.map_err(fault(pattern))?);
        }
        Ok(Self {
            globs: builder.build().map_err(fault(&patterns.join(" ")))?,
            texts: patterns.to_vec(),
            matched: vec![false; patterns.len()],
        })
    }

    /// True when the path matches, or a directory that it is in. Notes which patterns matched.
    pub fn matches(&mut self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut any = false;
        for end in slashes.map(|(at, _)| at).chain([path.len()]) {
            let path = Path::new(OsStr::from_bytes(&path[..end]));
            for index in self.globs.matches(path) {
                self.matched[index] = true;
                any = true;
            }
        }
        any
    }

    /// The patterns that have matched nothing.
    pub fn unmatched(&self) -> Vec<String> {
        let patterns = self.texts.iter().zip(&self.matched);
        let unmatched = patterns.filter(|(_, matched)| !**matched);
        unmatched.map(|(pattern, _)| pattern.clone()).collect()
    }
}

/// Writes the files that match one of `patterns` below `into`. Creates `into` if it does not exist.
pub fn extract(
    image: &dyn Image,
    patterns: &[String],
    into: &Path,
    cancel: &Cancel,
) -> Result<ExtractReport, ImageError> {
    let mut patterns = Patterns::new(patterns)?;
    let mut report = extract_files(image, &mut |path| patterns.matches(path), into, cancel)?;
    report.unmatched = patterns.unmatched();
    Ok(report)
}

/// Writes the files whose paths are in `wanted` below `into`. Creates `into` if it does not exist.
pub fn extract_files(
    image: &dyn Image,
    wanted: &mut dyn FnMut(&[u8]) -> bool,
    into: &Path,
    cancel: &Cancel,
) -> Result<ExtractReport, ImageError> {
    let mut target = Destination::open(into)?;
    let mut report = ExtractReport::default();
    for entry in image.files().0.iter() {
        if !wanted(&entry.path) {
            continue;
        }
        match entry.kind {
            FileKind::Directory => {}
            FileKind::Symlink => report.links_skipped += 1,
            FileKind::File => {
                target.file(image, entry, cancel)?;
                report.files += 1;
                report.bytes += entry.bytes;
            }
        }
    }
    target.sync(cancel)?;
    Ok(report)
}

/// The directory that receives the files.
struct Destination<'a> {
    path: &'a Path,
    directory: OwnedFd,
    /// The directory of the last file. Files that follow each other are mostly in the same one.
    last: Option<Rc<Parent>>,
    /// Files to sync one by one, with their directories; `None` when there are too many.
    unsynced: Option<Vec<(OwnedFd, Rc<Parent>)>>,
    /// The directories from which everything is gone that killed extracts left.
    cleared: HashSet<(u64, u64)>,
    /// How many directories on the way to `path` did not exist before.
    made: usize,
}

/// A directory of the target that is open.
struct Parent {
    /// Its path in the image.
    path: Vec<u8>,
    directory: OwnedFd,
    /// A path that leads to this directory, whatever its name is by now.
    place: PathBuf,
}

/// How directories of the target are opened, one by one. A link among them is refused.
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

impl<'a> Destination<'a> {
    fn open(path: &'a Path) -> Result<Self, ImageError> {
        let fault = |source| error("create", path, source);
        let absolute = std::path::absolute(path).map_err(fault)?;
        let made = absolute.ancestors().take_while(|path| !path.exists());
        let made = made.count();
        DirBuilder::new()
            .recursive(true)
            .create(path)
            .map_err(fault)?;
        // The directory that the user named may be a link. Directories below it may not.
        let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
        let opened = rustix::fs::open(path, flags, Mode::empty());
        Ok(Self {
            path,
            directory: opened.map_err(|errno| fault(errno.into()))?,
            last: None,
            unsynced: Some(Vec::new()),
            cleared: HashSet::new(),
            made,
        })
    }

    fn file(
        &mut self,
        image: &dyn Image,
        entry: &FileEntry,
        cancel: &Cancel,
    ) -> Result<(), ImageError> {
        check_path(entry.file, &entry.path).map_err(windlass_engine::EngineError::from)?;
        let path = self.path.join(OsStr::from_bytes(&entry.path));
        let create = |source: io::Error| error("create", &path, source);
        let end = entry.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match end {
            Some(end) => (&entry.path[..end], &entry.path[end + 1..]),
            None => (&[][..], &entry.path[..]),
        };
        let parent = self.parent(above).map_err(create)?;
        let named = parent.place.join(OsStr::from_bytes(name));
        if is_in_use(&named) {
            return Err(create(io::ErrorKind::AlreadyExists.into()));
        }
        let (file, temporary) = durable::create_temporary(&named, 0o600).map_err(create)?;
        let written = Pump {
            image,
            entry,
            file: &file,
            path: &path,
            cancel,
        }
        .run();
        let named = written.and_then(|()| {
            let named = durable::name_new_unsynced(&file, &temporary, &named);
            named.map_err(|error| create(error.into()))
        });
        if named.is_err() {
            // The file is ours alone. The error to show is the one that stopped it.
            std::fs::remove_file(&temporary).unwrap_or_default();
        }
        named?;
        self.note(file.into(), parent);
        Ok(())
    }

    fn note(&mut self, file: OwnedFd, parent: Rc<Parent>) {
        if let Some(unsynced) = &mut self.unsynced {
            unsynced.push((file, parent));
            if unsynced.len() > SYNCED_ALONE_MAX {
                self.unsynced = None;
            }
        }
    }

    /// The directory with this path in the image, empty for the target itself. It is made if it
    /// does not exist, and cleared of what killed extracts left.
    fn parent(&mut self, path: &[u8]) -> io::Result<Rc<Parent>> {
        if let Some(last) = self.last.as_ref().filter(|last| last.path == path) {
            return Ok(Rc::clone(last));
        }
        let directory = self.make(path)?;
        let place = self.place(&directory, path);
        let found = rustix::fs::fstat(&directory)?;
        if self.cleared.insert((found.st_dev, found.st_ino)) {
            durable::remove_all_left(&place);
        }
        let path = path.to_owned();
        let parent = Rc::new(Parent {
            path,
            directory,
            place,
        });
        self.last = Some(Rc::clone(&parent));
        Ok(parent)
    }

    /// Creates and opens the directories of a path of the image, one by one.
    fn make(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mut directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?;
        let names = path.split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            match rustix::fs::mkdirat(&directory, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            directory = rustix::fs::openat(&directory, name, DIRECTORY, Mode::empty())?;
        }
        Ok(directory)
    }

    /// The path of an open directory.
    fn place(&self, directory: &OwnedFd, path: &[u8]) -> PathBuf {
        let open = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        match open.is_dir() {
            true => open,
            // Without proc(5) there is only the name.
            false => self.path.join(OsStr::from_bytes(path)),
        }
    }

    /// Makes all files and names durable. A few files are synced one by one, because a sync of the
    /// whole file system would also wait for what others write to it, perhaps the database.
    fn sync(&self, cancel: &Cancel) -> Result<(), ImageError> {
        let fault = |errno: rustix::io::Errno| error("sync", self.path, errno.into());
        match &self.unsynced {
            None => rustix::fs::syncfs(&self.directory).map_err(fault)?,
            Some(unsynced) => {
                for (file, parent) in unsynced {
                    cancel.check()?;
                    rustix::fs::fsync(file).map_err(fault)?;
                    rustix::fs::fsync(&parent.directory).map_err(fault)?;
                }
            }
        }
        self.sync_above().map_err(fault)
    }

    /// Syncs the names of the directories that were created: each stands in the directory above it.
    fn sync_above(&self) -> rustix::io::Result<()> {
        let Some(unsynced) = &self.unsynced else {
            return Ok(());
        };
        let above =
            |directory: &OwnedFd| rustix::fs::openat(directory, "..", DIRECTORY, Mode::empty());
        let identity = |directory: &OwnedFd| {
            rustix::fs::fstat(directory).map(|found| (found.st_dev, found.st_ino))
        };
        let mut seen = HashSet::from([identity(&self.directory)?]);
        for (_, parent) in unsynced {
            let mut directory = rustix::io::fcntl_dupfd_cloexec(&parent.directory, 0)?;
            while seen.insert(identity(&directory)?) {
                rustix::fs::fsync(&directory)?;
                directory = above(&directory)?;
            }
        }
        rustix::fs::fsync(&self.directory)?;
        let mut directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?;
        for _ in 0..self.made {
            directory = above(&directory)?;
            rustix::fs::fsync(&directory)?;
        }
        Ok(())
    }
}

/// Whether a name is in use. One that a killed extract reserved is not, and the reservation goes.
fn is_in_use(named: &Path) -> bool {
    let is_there = || named.symlink_metadata().is_ok();
    if is_there() {
        durable::remove_reservation_left(named);
    }
    is_there()
}

fn error(operation: &'static str, path: &Path, source: io::Error) -> ImageError {
    let path: PathBuf = path.to_owned();
    ImageError::Extract {
        operation,
        path,
        source,
    }
}
