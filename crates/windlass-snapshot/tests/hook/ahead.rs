//! The helper of the library: it copies for durable snapshots what is dirty in the server's
//! buffers, before anybody overwrites it. Without it each writer copies for itself.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use windlass_image::layout::{ENTRY_BYTES, Geometry, SlotEntry};
use windlass_snapshot::hook;
use windlass_testkit::installed::hooked_versions;
use windlass_testkit::postgres::{DEFAULT_BIN, succeed};

use crate::support::{Source, sums};

const HELPER: &str = "windlass copies ahead";
/// Only a checkpoint writes pages.
const QUIET: [&str; 4] = [
    "bgwriter_lru_maxpages = 0",
    "checkpoint_timeout = 1h",
    "autovacuum = off",
    "shared_buffers = 64MB",
];
/// A machine that is busy may take as long.
const PATIENCE: Duration = Duration::from_secs(120);

fn source(bin: &Path, settings: &[&str]) -> Source {
    let settings = [&QUIET, settings].concat();
    let source = Source::start_with(bin, &settings);
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 2000) i";
    let sql = format!("CREATE TABLE t AS {rows}");
    source.server.sql("postgres", &sql);
    source.server.sql("postgres", "VACUUM t");
    source
}

/// The blocks of the table that the store has, and how many there are.
fn blocks(source: &Source) -> (BTreeSet<u64>, u64) {
    let sql = "SELECT pg_relation_filepath('t')";
    let path = source
        .server
        .data()
        .join(source.server.sql("postgres", sql));
    let table = std::fs::metadata(path).unwrap();
    let store = std::fs::read_dir(source.store()).unwrap().next();
    let store = std::fs::File::open(store.unwrap().unwrap().path()).unwrap();
    let geometry = Geometry::new(8192).unwrap();
    let mut bytes = [0; ENTRY_BYTES];
    let mut entries = (0..).map_while(|slot| {
        let read = store.read_exact_at(&mut bytes, geometry.entry_offset(slot));
        read.ok().map(|()| SlotEntry::decode(&bytes).unwrap())
    });
    let mut found = BTreeSet::new();
    while let Some(Some(entry)) = entries.next() {
        found.extend((entry.file == table.ino()).then_some(entry.block));
    }
    (found, table.len() / 8192)
}

/// The number of the helper's process.
fn helper(source: &Source) -> Option<u32> {
    let lock = std::fs::read_to_string(source.server.data().join("postmaster.pid")).unwrap();
    let first = lock.lines().next().unwrap();
    let children = format!("/proc/{first}/task/{first}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let mut children = children.split_whitespace();
    let found = children.find(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.contains(HELPER))
    });
    found.map(|pid| pid.parse().unwrap())
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn change(source: &Source) {
    let sql = "UPDATE t SET x = x || 'y'";
    source.server.sql("postgres", sql);
}

#[test]
fn what_is_dirty_is_copied_before_its_writer_comes_on_every_version() {
    for (major, bin) in hooked_versions() {
        let mut source = source(&bin, &[]);
        let snapshot = source.durable("one");
        let before = sums(&snapshot.directory);
        let (_, all) = blocks(&source);
        change(&source);
        until(&format!("version {major} copies ahead"), || {
            let (found, _) = blocks(&source);
            found.iter().filter(|block| **block < all).count() as u64 == all
        });
        source.server.sql("postgres", "CHECKPOINT");
        assert!(sums(&snapshot.directory) == before, "version {major}");
        // Both wait for every process of the server that takes part.
        source.server.sql("postgres", "CREATE DATABASE other");
        source.server.sql("postgres", "DROP DATABASE other");
        source.crash_system();
        source.server.run();
        assert!(sums(&snapshot.directory) == before, "version {major}");
        until("it is there again", || helper(&source).is_some());
        hook::remove(&snapshot.directory).unwrap();
        source.server.stop("fast");
        let log = source.server.log();
        assert!(!log.contains(HELPER), "version {major}: {log}");
    }
}

#[test]
fn without_the_helper_each_writer_copies_for_itself() {
    for settings in [&["max_worker_processes = 0"][..], &[]] {
        let mut source = source(DEFAULT_BIN.as_ref(), settings);
        let snapshot = source.durable("one");
        let before = sums(&snapshot.directory);
        if settings.is_empty() {
            until("it runs", || helper(&source).is_some());
            let helper = helper(&source).unwrap().to_string();
            succeed(Command::new("kill").args(["-TERM", &helper]));
        }
        until("it ends", || helper(&source).is_none());
        let (_, all) = blocks(&source);
        change(&source);
        source.server.sql("postgres", "CHECKPOINT");
        assert!(sums(&snapshot.directory) == before, "{settings:?}");
        let (found, _) = blocks(&source);
        let kept = found.iter().filter(|block| **block < all);
        assert_eq!(kept.count() as u64, all, "{settings:?}");
        source.crash_system();
        source.server.run();
        assert!(sums(&snapshot.directory) == before, "{settings:?}");
    }
}
