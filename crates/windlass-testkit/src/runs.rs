//! Backup runs for tests: their settings, their input, and where their stripes go.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a fixture that cannot be made ends its test, and its numbers are small"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    BackupType, Codec, Facts, FileEntry, FileFlags, FileKind, FileNo, SetId,
};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, CodecRange, Device, Encryption, EngineError,
    FileContent, FileDevice, FileDeviceOptions, FileSpec, Missing, Pacing, Progress,
};

/// The id of a set, for tests that do not care which it is.
pub const SET: SetId = SetId([7; 16]);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of stripes.
    pub stripes: usize,
    /// The codec.
    pub codec: Codec,
    /// The codecs between which the run chooses, if it does.
    pub range: Option<CodecRange>,
    /// Buffers, transfers, frames, threads.
    pub request: BufferRequest,
    /// Whether the run uses io_uring.
    pub ring: bool,
    /// The id of the set.
    pub set_id: SetId,
    /// The time at which the set says it was begun, in nanoseconds since 1970.
    pub created_nanos: i64,
    /// Limit on reading.
    pub source_rate: Option<u64>,
    /// Limit on writing.
    pub device_rate: Option<u64>,
    /// Emulated storage, which is slower than the real one.
    pub pacing: Option<Arc<dyn Pacing>>,
    /// Whether frames are page-aware.
    pub page_frames: bool,
    /// Whether each frame is proven.
    pub frame_proof: bool,
    /// How the set is encrypted.
    pub encryption: Option<Encryption>,
    /// How many of the stripes, the last ones, have parity.
    pub parities: u16,
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
            created_nanos: 1,
            source_rate: None,
            device_rate: None,
            pacing: None,
            page_frames: false,
            frame_proof: true,
            encryption: None,
            parities: 0,
        }
    }
}

impl Setup {
    /// The smallest blocks that are possible, for sets of a few KiB.
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

/// The path of a stripe of a set in `dir`.
pub fn stripe_path(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("set.{index}.windlass"))
}

/// The paths of all stripes.
pub fn stripe_paths(dir: &Path, setup: &Setup) -> Vec<PathBuf> {
    (0..setup.stripes)
        .map(|index| stripe_path(dir, index))
        .collect()
}

/// A file in `dir` for each stripe.
pub fn file_devices(dir: &Path, setup: &Setup) -> Vec<Box<dyn Device>> {
    let plan = setup.request.plan(setup.stripes, 1).unwrap();
    let create = |index| {
        let alignment = setup.request.alignment.unwrap_or(4096);
        let options = FileDeviceOptions {
            alignment,
            depth: plan.write_depth_max(),
            ring: setup.ring,
            ..FileDeviceOptions::default()
        };
        let device = FileDevice::create(&stripe_path(dir, index), options).unwrap();
        Box::new(device) as Box<dyn Device>
    };
    (0..setup.stripes).map(create).collect()
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
        pacing: setup.pacing.clone(),
        page_frames: setup.page_frames,
        frame_proof: setup.frame_proof,
        encryption: setup.encryption.clone(),
        parities: setup.parities,
    };
    let progress = Arc::<Progress>::default();
    let created = setup.created_nanos;
    BackupRun::start(
        setup.set_id,
        created,
        options,
        devices,
        progress,
        cancel.clone(),
    )
}

/// A file that must exist; its length may differ from `bytes`.
pub fn spec(index: usize, content: FileContent, bytes: usize) -> FileSpec {
    let missing = Missing::Fail;
    FileSpec {
        file: FileNo(index as u32),
        content,
        bytes: bytes as u64,
        needed_bytes: 0,
        missing,
    }
}

/// A file on the disk.
pub fn path_spec(index: usize, path: &Path, bytes: usize) -> FileSpec {
    spec(index, FileContent::Path(path.to_owned()), bytes)
}

/// A file in memory.
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

/// What such a set says about itself.
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
