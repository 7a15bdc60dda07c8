//! Sets of small trees, made in memory: files with modes and times, directories, links.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Codec, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, IndexBlock, SetId,
};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, CodecRange, Device, Emulation, FileContent,
    FileDevice, FileDeviceOptions, FileSpec, METADATA_LIMIT_DEFAULT, Missing, OpenSet, Progress,
};

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

    /// The same with other permission bits.
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

/// How a set is made.
#[derive(Clone, Debug)]
pub struct SetSpec {
    /// What tells it from others.
    pub id: [u8; 16],
    /// Number of stripes.
    pub stripes: usize,
    /// How it is compressed, at least to begin with.
    pub codec: Codec,
    /// Between which codecs the waits may choose.
    pub range: Option<CodecRange>,
    /// What makes its devices slow.
    pub emulation: Emulation,
    /// Largest frame.
    pub frame_bytes: usize,
}

impl Default for SetSpec {
    fn default() -> Self {
        Self {
            id: [7; 16],
            stripes: 2,
            codec: Codec::Zstd(1),
            range: None,
            emulation: Emulation::default(),
            frame_bytes: 64 * 1024,
        }
    }
}

/// Where a stripe of a set in `dir` is.
pub fn stripe_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("set.{index}.windlass"))
}

/// Makes a set of a tree in `dir`; a directory comes before what it holds.
pub fn make_set(tree: &[Planted], dir: &Path, spec: &SetSpec) {
    let create = |index| {
        let options = FileDeviceOptions::default();
        let device = FileDevice::create(&stripe_path(dir, index), options).unwrap();
        Box::new(device) as Box<dyn Device>
    };
    let devices: Vec<_> = (0..spec.stripes).map(create).collect();
    let request = BufferRequest {
        transfer_bytes: Some(256 * 1024),
        frame_bytes: Some(spec.frame_bytes),
        ..BufferRequest::default()
    };
    let options = BackupOptions {
        plan: request.plan(devices.len(), 1).unwrap(),
        codec: spec.codec,
        range: spec.range,
        source_rate: None,
        device_rate: None,
        ring: true,
        emulation: spec.emulation.clone(),
    };
    let (progress, cancel) = (Arc::<Progress>::default(), Cancel::new());
    let mut run = BackupRun::start(SetId(spec.id), 1, options, devices, progress, cancel).unwrap();
    for (number, planted) in (0..).zip(tree) {
        if planted.kind == FileKind::File {
            run.push(FileSpec {
                file: FileNo(number),
                content: FileContent::Bytes(Arc::from(planted.content.as_slice())),
                bytes: planted.content.len() as u64,
                missing: Missing::Fail,
            })
            .unwrap();
        }
    }
    run.drain().unwrap();
    let entries = (0..)
        .zip(tree)
        .map(|(number, planted)| planted.entry(number));
    run.finish(FileTable(entries.collect()), facts()).unwrap();
}

/// What such a set says of itself.
pub fn facts() -> Facts {
    Facts {
        tool: "windlass test".into(),
        backup_type: BackupType::Full,
        started: "2026-01-01T00:00:00Z".into(),
        finished: "2026-01-01T00:00:01Z".into(),
        options: serde_json::json!({}),
        database: serde_json::json!({"kind": "directory"}),
        parents: vec![],
    }
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

/// The bytes of all stripes in `dir`, in order: whoever wrote to one of them changed this.
pub fn set_bytes(dir: &Path) -> Vec<Vec<u8>> {
    let stripes = (0..).map(|index| stripe_path(dir, index));
    stripes
        .take_while(|path| path.exists())
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Changes one byte of a stripe; doing it again changes it back.
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
