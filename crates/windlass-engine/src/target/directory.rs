//! Restoring into a directory: files made anew, written once, synced, startable only at the end.
//!
//! Invariants
//! - The target directory is new or empty: no file of it is ever overwritten, no link of it ever
//!   followed. Links of the set are made after all files, so no path of the set goes through one.
//!   Only a restore over what is there (`existing`) finds files, and asked for them.
//! - A file flagged `last` (pg_control) has a temporary name until everything else is durable.
//! - Modes are set explicitly, whatever the umask.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::FallocateFlags;
use windlass_media::{FileEntry, FileKind, FileNo};

use super::existing::{self, Changed, Existing};
use super::{Target, TargetLayout, last};
use crate::direct::DirectFile;
use crate::durable;
use crate::error::EngineError;
use crate::free::free_bytes_beside;
use crate::waits::may_block;

/// Smaller files are written through the page cache, because opening them twice costs more.
const DIRECT_FILE_BYTES_MIN: u64 = 256 * 1024;

/// A directory being restored into.
#[derive(Debug)]
pub struct DirectoryTarget {
    layout: TargetLayout,
    files: HashMap<FileNo, TargetFile>,
    replaced: HashMap<FileNo, Vec<u8>>,
    /// The temporary names of the files that must appear last.
    last: HashMap<FileNo, OsString>,
    /// Opened before the first write, so that syncing them reports every later error.
    roots: Vec<(PathBuf, File)>,
    /// What a restore over existing files has changed.
    over: Option<Arc<Changed>>,
}

#[derive(Debug)]
struct TargetFile {
    path: PathBuf,
    mode: u32,
    bytes: u64,
    mtime: SystemTime,
    over: Option<Arc<Changed>>,
    state: Mutex<FileProgress>,
}

/// A file that is open for writing. Large files are open a second time, for direct writes.
#[derive(Debug)]
struct Handle {
    file: DirectFile,
    /// The file was there: what is written is compared with it first.
    over: Option<Arc<Changed>>,
}

#[derive(Debug)]
struct FileProgress {
    file: Option<Arc<Handle>>,
    made: bool,
    written: u64,
}

impl DirectoryTarget {
    /// Prepares a target: creates the directories and learns the files. Refuses a root or mount
    /// that is not empty.
    pub fn create(layout: TargetLayout) -> Result<Self, EngineError> {
        let bases = std::iter::once(&layout.root).chain(layout.mounts.iter().map(|(_, path)| path));
        let bases: Vec<_> = bases.cloned().collect();
        bases.iter().try_for_each(|base| make_base(base))?;
        let mut target = Self::prepared(layout, bases, None)?;
        target.make_tree()?;
        Ok(target)
    }

    /// Prepares a target over what is there: what does not belong goes, and of the files only what
    /// differs will be written. Nobody may use the files meanwhile.
    pub fn over(
        layout: TargetLayout,
        existing: &Existing,
    ) -> Result<(Self, Arc<Changed>), EngineError> {
        let changed = Arc::<Changed>::default();
        existing.clear(&changed)?;
        let bases = std::iter::once(&layout.root).chain(layout.mounts.iter().map(|(_, path)| path));
        let bases: Vec<_> = bases.cloned().collect();
        bases.iter().try_for_each(|base| make_directory(base))?;
        let synced = bases.into_iter().chain(existing.volumes.values().cloned());
        let mut target = Self::prepared(layout, synced.collect(), Some(Arc::clone(&changed)))?;
        target.make_tree()?;
        // They say whose the directories are if this restore is cut off and made again.
        target.make_links(|layout, entry| layout.is_mount(&entry.path))?;
        Ok((target, changed))
    }

    fn prepared(
        layout: TargetLayout,
        synced: Vec<PathBuf>,
        over: Option<Arc<Changed>>,
    ) -> Result<Self, EngineError> {
        let open = |path: PathBuf| {
            let file = File::open(&path).map_err(|source| error("open", &path, source))?;
            Ok::<_, EngineError>((path, file))
        };
        Ok(Self {
            last: last::names(&layout.files),
            replaced: layout.replace.iter().cloned().collect(),
            layout,
            files: HashMap::new(),
            roots: synced.into_iter().map(open).collect::<Result<_, _>>()?,
            over,
        })
    }

    /// Creates this file with its full length, unless the layout does not have it, and returns it
    /// opened once more. Its owner can tell later whether a name still leads to it.
    pub fn created(&self, file: FileNo) -> Result<Option<File>, EngineError> {
        let Some(entry) = self.files.get(&file) else {
            return Ok(None);
        };
        let copy = entry.open()?.file.file().try_clone();
        copy.map(Some)
            .map_err(|source| error("create", &entry.path, source))
    }

    fn make_tree(&mut self) -> Result<(), EngineError> {
        for entry in &self.layout.files.0 {
            let path = self.layout.place(&entry.path);
            match entry.kind {
                FileKind::Directory => make_directory(&path)?,
                FileKind::Symlink => {}
                FileKind::File => {
                    if let Some(parent) = path.parent() {
                        make_directory(parent)?;
                    }
                    let temporary = self.last.get(&entry.file);
                    let path = temporary.map_or(path.clone(), |name| last::beside(&path, name));
                    let mut file = TargetFile::new(entry, path, self.over.clone());
                    file.bytes += self.layout.appended_bytes(entry.file);
                    self.files.insert(entry.file, file);
                }
            }
        }
        Ok(())
    }

    /// Completes files that were never written to (empty, or all zeros), replaced ones, and longer
    /// ones.
    fn complete(&self) -> Result<(), EngineError> {
        self.append()?;
        for (number, file) in &self.files {
            if let Some(bytes) = self.replaced.get(number) {
                let handle = file.open()?;
                let open = handle.file.file();
                open.write_all_at(bytes, 0)
                    .map_err(|source| error("write", &file.path, source))?;
                open.set_len(bytes.len() as u64)
                    .map_err(|source| error("truncate", &file.path, source))?;
            }
            file.close()?;
        }
        Ok(())
    }

    fn append(&self) -> Result<(), EngineError> {
        for (number, bytes) in &self.layout.append {
            if let Some(file) = self.files.get(number) {
                // The file is still open, whatever its mode, because it does not have all its bytes
                // yet.
                let offset = file.bytes.saturating_sub(bytes.len() as u64);
                let write = file.open()?.file.write_all_at(bytes, offset);
                write.map_err(|source| error("write", &file.path, source))?;
            }
        }
        Ok(())
    }

    fn make_links(
        &self,
        is_meant: impl Fn(&TargetLayout, &FileEntry) -> bool,
    ) -> Result<(), EngineError> {
        let entries = self.layout.files.0.iter();
        let links = entries.filter(|entry| entry.kind == FileKind::Symlink);
        for entry in links.filter(|entry| is_meant(&self.layout, entry)) {
            let path = self.layout.place_link(&entry.path);
            let target = Path::new(std::ffi::OsStr::from_bytes(&entry.link_target));
            if self.over.is_some() && fs::read_link(&path).is_ok_and(|is| is == target) {
                continue;
            }
            let made = std::os::unix::fs::symlink(target, &path);
            made.map_err(|source| error("link", &path, source))?;
        }
        Ok(())
    }

    /// Sets the modes of directories, children before parents: a directory may be read-only in the
    /// set.
    fn set_modes(&self) -> Result<(), EngineError> {
        let entries = self.layout.files.0.iter().rev();
        for entry in entries.filter(|entry| entry.kind == FileKind::Directory) {
            let path = self.layout.place(&entry.path);
            let mode = Permissions::from_mode(entry.mode);
            fs::set_permissions(&path, mode).map_err(|source| error("chmod", &path, source))?;
        }
        Ok(())
    }

    /// Makes all files, directories and names durable, with one call for each file system.
    fn sync(&self) -> Result<(), EngineError> {
        for (path, root) in &self.roots {
            rustix::fs::syncfs(root).map_err(|errno| error("sync", path, errno.into()))?;
        }
        Ok(())
    }

    fn reveal(&self) -> Result<(), EngineError> {
        for entry in &self.layout.files.0 {
            let Some(name) = self.last.get(&entry.file) else {
                continue;
            };
            let path = self.layout.place(&entry.path);
            let complete = last::beside(&path, name);
            // Its mode may forbid to read it. What is needed is only which file it is.
            let mut which = OpenOptions::new();
            let which = which
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
            let named = which
                .open(&complete)
                .and_then(|file| Ok(durable::name_new(&file, &complete, &path)?));
            named.map_err(|source| error("rename", &path, source))?;
        }
        Ok(())
    }
}

impl TargetFile {
    fn new(entry: &FileEntry, path: PathBuf, over: Option<Arc<Changed>>) -> Self {
        let nanos = entry.mtime_nanos.max(0).cast_unsigned();
        Self {
            path,
            mode: entry.mode,
            bytes: entry.bytes,
            mtime: SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos),
            over,
            state: Mutex::new(FileProgress {
                file: None,
                made: false,
                written: 0,
            }),
        }
    }

    /// The open file. The first call creates it with its full length.
    fn open(&self) -> Result<Arc<Handle>, EngineError> {
        self.opened(true)
    }

    /// The open file. It is allocated only if its bytes are about to be written.
    fn opened(&self, is_written: bool) -> Result<Arc<Handle>, EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &state.file {
            return Ok(Arc::clone(handle));
        }
        let fault = |source| error("create", &self.path, source);
        let existing = match self.over {
            Some(_) => existing::open(&self.path)?,
            None => None,
        };
        let was_there = existing.is_some();
        let file = match existing {
            Some(file) => file,
            None => self.create(!state.made).map_err(fault)?,
        };
        if !state.made {
            file.set_permissions(Permissions::from_mode(self.mode | 0o200))
                .map_err(fault)?;
            file.set_len(self.bytes).map_err(fault)?;
        }
        state.made = true;
        let handle = Arc::new(Handle {
            file: match was_there || !is_written {
                true => DirectFile::cached(file),
                false => self.open_direct(file).map_err(fault)?,
            },
            over: self.over.clone().filter(|_| was_there),
        });
        state.file = Some(Arc::clone(&handle));
        Ok(handle)
    }

    fn create(&self, is_new: bool) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .mode(self.mode | 0o200)
            .custom_flags(libc::O_NOFOLLOW);
        options.create_new(is_new);
        options.open(&self.path)
    }

    /// The same file, opened for direct writes and allocated first. A direct write that allocates
    /// takes an exclusive lock on the file, so only one would be under way at a time.
    fn open_direct(&self, file: File) -> io::Result<DirectFile> {
        if self.bytes < DIRECT_FILE_BYTES_MIN {
            return Ok(DirectFile::cached(file));
        }
        let file = DirectFile::open(file);
        if file.is_direct() && !allocate(file.file(), self.bytes)? {
            return Ok(file.into_cached());
        }
        Ok(file)
    }

    /// Counts written bytes, and closes the file when it has all of its bytes.
    fn wrote(&self, bytes: u64) -> Result<(), EngineError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.written += bytes;
        let full = state.written >= self.bytes;
        drop(state);
        if full { self.close() } else { Ok(()) }
    }

    fn close(&self) -> Result<(), EngineError> {
        let made = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .made;
        let open = self
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .is_some();
        if made && !open {
            return Ok(());
        }
        // Nothing was written to a file that was never made: it stays a hole.
        let handle = self.opened(made)?;
        let file = handle.file.file();
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file = None;
        if self.mode & 0o200 == 0 {
            let mode = Permissions::from_mode(self.mode);
            file.set_permissions(mode)
                .map_err(|source| error("chmod", &self.path, source))?;
        }
        file.set_modified(self.mtime)
            .map_err(|source| error("touch", &self.path, source))
    }
}

impl Handle {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(changed) = &self.over {
            let written = existing::write_differing(self.file.file(), offset, bytes)?;
            changed.bytes.fetch_add(written, Ordering::Relaxed);
            return Ok(());
        }
        self.file.write_all_at(bytes, offset)
    }

    /// Gives back the blocks of a hole, if they were allocated. They read as zeros in any case.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if let Some(changed) = &self.over {
            let cleared = existing::clear_differing(self.file.file(), offset, bytes)?;
            changed.bytes.fetch_add(cleared, Ordering::Relaxed);
        } else if self.file.is_direct() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(self.file.file(), flags, offset, bytes).unwrap_or_default();
        }
        Ok(())
    }
}

impl Target for DirectoryTarget {
    fn write(&self, file: FileNo, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        may_block();
        // The layout leaves out or replaces this file of the set, so the bytes are not written.
        let Some(entry) = self.files.get(&file) else {
            return Ok(());
        };
        if self.replaced.contains_key(&file) {
            return Ok(());
        }
        let handle = entry.open()?;
        let write = handle.write(offset, bytes);
        write.map_err(|source| error("write", &entry.path, source))?;
        if let (Some(changed), None) = (&self.over, &handle.over) {
            let bytes = bytes.len() as u64;
            changed.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        entry.wrote(bytes.len() as u64)
    }

    fn hole(&self, file: FileNo, offset: u64, bytes: u64) -> Result<(), EngineError> {
        match self.files.get(&file) {
            Some(entry) if !self.replaced.contains_key(&file) => {
                let punched = entry.open()?.punch(offset, bytes);
                punched.map_err(|source| error("write", &entry.path, source))?;
                entry.wrote(bytes)
            }
            _ => Ok(()),
        }
    }

    fn left_out(&self) -> Option<&HashSet<FileNo>> {
        Some(&self.layout.left_out).filter(|files| !files.is_empty())
    }

    fn finish(&self) -> Result<(), EngineError> {
        self.complete()?;
        self.make_links(|_, _| true)?;
        self.set_modes()?;
        self.sync()?;
        self.reveal()
    }
}

/// Allocates the whole file or nothing, and returns whether it did. A file with holes may fit
/// although the disk has less room than its length. And a file system that runs out of room keeps
/// what it has allocated so far.
fn allocate(file: &File, bytes: u64) -> io::Result<bool> {
    if bytes > free_bytes_beside(file)? {
        return Ok(false);
    }
    if rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes).is_ok() {
        return Ok(true);
    }
    file.set_len(0)?;
    file.set_len(bytes)?;
    Ok(false)
}

/// Prepares a root or mount: creates it if it does not exist. It must be empty.
fn make_base(path: &Path) -> Result<(), EngineError> {
    match fs::read_dir(path) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => {
                let (path, what) = (path.to_owned(), "is not empty");
                Err(EngineError::TargetRefused { path, what })
            }
        },
        Err(source) if source.kind() == io::ErrorKind::NotFound => make_directory(path),
        Err(source) if source.kind() == io::ErrorKind::NotADirectory => {
            let (path, what) = (path.to_owned(), "is not a directory");
            Err(EngineError::TargetRefused { path, what })
        }
        Err(source) => Err(error("open", path, source)),
    }
}

/// Creates a directory with its parents. It is private until its mode is set at the end.
fn make_directory(path: &Path) -> Result<(), EngineError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| error("create", path, source))
}

pub(super) fn error(operation: &'static str, path: &Path, source: io::Error) -> EngineError {
    EngineError::TargetIo {
        operation,
        path: path.to_owned(),
        source,
    }
}
