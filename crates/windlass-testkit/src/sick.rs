//! A sick file system: a directory whose lists leave entries out, as network file systems do.
//!
//!   program --> mount over DIRECTORY --> DIRECTORY itself, except for the entries left out
//!
//! Every name can still be looked up, and every file reads as it is. Only the lists are wrong. The
//! mount covers the directory itself, so a running server meets it too. Programs can read through
//! the mount, and they cannot write.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, Request,
};

/// The kernel asks again each time.
const NEVER: Duration = Duration::ZERO;
const ROOT: u64 = 1;

/// Says which entries a list leaves out: given how often the directory was listed before, and the
/// entry's name.
pub type LeavesOut = Box<dyn Fn(u32, &OsStr) -> bool + Send + Sync>;

/// A directory that is covered by the sick file system until this value is dropped.
pub struct SickDirectory {
    at: PathBuf,
    session: Option<BackgroundSession>,
}

impl SickDirectory {
    /// Covers `at`. Lists of it, and of the directories below, leave out what `leaves_out` says.
    pub fn cover(at: &Path, leaves_out: LeavesOut) -> Self {
        let below = File::open(at).expect("open the directory to cover");
        let files = SickFiles {
            below,
            leaves_out,
            state: Mutex::default(),
        };
        let session = fuser::spawn_mount(files, at, &Config::default());
        Self {
            at: at.to_owned(),
            session: Some(session.expect("mount the sick file system")),
        }
    }
}

impl Drop for SickDirectory {
    fn drop(&mut self) {
        // A server may still have files open below, so the mount is only taken out of the tree.
        let mut unmount = Command::new("fusermount3");
        unmount.args(["-u", "-z", "--"]).arg(&self.at);
        let unmounted = unmount.status();
        if !std::thread::panicking() {
            assert!(unmounted.expect("run fusermount3").success());
        }
        drop(self.session.take());
    }
}

struct SickFiles {
    /// The directory below the mount. It was opened before the mount covered it.
    below: File,
    leaves_out: LeavesOut,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Paths below the directory, by node.
    paths: HashMap<u64, PathBuf>,
    lists: HashMap<PathBuf, u32>,
    open: HashMap<u64, Vec<Item>>,
    next_handle: u64,
}

#[derive(Clone)]
struct Item {
    node: u64,
    kind: FileType,
    name: OsString,
}

impl SickFiles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, node: INodeNo) -> io::Result<PathBuf> {
        let relative = match node.0 {
            ROOT => PathBuf::new(),
            node => {
                let known = self.state().paths.get(&node).cloned();
                known.ok_or(io::ErrorKind::NotFound)?
            }
        };
        let below = format!("/proc/self/fd/{}/.", self.below.as_raw_fd());
        Ok(Path::new(&below).join(relative))
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let found = std::fs::symlink_metadata(path)?;
        let mut state = self.state();
        let relative = match parent.0 {
            ROOT => PathBuf::from(name),
            node => state.paths[&node].join(name),
        };
        state.paths.insert(found.ino(), relative);
        Ok(attributes(&found, found.ino()))
    }

    fn list(&self, node: INodeNo) -> io::Result<u64> {
        let path = self.path(node)?;
        let mut items = Vec::new();
        let count = {
            let mut state = self.state();
            let count = state.lists.entry(path.clone()).or_default();
            *count += 1;
            *count - 1
        };
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            if (self.leaves_out)(count, &entry.file_name()) {
                continue;
            }
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            items.push(Item {
                node: metadata.ino(),
                kind: kind(&metadata),
                name: entry.file_name(),
            });
        }
        let mut state = self.state();
        state.next_handle += 1;
        let handle = state.next_handle;
        state.open.insert(handle, items);
        Ok(handle)
    }
}

impl Filesystem for SickFiles {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.entry(parent, name) {
            Ok(found) => reply.entry(&NEVER, &found, Generation(0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(node).and_then(std::fs::symlink_metadata) {
            Ok(found) => reply.attr(&NEVER, &attributes(&found, node.0)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        use std::os::unix::ffi::OsStrExt;
        match self.path(node).and_then(std::fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.path(node).and_then(File::open);
        match read.and_then(|file| file.read_at(&mut bytes, offset)) {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.list(node) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.state().open.get(&handle.0).cloned();
        let listed = listed.unwrap_or_default().into_iter().zip(1_u64..);
        for (item, next) in listed.filter(|(_, next)| *next > offset) {
            if reply.add(INodeNo(item.node), next, item.kind, &item.name) {
                break;
            }
        }
        reply.ok();
    }
}

fn attributes(found: &Metadata, node: u64) -> FileAttr {
    let time = |seconds: i64, nanos: i64| {
        let seconds = Duration::from_secs(seconds.unsigned_abs());
        SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(nanos.unsigned_abs())
    };
    let changed = time(found.ctime(), found.ctime_nsec());
    FileAttr {
        ino: INodeNo(node),
        size: found.size(),
        blocks: found.blocks(),
        atime: time(found.atime(), found.atime_nsec()),
        mtime: time(found.mtime(), found.mtime_nsec()),
        ctime: changed,
        crtime: changed,
        kind: kind(found),
        perm: u16::try_from(found.permissions().mode() & 0o7777).unwrap_or_default(),
        nlink: 1,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn kind(found: &Metadata) -> FileType {
    match found.file_type() {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_symlink() => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
