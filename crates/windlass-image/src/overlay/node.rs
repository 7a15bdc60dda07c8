//! One node of an overlay: what it is, and where its content lies.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use windlass_engine::media::{FileKind, FileNo};

use super::blocks::BlockMap;
use super::record::{PAGE_BYTES, Record};
use crate::store::Slot;
use crate::view::{Attributes, NodeNo};

/// A file, directory or link.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: NodeNo,
    pub(crate) kind: FileKind,
    /// The file of the image that this node changes.
    pub(crate) base: Option<FileNo>,
    /// Where a link points.
    pub(crate) link_target: Vec<u8>,
    state: RwLock<NodeState>,
}

/// The part of a node that changes.
#[derive(Debug)]
pub(crate) struct NodeState {
    pub(crate) attributes: Attributes,
    /// How many bytes of the image's file still count. The bytes beyond were cut off for good.
    pub(crate) base_bytes: u64,
    /// Pages that are in the store instead of the image.
    pub(crate) blocks: BlockMap,
    /// How often it is open.
    pub(crate) opens: u64,
    /// Writes have set its time, and the journal does not record that yet.
    pub(crate) is_touched: bool,
    /// Its pages are free, so nothing may be written to it any more.
    pub(crate) is_dropped: bool,
}

impl Node {
    pub(crate) fn new(attributes: Attributes, base: Option<FileNo>, link_target: Vec<u8>) -> Self {
        Self {
            number: attributes.node,
            kind: attributes.kind,
            base,
            link_target,
            state: RwLock::new(NodeState {
                attributes,
                base_bytes: if base.is_some() { attributes.bytes } else { 0 },
                blocks: BlockMap::default(),
                opens: 0,
                is_touched: false,
                is_dropped: false,
            }),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, NodeState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, NodeState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }
}

impl NodeState {
    /// Makes a change of content or attributes, and returns the slots that it frees.
    pub(crate) fn apply(&mut self, record: &Record) -> Vec<Slot> {
        match record {
            Record::Changed {
                mode,
                owner,
                accessed_nanos,
                modified_nanos,
                changed_nanos,
                ..
            } => {
                let attributes = &mut self.attributes;
                attributes.mode = *mode;
                attributes.owner = *owner;
                attributes.accessed_nanos = *accessed_nanos;
                attributes.modified_nanos = *modified_nanos;
                attributes.changed_nanos = *changed_nanos;
                self.is_touched = false;
                Vec::new()
            }
            Record::Dropped { .. } => {
                self.is_dropped = true;
                self.blocks.cut(0)
            }
            Record::Resized {
                bytes, tail, nanos, ..
            } => {
                let mut freed = self.blocks.cut(bytes.div_ceil(PAGE_BYTES as u64));
                if let Some(tail) = tail {
                    freed.extend(self.blocks.set(bytes / PAGE_BYTES as u64, *tail));
                }
                self.base_bytes = self.base_bytes.min(*bytes);
                self.grow_to(*bytes, *nanos);
                freed
            }
            Record::Paged {
                block,
                slot,
                count,
                bytes,
                nanos,
                ..
            } => {
                let pairs = (*block..).zip(*slot..*slot + *count);
                let freed = pairs.filter_map(|(block, slot)| self.blocks.set(block, slot));
                let freed = freed.collect();
                self.grow_to(*bytes, *nanos);
                freed
            }
            _ => Vec::new(),
        }
    }

    fn grow_to(&mut self, bytes: u64, nanos: i64) {
        self.attributes.bytes = bytes;
        self.touch(nanos);
    }

    /// Notes that the content has changed.
    pub(crate) fn touch(&mut self, nanos: i64) {
        self.attributes.modified_nanos = nanos;
        self.attributes.changed_nanos = nanos;
    }

    /// The record of the attributes as they are now.
    pub(crate) fn changed(&self) -> Record {
        let now = &self.attributes;
        Record::Changed {
            node: now.node,
            mode: now.mode,
            owner: now.owner,
            accessed_nanos: now.accessed_nanos,
            modified_nanos: now.modified_nanos,
            changed_nanos: now.changed_nanos,
        }
    }
}
