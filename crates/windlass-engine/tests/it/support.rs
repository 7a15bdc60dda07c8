//! A small tree of files, its backup, and its restore.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Codec, Facts, FileEntry, FileFlags, FileKind, FileNo, FileTable, SetId,
};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, Device, DirectoryTarget, EngineError,
    FileContent, FileDevice, FileDeviceOptions, FileSpec, METADATA_LIMIT_DEFAULT, Missing, OpenSet,
    Progress, RestoreOptions, RunReport, TargetLayout, restore,
};

/// Files by name, with their content.
pub type Tree = Vec<(String, Vec<u8>)>;

/// How to run.
#[derive(Clone, Debug)]
pub struct Setup {
    pub stripes: usize,
    pub codec: Codec,
    pub request: BufferRequest,
    pub ring: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let request = BufferRequest { transfer_bytes: Some(64 * 1024), ..Default::default() };
        Self { stripes: 1, codec: Codec::Zstd(1), request, ring: true }
    }
}

/// Writes a tree to a directory.
pub fn plant(tree: &Tree, root: &Path) {
    for (name, bytes) in tree {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::File::create(&path).unwrap();
        #[allow(clippy::disallowed_methods)]
        std::fs::write(path, bytes).unwrap();
    }
}

pub fn stripe_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("set.{index}.windlass"))
}

pub fn file_devices(dir: &Path, setup: &Setup) -> Vec<Box<dyn Device>> {
    let create = |index| {
        let alignment = setup.request.alignment.unwrap_or(4096);
        let options =
            FileDeviceOptions { alignment, ring: setup.ring, ..FileDeviceOptions::default() };
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

/// Backs up a planted tree.
pub fn back_up(
    tree: &Tree,
    root: &Path,
    setup: &Setup,
    devices: Vec<Box<dyn Device>>,
) -> Result<RunReport, EngineError> {
    let options = BackupOptions {
        plan: setup.request.plan(devices.len(), 1)?,
        codec: setup.codec,
        source_rate: None,
        device_rate: None,
        ring: setup.ring,
    };
    let (progress, cancel) = (Arc::<Progress>::default(), Cancel::new());
    let mut run = BackupRun::start(SetId([7; 16]), 1, options, devices, progress, cancel)?;
    for (index, (name, bytes)) in tree.iter().enumerate() {
        run.push(FileSpec {
            file: FileNo(index as u32),
            content: FileContent::Path(root.join(name)),
            bytes: bytes.len() as u64,
            missing: Missing::Fail,
        })?;
    }
    run.drain()?;
    let entry = |(index, (name, bytes)): (usize, &(String, Vec<u8>))| FileEntry {
        file: FileNo(index as u32),
        kind: FileKind::File,
        flags: FileFlags { last: index == 0, crc_known: true },
        mode: 0o600,
        bytes: bytes.len() as u64,
        mtime_nanos: 1_000_000_000,
        crc32c: run.outcome(FileNo(index as u32)).unwrap().crc32c,
        path: name.as_bytes().to_vec(),
        link_target: vec![],
    };
    let files = tree.iter().enumerate().map(entry).collect();
    run.finish(FileTable(files), facts())
}

pub fn open(places: &[PathBuf]) -> Result<OpenSet, EngineError> {
    OpenSet::open(places, METADATA_LIMIT_DEFAULT)
}

/// Restores a set into a new directory.
pub fn bring_back(set: &OpenSet, into: &Path) -> Result<RunReport, EngineError> {
    let layout = TargetLayout {
        root: into.to_owned(),
        files: set.description().files.clone(),
        ..TargetLayout::default()
    };
    let target = DirectoryTarget::create(layout)?;
    restore(set, &target, &restore_options(), &Arc::default(), &Cancel::new())
}

pub fn restore_options() -> RestoreOptions {
    let request = BufferRequest { transfer_bytes: Some(64 * 1024), ..Default::default() };
    RestoreOptions { plan: request.plan(1, 1).unwrap(), device_rate: None, ring: true }
}

/// Asserts that a directory holds exactly the tree.
pub fn assert_same(tree: &Tree, root: &Path) {
    for (name, bytes) in tree {
        let found = std::fs::read(root.join(name)).unwrap();
        assert!(&found == bytes, "{name} differs");
    }
}
