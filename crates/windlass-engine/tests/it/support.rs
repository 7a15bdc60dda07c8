//! A small tree of files, its backup, its restore, and what is asked of both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileFlags, FileNo, FileTable};
use windlass_engine::{
    BackupRun, BufferRequest, Cancel, DamageReport, Device, DirectoryTarget, Discard, EngineError,
    Files, METADATA_LIMIT_DEFAULT, OpenSet, RestoreOptions, RunReport, Survey, TargetLayout,
    restore,
};
pub use windlass_testkit::runs::*;

/// Files by name, with their content.
pub type Tree = Vec<(String, Vec<u8>)>;

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

    /// Bytes that no codec can make smaller.
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

/// Writes a file for a test. It need not be durable.
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

/// Backs up a tree from memory to files in `dir`. Returns the stripes.
pub fn make_set(tree: &Tree, dir: &Path, setup: &Setup) -> Vec<PathBuf> {
    std::fs::create_dir_all(dir).unwrap();
    make_set_on(tree, setup, file_devices(dir, setup));
    stripe_paths(dir, setup)
}

/// Backs up a tree from memory to these devices.
pub fn make_set_on(tree: &Tree, setup: &Setup, devices: Vec<Box<dyn Device>>) {
    let mut run = begin(setup, devices, &Cancel::new()).unwrap();
    for (index, (_, bytes)) in tree.iter().enumerate() {
        run.push(bytes_spec(index, bytes)).unwrap();
    }
    run.drain().unwrap();
    let files = table(&run, tree);
    run.finish(files, facts()).unwrap();
}

/// Reads stripes into the page cache, for runs whose speed is measured: the disk of this machine
/// may be slower than what is emulated.
pub fn warm(places: &[PathBuf]) {
    for place in places {
        std::fs::read(place).unwrap();
    }
}

pub fn open(places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    OpenSet::open(places, METADATA_LIMIT_DEFAULT)
}

/// Opens and verifies a set.
pub fn verify(places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    let set = open(places)?;
    set.check_index()?;
    restore(
        &set,
        &Discard,
        &lean_options().fit(&set)?,
        &Arc::default(),
        &Cancel::new(),
    )?;
    Ok(set)
}

/// Does what `windlass verify` does: lists all damage.
pub fn check(places: &[PathBuf]) -> Result<DamageReport, EngineError> {
    let survey = Survey::of(&Files, places, METADATA_LIMIT_DEFAULT)?;
    let options = lean_options().fit(survey.set())?;
    let found = windlass_engine::verify(&survey, &options, &Arc::default(), &Cancel::new())?;
    Ok(found.damage)
}

/// Restores a set into a new directory.
pub fn bring_back(set: &OpenSet, into: &Path) -> Result<RunReport, EngineError> {
    bring_back_with(set, into, restore_options())
}

pub fn bring_back_with(
    set: &OpenSet,
    into: &Path,
    options: RestoreOptions,
) -> Result<RunReport, EngineError> {
    let layout = TargetLayout {
        root: into.to_owned(),
        files: set.description().files.clone(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout)?;
    restore(
        set,
        &target,
        &options.fit(set)?,
        &Arc::default(),
        &Cancel::new(),
    )
}

pub fn restore_options() -> RestoreOptions {
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        restores: true,
        ..Default::default()
    };
    RestoreOptions {
        plan: request.plan(1, 1).unwrap(),
        device_rate: None,
        ring: true,
        pacing: None,
    }
}

/// As few threads and as little memory as possible, for tests that verify very often.
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
        pacing: None,
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
