//! What the tests share: a backup to one stripe, and its set read back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::media::{Codec, Decoder, FileEntry, Footer, IndexBlock, SEAL_BYTES, Seal};
use windlass_engine::{
    BackupOptions, BackupRun, BufferRequest, Cancel, FileDevice, FileDeviceOptions, Progress,
};
use windlass_media::{Facts, SetId, crc32c};
use windlass_sqlite::{BackupOutcome, Database, SqliteError};

/// A directory that goes with the test, and the names in it.
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

/// A set on one stripe, read back.
pub struct Set {
    pub entry: FileEntry,
    pub facts: Facts,
    pub content: Vec<u8>,
}

/// A run to a stripe at `stripe`, with the smallest transfers, so that files have many pieces.
pub fn run_to(stripe: &Path) -> BackupRun {
    let request = BufferRequest {
        transfer_bytes: Some(64 * 1024),
        ..Default::default()
    };
    let plan = request.plan(1, 1).unwrap();
    let options = BackupOptions {
        plan,
        codec: Codec::Lz4,
        source_rate: None,
        device_rate: None,
        ring: true,
    };
    let device = FileDevice::create(stripe, FileDeviceOptions::default()).unwrap();
    let (progress, cancel) = (Arc::new(Progress::default()), Cancel::new());
    BackupRun::start(
        SetId([7; 16]),
        0,
        options,
        vec![Box::new(device)],
        progress,
        cancel,
    )
    .unwrap()
}

pub fn try_backup(database: &Path, stripe: &Path) -> Result<BackupOutcome, SqliteError> {
    Database::open(database)?.backup(run_to(stripe))
}

/// Backs `database` up to `stripe` and writes the restored file to `copy`.
pub fn round_trip(database: &Path, stripe: &Path, copy: &Path) -> (BackupOutcome, Set) {
    let outcome = try_backup(database, stripe).unwrap();
    let set = read_set(stripe);
    std::fs::write(copy, &set.content).unwrap();
    (outcome, set)
}

/// Reads a set from its only stripe: every byte by the highest layer that covers it.
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
    for block in &footer.directory {
        let encoded = at(&bytes, block.offset, u64::from(block.bytes));
        let block = IndexBlock::decode(encoded, block.offset, seal.alignment).unwrap();
        for (frame, pieces) in block.iter() {
            let offset = frame.offset;
            let stored = at(&bytes, offset, u64::from(frame.stored_bytes));
            let mut raw = vec![0; frame.raw_bytes as usize];
            Decoder::new()
                .unwrap()
                .decode(frame.codec, stored, &mut raw)
                .unwrap();
            let mut rest = raw.as_slice();
            for piece in pieces {
                let (part, tail) = rest.split_at(piece.bytes as usize);
                rest = tail;
                assert_eq!(crc32c(part), piece.crc32c);
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
