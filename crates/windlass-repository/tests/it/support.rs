//! Forged segments: heads as a server writes them, and content from a seed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use windlass_engine::Cancel;
use windlass_engine::media::Codec;
use windlass_postgres::{Lsn, Segment, Timeline};
use windlass_repository::{
    CheckDepth, Fetched, LogCheck, LogFileName, LogPlace, LookAhead, PushRequest, Pushed,
    RepositoryError, fetch, push,
};

/// The smallest segments that there are.
pub const SEGMENT: u64 = 1 << 20;
pub const SYSTEM: u64 = 7_300_000_000_000_000_001;

/// A pg_wal directory and a place.
pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data/pg_wal/archive_status")).unwrap();
        std::fs::create_dir(dir.path().join("place")).unwrap();
        Self { dir }
    }

    pub fn place(&self) -> PathBuf {
        self.dir.path().join("place")
    }

    pub fn log(&self) -> LogPlace {
        LogPlace::new(&windlass_repository::Place::directory(self.place()), SYSTEM)
    }

    pub fn wal(&self, name: &str) -> PathBuf {
        self.dir.path().join("data/pg_wal").join(name)
    }

    /// Writes a segment into pg_wal. Returns its path.
    pub fn segment(&self, segment: (u32, u64), seed: u64) -> PathBuf {
        let (timeline, number) = segment;
        let path = self.wal(&name(timeline, number));
        std::fs::write(&path, content((timeline, timeline), number, seed)).unwrap();
        path
    }

    /// Marks a segment as ready, as the server does.
    pub fn ready(&self, path: &Path) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let status = self.wal("archive_status").join(format!("{name}.ready"));
        std::fs::write(status, "").unwrap();
    }

    pub fn request(&self, path: &Path) -> PushRequest {
        PushRequest {
            place: windlass_repository::Place::directory(self.place()),
            path: path.to_owned(),
            system: None,
            look_ahead: LookAhead(1),
            codec: Codec::Zstd(1),
            threads: 2,
        }
    }

    pub fn push(&self, path: &Path) -> Result<Pushed, RepositoryError> {
        push(&self.request(path))
    }

    /// Reads and checks everything.
    pub fn verify(&self) -> LogCheck {
        let checked = self.log().verify(CheckDepth::Everything, &Cancel::new());
        checked.unwrap()
    }

    /// Fetches a file of the log.
    pub fn fetch(&self, name: &str) -> Result<(Fetched, Vec<u8>), RepositoryError> {
        self.fetch_to(name, self.dir.path().join("fetched"))
    }

    /// The same, as a server does it that has segments of its own.
    pub fn fetch_beside(&self, name: &str) -> Result<(Fetched, Vec<u8>), RepositoryError> {
        self.fetch_to(name, self.wal("RECOVERYXLOG"))
    }

    /// The same, for whoever knows that log is lost from a position on.
    pub fn fetch_until(
        &self,
        name: &str,
        until: u64,
    ) -> Result<(Fetched, Vec<u8>), RepositoryError> {
        let into = self.dir.path().join("fetched");
        self.fetch_how(name, into, Some(Lsn(until)))
    }

    fn fetch_to(&self, name: &str, into: PathBuf) -> Result<(Fetched, Vec<u8>), RepositoryError> {
        self.fetch_how(name, into, None)
    }

    fn fetch_how(
        &self,
        name: &str,
        into: PathBuf,
        until: Option<Lsn>,
    ) -> Result<(Fetched, Vec<u8>), RepositoryError> {
        let name = LogFileName::parse(name).unwrap();
        let fetched = fetch(&self.log(), &name, &into, (2, until))?;
        let content = match fetched {
            Fetched::Absent => Vec::new(),
            _ => std::fs::read(&into).unwrap(),
        };
        Ok((fetched, content))
    }

    /// Every object of the place.
    pub fn objects(&self) -> Vec<PathBuf> {
        let mut found = self.files();
        found.retain(|path| path.extension() != Some(OsStr::new("until")));
        found
    }

    /// The marks that say up to where growing objects are durable.
    pub fn marks(&self) -> Vec<PathBuf> {
        let mut found = self.files();
        found.retain(|path| path.extension() == Some(OsStr::new("until")));
        found
    }

    fn files(&self) -> Vec<PathBuf> {
        let (mut found, mut waiting) = (Vec::new(), vec![self.place()]);
        while let Some(dir) = waiting.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => waiting.push(path),
                    false => found.push(path),
                }
            }
        }
        found.sort();
        found
    }
}

pub fn name(timeline: u32, number: u64) -> String {
    let segment = Segment {
        timeline: Timeline(timeline),
        number,
    };
    segment.name(SEGMENT)
}

/// The bytes of a segment: on the timeline of its name, with the timeline of its first page.
pub fn content((_, page): (u32, u32), number: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; SEGMENT as usize];
    bytes[..2].copy_from_slice(&0xD118_u16.to_le_bytes());
    bytes[2] = 2;
    bytes[4..8].copy_from_slice(&page.to_le_bytes());
    bytes[8..16].copy_from_slice(&(number * SEGMENT).to_le_bytes());
    bytes[24..32].copy_from_slice(&SYSTEM.to_le_bytes());
    bytes[32..36].copy_from_slice(&(SEGMENT as u32).to_le_bytes());
    bytes[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for byte in &mut bytes[40..4000] {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = (state >> 32) as u8 & 0x1f;
    }
    bytes
}
