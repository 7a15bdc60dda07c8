//! Overlays: a tree over an image. It accepts changes and keeps them outside the image.
//!
//!   View --> [tree]  names and nodes, in memory ----------------+
//!     |                                                         |
//!     +----> [content] page in the store?  --> PageStore        +--> [journal]  every change
//!                      else the image's        (append-only)    |
//!
//! The overlay's directory has three files: `overlay` names the image, `pages` is the store, and
//! `journal` has the records that rebuild the tree. docs/overlay.md describes every byte.
//!
//! Invariants
//! - The image is never written.
//! - Synced changes are there when the overlay is opened again, however it ended. Of the others as
//!   many are there as the journal has, and no later change without the earlier ones.
//! - Only one process at a time has an overlay open, and it belongs to one image.
//! - If a change fails (for example because the disk is full), nothing has changed, and nothing
//!   else is affected. After a failed sync the overlay accepts no more changes.
//!
//! Locking: first the tree, then one node, then the right to write to the store, then the slots,
//! then the journal. A node is locked during each read and write of its pages, so that its slots
//! stay its own.

mod blocks;
mod content;
mod directory;
mod journal;
mod node;
mod record;
mod replay;
mod tree;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::SystemTime;

use rustix::io::Errno;
use serde::Serialize;
use windlass_engine::durable::Locked;
use windlass_engine::free_bytes;
use windlass_engine::media::{FileKind, fitted};

use crate::error::ImageError;
use crate::image::Image;
use crate::store::{PageStore, StoreError};
use crate::view::{Attributes, Change, Creation, Listed, NodeNo, Space, View, refused};
use journal::Journal;
use node::Node;
use record::{Name, PAGE_BYTES, Record};
use tree::Tree;

/// A tree over an image that takes changes.
pub struct Overlay {
    image: Arc<dyn Image>,
    path: PathBuf,
    tree: RwLock<Tree>,
    store: PageStore,
    journal: Journal,
    /// Counts changes, so that a sync with nothing to do does nothing.
    changes: AtomicU64,
    synced: Mutex<Synced>,
    /// Holds the lock on the overlay as long as it is open here.
    _lock: Locked<File>,
}

/// What the last sync covered.
#[derive(Debug, Default)]
struct Synced {
    changes: u64,
    covered_bytes: u64,
    syncs: u64,
}

/// What an overlay holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverlayStatistics {
    /// Pages that are in the store instead of the image.
    pub pages: u64,
    /// Their bytes.
    pub page_bytes: u64,
    /// Pages of the store that are free for reuse.
    pub idle_pages: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Changes since it was opened.
    pub changes: u64,
    /// How often the overlay was made durable since it was opened.
    pub syncs: u64,
}

impl Overlay {
    /// Creates an overlay of an image in a directory. The directory is empty or does not exist yet.
    pub fn create(image: Arc<dyn Image>, path: &Path) -> Result<Self, ImageError> {
        let identity = image.identity().ok_or(ImageError::NoIdentity)?;
        directory::create(&identity, path)?;
        Self::open(image, path)
    }

    /// As [`Overlay::create`], but for any image, also one that may be another tomorrow. The
    /// overlay cannot be opened again.
    pub fn create_once(image: Arc<dyn Image>, path: &Path) -> Result<Self, ImageError> {
        directory::create(&directory::NO_IMAGE, path)?;
        directory::open(image, &directory::NO_IMAGE, path)
    }

    /// Opens an overlay as it was left, whether it was closed or the process that had it open was
    /// killed.
    pub fn open(image: Arc<dyn Image>, path: &Path) -> Result<Self, ImageError> {
        let identity = image.identity().ok_or(ImageError::NoIdentity)?;
        directory::open(image, &identity, path)
    }

    /// True when a directory holds an overlay.
    pub fn is_at(path: &Path) -> bool {
        path.join(directory::HEADER).exists()
    }

    /// The directory of the overlay.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the overlay holds.
    pub fn statistics(&self) -> OverlayStatistics {
        let (pages, idle_pages) = self.store.counts();
        let synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        OverlayStatistics {
            pages,
            page_bytes: pages * PAGE_BYTES as u64,
            idle_pages,
            journal_bytes: self.journal.bytes(),
            changes: self.changes.load(Ordering::Relaxed),
            syncs: synced.syncs,
        }
    }

    fn tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree_mut(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, node: NodeNo) -> Result<Arc<Node>, ImageError> {
        self.tree().node(node).cloned().map_err(refused)
    }

    fn file(&self, node: NodeNo) -> Result<Arc<Node>, ImageError> {
        let node = self.node(node)?;
        match node.kind {
            FileKind::File => Ok(node),
            FileKind::Directory => Err(refused(Errno::ISDIR)),
            FileKind::Symlink => Err(refused(Errno::INVAL)),
        }
    }

    fn fault(&self, operation: &'static str, source: io::Error) -> ImageError {
        ImageError::Overlay {
            operation,
            path: self.path.clone(),
            source,
        }
    }

    /// The error for a page of the store.
    fn page_fault(&self, operation: &'static str, error: StoreError) -> ImageError {
        match error {
            StoreError::Damaged { offset } => ImageError::OverlayPage {
                path: self.path.clone(),
                offset,
            },
            StoreError::Io(source) => self.fault(operation, source),
            other => self.fault(operation, io::Error::other(other)),
        }
    }

    fn append(&self, records: &[Record]) -> Result<(), ImageError> {
        let appended = self.journal.append(records);
        self.changes.fetch_add(1, Ordering::Relaxed);
        appended.map_err(|source| self.fault("write to the journal of", source))
    }

    /// Changes names: checks the change, writes it to the journal and makes it. Everybody else sees
    /// that as one step.
    fn alter(&self, make: impl FnOnce(&Tree) -> Result<Record, Errno>) -> Result<(), ImageError> {
        let mut tree = self.tree_mut();
        let record = make(&tree).map_err(refused)?;
        tree.check(&record).map_err(refused)?;
        let lost = tree.loses(&record);
        let dropped = lost.map(|node| Record::Dropped { node });
        let records: Vec<_> = std::iter::once(record).chain(dropped).collect();
        self.append(&records)?;
        for record in &records {
            let freed = tree.apply(record);
            self.store.free(freed);
        }
        Ok(())
    }

    /// Makes everything so far durable: first the pages, then the records that refer to them.
    fn sync_all(&self) -> io::Result<()> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = self.changes.load(Ordering::Acquire);
        if changes == synced.changes && synced.syncs > 0 {
            return Ok(());
        }
        let (freed, covered_bytes) = self.store.begin_sync(|| self.journal.bytes());
        let pages = self.store.sync();
        if pages.is_err() {
            self.journal.kill();
        }
        let done = pages.and_then(|()| self.journal.sync(covered_bytes, synced.covered_bytes));
        if done.is_err() {
            self.store.free(freed);
            return done;
        }
        self.store.reuse(freed);
        synced.changes = changes;
        synced.covered_bytes = covered_bytes;
        synced.syncs += 1;
        Ok(())
    }

    /// Writes to the journal that it was closed in order.
    fn close_all(&self) -> io::Result<()> {
        let touched: Vec<_> = self
            .tree()
            .nodes()
            .filter(|node| node.read().is_touched)
            .map(|node| node.read().changed())
            .collect();
        self.journal.append(&touched)?;
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.sync_all()?;
        self.journal.append(&[Record::Closed])?;
        self.journal.sync_file()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // A caller that wants to know of errors calls `sync`. An overlay that was not closed is
        // opened like one whose process was killed.
        self.close_all().unwrap_or_default();
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| fitted(since.as_nanos()))
}

impl View for Overlay {
    fn is_writable(&self) -> bool {
        true
    }

    fn lookup(&self, parent: NodeNo, name: &[u8]) -> Result<Attributes, ImageError> {
        let tree = self.tree();
        let node = tree.child((parent, name)).map_err(refused)?;
        Ok(node.read().attributes)
    }

    fn attributes(&self, node: NodeNo) -> Result<Attributes, ImageError> {
        Ok(self.node(node)?.read().attributes)
    }

    fn link_target(&self, node: NodeNo) -> Result<Vec<u8>, ImageError> {
        let node = self.node(node)?;
        match node.kind {
            FileKind::Symlink => Ok(node.link_target.clone()),
            _ => Err(refused(Errno::INVAL)),
        }
    }

    fn list(&self, node: NodeNo) -> Result<Vec<Listed>, ImageError> {
        let tree = self.tree();
        let listed = tree.list(node).map_err(refused)?;
        let listed = listed.map(|(name, node)| Listed {
            name: name.to_vec(),
            node: node.number,
            kind: node.kind,
        });
        Ok(listed.collect())
    }

    fn parent(&self, node: NodeNo) -> Result<NodeNo, ImageError> {
        self.tree().parent(node).map_err(refused)
    }

    fn read(&self, node: NodeNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let node = self.file(node)?;
        let state = node.read();
        self.read_content(&node, &state, offset, into)
    }

    fn will_need(&self, node: NodeNo, offset: u64) {
        let base = self.node(node).ok().and_then(|node| node.base);
        if let Some(file) = base {
            self.image.will_need(file, offset);
        }
    }

    fn prefetch(&self, node: NodeNo, offset: u64, bytes: u64) {
        let Ok(node) = self.node(node) else {
            return;
        };
        let base_bytes = node.read().base_bytes;
        if let Some(file) = node.base {
            let bytes = bytes.min(base_bytes.saturating_sub(offset));
            self.image.prefetch(file, offset, bytes);
        }
    }

    fn check_layers(&self, node: NodeNo) -> Result<(), ImageError> {
        let base = self.node(node)?.base;
        base.map_or(Ok(()), |file| self.image.check_layers(file))
    }

    fn open(&self, node: NodeNo) -> Result<(), ImageError> {
        // While this lock of the tree is held, nobody can remove the name and look at the count.
        let tree = self.tree();
        let node = tree.node(node).map_err(refused)?;
        node.write().opens += 1;
        Ok(())
    }

    fn close(&self, node: NodeNo) -> Result<(), ImageError> {
        let mut tree = self.tree_mut();
        let found = tree.node(node).map_err(refused)?;
        let mut state = found.write();
        state.opens = state.opens.saturating_sub(1);
        let is_lost = state.opens == 0 && state.attributes.links == 0;
        drop(state);
        if is_lost {
            let record = Record::Dropped { node };
            self.append(std::slice::from_ref(&record))?;
            self.store.free(tree.apply(&record));
        }
        Ok(())
    }

    fn write(&self, node: NodeNo, offset: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let node = self.file(node)?;
        let mut state = node.write();
        let end = offset.checked_add(bytes.len() as u64);
        match end {
            _ if state.is_dropped => Err(refused(Errno::NOENT)),
            Some(end) if i64::try_from(end).is_ok() => {
                self.write_content(&node, &mut state, offset, bytes, now())
            }
            _ => Err(refused(Errno::FBIG)),
        }
    }

    fn change(&self, node: NodeNo, change: &Change) -> Result<Attributes, ImageError> {
        let node = match change.bytes {
            Some(_) => self.file(node)?,
            None => self.node(node)?,
        };
        let mut state = node.write();
        if state.is_dropped {
            return Err(refused(Errno::NOENT));
        }
        if let Some(bytes) = change.bytes {
            if i64::try_from(bytes).is_err() {
                return Err(refused(Errno::FBIG));
            }
            self.resize(&node, &mut state, bytes, now())?;
        }
        let rest = Change {
            bytes: None,
            ..*change
        };
        if rest == Change::default() {
            return Ok(state.attributes);
        }
        let before = state.attributes;
        let record = Record::Changed {
            node: node.number,
            mode: change.mode.unwrap_or(before.mode),
            owner: change.owner.or(before.owner),
            accessed_nanos: change.accessed_nanos.unwrap_or(before.accessed_nanos),
            modified_nanos: change.modified_nanos.unwrap_or(before.modified_nanos),
            changed_nanos: now(),
        };
        self.append(std::slice::from_ref(&record))?;
        self.store.free(state.apply(&record));
        Ok(state.attributes)
    }

    fn create(
        &self,
        parent: NodeNo,
        name: &[u8],
        creation: &Creation<'_>,
    ) -> Result<Attributes, ImageError> {
        self.alter(|tree| {
            Ok(Record::Created {
                node: tree.next(),
                kind: creation.kind,
                mode: creation.mode,
                owner: creation.owner,
                nanos: now(),
                name: Name::of((parent, name)),
                link_target: creation.link_target.to_vec(),
            })
        })?;
        self.lookup(parent, name)
    }

    fn link(&self, node: NodeNo, to: (NodeNo, &[u8])) -> Result<Attributes, ImageError> {
        let (name, nanos) = (Name::of(to), now());
        self.alter(|_| Ok(Record::Linked { node, name, nanos }))?;
        self.attributes(node)
    }

    fn unlink(&self, parent: NodeNo, name: &[u8]) -> Result<(), ImageError> {
        let (name, nanos) = (Name::of((parent, name)), now());
        self.alter(|_| Ok(Record::Unlinked { name, nanos }))
    }

    fn remove_directory(&self, parent: NodeNo, name: &[u8]) -> Result<(), ImageError> {
        let (name, nanos) = (Name::of((parent, name)), now());
        self.alter(|_| Ok(Record::DirectoryRemoved { name, nanos }))
    }

    fn rename(
        &self,
        from: (NodeNo, &[u8]),
        to: (NodeNo, &[u8]),
        replace: bool,
    ) -> Result<(), ImageError> {
        self.alter(|tree| {
            if !replace && tree.child(to).is_ok() {
                return Err(Errno::EXIST);
            }
            let (from, to, nanos) = (Name::of(from), Name::of(to), now());
            Ok(Record::Renamed { from, to, nanos })
        })
    }

    fn space(&self) -> Result<Space, ImageError> {
        let free_bytes = free_bytes(&self.path)
            .map_err(|source| self.fault("look at the file system of", source))?;
        let (_, idle_pages) = self.store.counts();
        let tree = self.tree();
        let (mut used_bytes, mut nodes) = (0u64, 0);
        for node in tree.nodes() {
            used_bytes = used_bytes.saturating_add(node.read().attributes.bytes);
            nodes += 1;
        }
        let idle_bytes = idle_pages * PAGE_BYTES as u64;
        Ok(Space {
            used_bytes,
            free_bytes: free_bytes.saturating_add(idle_bytes),
            nodes,
        })
    }

    fn sync(&self) -> Result<(), ImageError> {
        self.sync_all().map_err(|source| self.fault("sync", source))
    }
}
