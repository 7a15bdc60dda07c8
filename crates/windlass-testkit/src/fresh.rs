//! New data directories. initdb makes the first one of each kind, and this process keeps its files
//! in memory; all others of that kind are written from there.
//!
//! Each has a system identifier of its own, as if initdb had made it: the identifier is in
//! pg_control and at the beginning of the log. This module never starts a server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use windlass_engine::media::crc32c;

use crate::postgres::give_to_servers;

const LOG: &str = "pg_wal";
/// Where the first page of each segment has the identifier.
const LOG_IDENTIFIER: usize = 24;
const CONTROL: &str = "global/pg_control";
/// As large as the smallest segments of a log.
const LARGE_BYTES: usize = 1 << 20;
/// The part of pg_control that is written in one go.
const CONTROL_BYTES_MAX: usize = 512;
/// initdb puts the number of its process into these bits of the identifier, the time above them.
const PROCESS_BITS: u32 = 12;

/// The programs of a version, and the arguments of initdb.
pub(crate) type Kind = (PathBuf, Vec<String>);

/// The files of a data directory that no server has used yet.
struct Template {
    entries: Vec<Entry>,
    identifier: u64,
    copies: AtomicU64,
}

struct Entry {
    path: PathBuf,
    mode: u32,
    /// None for a directory.
    bytes: Option<Vec<u8>>,
    length: u64,
}

static TEMPLATES: Mutex<Option<HashMap<Kind, Arc<OnceLock<Template>>>>> = Mutex::new(None);

/// Makes a data directory. `initdb` makes the first one of its kind there.
pub(crate) fn make(kind: Kind, data: &Path, initdb: impl FnOnce()) {
    // What is outside the data directory would be everybody's.
    if kind
        .1
        .iter()
        .any(|argument| argument.starts_with("--waldir"))
    {
        return initdb();
    }
    let slot = {
        let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
        let templates = templates.get_or_insert_default();
        Arc::clone(templates.entry(kind).or_default())
    };
    let mut is_first = false;
    let template = slot.get_or_init(|| {
        is_first = true;
        initdb();
        Template::read(data)
    });
    if !is_first {
        template.write(data);
    }
}

impl Template {
    fn read(data: &Path) -> Self {
        let control = std::fs::read(data.join(CONTROL)).expect("read pg_control");
        let mut entries = Vec::new();
        read_below(data, PathBuf::new(), &mut entries);
        Self {
            entries,
            identifier: identifier(&control, 0).expect("pg_control begins with it"),
            copies: AtomicU64::new(0),
        }
    }

    fn write(&self, data: &Path) {
        let number = self.copies.fetch_add(1, Ordering::Relaxed) + 1;
        let own = self.identifier + (number << PROCESS_BITS);
        for entry in &self.entries {
            let path = data.join(&entry.path);
            match &entry.bytes {
                None => make_directory(&path, entry.mode),
                Some(bytes) => {
                    let mut file = create(&path, entry.mode);
                    let bytes = self.with(own, &entry.path, bytes);
                    file.write_all(&bytes).expect("write a file of a cluster");
                    // Most of a segment of the log is zeros, and nobody has to write them.
                    file.set_len(entry.length)
                        .expect("give a file of a cluster its length");
                }
            }
        }
    }

    /// The content of a file in a cluster of this identifier.
    fn with<'a>(&self, own: u64, path: &Path, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let is_control = path == Path::new(CONTROL);
        let at = if is_control { 0 } else { LOG_IDENTIFIER };
        let has_it = is_control || path.starts_with(LOG);
        if !has_it || identifier(bytes, at) != Some(self.identifier) {
            return bytes.into();
        }
        let mut changed = bytes.to_vec();
        changed[at..at + 8].copy_from_slice(&own.to_le_bytes());
        if is_control {
            let end = checksum_of_control(bytes);
            let checksum = crc32c(&changed[..end]);
            changed[end..end + 4].copy_from_slice(&checksum.to_le_bytes());
        }
        changed.into()
    }
}

fn identifier(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*found))
}

fn read_below(data: &Path, below: PathBuf, entries: &mut Vec<Entry>) {
    let here = data.join(&below);
    let metadata = std::fs::symlink_metadata(&here).expect("look at a new cluster");
    let is_directory = metadata.is_dir();
    assert!(is_directory || metadata.is_file(), "{}", here.display());
    entries.push(Entry {
        path: below.clone(),
        mode: metadata.mode() & 0o777,
        bytes: (!is_directory).then(|| used_part(&here)),
        length: metadata.len(),
    });
    if is_directory {
        for entry in std::fs::read_dir(here).expect("list a new cluster") {
            let name = entry.expect("list a new cluster").file_name();
            read_below(data, below.join(name), entries);
        }
    }
}

/// The content of a file; of a large one, without the zeros at its end.
fn used_part(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).expect("read a new cluster");
    if bytes.len() >= LARGE_BYTES {
        let used = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(used.map_or(0, |last| last + 1));
    }
    bytes
}

fn make_directory(path: &Path, mode: u32) {
    let mut builder = std::fs::DirBuilder::new();
    builder
        .mode(mode)
        .create(path)
        .expect("make a directory of a cluster");
    give_to_servers(path);
}

fn create(path: &Path, mode: u32) -> File {
    let mut options = File::options();
    let options = options.write(true).create_new(true).mode(mode);
    let file = options.open(path).expect("make a file of a cluster");
    give_to_servers(path);
    file
}

/// Where pg_control has the checksum of what is before it; each version has it elsewhere.
fn checksum_of_control(bytes: &[u8]) -> usize {
    let ends_there = |at: &usize| crc32c(&bytes[..*at]).to_le_bytes() == bytes[*at..*at + 4];
    let mut places = (8..CONTROL_BYTES_MAX).step_by(4);
    places.find(ends_there).expect("pg_control has a checksum")
}
