//! The tree of an overlay: names, directories and nodes, and how they change.
//!
//! Changes that a program makes and changes from the journal use the same two functions: `check`
//! finds the error that a file system would return, and `apply` then cannot fail.
//!
//! Invariants
//! - A node is in `nodes` while it has a name or is open. Its number is never used again.
//! - `links` of a file or link is the number of its names.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rustix::io::Errno;
use windlass_engine::media::FileKind;

use super::node::Node;
use super::record::{Name, Record};
use crate::image::Image;
use crate::store::Slot;
use crate::view::{Attributes, NodeNo, Skeleton, attributes_of};

const NAME_BYTES_MAX: usize = 255;
const TARGET_BYTES_MAX: usize = 4095;
const LINKS_MAX: u32 = 65_000;

/// Names and nodes.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<NodeNo, Arc<Node>>,
    directories: HashMap<NodeNo, Directory>,
    /// The next new node's number.
    next: u64,
}

#[derive(Debug)]
struct Directory {
    parent: NodeNo,
    children: BTreeMap<Box<[u8]>, NodeNo>,
}

impl Tree {
    /// The tree of an image that nobody has changed.
    pub(crate) fn new(image: &dyn Image) -> Self {
        let skeleton = Skeleton::new(image.files());
        let (mut nodes, mut directories) = (HashMap::new(), HashMap::new());
        let mut next = 1;
        for (number, node) in skeleton.nodes() {
            next = number.0 + 1;
            if node.kind == FileKind::Directory {
                let children = node.children.iter().cloned().collect();
                let parent = node.parent;
                directories.insert(number, Directory { parent, children });
            }
            let entry = node.entry.map(|index| &image.files().0[index]);
            let base = entry.filter(|_| node.kind == FileKind::File);
            let link = entry.filter(|_| node.kind == FileKind::Symlink);
            let node = Node::new(
                attributes_of(image, number, node),
                base.map(|entry| entry.file),
                link.map_or(Vec::new(), |entry| entry.link_target.clone()),
            );
            nodes.insert(number, Arc::new(node));
        }
        Self {
            nodes,
            directories,
            next,
        }
    }

    pub(crate) fn node(&self, node: NodeNo) -> Result<&Arc<Node>, Errno> {
        self.nodes.get(&node).ok_or(Errno::NOENT)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    pub(crate) fn next(&self) -> NodeNo {
        NodeNo(self.next)
    }

    /// The node that a name stands for.
    pub(crate) fn child(&self, (parent, name): (NodeNo, &[u8])) -> Result<&Arc<Node>, Errno> {
        let found = self.directory(parent)?.children.get(name);
        self.node(*found.ok_or(Errno::NOENT)?)
    }

    /// Names and nodes of a directory, in the order of names.
    pub(crate) fn list(
        &self,
        directory: NodeNo,
    ) -> Result<impl Iterator<Item = (&[u8], &Arc<Node>)>, Errno> {
        let children = &self.directory(directory)?.children;
        Ok(children
            .iter()
            .filter_map(|(name, node)| Some((&**name, self.nodes.get(node)?))))
    }

    pub(crate) fn parent(&self, directory: NodeNo) -> Result<NodeNo, Errno> {
        self.directory(directory).map(|found| found.parent)
    }

    fn directory(&self, node: NodeNo) -> Result<&Directory, Errno> {
        match self.directories.get(&node) {
            Some(directory) => Ok(directory),
            None => self.node(node).and(Err(Errno::NOTDIR)),
        }
    }

    fn named(&self, name: &Name) -> Result<&Arc<Node>, Errno> {
        self.child((name.parent, &name.name))
    }

    /// Checks that the directory exists and the name in it does not.
    fn check_new(&self, name: &Name) -> Result<(), Errno> {
        match self.named(name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => {
                self.directory(name.parent)?;
                check_name(&name.name)
            }
            Err(errno) => Err(errno),
        }
    }

    /// The answer of a file system to a change. `Ok` when `apply` can make it.
    pub(crate) fn check(&self, record: &Record) -> Result<(), Errno> {
        match record {
            Record::Created {
                node,
                name,
                link_target,
                ..
            } => {
                if link_target.len() > TARGET_BYTES_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
                if node.0 < self.next {
                    return Err(Errno::INVAL);
                }
                self.check_new(name)
            }
            Record::Linked { node, name, .. } => {
                let node = self.node(*node)?;
                let links = node.read().attributes.links;
                match node.kind {
                    FileKind::Directory => Err(Errno::PERM),
                    _ if links == 0 => Err(Errno::NOENT),
                    _ if links >= LINKS_MAX => Err(Errno::MLINK),
                    _ => self.check_new(name),
                }
            }
            Record::Unlinked { name, .. } => match self.named(name)?.kind {
                FileKind::Directory => Err(Errno::ISDIR),
                _ => Ok(()),
            },
            Record::DirectoryRemoved { name, .. } => {
                let node = self.named(name)?;
                let is_empty = self.directory(node.number)?.children.is_empty();
                is_empty.then_some(()).ok_or(Errno::NOTEMPTY)
            }
            Record::Renamed { from, to, .. } => self.check_rename(from, to),
            Record::Changed { node, .. } | Record::Dropped { node } => self.node(*node).map(|_| ()),
            Record::Resized { node, .. } | Record::Paged { node, .. } => {
                let is_file = self.node(*node)?.is_file();
                is_file.then_some(()).ok_or(Errno::INVAL)
            }
            Record::Opened { .. } | Record::Synced { .. } | Record::Closed => Ok(()),
        }
    }

    fn check_rename(&self, from: &Name, to: &Name) -> Result<(), Errno> {
        let node = self.named(from)?;
        check_name(&to.name)?;
        let mut above = to.parent;
        self.directory(above)?;
        while above != NodeNo::ROOT {
            if above == node.number {
                return Err(Errno::INVAL);
            }
            above = self.parent(above)?;
        }
        let replaced = match self.named(to) {
            Err(Errno::NOENT) => return Ok(()),
            found => found?,
        };
        let directory = |node: &Node| node.kind == FileKind::Directory;
        match (directory(node), directory(replaced)) {
            (false, true) => Err(Errno::ISDIR),
            (true, false) => Err(Errno::NOTDIR),
            (true, true) if !self.directory(replaced.number)?.children.is_empty() => {
                Err(Errno::NOTEMPTY)
            }
            _ => Ok(()),
        }
    }

    /// Makes a change that `check` has allowed, and returns the slots that it frees.
    pub(crate) fn apply(&mut self, record: &Record) -> Vec<Slot> {
        match record {
            Record::Created { .. } => self.create(record),
            Record::Linked { node, name, nanos } => {
                self.insert(name, *node, *nanos);
                self.count_links(*node, 1, *nanos);
            }
            Record::Unlinked { name, nanos } => {
                if let Some(node) = self.remove(name, *nanos) {
                    self.count_links(node, -1, *nanos);
                }
            }
            Record::DirectoryRemoved { name, nanos } => {
                if let Some(node) = self.remove(name, *nanos) {
                    self.remove_directory(node);
                }
            }
            Record::Renamed { from, to, nanos } => self.rename(from, to, *nanos),
            Record::Dropped { node } => {
                let dropped = self.nodes.remove(node);
                return dropped.map_or(Vec::new(), |node| node.write().apply(record));
            }
            Record::Changed { node, .. }
            | Record::Resized { node, .. }
            | Record::Paged { node, .. } => {
                let node = self.nodes.get(node);
                return node.map_or(Vec::new(), |node| node.write().apply(record));
            }
            Record::Opened { .. } | Record::Synced { .. } | Record::Closed => {}
        }
        Vec::new()
    }

    /// The node that a change leaves without a name, unless somebody has it open.
    pub(crate) fn loses(&self, record: &Record) -> Option<NodeNo> {
        let node = match record {
            Record::Unlinked { name, .. } => self.named(name).ok()?,
            Record::Renamed { from, to, .. } => {
                let replaced = self.named(to).ok()?;
                if self.named(from).ok()?.number == replaced.number {
                    return None;
                }
                replaced
            }
            _ => return None,
        };
        let state = node.read();
        let last = node.kind != FileKind::Directory && state.attributes.links == 1;
        (last && state.opens == 0).then_some(node.number)
    }

    /// Files without a name. They were open when the overlay was last used.
    pub(crate) fn orphans(&self) -> Vec<NodeNo> {
        let orphan = |node: &&Arc<Node>| {
            node.kind != FileKind::Directory && node.read().attributes.links == 0
        };
        let mut orphans: Vec<_> = self
            .nodes()
            .filter(orphan)
            .map(|node| node.number)
            .collect();
        orphans.sort_unstable();
        orphans
    }

    fn create(&mut self, record: &Record) {
        let Record::Created {
            node,
            kind,
            mode,
            owner,
            nanos,
            name,
            link_target,
        } = record
        else {
            return;
        };
        let attributes = Attributes {
            node: *node,
            kind: *kind,
            bytes: link_target.len() as u64,
            mode: *mode,
            owner: Some(*owner),
            links: 1,
            accessed_nanos: *nanos,
            modified_nanos: *nanos,
            changed_nanos: *nanos,
        };
        let made = Node::new(attributes, None, link_target.clone());
        self.nodes.insert(*node, Arc::new(made));
        if *kind == FileKind::Directory {
            let (parent, children) = (name.parent, BTreeMap::new());
            self.directories
                .insert(*node, Directory { parent, children });
        }
        self.insert(name, *node, *nanos);
        self.next = node.0 + 1;
    }

    fn rename(&mut self, from: &Name, to: &Name, nanos: i64) {
        let same = |tree: &Self| Some((tree.named(from).ok()?.number, tree.named(to).ok()?.number));
        // Both are names of one file. Then POSIX wants nothing to happen.
        if same(self).is_some_and(|(one, other)| one == other) {
            return;
        }
        if let Some(replaced) = self.remove(to, nanos) {
            if self.directories.contains_key(&replaced) {
                self.remove_directory(replaced);
            } else {
                self.count_links(replaced, -1, nanos);
            }
        }
        if let Some(node) = self.remove(from, nanos) {
            self.insert(to, node, nanos);
            if let Some(directory) = self.directories.get_mut(&node) {
                directory.parent = to.parent;
            }
        }
    }

    fn insert(&mut self, name: &Name, node: NodeNo, nanos: i64) {
        if let Some(directory) = self.directories.get_mut(&name.parent) {
            directory.children.insert(name.name.as_slice().into(), node);
        }
        self.touch(name.parent, nanos);
    }

    fn remove(&mut self, name: &Name, nanos: i64) -> Option<NodeNo> {
        let directory = self.directories.get_mut(&name.parent)?;
        let removed = directory.children.remove(name.name.as_slice());
        if removed.is_some() {
            self.touch(name.parent, nanos);
        }
        removed
    }

    fn remove_directory(&mut self, node: NodeNo) {
        self.directories.remove(&node);
        self.nodes.remove(&node);
    }

    fn touch(&self, directory: NodeNo, nanos: i64) {
        if let Some(node) = self.nodes.get(&directory) {
            node.write().touch(nanos);
        }
    }

    fn count_links(&self, node: NodeNo, change: i32, nanos: i64) {
        if let Some(node) = self.nodes.get(&node) {
            let attributes = &mut node.write().attributes;
            attributes.links = attributes.links.saturating_add_signed(change);
            attributes.changed_nanos = nanos;
        }
    }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" | b"." | b".." => Err(Errno::INVAL),
        name if name.len() > NAME_BYTES_MAX => Err(Errno::NAMETOOLONG),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}
