//! A file system with plain names: it has no hard links, and no rename that refuses to replace.
//! Some network and FUSE file systems and FAT are like this. It serves a directory of the test
//! through FUSE, counts syncs of files, and can make renames fail, or lose their answers.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

/// The kernel asks again each time, so that it sees what a test does below.
const NO_TIME: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

/// What a rename does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Renames {
    /// It works.
    Work,
    /// It fails, and nothing changes.
    Fail,
    /// It works, and then it says that it failed: the answer was lost on the way.
    LoseAnswer,
    /// It fails, and so does every removal, as if the process had died before the rename.
    Die,
}

/// The mounted file system. Dropping it unmounts.
pub struct PlainNames {
    at: PathBuf,
    renames: Arc<AtomicU8>,
    syncs: Arc<AtomicU64>,
    session: Option<BackgroundSession>,
    _dir: tempfile::TempDir,
}

struct Served {
    /// The path of each file below, by its number.
    paths: Mutex<HashMap<u64, PathBuf>>,
    renames: Arc<AtomicU8>,
    syncs: Arc<AtomicU64>,
}

impl PlainNames {
    /// Mounts a new, empty one.
    pub fn mount() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let (below, at) = (dir.path().join("below"), dir.path().join("at"));
        fs::create_dir(&below).unwrap();
        fs::create_dir(&at).unwrap();
        let renames = Arc::new(AtomicU8::new(Renames::Work as u8));
        let syncs = Arc::<AtomicU64>::default();
        let served = Served {
            paths: Mutex::new(HashMap::from([(INodeNo::ROOT.0, below)])),
            renames: Arc::clone(&renames),
            syncs: Arc::clone(&syncs),
        };
        let session = fuser::spawn_mount(served, &at, &Config::default());
        Self {
            at,
            renames,
            syncs,
            session: Some(session.expect("mount a file system (needs /dev/fuse)")),
            _dir: dir,
        }
    }

    /// The path of a name in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// How often a file was synced.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Sets what renames do from now on.
    pub fn set_renames(&self, renames: Renames) {
        self.renames.store(renames as u8, Ordering::SeqCst);
    }
}

impl Drop for PlainNames {
    fn drop(&mut self) {
        let ended = self.session.take().unwrap().umount_and_join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

impl Served {
    fn path(&self, node: INodeNo) -> PathBuf {
        let paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.get(&node.0).cloned().unwrap_or_default()
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> PathBuf {
        self.path(parent).join(name)
    }

    fn is_root(&self, path: &Path) -> bool {
        self.path(INodeNo::ROOT) == path
    }

    /// The attributes of a file, whose path is remembered.
    fn found(&self, path: &Path) -> io::Result<FileAttr> {
        let found = path.symlink_metadata()?;
        let number = match self.is_root(path) {
            true => INodeNo::ROOT.0,
            false => found.ino(),
        };
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.insert(number, path.to_owned());
        Ok(attributes(number, &found))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renames = self.renames.load(Ordering::SeqCst);
        let lost = || Err(io::Error::from_raw_os_error(libc::EIO));
        if renames == Renames::Fail as u8 || renames == Renames::Die as u8 {
            return lost();
        }
        #[expect(clippy::disallowed_methods, reason = "this is the rename itself")]
        fs::rename(from, to)?;
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        paths.retain(|_, path| path != to);
        for path in paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(from) {
                *path = if rest.as_os_str().is_empty() {
                    to.to_owned()
                } else {
                    to.join(rest)
                };
            }
        }
        match renames == Renames::LoseAnswer as u8 {
            true => lost(),
            false => Ok(()),
        }
    }
}

fn attributes(number: u64, found: &fs::Metadata) -> FileAttr {
    let kind = FileType::from_std(found.file_type()).unwrap();
    let modified = found.modified().unwrap();
    FileAttr {
        ino: INodeNo(number),
        size: found.len(),
        blocks: found.blocks(),
        atime: modified,
        mtime: modified,
        ctime: modified,
        crtime: modified,
        kind,
        perm: (found.mode() & 0o7777) as u16,
        nlink: 1,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn entry(found: io::Result<FileAttr>, reply: ReplyEntry) {
    match found {
        Ok(found) => reply.entry(&NO_TIME, &found, GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

fn empty(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.found(&self.child(parent, name)), reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.found(&self.path(node)) {
            Ok(found) => reply.attr(&NO_TIME, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let path = self.path(node);
        let mode = mode.map_or(Ok(()), |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777))
        });
        let resize = |bytes| File::options().write(true).open(&path)?.set_len(bytes);
        let done = mode.and_then(|()| size.map_or(Ok(()), resize));
        match done.and_then(|()| self.found(&path)) {
            Ok(found) => reply.attr(&NO_TIME, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mkdir(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let path = self.child(parent, name);
        let made = fs::DirBuilder::new().mode(mode).create(&path);
        entry(made.and_then(|()| self.found(&path)), reply);
    }

    fn create(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let path = self.child(parent, name);
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(mode);
        let (handle, opening) = (FileHandle(0), FopenFlags::empty());
        match options.open(&path).and_then(|_| self.found(&path)) {
            Ok(made) => reply.created(&NO_TIME, &made, GENERATION, handle, opening),
            Err(error) => reply.error(error.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.renames.load(Ordering::SeqCst) == Renames::Die as u8 {
            return reply.error(Errno::EIO);
        }
        empty(fs::remove_file(self.child(parent, name)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(fs::remove_dir(self.child(parent, name)), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = (self.child(parent, name), self.child(to_parent, to_name));
        empty(Served::rename(self, &from, &to), reply);
    }

    fn link(
        &self,
        _request: &Request,
        _node: INodeNo,
        _to_parent: INodeNo,
        _to_name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = File::open(self.path(node)).and_then(|file| file.read_at(&mut bytes, offset));
        match read {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = File::options().write(true).open(self.path(node));
        match file.and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed =
            fs::read_dir(self.path(node)).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return reply.error(error.into()),
        };
        for (entry, next) in listed.iter().zip(1..).skip(offset as usize) {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            let kind = FileType::from_std(found.file_type()).unwrap();
            if reply.add(INodeNo(found.ino()), next, kind, entry.file_name()) {
                break;
            }
        }
        reply.ok();
    }
}
