//! A sick file system: a directory whose lists leave entries out, as network file systems do.
//!
//!   program --> mount over DIRECTORY --> DIRECTORY itself, except for the entries left out
//!
//! Every name can still be looked up, and every file reads as it is. Only the lists are wrong. The
//! mount covers the directory itself, so a running server meets it too. Programs can read through
//! the mount, and they cannot write.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use fuser::{
    BackgroundSession, Config, FileHandle, Filesystem, INodeNo, LockOwner, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use crate::below::Below;

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
        let files = SickFiles {
            below: Below::open(at),
            leaves_out,
            lists: Mutex::default(),
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
    below: Below,
    leaves_out: LeavesOut,
    /// How often each directory was listed.
    lists: Mutex<HashMap<INodeNo, u32>>,
}

impl SickFiles {
    /// How often the directory was listed before.
    fn lists_before(&self, node: INodeNo) -> u32 {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let count = lists.entry(node).or_default();
        *count += 1;
        *count - 1
    }
}

impl Filesystem for SickFiles {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.below.lookup(parent, name, reply);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.below.getattr(node, reply);
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        self.below.readlink(node, reply);
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

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let before = self.lists_before(node);
        let leaves_out = |name: &OsStr| (self.leaves_out)(before, name);
        self.below.opendir(node, leaves_out, reply);
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
