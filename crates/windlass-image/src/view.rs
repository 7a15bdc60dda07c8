//! A view: an image, or an overlay of one, as a tree of numbered nodes. It is what a mount shows.
//!
//!   file table --> [Skeleton] --+--> ImageView   never changes
//!                               +--> Overlay     takes changes, kept beside the image
//!
//! Invariants
//! - A view follows no links. If the file table has files below a link (a tablespace), the view
//!   shows the link as a directory, so it does not lead outside.
//! - A node keeps its number as long as it exists. The numbers of an image's nodes follow from its
//!   file table, so an overlay may refer to them.

mod image;
mod listed;
mod skeleton;

use std::fmt;

use rustix::io::Errno;
use windlass_engine::media::FileKind;

use crate::error::ImageError;
pub use image::ImageView;
pub(crate) use image::attributes_of;
pub use listed::ViewImage;
pub(crate) use skeleton::{Skeleton, SkeletonNode};

/// Number of a file, directory or link of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNo(pub u64);

impl NodeNo {
    /// The directory that everything is in.
    pub const ROOT: Self = Self(1);
}

impl fmt::Display for NodeNo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a view says of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub node: NodeNo,
    /// File, directory or link.
    pub kind: FileKind,
    /// Length in bytes. For a link it is the length of the target, for a directory 0.
    pub bytes: u64,
    /// Permission bits (07777).
    pub mode: u32,
    /// User and group, if they were set. Otherwise the node belongs to the owner of the whole view.
    pub owner: Option<(u32, u32)>,
    /// How many names it has; 0 when it was removed and is still open.
    pub links: u32,
    /// When it was last read, in nanoseconds since 1970 UTC. Reads do not change it, only programs
    /// that set it.
    pub accessed_nanos: i64,
    /// When its content last changed.
    pub modified_nanos: i64,
    /// When it last changed in any way.
    pub changed_nanos: i64,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// Its number.
    pub node: NodeNo,
    /// File, directory or link.
    pub kind: FileKind,
}

/// A change of a node's attributes. A field that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// A file's length.
    pub bytes: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Time of the last read.
    pub accessed_nanos: Option<i64>,
    /// Time of the last change of content.
    pub modified_nanos: Option<i64>,
}

/// The attributes of a new node.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// File, directory or link.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Where a link points.
    pub link_target: &'a [u8],
}

/// How much a view holds, and how much more it can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Approximate bytes of all files.
    pub used_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
    /// Files, directories and links.
    pub nodes: u64,
}

/// A tree of nodes. Any number of threads may use it at once.
///
/// An error that a file system gives, like a name that does not exist, is [`ImageError::Refused`].
/// A view that takes no changes refuses them with `EROFS`.
pub trait View: Send + Sync {
    /// True when the view takes changes.
    fn is_writable(&self) -> bool {
        false
    }

    /// The node that a name in a directory stands for.
    fn lookup(&self, parent: NodeNo, name: &[u8]) -> Result<Attributes, ImageError>;

    /// The attributes of a node.
    fn attributes(&self, node: NodeNo) -> Result<Attributes, ImageError>;

    /// Where a link points.
    fn link_target(&self, node: NodeNo) -> Result<Vec<u8>, ImageError>;

    /// The entries of a directory, in the order of names.
    fn list(&self, node: NodeNo) -> Result<Vec<Listed>, ImageError>;

    /// The directory that holds this directory. The parent of the root is the root.
    fn parent(&self, node: NodeNo) -> Result<NodeNo, ImageError>;

    /// Reads bytes of a file, as [`Image::read`](crate::Image::read) does.
    fn read(&self, node: NodeNo, offset: u64, into: &mut [u8]) -> Result<usize, ImageError>;

    /// Announces that a file will be read from `offset` on, as
    /// [`Image::will_need`](crate::Image::will_need) does.
    fn will_need(&self, _node: NodeNo, _offset: u64) {}

    /// Prepares bytes that will be read soon, as [`Image::prefetch`](crate::Image::prefetch) does.
    fn prefetch(&self, _node: NodeNo, _offset: u64, _bytes: u64) {}

    /// Finds out which bytes of a file count: see [`Image::check_layers`](crate::Image). Whoever
    /// reads the whole file calls this first.
    fn check_layers(&self, _node: NodeNo) -> Result<(), ImageError> {
        Ok(())
    }

    /// Opens a file. It exists until `close` was called as often, even if its name is removed.
    fn open(&self, node: NodeNo) -> Result<(), ImageError>;

    /// Ends one `open`.
    fn close(&self, node: NodeNo) -> Result<(), ImageError>;

    /// Writes bytes of a file. Writes all of them, or none and returns an error.
    fn write(&self, _node: NodeNo, _offset: u64, _bytes: &[u8]) -> Result<(), ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Changes the attributes of a node.
    fn change(&self, _node: NodeNo, _change: &Change) -> Result<Attributes, ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Makes a file, directory or link.
    fn create(
        &self,
        _parent: NodeNo,
        _name: &[u8],
        _creation: &Creation<'_>,
    ) -> Result<Attributes, ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Gives a file one more name.
    fn link(&self, _node: NodeNo, _to: (NodeNo, &[u8])) -> Result<Attributes, ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Removes a name of a file or link.
    fn unlink(&self, _parent: NodeNo, _name: &[u8]) -> Result<(), ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Removes an empty directory.
    fn remove_directory(&self, _parent: NodeNo, _name: &[u8]) -> Result<(), ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// Renames. If `replace` is set, it may replace what has the new name.
    fn rename(
        &self,
        _from: (NodeNo, &[u8]),
        _to: (NodeNo, &[u8]),
        _replace: bool,
    ) -> Result<(), ImageError> {
        Err(refused(Errno::ROFS))
    }

    /// How much the view holds, and how much more it can take.
    fn space(&self) -> Result<Space, ImageError>;

    /// Returns when every change so far is durable.
    fn sync(&self) -> Result<(), ImageError> {
        Ok(())
    }
}

/// The error for an operation that a file system refuses.
pub(crate) fn refused(errno: Errno) -> ImageError {
    ImageError::Refused { errno }
}
