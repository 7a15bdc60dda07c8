//! What the tests share: a backup to one stripe, and a reader of its set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{
    Codec, FileEntry, Footer, FrameDecoder, IndexBlock, SEAL_BYTES, Seal,
};
use windlass_engine::{
    BackupOptions, BackupRun, Buffer, BufferRequest, Cancel, Device, DeviceLayer, DirectoryTarget,
    EngineError, FileDevice, FileDeviceOptions, LayeredDevice, METADATA_LIMIT_DEFAULT, OpenSet,
    Outputs, Progress, RestoreOptions, WriteDone, restore,
};
use windlass_media::{Facts, SetId, crc32c};
use windlass_sqlite::{BackupOutcome, Database, SqliteError, restore_layout};
use windlass_testkit::starting;

/// A directory that is removed after the test, and the names in it.
pub struct Room(tempfile::TempDir);

impl Room {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Names in the directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// A set on one stripe, as the test read it back.
pub struct Set {
    pub entry: FileEntry,
    pub facts: Facts,
    pub content: Vec<u8>,
}

/// What a test does before each write of a run. The pipeline behind it stops as soon as its buffers
/// are full.
type BeforeWrite = Box<dyn FnMut(&Progress) + Send>;

struct Gated {
    before_write: BeforeWrite,
    progress: Arc<Progress>,
}

impl DeviceLayer for Gated {
    fn submit(
        &mut self,
        below: &mut dyn Device,
        offset: u64,
        buffer: Buffer,
    ) -> Result<Option<WriteDone>, EngineError> {
        (self.before_write)(&self.progress);
        below.submit(offset, buffer)
    }
}

/// Backs up, and calls `meanwhile` when the run is about to write its first bytes. The file must be
/// larger than the run's buffers, so that most of it has not been read yet.
pub fn backup_while(
    database: &Path,
    stripe: &Path,
    meanwhile: impl FnOnce() + Send + 'static,
) -> Result<BackupOutcome, SqliteError> {
    backup_in_transfers(TRANSFER_BYTES, database, stripe, meanwhile)
}

/// Like [`backup_while`], with transfers of another size.
pub fn backup_in_transfers(
    transfer_bytes: usize,
    database: &Path,
    stripe: &Path,
    meanwhile: impl FnOnce() + Send + 'static,
) -> Result<BackupOutcome, SqliteError> {
    let mut meanwhile = Some(meanwhile);
    let before_write = move |_: &Progress| {
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
    };
    let mut database = Database::open(database)?;
    let run = gated_run(&database, stripe, transfer_bytes, None, before_write);
    database.backup(run)
}

/// A run to a stripe at `stripe` that calls `before_write` before each write. `rate` limits both
/// reading and writing.
pub fn gated_run(
    database: &Database,
    stripe: &Path,
    transfer_bytes: usize,
    rate: Option<u64>,
    before_write: impl FnMut(&Progress) + Send + 'static,
) -> BackupRun {
    let coding = Coding::default();
    gated_coded_run(
        database,
        stripe,
        (transfer_bytes, rate, coding),
        before_write,
    )
}

/// Like [`gated_run`], for a run that stores pages in this way.
pub fn gated_coded_run(
    database: &Database,
    stripe: &Path,
    (transfer_bytes, rate, coding): (usize, Option<u64>, Coding),
    before_write: impl FnMut(&Progress) + Send + 'static,
) -> BackupRun {
    assert!(database.facts().bytes > 16 * transfer_bytes as u64);
    let progress = Arc::new(Progress::default());
    let gate = Gated {
        before_write: Box::new(before_write),
        progress: Arc::clone(&progress),
    };
    let file = FileDevice::create(stripe, FileDeviceOptions::default()).unwrap();
    let device = LayeredDevice::new(gate, Box::new(file));
    start_coded(Box::new(device), transfer_bytes, rate, progress, coding)
}

/// The smallest transfers, so that files have many pieces.
pub const TRANSFER_BYTES: usize = 64 * 1024;

fn start(device: Box<dyn Device>, transfer_bytes: usize) -> BackupRun {
    start_coded(
        device,
        transfer_bytes,
        None,
        Arc::default(),
        Coding::default(),
    )
}

/// How a run stores pages.
#[derive(Clone, Copy)]
pub struct Coding {
    pub codec: Codec,
    /// Whether pages are taken apart.
    pub pages: bool,
}

impl Default for Coding {
    fn default() -> Self {
        Self {
            codec: Codec::None,
            pages: false,
        }
    }
}

fn start_coded(
    device: Box<dyn Device>,
    transfer_bytes: usize,
    rate: Option<u64>,
    progress: Arc<Progress>,
    coding: Coding,
) -> BackupRun {
    let request = BufferRequest {
        transfer_bytes: Some(transfer_bytes),
        ..Default::default()
    };
    let plan = request.plan(1, 1).unwrap();
    let options = BackupOptions {
        plan,
        codec: coding.codec,
        range: None,
        source_rate: rate,
        device_rate: rate,
        ring: true,
        pacing: None,
        page_frames: coding.pages,
        frame_proof: true,
        encryption: None,
        parities: 0,
    };
    let cancel = Cancel::new();
    BackupRun::start(SetId([7; 16]), 0, options, vec![device], progress, cancel).unwrap()
}

/// A run to a stripe at `stripe`.
pub fn run_to(stripe: &Path) -> BackupRun {
    start(
        Box::new(FileDevice::create(stripe, FileDeviceOptions::default()).unwrap()),
        TRANSFER_BYTES,
    )
}

/// A run to a stripe at `stripe` that stores pages in this way.
pub fn coded_run(stripe: &Path, coding: Coding) -> BackupRun {
    let device = FileDevice::create(stripe, FileDeviceOptions::default()).unwrap();
    start_coded(
        Box::new(device),
        // A frame has at most half a transfer, and should have pages of every size.
        4 * TRANSFER_BYTES,
        None,
        Arc::default(),
        coding,
    )
}

pub fn try_backup(database: &Path, stripe: &Path) -> Result<BackupOutcome, SqliteError> {
    Database::open(database)?.backup(run_to(stripe))
}

/// Backs `database` up to `stripe` and writes the restored file to `copy`.
pub fn round_trip(database: &Path, stripe: &Path, copy: &Path) -> (BackupOutcome, Set) {
    let outcome = try_backup(database, stripe).unwrap();
    (outcome, write_copy(stripe, copy))
}

/// Writes the file that the set at `stripe` holds to `copy`.
pub fn write_copy(stripe: &Path, copy: &Path) -> Set {
    let set = read_set(stripe);
    std::fs::write(copy, &set.content).unwrap();
    set
}

/// Restores the set at `stripe` with the engine, as a user would. Returns the restored file.
pub fn restore_to(stripe: &Path, into: &Path, force: bool) -> Result<PathBuf, SqliteError> {
    restore_while(stripe, into, force, || ())
}

/// Like [`restore_to`], and calls `meanwhile` when everything is written and nothing has its name.
pub fn restore_while(
    stripe: &Path,
    into: &Path,
    force: bool,
    meanwhile: impl FnOnce(),
) -> Result<PathBuf, SqliteError> {
    let set = OpenSet::open(&[stripe.to_path_buf()], METADATA_LIMIT_DEFAULT)?;
    let description = set.description();
    let mut plan = {
        let _none = starting::none_starts();
        restore_layout(description, into, force, &Outputs::new())?
    };
    plan.prepare()?;
    let target = DirectoryTarget::create(plan.layout.clone())?;
    plan.hold(&target)?;
    let buffers = BufferRequest::default().plan(1, 1)?;
    let options = RestoreOptions {
        plan: buffers,
        device_rate: None,
        ring: true,
        pacing: None,
    };
    let options = options.fit(&set).unwrap();
    restore(
        &set,
        &target,
        &options,
        &Arc::new(Progress::default()),
        &Cancel::new(),
    )?;
    drop(target);
    meanwhile();
    let path = plan.target.clone();
    let _none = starting::none_starts();
    plan.publish()?;
    Ok(path)
}

/// Whether two files hold the same bytes.
pub fn same_content(one: &Path, other: &Path) -> bool {
    let status = starting::run(std::process::Command::new("cmp").arg(one).arg(other));
    status.expect("start cmp (Debian: diffutils)").success()
}

/// Reads a set from its only stripe: each byte comes from the highest layer that covers it.
pub fn read_set(stripe: &Path) -> Set {
    let bytes = std::fs::read(stripe).unwrap();
    let seal = Seal::decode(&bytes[bytes.len() - SEAL_BYTES..], bytes.len() as u64).unwrap();
    let footer = at(&bytes, seal.footer_offset, seal.footer_bytes);
    let footer = Footer::decode(footer, 1 << 30).unwrap();
    let [entry] = footer.description.files.0.as_slice() else {
        panic!("one file")
    };
    let mut content = vec![0; usize::try_from(entry.bytes).unwrap()];
    let mut covered = vec![None; content.len().div_ceil(512)];
    let mut decoder = FrameDecoder::new().unwrap();
    for block in &footer.directory {
        let encoded = at(&bytes, block.offset, u64::from(block.bytes));
        let block = IndexBlock::decode(encoded, block.offset, seal.alignment).unwrap();
        for (frame, pieces) in block.iter() {
            let offset = frame.offset;
            let stored = at(&bytes, offset, u64::from(frame.stored_bytes));
            let mut raw = vec![0; frame.raw_bytes as usize];
            decoder.decode(frame, stored, &mut raw).unwrap();
            let mut rest = raw.as_slice();
            for piece in pieces {
                let (part, tail) = rest.split_at(piece.bytes as usize);
                rest = tail;
                assert_eq!(crc32c(part), piece.crc32c);
                // The hashes of the pages.
                if piece.file != entry.file {
                    continue;
                }
                lay(&mut content, &mut covered, piece.offset, part, piece.layer);
            }
        }
    }
    assert!(
        covered.iter().all(Option::is_some),
        "the set covers the file"
    );
    if entry.flags.crc_known {
        assert_eq!(crc32c(&content), entry.crc32c, "the file's checksum");
    }
    Set {
        entry: entry.clone(),
        facts: footer.description.facts,
        content,
    }
}

fn lay(content: &mut [u8], covered: &mut [Option<u8>], offset: u64, part: &[u8], layer: u8) {
    let offset = usize::try_from(offset).unwrap();
    for (index, sector) in part.chunks(512).enumerate() {
        let start = offset + index * 512;
        let Some(covered) = covered.get_mut(start / 512) else {
            break;
        };
        if covered.is_none_or(|there| there < layer) {
            *covered = Some(layer);
            let length = sector.len().min(content.len() - start);
            content[start..start + length].copy_from_slice(&sector[..length]);
        }
    }
}

fn at(bytes: &[u8], offset: u64, length: u64) -> &[u8] {
    let start = usize::try_from(offset).unwrap();
    &bytes[start..start + usize::try_from(length).unwrap()]
}
