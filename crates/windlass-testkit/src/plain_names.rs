//! A file system with plain names: it has no hard links, and no rename that refuses to replace.
//! Some network and FUSE file systems and FAT are like this. It serves a directory of the test
//! through FUSE, counts syncs of files, and can make renames fail, or lose their answers.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileHandle, Filesystem, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno as SystemError;
use rustix::mount::UnmountFlags;

use crate::below::{Below, errno};
use crate::starting::starting;

/// Long enough for the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
    below: Below,
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
            below: Below::open(&below),
            renames: Arc::clone(&renames),
            syncs: Arc::clone(&syncs),
        };
        // The mount may need a program of fuse3.
        let session = starting(|| fuser::spawn_mount(served, &at, &Config::default()));
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
        let session = self.session.take().unwrap();
        let ended = match unmount(&self.at) {
            Ok(()) => session.join(),
            // An ordinary user needs a program of fuse3 for it.
            Err(SystemError::PERM) => session.umount_and_join(),
            Err(fault) => Err(fault.into()),
        };
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Unmounts as soon as nobody has a file open there. A process that another test is starting has
/// copies of what was open, until it runs its program.
fn unmount(at: &Path) -> Result<(), SystemError> {
    let began = Instant::now();
    loop {
        match rustix::mount::unmount(at, UnmountFlags::empty()) {
            Err(SystemError::BUSY) if began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended => return ended,
        }
    }
}

impl Served {
    fn renames(&self, what: Renames) -> bool {
        self.renames.load(Ordering::SeqCst) == what as u8
    }

    fn rename(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr)) -> io::Result<()> {
        let lost = || Err(io::Error::from_raw_os_error(libc::EIO));
        if self.renames(Renames::Fail) || self.renames(Renames::Die) {
            return lost();
        }
        let below = &self.below;
        #[expect(clippy::disallowed_methods, reason = "this is the rename itself")]
        fs::rename(below.child(from.0, from.1)?, below.child(to.0, to.1)?)?;
        below.renamed(from, to)?;
        match self.renames(Renames::LoseAnswer) {
            true => lost(),
            false => Ok(()),
        }
    }

    fn change(&self, node: INodeNo, mode: Option<u32>, size: Option<u64>) -> io::Result<()> {
        let path = self.below.path(node)?;
        if let Some(mode) = mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777))?;
        }
        let resize = |bytes| File::options().write(true).open(&path)?.set_len(bytes);
        size.map_or(Ok(()), resize)
    }
}

fn empty(done: io::Result<()>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.below.lookup(parent, name, reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.below.getattr(node, reply);
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
        match self.change(node, mode, size) {
            Ok(()) => self.below.getattr(node, reply),
            Err(error) => reply.error(errno(&error)),
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
        let made = self.below.child(parent, name);
        match made.and_then(|path| fs::DirBuilder::new().mode(mode).create(path)) {
            Ok(()) => self.below.lookup(parent, name, reply),
            Err(error) => reply.error(errno(&error)),
        }
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
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(mode);
        let made = self.below.child(parent, name);
        match made.and_then(|path| options.open(path)) {
            Ok(_) => self.below.created(parent, name, reply),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if self.renames(Renames::Die) {
            return reply.error(Errno::EIO);
        }
        let path = self.below.child(parent, name);
        empty(path.and_then(fs::remove_file), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let path = self.below.child(parent, name);
        empty(path.and_then(fs::remove_dir), reply);
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
        let (from, to) = ((parent, name), (to_parent, to_name));
        empty(Served::rename(self, from, to), reply);
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
        self.below.read(node, offset, size, reply);
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
        let path = self.below.path(node);
        let file = path.and_then(|path| File::options().write(true).open(path));
        match file.and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.below.opendir(node, |_| false, reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        list: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.below.readdir(list, offset, reply);
    }

    fn releasedir(
        &self,
        _request: &Request,
        _node: INodeNo,
        list: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.below.releasedir(list, reply);
    }
}
