//! Sets of small trees, made from memory: files with modes and times, directories, links.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileFlags, FileKind, FileNo, FileTable, IndexBlock};
use windlass_engine::{BufferRequest, Cancel, METADATA_LIMIT_DEFAULT, OpenSet, RunReport};

use crate::heap::HeapHook;
pub use crate::runs::{Setup, stripe_path};
use crate::runs::{begin, bytes_spec, facts, file_devices};
use crate::sqlite::Random;

/// A file, directory or link of a tree.
#[derive(Clone, Debug)]
pub struct Planted {
    /// Its path, without a slash in front.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Its permission bits.
    pub mode: u32,
    /// A file's content, or where a link points.
    pub content: Vec<u8>,
}

impl Planted {
    /// A file.
    pub fn file(path: &str, content: Vec<u8>) -> Self {
        Self::new(path, FileKind::File, 0o600, content)
    }

    /// A directory.
    pub fn directory(path: &str) -> Self {
        Self::new(path, FileKind::Directory, 0o700, Vec::new())
    }

    /// A link.
    pub fn link(path: &str, target: &str) -> Self {
        Self::new(path, FileKind::Symlink, 0o777, target.into())
    }

    fn new(path: &str, kind: FileKind, mode: u32, content: Vec<u8>) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            mode,
            content,
        }
    }

    /// The same, with other permission bits.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    fn entry(&self, number: u32) -> FileEntry {
        let link = self.kind == FileKind::Symlink;
        FileEntry {
            file: FileNo(number),
            kind: self.kind,
            flags: FileFlags::default(),
            mode: self.mode,
            bytes: if self.kind == FileKind::File {
                self.content.len() as u64
            } else {
                0
            },
            mtime_nanos: 1_700_000_000_000_000_000 + i64::from(number),
            crc32c: 0,
            path: self.path.as_bytes().to_vec(),
            link_target: if link { self.content.clone() } else { vec![] },
        }
    }
}

/// The default settings of such sets: two stripes with short frames.
pub fn two_stripes() -> Setup {
    let request = BufferRequest {
        transfer_bytes: Some(256 * 1024),
        frame_bytes: Some(64 * 1024),
        ..BufferRequest::default()
    };
    Setup {
        stripes: 2,
        request,
        ..Setup::default()
    }
}

/// Makes a set of a tree in `dir`. A directory must come before its content.
pub fn make_set(tree: &[Planted], dir: &Path, setup: &Setup) {
    make_set_by(tree, dir, setup, None);
}

/// The same with a hook that sees its pages.
pub fn make_set_by(
    tree: &[Planted],
    dir: &Path,
    setup: &Setup,
    hook: Option<HeapHook>,
) -> RunReport {
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    if let Some(hook) = hook {
        run.set_hook(Arc::new(hook));
    }
    for (number, planted) in tree.iter().enumerate() {
        if planted.kind == FileKind::File {
            run.push(bytes_spec(number, &planted.content)).unwrap();
        }
    }
    run.drain().unwrap();
    let entries = (0..)
        .zip(tree)
        .map(|(number, planted)| planted.entry(number));
    run.finish(FileTable(entries.collect()), facts()).unwrap()
}

/// Opens the set in `dir`.
pub fn open_set(dir: &Path) -> Arc<OpenSet> {
    Arc::new(OpenSet::open(&[stripe_path(dir, 0)], METADATA_LIMIT_DEFAULT).unwrap())
}

/// All index blocks of a set, with their stripes.
pub fn index_blocks(set: &OpenSet) -> Vec<(usize, IndexBlock)> {
    let mut blocks = Vec::new();
    for (stripe, open) in set.stripes().iter().enumerate() {
        for entry in open.directory() {
            blocks.push((stripe, open.index_block(entry).unwrap()));
        }
    }
    blocks
}

/// The bytes of all stripes in `dir`, in order. If anybody writes to one of them, these change.
pub fn set_bytes(dir: &Path) -> Vec<Vec<u8>> {
    let stripes = (0..).map(|index| stripe_path(dir, index));
    stripes
        .take_while(|path| path.exists())
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Changes one byte of a stripe. A second call changes it back.
pub fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Bytes that compress about threefold, with no two pages alike.
pub fn text(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(bytes + 24);
    while out.len() < bytes {
        out.extend_from_slice(&random.bits().to_le_bytes());
        out.extend_from_slice(&[7; 16]);
    }
    out.truncate(bytes);
    out
}
