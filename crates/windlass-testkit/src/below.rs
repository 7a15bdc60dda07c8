//! The directory that a file system of the tests serves: every request goes on to the files in it.
//!
//!   kernel --> file system (says what is wrong with it) --> Below --> the directory
//!
//! The kernel asks again each time, so that it sees what a test does below. A list of a directory
//! is taken when the directory is opened, so no removal moves what is still to be read of it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
};

/// How long the kernel may keep an answer.
const NO_TIME: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

/// A directory and the files below it, by the numbers that the kernel has for them.
pub(crate) struct Below {
    /// It was opened before a mount could cover it.
    directory: File,
    state: Mutex<BelowNodes>,
}

#[derive(Default)]
struct BelowNodes {
    /// Paths below the directory, by number.
    paths: HashMap<u64, PathBuf>,
    lists: HashMap<u64, Vec<Item>>,
    next_list: u64,
}

#[derive(Clone)]
struct Item {
    node: INodeNo,
    kind: FileType,
    name: OsString,
}

impl Below {
    pub(crate) fn open(directory: &Path) -> Self {
        let paths = HashMap::from([(INodeNo::ROOT.0, PathBuf::new())]);
        Self {
            directory: File::open(directory).expect("open the directory to serve"),
            state: Mutex::new(BelowNodes {
                paths,
                ..BelowNodes::default()
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, BelowNodes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a file below the directory.
    fn relative(&self, node: INodeNo) -> io::Result<PathBuf> {
        let known = self.state().paths.get(&node.0).cloned();
        known.ok_or(io::Error::from_raw_os_error(nix::libc::ENOENT))
    }

    fn absolute(&self, relative: &Path) -> PathBuf {
        let directory = format!("/proc/self/fd/{}/.", self.directory.as_raw_fd());
        Path::new(&directory).join(relative)
    }

    /// The path of a file, as this process reaches it.
    pub(crate) fn path(&self, node: INodeNo) -> io::Result<PathBuf> {
        Ok(self.absolute(&self.relative(node)?))
    }

    /// The path of a name in a directory.
    pub(crate) fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn attributes(&self, node: INodeNo) -> io::Result<FileAttr> {
        Ok(attributes(&self.path(node)?.symlink_metadata()?, node))
    }

    /// The attributes of a name, whose file is remembered.
    fn found(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let relative = self.relative(parent)?.join(name);
        let found = self.absolute(&relative).symlink_metadata()?;
        self.state().paths.insert(found.ino(), relative);
        Ok(attributes(&found, INodeNo(found.ino())))
    }

    /// Notes that what had the first name has the second now.
    pub(crate) fn renamed(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (to_parent, to_name): (INodeNo, &OsStr),
    ) -> io::Result<()> {
        let (from, to) = (
            self.relative(parent)?.join(name),
            self.relative(to_parent)?.join(to_name),
        );
        let mut state = self.state();
        state.paths.retain(|_, path| *path != to);
        for path in state.paths.values_mut() {
            if let Ok(rest) = path.strip_prefix(&from) {
                *path = match rest.as_os_str().is_empty() {
                    true => to.clone(),
                    false => to.join(rest),
                };
            }
        }
        Ok(())
    }

    /// Takes a list of a directory, without the entries that are left out.
    fn take_list(&self, node: INodeNo, leaves_out: impl Fn(&OsStr) -> bool) -> io::Result<u64> {
        let mut items = Vec::new();
        for entry in self.path(node)?.read_dir()? {
            let entry = entry?;
            if leaves_out(&entry.file_name()) {
                continue;
            }
            let Ok(found) = entry.metadata() else {
                continue;
            };
            items.push(Item {
                node: INodeNo(found.ino()),
                kind: kind(&found),
                name: entry.file_name(),
            });
        }
        let mut state = self.state();
        state.next_list += 1;
        let number = state.next_list;
        state.lists.insert(number, items);
        Ok(number)
    }

    /// Answers a look-up, or a request that has just made the name.
    pub(crate) fn lookup(&self, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.found(parent, name) {
            Ok(found) => reply.entry(&NO_TIME, &found, GENERATION),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Answers the creation of a file.
    pub(crate) fn created(&self, parent: INodeNo, name: &OsStr, reply: ReplyCreate) {
        let (handle, opening) = (FileHandle(0), FopenFlags::empty());
        match self.found(parent, name) {
            Ok(made) => reply.created(&NO_TIME, &made, GENERATION, handle, opening),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn getattr(&self, node: INodeNo, reply: ReplyAttr) {
        match self.attributes(node) {
            Ok(found) => reply.attr(&NO_TIME, &found),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn readlink(&self, node: INodeNo, reply: ReplyData) {
        match self.path(node).and_then(std::fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn read(&self, node: INodeNo, offset: u64, bytes: u32, reply: ReplyData) {
        let mut room = vec![0; bytes as usize];
        let read = self.path(node).and_then(File::open);
        match read.and_then(|file| file.read_at(&mut room, offset)) {
            Ok(count) => reply.data(&room[..count]),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn opendir(
        &self,
        node: INodeNo,
        leaves_out: impl Fn(&OsStr) -> bool,
        reply: ReplyOpen,
    ) {
        match self.take_list(node, leaves_out) {
            Ok(list) => reply.opened(FileHandle(list), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(crate) fn readdir(&self, list: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let items = self.state().lists.get(&list.0).cloned().unwrap_or_default();
        let numbered = items.into_iter().zip(1_u64..);
        for (item, next) in numbered.filter(|(_, next)| *next > offset) {
            if reply.add(item.node, next, item.kind, &item.name) {
                break;
            }
        }
        reply.ok();
    }

    pub(crate) fn releasedir(&self, list: FileHandle, reply: ReplyEmpty) {
        self.state().lists.remove(&list.0);
        reply.ok();
    }
}

fn attributes(found: &Metadata, node: INodeNo) -> FileAttr {
    let time = |seconds: i64, nanos: i64| {
        let seconds = Duration::from_secs(seconds.unsigned_abs());
        SystemTime::UNIX_EPOCH + seconds + Duration::from_nanos(nanos.unsigned_abs())
    };
    let changed = time(found.ctime(), found.ctime_nsec());
    FileAttr {
        ino: node,
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

pub(crate) fn errno(error: &io::Error) -> Errno {
    Errno::from_i32(error.raw_os_error().unwrap_or(nix::libc::EIO))
}
