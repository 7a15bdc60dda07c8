//! Where the files of a set go: the root, mounts beside it, and what differs from the set.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use windlass_media::{FileNo, FileTable};

/// Where a set's files go.
#[derive(Clone, Debug, Default)]
pub struct TargetLayout {
    /// The directory that becomes the image's root.
    pub root: PathBuf,
    /// Path prefixes of the image that belong to other directories (tablespaces), as absolute
    /// paths.
    pub mounts: Vec<(Vec<u8>, PathBuf)>,
    /// Files that get this content instead of the set's.
    pub replace: Vec<(FileNo, Vec<u8>)>,
    /// What is appended to files, after the set's own bytes. Each file occurs once.
    pub append: Vec<(FileNo, Vec<u8>)>,
    /// The files, as the set lists them, or edited (link targets, lengths of replaced files).
    pub files: FileTable,
    /// Files of the set of which nothing is wanted. `files` has none with these numbers, and what
    /// the set has of them is not read.
    pub left_out: HashSet<FileNo>,
}

impl TargetLayout {
    /// Where a link is created. A link that stands for a mount lies outside the mount.
    pub(super) fn place_link(&self, path: &[u8]) -> PathBuf {
        if self.is_mount(path) {
            return self.root.join(OsStr::from_bytes(path));
        }
        self.place(path)
    }

    pub(super) fn is_mount(&self, path: &[u8]) -> bool {
        self.mounts.iter().any(|(prefix, _)| prefix == path)
    }

    /// The place in the target for a path of the image.
    pub(super) fn place(&self, path: &[u8]) -> PathBuf {
        for (prefix, base) in &self.mounts {
            match path.strip_prefix(prefix.as_slice()) {
                Some([]) => return base.clone(),
                Some([b'/', rest @ ..]) => return base.join(OsStr::from_bytes(rest)),
                _ => {}
            }
        }
        self.root.join(OsStr::from_bytes(path))
    }

    /// How many bytes a file gets after those of the set.
    pub(super) fn appended_bytes(&self, file: FileNo) -> u64 {
        let appended = self.append.iter().find(|(number, _)| *number == file);
        appended.map_or(0, |(_, bytes)| bytes.len() as u64)
    }
}
