//! The file system that answers the kernel: each request becomes one call of the view.
//!
//! Locking: only that of the listings and of the read-ahead. The kernel asks on many threads.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use windlass_engine::media::{FileKind, fitted};
use windlass_image::{Change, ImageError};

use crate::attributes::{kind, nanos, node, nothing};
use crate::served::{FOREVER, GENERATION, Served};

/// Largest request to read or write. It is the kernel's own limit, unless root raised that.
pub(crate) const REQUEST_BYTES: u32 = 1024 * 1024;
/// How many requests the kernel may have under way for its own read-ahead.
const BACKGROUND_MAX: u16 = 64;
/// Unit of `statfs`.
const STATFS_BYTES: u32 = 4096;
const NAME_BYTES_MAX: u32 = 255;

thread_local! {
    /// Each thread keeps the buffer of its answers to reads and uses it again.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Served {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        // A kernel that lacks some of these is slower, or cannot map a file that bypasses its
        // cache.
        let has = wanted & config.capabilities();
        let refused = |what| move |_| io::Error::other(format!("the kernel takes no {what}"));
        config
            .add_capabilities(has)
            .map_err(|_| io::Error::other("capabilities changed"))?;
        config
            .set_max_write(REQUEST_BYTES)
            .map_err(refused("larger writes"))?;
        config
            .set_max_background(BACKGROUND_MAX)
            .map_err(|_| io::Error::other("no background"))?;
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.view.lookup(node(parent), name.as_bytes()) {
            // The kernel remembers this answer too: a server looks again and again for files that
            // are not there.
            Err(ImageError::Refused { errno }) if errno.raw_os_error() == libc::ENOENT => {
                reply.entry(&FOREVER, &nothing(), GENERATION);
            }
            found => self.entry(found, reply),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(self.view.attributes(node(ino)), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.owner_of(node(ino), uid, gid).and_then(|owner| {
            let change = Change {
                bytes: size,
                mode: mode.map(|mode| mode & 0o7777),
                owner,
                accessed_nanos: atime.map(nanos),
                modified_nanos: mtime.map(nanos),
            };
            self.view.change(node(ino), &change)
        });
        self.attr(changed, reply);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.view.link_target(node(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        if mode & libc::S_IFMT != libc::S_IFREG {
            // Pipes, sockets and devices belong to a running system, not to a database.
            return reply.error(Errno::EPERM);
        }
        let made = self.make(request, (parent, name), (FileKind::File, mode), b"");
        self.entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, (parent, name), (FileKind::Directory, mode), b"");
        self.entry(made, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let made = self.make(request, (parent, name), (FileKind::Symlink, 0o777), target);
        self.entry(made, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(request, (parent, name), (FileKind::File, mode), b"");
        match made.and_then(|made| self.view.open(made.node).map(|()| made)) {
            Ok(made) => {
                let (handle, opening) = (FileHandle(0), self.opening());
                reply.created(&FOREVER, &self.shown(&made), GENERATION, handle, opening);
            }
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.empty(self.view.unlink(node(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.view.remove_directory(node(parent), name.as_bytes());
        self.empty(removed, reply);
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
        if !RenameFlags::RENAME_NOREPLACE.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let (from, to) = (
            (node(parent), name.as_bytes()),
            (node(to_parent), to_name.as_bytes()),
        );
        self.empty(self.view.rename(from, to, flags.is_empty()), reply);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        to_parent: INodeNo,
        to_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let to = (node(to_parent), to_name.as_bytes());
        self.entry(self.view.link(node(ino), to), reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.view.open(node(ino)) {
            Ok(()) => reply.opened(FileHandle(0), self.opening()),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.counters.reads.add(1);
        self.ahead.note(node(ino), offset, size.into());
        ANSWER.with_borrow_mut(|answer| {
            let size = size as usize;
            if answer.len() < size {
                answer.resize(size, 0);
            }
            let into = &mut answer[..size];
            let read = self.view.read(node(ino), offset, into);
            // To the page cache, an answer that is too short means the end of the file: it would
            // show zeros for the rest. So it gets the error, and then asks again page by page. A
            // read past the cache names a lock owner, and no other read does. How the file was
            // opened does not tell: pages of it that are mapped go through the cache anyway.
            let past_cache = lock_owner.is_some();
            let read = read.or_else(|error| {
                let number = self.fault(&error);
                let prefix = past_cache.then(|| self.read_prefix(node(ino), offset, into));
                prefix.flatten().ok_or(number)
            });
            match read {
                Ok(count) => {
                    self.counters.read_bytes.add(count as u64);
                    reply.data(&into[..count]);
                }
                Err(number) => {
                    self.counters.reads_failed.add(1);
                    reply.error(number);
                }
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.counters.writes.add(1);
        match self.view.write(node(ino), offset, data) {
            Ok(()) => {
                self.counters.written_bytes.add(data.len() as u64);
                reply.written(fitted(data.len()));
            }
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.ahead.forget(node(ino));
        self.empty(self.view.close(node(ino)), reply);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(self.view.sync(), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.empty(self.view.sync(), reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // We cannot reserve space, and holes need none. All that a call can rely on is the length.
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let grown = self.view.attributes(node(ino)).and_then(|now| {
            let bytes = offset.saturating_add(length).max(now.bytes);
            let bytes = Some(bytes).filter(|bytes| *bytes > now.bytes);
            let change = Change {
                bytes,
                ..Change::default()
            };
            self.view.change(node(ino), &change).map(|_| ())
        });
        self.empty(grown, reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let keep = if self.view.is_writable() {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR
        };
        match self.listings.open(&*self.view, node(ino)) {
            Ok(handle) => reply.opened(FileHandle(handle), keep),
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listed) = self.listings.get(handle.0) else {
            return reply.error(Errno::EBADF);
        };
        let from = fitted(offset);
        for (item, next) in listed.iter().zip(1..).skip(from) {
            let (number, name) = (INodeNo(item.node.0), OsStr::from_bytes(&item.name));
            if reply.add(number, next, kind(item.kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(listed) = self.listings.get(handle.0) else {
            return reply.error(Errno::EBADF);
        };
        let from = fitted(offset);
        for (item, next) in listed.iter().zip(1..).skip(from) {
            // The file was removed after the directory was opened, so it is left out.
            let Ok(found) = self.view.attributes(item.node) else {
                continue;
            };
            let (number, name) = (INodeNo(item.node.0), OsStr::from_bytes(&item.name));
            let attributes = self.shown(&found);
            if reply.add(number, next, name, &FOREVER, &attributes, GENERATION) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.close(handle.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.view.space() {
            Ok(space) => {
                let blocks = |bytes: u64| bytes / u64::from(STATFS_BYTES);
                let free = blocks(space.free_bytes);
                let all = blocks(space.used_bytes) + free;
                let (unit, name) = (STATFS_BYTES, NAME_BYTES_MAX);
                reply.statfs(all, free, free, space.nodes, free, unit, name, unit);
            }
            Err(error) => reply.error(self.fault(&error)),
        }
    }

    fn destroy(&mut self) {
        self.end();
    }
}
