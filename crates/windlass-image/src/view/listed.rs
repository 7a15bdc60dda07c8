//! A view as an image: an overlay with its changes, as it is now.
//!
//! The tree is listed once. A file that is removed afterwards can still be read; a file that grows
//! is read up to the length it had; one that shrinks is an error where it is read. For an image of
//! one moment, nobody may write while the image is in use.

use std::path::PathBuf;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo, FileTable, fitted};

use super::{Attributes, NodeNo, View};
use crate::error::ImageError;
use crate::image::{FileLookup, Image, read_length};

/// A view as an image.
pub struct ViewImage {
    view: Arc<dyn View>,
    files: FileTable,
    lookup: FileLookup,
    /// The node of each entry of the table.
    nodes: Vec<NodeNo>,
}

impl ViewImage {
    /// Lists a view. A file with two names is listed as two files.
    pub fn open(view: Arc<dyn View>) -> Result<Self, ImageError> {
        let mut image = Self {
            view,
            files: FileTable::default(),
            lookup: FileLookup::new(&FileTable::default()),
            nodes: Vec::new(),
        };
        image.list(NodeNo::ROOT, b"")?;
        image.lookup = FileLookup::new(&image.files);
        Ok(image)
    }

    fn list(&mut self, directory: NodeNo, prefix: &[u8]) -> Result<(), ImageError> {
        for listed in self.view.list(directory)? {
            let mut path = prefix.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&listed.name);
            let attributes = self.view.attributes(listed.node)?;
            let link_target = match listed.kind {
                FileKind::Symlink => self.view.link_target(listed.node)?,
                _ => Vec::new(),
            };
            if listed.kind == FileKind::File {
                self.view.open(listed.node)?;
            }
            let entry = self.entry(&attributes, path.clone(), link_target);
            self.files.0.push(entry);
            self.nodes.push(listed.node);
            if listed.kind == FileKind::Directory {
                self.list(listed.node, &path)?;
            }
        }
        Ok(())
    }

    fn entry(&self, attributes: &Attributes, path: Vec<u8>, link_target: Vec<u8>) -> FileEntry {
        FileEntry {
            file: FileNo(fitted(self.files.0.len())),
            kind: attributes.kind,
            flags: FileFlags::default(),
            mode: attributes.mode & 0o777,
            bytes: match attributes.kind {
                FileKind::File => attributes.bytes,
                _ => 0,
            },
            mtime_nanos: attributes.modified_nanos,
            crc32c: 0,
            path,
            link_target,
        }
    }

    fn node(&self, file: FileNo) -> Result<(NodeNo, &FileEntry), ImageError> {
        let index = self.lookup.index(&self.files, file)?;
        Ok((self.nodes[index], &self.files.0[index]))
    }
}

impl Drop for ViewImage {
    fn drop(&mut self) {
        for (entry, node) in self.files.0.iter().zip(&self.nodes) {
            if entry.kind == FileKind::File {
                // An overlay that cannot note the end of a removed file notes it when it is opened.
                self.view.close(*node).unwrap_or_default();
            }
        }
    }
}

impl Image for ViewImage {
    fn files(&self) -> &FileTable {
        &self.files
    }

    fn read(&self, file: FileNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError> {
        let (node, entry) = self.node(file)?;
        let length = read_length(entry, offset, into.len());
        let count = self.view.read(node, offset, &mut into[..length])?;
        if count < length {
            return Err(ImageError::Shrunk {
                path: PathBuf::from(entry.path_lossy()),
                listed_bytes: entry.bytes,
                found_bytes: offset + count as u64,
            });
        }
        Ok(count)
    }

    fn will_need(&self, file: FileNo, offset: u64) {
        if let Ok((node, _)) = self.node(file) {
            self.view.will_need(node, offset);
        }
    }

    fn prefetch(&self, file: FileNo, offset: u64, bytes: u64) {
        if let Ok((node, _)) = self.node(file) {
            self.view.prefetch(node, offset, bytes);
        }
    }

    fn check_layers(&self, file: FileNo) -> Result<(), ImageError> {
        self.view.check_layers(self.node(file)?.0)
    }
}
