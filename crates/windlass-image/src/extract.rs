//! Taking files out of an image: what matches a pattern is written to a directory.
//!
//!   image --> [reader: group N + 1] --> writer: group N --> a new file
//!
//! Invariants
//! - Nothing is overwritten: a file that exists is an error. Below the directory that the caller
//!   named, no links are followed.
//! - A file that could not be read to its end is removed again, and so is one whose bytes do not
//!   have the checksum that the image keeps of the whole file.
//! - All extracted files are durable when the call returns.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use globset::{GlobBuilder, GlobSet};
use rustix::fs::{AtFlags, Mode, OFlags};
use windlass_engine::Cancel;
use windlass_engine::media::{
    FileEntry, FileKind, check_path, crc32c, crc32c_zeros_after, fitted, is_zero,
};

use crate::error::ImageError;
use crate::image::{Image, read_exact};

/// How much is read ahead while the bytes before it are written.
pub const EXTRACT_GROUP_BYTES: usize = 1024 * 1024;
/// Up to this many files are synced one by one.
const SYNCED_ALONE_MAX: usize = 64;
/// Zeros of this length are not written, but left as a hole.
const HOLE_BYTES: usize = 64 * 1024;

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
            let path = Path::new(std::ffi::OsStr::from_bytes(&path[..end]));
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
    let mut target = Target::open(into)?;
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
    target.sync()?;
    Ok(report)
}

/// The directory that receives the files.
struct Target<'a> {
    path: &'a Path,
    directory: OwnedFd,
    /// Files and directories to sync one by one; `None` when there are too many.
    unsynced: Option<Vec<OwnedFd>>,
    /// How many directories on the way to `path` did not exist before.
    made: usize,
}

/// How directories of the target are opened, one by one. A link among them is refused.
const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

impl<'a> Target<'a> {
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
            unsynced: Some(Vec::new()),
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
        let path = self.path.join(std::ffi::OsStr::from_bytes(&entry.path));
        let create = |errno: rustix::io::Errno| error("create", &path, errno.into());
        let (parent, name) = self.parent(&entry.path).map_err(create)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(file.map_err(create)?);
        let written = pump(image, entry, &file, &path, cancel);
        if written.is_err() {
            // The file is ours alone and incomplete. The error to show is the one that stopped it.
            rustix::fs::unlinkat(&parent, name, AtFlags::empty()).unwrap_or_default();
        }
        written?;
        self.note(file.into(), parent);
        Ok(())
    }

    fn note(&mut self, file: OwnedFd, parent: OwnedFd) {
        if let Some(unsynced) = &mut self.unsynced {
            unsynced.extend([file, parent]);
            if unsynced.len() > 2 * SYNCED_ALONE_MAX {
                self.unsynced = None;
            }
        }
    }

    /// Creates and opens the directories above a path of the image. Returns the last one, and the
    /// name.
    fn parent<'p>(&self, path: &'p [u8]) -> rustix::io::Result<(OwnedFd, &'p [u8])> {
        let mut directory = rustix::io::fcntl_dupfd_cloexec(&self.directory, 0)?;
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Ok((directory, name));
            }
            match rustix::fs::mkdirat(&directory, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            directory = rustix::fs::openat(&directory, name, DIRECTORY, Mode::empty())?;
        }
        Err(rustix::io::Errno::INVAL)
    }

    /// Makes all files and names durable. A few files are synced one by one, because a sync of the
    /// whole file system would also wait for what others write to it, perhaps the database.
    fn sync(&self) -> Result<(), ImageError> {
        let synced = match &self.unsynced {
            None => rustix::fs::syncfs(&self.directory),
            Some(unsynced) => unsynced.iter().try_for_each(rustix::fs::fsync),
        };
        let above = synced.and_then(|()| self.sync_above());
        above.map_err(|errno| error("sync", self.path, errno.into()))
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
        for parent in unsynced.iter().skip(1).step_by(2) {
            let mut directory = rustix::io::fcntl_dupfd_cloexec(parent, 0)?;
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

/// A run of a file on its way from the reader to the writer.
type Group = (u64, Vec<u8>);

/// Copies a file: one thread reads ahead while this one writes.
fn pump(
    image: &dyn Image,
    entry: &FileEntry,
    file: &File,
    path: &Path,
    cancel: &Cancel,
) -> Result<(), ImageError> {
    let fault = |source| error("write", path, source);
    file.set_len(entry.bytes).map_err(fault)?;
    let mut found = 0;
    if entry.bytes <= EXTRACT_GROUP_BYTES as u64 {
        let mut bytes = vec![0; fitted(entry.bytes)];
        read_exact(image, entry, 0, &mut bytes)?;
        found = crc32c(&bytes);
        write(file, 0, &bytes).map_err(fault)?;
    } else {
        std::thread::scope(|scope| {
            // There are two groups: one is being read while the other is being written.
            let (full, groups) = sync_channel::<Group>(1);
            let (free, spare) = sync_channel::<Vec<u8>>(2);
            for _ in 0..2 {
                free.send(vec![0; EXTRACT_GROUP_BYTES]).unwrap_or_default();
            }
            let reader = scope.spawn(move || read_ahead(image, entry, &full, &spare, cancel));
            for (offset, bytes) in groups {
                let after = entry.bytes - offset - bytes.len() as u64;
                found ^= crc32c_zeros_after(crc32c(&bytes), after);
                write(file, offset, &bytes).map_err(fault)?;
                // The reader may have ended, because it has read everything.
                free.send(bytes).unwrap_or_default();
            }
            reader
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
    }
    match image.file_checksum(entry) {
        Some(expected) if expected != found => Err(ImageError::FileChecksum {
            path: entry.path_lossy(),
            expected,
            found,
        }),
        _ => finish(file, entry).map_err(fault),
    }
}

fn read_ahead(
    image: &dyn Image,
    entry: &FileEntry,
    full: &SyncSender<Group>,
    spare: &Receiver<Vec<u8>>,
    cancel: &Cancel,
) -> Result<(), ImageError> {
    let mut offset = 0;
    while offset < entry.bytes {
        cancel.check()?;
        // The writer has ended with an error, and that error is the one to show.
        let Ok(mut bytes) = spare.recv() else {
            return Ok(());
        };
        let left: usize = fitted(entry.bytes - offset);
        bytes.resize(left.min(EXTRACT_GROUP_BYTES), 0);
        read_exact(image, entry, offset, &mut bytes)?;
        let next = offset + bytes.len() as u64;
        if full.send((offset, bytes)).is_err() {
            return Ok(());
        }
        offset = next;
    }
    Ok(())
}

/// Writes all that is not zero. The file has its full length already, so the rest are holes.
fn write(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut at = 0;
    let blocks = |bytes: &[u8], zero: bool| {
        let same = bytes
            .chunks(HOLE_BYTES)
            .take_while(|block| is_zero(block) == zero);
        same.map(<[u8]>::len).sum::<usize>()
    };
    while at < bytes.len() {
        at += blocks(&bytes[at..], true);
        let data = blocks(&bytes[at..], false);
        file.write_all_at(&bytes[at..at + data], offset + at as u64)?;
        at += data;
    }
    Ok(())
}

fn finish(file: &File, entry: &FileEntry) -> io::Result<()> {
    let nanos = entry.mtime_nanos.max(0).cast_unsigned();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))?;
    file.set_permissions(Permissions::from_mode(entry.mode))
}

fn error(operation: &'static str, path: &Path, source: io::Error) -> ImageError {
    let path: PathBuf = path.to_owned();
    ImageError::Extract {
        operation,
        path,
        source,
    }
}
