//! A place that was written once: a chain of a SQLite database, its log, and a segment of a
//! cluster's log. It must be read for ever, by the command and by the reader in Python.
//!
//! `testdata/places/v1/place` has a full set, an incremental one on each of two states behind it,
//! and transactions up to behind the last of them, made by `backup` and `backup --type log` on a
//! machine that called itself `golden`. Beside it are the database as the first set has it
//! (`full.db`), as the last has it (`chain.db`), and at the end of its log (`log.db`).

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::*;

/// The segment: its name, its number, and how long it is.
const SEGMENT: (&str, u64, usize) = ("000000010000000000000003", 3, 1 << 20);
const SYSTEM: u64 = 7_300_000_000_000_000_001;
/// What the names of the sets end with, from the first to the last.
const SETS: [&str; 3] = [
    "e465d7cb.1of1.windlass",
    "853b805e.1of1.windlass",
    "c7090de4.1of1.windlass",
];

fn golden(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/places/v1");
    root.join(name)
}

fn expected(name: &str) -> Vec<u8> {
    std::fs::read(golden(name)).unwrap()
}

/// A copy of the place: commands leave notes in what they read.
struct Copied(tempfile::TempDir);

impl Copied {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(golden("place")).arg(dir.path());
        assert!(copy.status().unwrap().success());
        Self(dir)
    }

    fn arg(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn restored(&self, into: &str, words: &[&str]) -> Vec<u8> {
        let (place, into) = (self.arg("place"), self.arg(into));
        let output = windlass(&[&["restore", &place, "--into", &into], words].concat());
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
        std::fs::read(into).unwrap()
    }
}

/// The bytes of the segment, which the test makes again.
fn segment() -> Vec<u8> {
    let (_, number, bytes) = SEGMENT;
    let mut segment = vec![0; bytes];
    segment[..2].copy_from_slice(&0xD118_u16.to_le_bytes());
    segment[2] = 2;
    segment[4..8].copy_from_slice(&1_u32.to_le_bytes());
    segment[8..16].copy_from_slice(&(number << 20).to_le_bytes());
    segment[24..32].copy_from_slice(&SYSTEM.to_le_bytes());
    segment[32..36].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    segment[36..40].copy_from_slice(&8192_u32.to_le_bytes());
    let mut state = 1_u64;
    for byte in &mut segment[40..4000] {
        // The numbers of Knuth's MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 59) as u8;
    }
    segment
}

#[test]
fn a_place_of_every_version_is_read_for_ever() {
    let copy = Copied::new();
    let place = copy.arg("place");
    let verified = windlass(&["verify", &place]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let (code, document) = json(&["info", &place]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["sets"].as_array().unwrap().len(), 3, "{document}");
    assert_eq!(document["logs"].as_array().unwrap().len(), 2, "{document}");
    let first = copy.restored("first", &["--set", "e465d7cb"]);
    assert!(first == expected("full.db"));
    let last = copy.restored("last", &["--set", "latest"]);
    assert!(last == expected("chain.db"));
    let end = copy.restored("end", &["--target-latest"]);
    assert!(end == expected("log.db"));
    let fetched = copy.arg("fetched");
    let words = ["archive-get", SEGMENT.0, &fetched, "--from", &place];
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(std::fs::read(&fetched).unwrap() == segment());
}

/// Runs the reader that was written from docs/format.md.
fn reader(words: &[PathBuf], options: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-reader.py");
    let mut command = Command::new("python3");
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    let output = command.args(words).args(options).output();
    output.expect("start python3 (Debian: python3, zstd)")
}

fn read(words: &[PathBuf], options: &[&str]) -> Vec<u8> {
    let output = reader(words, options);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    output.stdout
}

/// The first stripes of the chain.
fn stripes(count: usize) -> Vec<PathBuf> {
    let name = |end: &&str| golden("place").join(format!("shop-20261127T070759Z-{end}"));
    SETS[..count].iter().map(name).collect()
}

/// The log objects of a directory of the log, in their order.
fn objects(directory: &str) -> Vec<PathBuf> {
    let directory = golden("place/log").join(directory);
    let entries = std::fs::read_dir(directory.join("00000001/00000000")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn the_reader_that_was_written_from_the_documents_reads_chains_and_logs() {
    let file = ["--file", "shop.db"];
    assert!(read(&stripes(1), &file) == expected("full.db"));
    assert!(read(&stripes(3), &file) == expected("chain.db"));
    // The set in the middle is missing.
    let [first, _, last] = <[PathBuf; 3]>::try_from(stripes(3)).unwrap();
    let refused = reader(&[first, last], &file);
    assert!(!refused.status.success());
    let log = objects("sqlite-0F43CBE3CE7E2EC5");
    for name in ["full.db", "chain.db"] {
        let onto = golden(name);
        let replayed = read(&log, &["--onto", onto.to_str().unwrap()]);
        assert!(replayed == expected("log.db"), "{name}");
    }
    let [begin, _, end] = <[PathBuf; 3]>::try_from(log).unwrap();
    let onto = golden("full.db");
    let refused = reader(&[begin, end], &["--onto", onto.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("log is missing between"), "{said}");
    assert!(read(&objects(&SYSTEM.to_string()), &[]) == segment());
}
