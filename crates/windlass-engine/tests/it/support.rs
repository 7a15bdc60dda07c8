//! A small tree of files, its backup, its restore, and what is asked of both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Codec, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, SetId,
};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, CodecRange, DamageReport, Device,
    DirectoryTarget, Discard, Emulation, EngineError, FileContent, FileDevice, FileDeviceOptions,
    FileSpec, METADATA_LIMIT_DEFAULT, Missing, OpenSet, Progress, RestoreOptions, RunReport,
    Survey, TargetLayout, restore,
};

/// Files by name, with their content.
pub type Tree = Vec<(String, Vec<u8>)>;

/// The id of sets that need no other.
pub const SET: SetId = SetId([7; 16]);

/// How to run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub stripes: usize,
    pub codec: Codec,
    pub range: Option<CodecRange>,
    pub request: BufferRequest,
    pub ring: bool,
    pub set_id: SetId,
    pub source_rate: Option<u64>,
    pub device_rate: Option<u64>,
    pub emulation: Emulation,
}

impl Default for Setup {
    fn default() -> Self {
        let request = BufferRequest {
            transfer_bytes: Some(64 * 1024),
            ..Default::default()
        };
        Self {
            stripes: 1,
            codec: Codec::Zstd(1),
            range: None,
            request,
            ring: true,
            set_id: SET,
            source_rate: None,
            device_rate: None,
            emulation: Emulation::default(),
        }
    }
}

impl Setup {
    /// The smallest blocks there are: sets of a few KiB.
    pub fn small(stripes: usize, codec: Codec) -> Self {
        let mut setup = Self {
            stripes,
            codec,
            ..Self::default()
        };
        setup.request.alignment = Some(512);
        setup
    }
}

/// A seeded stream of numbers (xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    /// Bytes no codec can make smaller.
    pub fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let words = (0..bytes.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(bytes).collect()
    }
}

/// Bytes that compress well and are not zero.
pub fn plain(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index / 512) as u8 ^ seed | 1)
        .collect()
}

/// A dozen files of every kind of size.
pub fn mixed_tree(seed: u64) -> Tree {
    let mut random = Random::new(seed);
    let mut tree = Tree::new();
    for index in 0..12usize {
        let bytes = match index % 4 {
            0 => random.noise(100 + index * 30),
            1 => plain(70_000 + index * 1000, index as u8),
            2 => random.noise(90_000),
            _ => vec![0; 8192 * index],
        };
        tree.push((format!("dir{}/file{index}", index % 3), bytes));
    }
    tree
}

/// Writes a file the test needs; durability is not its concern.
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
pub fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// Renames a file of a fixture.
#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
pub fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

/// Writes a tree to a directory.
pub fn plant(tree: &Tree, root: &Path) {
    for (name, bytes) in tree {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, bytes);
    }
}

pub fn stripe_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("set.{index}.windlass"))
}

pub fn stripe_paths(dir: &Path, setup: &Setup) -> Vec<PathBuf> {
    (0..setup.stripes)
        .map(|index| stripe_path(dir, index))
        .collect()
}

pub fn file_devices(dir: &Path, setup: &Setup) -> Vec<Box<dyn Device>> {
    let create = |index| {
        let alignment = setup.request.alignment.unwrap_or(4096);
        let options = FileDeviceOptions {
            alignment,
            ring: setup.ring,
            ..FileDeviceOptions::default()
        };
        let device = FileDevice::create(&stripe_path(dir, index), options).unwrap();
        Box::new(device) as Box<dyn Device>
    };
    (0..setup.stripes).map(create).collect()
}

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

/// Begins a backup as `setup` says.
pub fn begin(
    setup: &Setup,
    devices: Vec<Box<dyn Device>>,
    cancel: &Cancel,
) -> Result<BackupRun, EngineError> {
    let options = BackupOptions {
        plan: setup.request.plan(devices.len(), 1)?,
        codec: setup.codec,
        range: setup.range,
        source_rate: setup.source_rate,
        device_rate: setup.device_rate,
        ring: setup.ring,
        emulation: setup.emulation.clone(),
    };
    let progress = Arc::<Progress>::default();
    BackupRun::start(setup.set_id, 1, options, devices, progress, cancel.clone())
}

pub fn spec(index: usize, content: FileContent, bytes: usize) -> FileSpec {
    let missing = Missing::Fail;
    FileSpec {
        file: FileNo(index as u32),
        content,
        bytes: bytes as u64,
        missing,
    }
}

pub fn path_spec(index: usize, path: &Path, bytes: usize) -> FileSpec {
    spec(index, FileContent::Path(path.to_owned()), bytes)
}

pub fn bytes_spec(index: usize, bytes: &[u8]) -> FileSpec {
    spec(index, FileContent::Bytes(bytes.into()), bytes.len())
}

/// The entry of a plain file.
pub fn entry(index: usize, name: &str, bytes: usize) -> FileEntry {
    FileEntry {
        file: FileNo(index as u32),
        kind: FileKind::File,
        flags: FileFlags::default(),
        mode: 0o600,
        bytes: bytes as u64,
        mtime_nanos: 1_000_000_000,
        crc32c: 0,
        path: name.as_bytes().to_vec(),
        link_target: vec![],
    }
}

/// The file table of a drained run that was given this tree.
pub fn table(run: &BackupRun, tree: &Tree) -> FileTable {
    let entry = |(index, (name, bytes)): (usize, &(String, Vec<u8>))| FileEntry {
        flags: FileFlags {
            last: index == 0,
            crc_known: true,
        },
        crc32c: run.outcome(FileNo(index as u32)).unwrap().crc32c,
        ..entry(index, name, bytes.len())
    };
    FileTable(tree.iter().enumerate().map(entry).collect())
}

/// Backs up a planted tree.
pub fn back_up(
    tree: &Tree,
    root: &Path,
    setup: &Setup,
    devices: Vec<Box<dyn Device>>,
) -> Result<RunReport, EngineError> {
    let mut run = begin(setup, devices, &Cancel::new())?;
    for (index, (name, bytes)) in tree.iter().enumerate() {
        run.push(path_spec(index, &root.join(name), bytes.len()))?;
    }
    run.drain()?;
    let files = table(&run, tree);
    run.finish(files, facts())
}

/// Backs up a tree from memory to files in `dir`; the stripes.
pub fn make_set(tree: &Tree, dir: &Path, setup: &Setup) -> Vec<PathBuf> {
    std::fs::create_dir_all(dir).unwrap();
    let mut run = begin(setup, file_devices(dir, setup), &Cancel::new()).unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, tree);
    run.finish(files, facts()).unwrap();
    stripe_paths(dir, setup)
}

pub fn open(places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    OpenSet::open(places, METADATA_LIMIT_DEFAULT)
}

/// All that `verify` does.
pub fn verify(places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    let set = open(places)?;
    set.check_index()?;
    restore(
        &set,
        &Discard,
        &lean_options(),
        &Arc::default(),
        &Cancel::new(),
    )?;
    Ok(set)
}

/// What `windlass verify` does: lists all damage.
pub fn check(places: &[PathBuf]) -> Result<DamageReport, EngineError> {
    let survey = Survey::of(places, METADATA_LIMIT_DEFAULT)?;
    let options = lean_options();
    let found = windlass_engine::verify(&survey, &options, &Arc::default(), &Cancel::new())?;
    Ok(found.damage)
}

/// Restores a set into a new directory.
pub fn bring_back(set: &OpenSet, into: &Path) -> Result<RunReport, EngineError> {
    let layout = TargetLayout {
        root: into.to_owned(),
        files: set.description().files.clone(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout)?;
    restore(
        set,
        &target,
        &restore_options(),
        &Arc::default(),
        &Cancel::new(),
    )
}

pub fn restore_options() -> RestoreOptions {
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        ..Default::default()
    };
    RestoreOptions {
        plan: request.plan(1, 1).unwrap(),
        device_rate: None,
        ring: true,
        emulation: Default::default(),
    }
}

/// As few threads and as little memory as there can be: for tests that verify very often.
pub fn lean_options() -> RestoreOptions {
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        buffers: Some(2),
        compressors: Some(1),
        ..Default::default()
    };
    RestoreOptions {
        plan: request.plan(1, 1).unwrap(),
        device_rate: None,
        ring: false,
        emulation: Default::default(),
    }
}

/// Asserts that a directory holds exactly the tree.
pub fn assert_same(tree: &Tree, root: &Path) {
    for (name, bytes) in tree {
        let found = std::fs::read(root.join(name)).unwrap();
        assert!(&found == bytes, "{name} differs");
    }
    let found = names(root)
        .into_iter()
        .filter(|path| path.is_file())
        .count();
    assert_eq!(found, tree.len(), "as many files as the tree has");
}

/// Everything below a directory, sorted.
pub fn names(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
