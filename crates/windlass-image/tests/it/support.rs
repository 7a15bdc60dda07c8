//! Small trees, their sets, and images of both.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::media::{Codec, FileEntry, FileKind, FileNo, FileTable};
use windlass_engine::{BackupRun, BufferRequest, Cancel};
use windlass_image::{Image, SetImage, SetImageOptions};
use windlass_testkit::heap::HeapHook;
use windlass_testkit::runs::{self, bytes_spec, facts};

pub use windlass_testkit::sets::{flip, index_blocks, open_set, stripe_path, text};

/// Files by name, with their content.
pub type Tree = Vec<(String, Vec<u8>)>;

/// A newer version of a range: file, offset, bytes, layer.
pub type Patch = (usize, u64, Vec<u8>, u8);

/// How a set is made.
#[derive(Clone, Debug)]
pub struct Setup {
    pub stripes: usize,
    pub codec: Codec,
    pub frame_bytes: usize,
    pub alignment: u32,
    pub transfer_bytes: usize,
}

impl Default for Setup {
    fn default() -> Self {
        let transfer_bytes = 128 * 1024;
        let (codec, frame_bytes) = (Codec::Zstd(1), 64 * 1024);
        Self {
            stripes: 2,
            codec,
            frame_bytes,
            alignment: 4096,
            transfer_bytes,
        }
    }
}

/// How long a frame is with [`Setup::many_frames`].
pub const FRAME: usize = 4096;
/// More frames than one index block describes: that is about 5,400.
pub const FRAMES: usize = 6000;

impl Setup {
    /// One stripe of short frames, so that a file of [`FRAMES`] of them has two index blocks, and
    /// what comes after it is in the second one.
    pub fn many_frames() -> Self {
        Self {
            stripes: 1,
            codec: Codec::None,
            frame_bytes: FRAME,
            transfer_bytes: 64 * 1024,
            ..Self::default()
        }
    }
}

/// Pseudo-random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Writes a tree to a directory.
pub fn plant(tree: &Tree, root: &Path) {
    for (name, bytes) in tree {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(&path)
            .unwrap()
            .write_all_at(bytes, 0)
            .unwrap();
    }
}

/// Backs up a tree from memory, and then the patches.
pub fn back_up(tree: &Tree, patches: &[Patch], dir: &Path, setup: &Setup) {
    let mut run = start(dir, setup);
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    for (index, offset, bytes, layer) in patches {
        // The newer version lies at the same place of a file that has the same length.
        let mut newer = vec![0; tree[*index].1.len()];
        newer[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
        run.push_range(
            &bytes_spec(*index, &newer),
            *offset,
            bytes.len() as u64,
            *layer,
        )
        .unwrap();
        run.drain().unwrap();
    }
    run.finish(table(tree), facts()).unwrap();
}

/// Backs up only the first `bytes` of each file, three times. So the set does not hold what it
/// lists, although it holds as many bytes.
pub fn back_up_part(tree: &Tree, bytes: usize, dir: &Path) {
    let mut run = start(dir, &Setup::default());
    for (index, (_, content)) in tree.iter().enumerate() {
        let part = bytes_spec(index, &content[..bytes]);
        for layer in 1..3 {
            run.push_range(&part, 0, bytes as u64, layer).unwrap();
        }
        run.push(part).unwrap();
    }
    run.drain().unwrap();
    run.finish(table(tree), facts()).unwrap();
}

fn start(dir: &Path, setup: &Setup) -> BackupRun {
    let request = BufferRequest {
        transfer_bytes: Some(setup.transfer_bytes),
        alignment: Some(setup.alignment),
        // A frame is at most half a transfer.
        frame_bytes: Some(
            setup
                .frame_bytes
                .min(1 << (setup.transfer_bytes / 2).ilog2()),
        ),
        ..BufferRequest::default()
    };
    let setup = runs::Setup {
        stripes: setup.stripes,
        codec: setup.codec,
        request,
        ..runs::Setup::default()
    };
    runs::begin(&setup, runs::file_devices(dir, &setup), &Cancel::new()).unwrap()
}

/// Makes a set of a tree whose first file has the pages of a table, taken apart; opens it.
pub fn image_of_pages(tree: &Tree, codec: Codec) -> (tempfile::TempDir, SetImage) {
    image_by(tree, codec, (HeapHook::new(&[0]), true))
}

/// The same, by this hook, with a proof of each frame or without it.
pub fn image_by(
    tree: &Tree,
    codec: Codec,
    (hook, frame_proof): (HeapHook, bool),
) -> (tempfile::TempDir, SetImage) {
    let dir = tempfile::tempdir().unwrap();
    let setup = runs::Setup {
        codec,
        page_frames: true,
        frame_proof,
        ..runs::Setup::default()
    };
    let devices = runs::file_devices(dir.path(), &setup);
    let mut run = runs::begin(&setup, devices, &Cancel::new()).unwrap();
    run.set_hook(Arc::new(hook));
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let report = run.finish(table(tree), facts()).unwrap();
    assert!(report.pages.unwrap().apart_bytes > 0);
    let image = open(dir.path());
    (dir, image)
}

/// The directories of a tree, then its files.
fn table(tree: &Tree) -> FileTable {
    let mut entries: Vec<FileEntry> = Vec::new();
    for (name, _) in tree {
        for (at, _) in name.match_indices('/') {
            if !entries
                .iter()
                .any(|entry| entry.path == name.as_bytes()[..at])
            {
                let number = 1_000_000 + entries.len() as u32;
                entries.push(entry(number, FileKind::Directory, &name[..at], 0));
            }
        }
    }
    let file = |(index, (name, bytes)): (usize, &(String, Vec<u8>))| {
        entry(index as u32, FileKind::File, name, bytes.len() as u64)
    };
    entries.extend(tree.iter().enumerate().map(file));
    FileTable(entries)
}

pub fn entry(number: u32, kind: FileKind, path: &str, bytes: u64) -> FileEntry {
    FileEntry {
        kind,
        ..runs::entry(number as usize, path, bytes as usize)
    }
}

pub fn open(dir: &Path) -> SetImage {
    SetImage::open(open_set(dir), &SetImageOptions::default()).unwrap()
}

/// Makes a set of a tree, and opens it as an image.
pub fn image_of(tree: &Tree, setup: &Setup) -> (tempfile::TempDir, SetImage) {
    let dir = tempfile::tempdir().unwrap();
    back_up(tree, &[], dir.path(), setup);
    let image = open(dir.path());
    (dir, image)
}

/// Reads a range, and asserts that it has the bytes of the tree. It may be short only at the end of
/// the file.
pub fn assert_range(image: &dyn Image, tree: &Tree, file: usize, offset: u64, length: usize) {
    let mut into = vec![0xa5; length];
    let count = image.read(FileNo(file as u32), offset, &mut into).unwrap();
    let content = &tree[file].1;
    let start = content.len().min(offset as usize);
    let end = content.len().min(start + length);
    assert_eq!(
        count,
        end - start,
        "file {file} at {offset}: {length} bytes wanted"
    );
    assert!(
        into[..count] == content[start..end],
        "file {file} at {offset}+{length} differs"
    );
    assert!(into[count..].iter().all(|byte| *byte == 0xa5));
}
