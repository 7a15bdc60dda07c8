//! An image as a view: it never changes.

use std::sync::Arc;

use rustix::io::Errno;
use windlass_engine::media::{FileKind, FileNo};

use super::{Attributes, Listed, NodeNo, Skeleton, SkeletonNode, Space, View, refused};
use crate::error::ImageError;
use crate::image::Image;

/// An image as a tree of nodes that never change.
pub struct ImageView {
    image: Arc<dyn Image>,
    skeleton: Skeleton,
}

impl ImageView {
    /// The tree of an image.
    pub fn new(image: Arc<dyn Image>) -> Self {
        let skeleton = Skeleton::new(image.files());
        Self { image, skeleton }
    }

    fn node(&self, node: NodeNo) -> Result<&SkeletonNode, ImageError> {
        self.skeleton
            .node(node)
            .ok_or_else(|| refused(Errno::NOENT))
    }

    /// The file of the image that belongs to a node.
    fn file(&self, node: NodeNo) -> Option<FileNo> {
        let entry = self.skeleton.node(node)?.entry?;
        Some(self.image.files().0[entry].file)
    }

    fn directory(&self, node: NodeNo) -> Result<&SkeletonNode, ImageError> {
        let found = self.node(node)?;
        match found.kind {
            FileKind::Directory => Ok(found),
            _ => Err(refused(Errno::NOTDIR)),
        }
    }
}

/// The attributes, from the image, of a node that nobody has changed.
pub(crate) fn attributes_of(image: &dyn Image, number: NodeNo, node: &SkeletonNode) -> Attributes {
    let entry = node.entry.map(|index| &image.files().0[index]);
    let bytes = entry.map_or(0, |entry| match node.kind {
        FileKind::File => entry.bytes,
        FileKind::Symlink => entry.link_target.len() as u64,
        FileKind::Directory => 0,
    });
    let nanos = entry.map_or(0, |entry| entry.mtime_nanos);
    Attributes {
        node: number,
        kind: node.kind,
        bytes,
        mode: node.mode,
        owner: None,
        links: 1,
        accessed_nanos: nanos,
        modified_nanos: nanos,
        changed_nanos: nanos,
    }
}

impl View for ImageView {
    fn lookup(&self, parent: NodeNo, name: &[u8]) -> Result<Attributes, ImageError> {
        let parent = self.directory(parent)?;
        let child = self.skeleton.child(parent, name);
        self.attributes(child.ok_or_else(|| refused(Errno::NOENT))?)
    }

    fn attributes(&self, node: NodeNo) -> Result<Attributes, ImageError> {
        Ok(attributes_of(&*self.image, node, self.node(node)?))
    }

    fn link_target(&self, node: NodeNo) -> Result<Vec<u8>, ImageError> {
        let found = self.node(node)?;
        match (found.kind, found.entry) {
            (FileKind::Symlink, Some(entry)) => Ok(self.image.files().0[entry].link_target.clone()),
            _ => Err(refused(Errno::INVAL)),
        }
    }

    fn list(&self, node: NodeNo) -> Result<Vec<Listed>, ImageError> {
        let listed = |(name, node): &(Box<[u8]>, NodeNo)| {
            let (name, node, kind) = (name.to_vec(), *node, self.node(*node)?.kind);
            Ok(Listed { name, node, kind })
        };
        self.directory(node)?.children.iter().map(listed).collect()
    }

    fn parent(&self, node: NodeNo) -> Result<NodeNo, ImageError> {
        Ok(self.node(node)?.parent)
    }

    fn read(&self, node: NodeNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let found = self.node(node)?;
        match (found.kind, found.entry) {
            (FileKind::File, Some(entry)) => {
                let file = self.image.files().0[entry].file;
                self.image.read(file, offset, into)
            }
            (FileKind::Directory, _) => Err(refused(Errno::ISDIR)),
            _ => Err(refused(Errno::INVAL)),
        }
    }

    fn will_need(&self, node: NodeNo, offset: u64) {
        if let Some(file) = self.file(node) {
            self.image.will_need(file, offset);
        }
    }

    fn prefetch(&self, node: NodeNo, offset: u64, bytes: u64) {
        if let Some(file) = self.file(node) {
            self.image.prefetch(file, offset, bytes);
        }
    }

    fn check_layers(&self, node: NodeNo) -> Result<(), ImageError> {
        self.file(node)
            .map_or(Ok(()), |file| self.image.check_layers(file))
    }

    fn open(&self, node: NodeNo) -> Result<(), ImageError> {
        self.node(node).map(|_| ())
    }

    fn close(&self, _node: NodeNo) -> Result<(), ImageError> {
        Ok(())
    }

    fn space(&self) -> Result<Space, ImageError> {
        let files = self.image.files().0.iter();
        Ok(Space {
            used_bytes: files.fold(0, |sum, file| sum.saturating_add(file.bytes)),
            free_bytes: 0,
            nodes: self.skeleton.nodes().count() as u64,
        })
    }
}
