//! A snapshot that reaches a limit ends, and everything else goes on.

use std::fs::File;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, statvfs};
use windlass_snapshot::hook::{self, HookLimits, HookStart};
use windlass_testkit::postgres::DEFAULT_BIN;

use crate::support::{Source, sums};

fn source() -> Source {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
    let sql = format!("CREATE TABLE t AS {rows}");
    source.server.sql("postgres", &sql);
    source
}

fn write(source: &Source) {
    source
        .server
        .sql("postgres", "UPDATE t SET x = x || 'y'; CHECKPOINT");
}

fn lost(source: &Source, name: &str) -> Option<String> {
    hook::state(&source.place.path().join(name)).unwrap().lost
}

#[test]
fn a_snapshot_ends_at_its_size_and_those_around_it_stay() {
    let source = source();
    let older = source.snapshot("older");
    let limits = HookLimits {
        max_bytes: Some(20 * 8192),
        ..HookLimits::default()
    };
    let limited = source.try_limited("limited", HookStart::Checkpoint, limits);
    let limited = limited.unwrap();
    let newer = source.pause("newer");
    let before = [&older, &newer].map(|one| sums(&one.directory));
    write(&source);
    let why = lost(&source, "limited").unwrap();
    assert!(why.contains("beyond its limit"), "{why}");
    assert!(hook::HookImage::open(&limited.directory).is_err());
    write(&source);
    let after = [&older, &newer].map(|one| sums(&one.directory));
    assert!(before == after);
    // The next controller keeps it, so that a list can say why it ended.
    source.snapshot("newest");
    let why = lost(&source, "limited").unwrap();
    assert!(why.contains("beyond its limit"), "{why}");
    hook::remove(&limited.directory).unwrap();
    write(&source);
    assert!(before == [&older, &newer].map(|one| sums(&one.directory)));
}

#[test]
fn a_snapshot_ends_before_its_disk_is_full() {
    const MIB: u64 = 1 << 20;
    let source = source();
    let found = statvfs(source.place.path()).unwrap();
    let free = found.f_bavail * found.f_frsize;
    let limits = |keep| HookLimits {
        keep_free_bytes: Some(keep),
        ..HookLimits::default()
    };
    let refused = source.try_limited("full", HookStart::Checkpoint, limits(free + 4096 * MIB));
    assert!(matches!(
        refused.err(),
        Some(hook::HookError::NoRoom { .. })
    ));
    // Others use this disk, too: what is taken is much more than what may be freed meanwhile.
    let limited = source.try_limited("one", HookStart::Pause, limits(free - 512 * MIB));
    limited.unwrap();
    assert_eq!(lost(&source, "one"), None);
    let filler = File::create(source.place.path().join("filler")).unwrap();
    fallocate(&filler, FallocateFlags::empty(), 0, 2048 * MIB).unwrap();
    write(&source);
    let why = lost(&source, "one").unwrap();
    assert!(why.contains("less free space"), "{why}");
    assert_eq!(
        source.server.sql("postgres", "SELECT count(*) FROM t"),
        "5000"
    );
}

/// A list asks without the right to change snapshots. Whoever has it may drop this one, and give
/// its place in the table to another.
#[test]
fn a_list_ends_no_snapshot_while_somebody_works_on_them() {
    // Nobody writes a page: the hook would end it.
    let quiet = [
        "autovacuum = off",
        "bgwriter_lru_maxpages = 0",
        "checkpoint_timeout = 1h",
    ];
    let source = Source::start_with(DEFAULT_BIN.as_ref(), &quiet);
    let limits = HookLimits {
        until: Some(jiff::Timestamp::from_second(1).unwrap()),
        ..HookLimits::default()
    };
    let old = source.try_limited("old", HookStart::Checkpoint, limits);
    let old = old.unwrap();
    let working = File::open(source.memory().unwrap()).unwrap();
    flock(&working, FlockOperation::LockExclusive).unwrap();
    assert_eq!(lost(&source, "old"), None);
    flock(&working, FlockOperation::Unlock).unwrap();
    let why = lost(&source, "old").unwrap();
    assert!(why.contains("as old as it was to become"), "{why}");
    hook::remove(&old.directory).unwrap();
}
