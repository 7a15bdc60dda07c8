//! Durable snapshots when the system starts again: what the hook accepts, and what it does not.
//!
//! Here the file systems lose nothing. `snapshot_power` of windlass cuts the power.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use windlass_engine::media::crc32c;
use windlass_image::layout::hook::{FileKey, SAVED_DIRECTORY, SNAPSHOTS_MAX, saved_name};
use windlass_image::layout::{ENTRY_BYTES, Geometry, Slot, SlotEntry};
use windlass_snapshot::hook::{self, HookError, HookImage};
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster};

use crate::support::{Source, sums};

const PAGE: u32 = 8192;

fn source() -> Source {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 2000) i";
    let sql = format!("CREATE TABLE t AS {rows}");
    source.server.sql("postgres", &sql);
    source.server.sql("postgres", "VACUUM t");
    source
}

fn write(source: &Source) {
    source
        .server
        .sql("postgres", "UPDATE t SET x = x || 'y'; CHECKPOINT");
}

/// The store, and its slots that were used.
fn store(source: &Source) -> (std::fs::File, Vec<SlotEntry>) {
    let mut entries = std::fs::read_dir(source.store()).unwrap();
    let path = entries.next().unwrap().unwrap().path();
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.unwrap();
    let geometry = Geometry::new(PAGE).unwrap();
    let entry = |slot: Slot| {
        let mut entry = [0; ENTRY_BYTES];
        let read = file.read_exact_at(&mut entry, geometry.entry_offset(slot));
        read.ok().and_then(|()| SlotEntry::decode(&entry).unwrap())
    };
    let slots = (0..).map_while(entry).collect();
    (file, slots)
}

/// The file of the table.
fn table(source: &Source) -> PathBuf {
    let sql = "SELECT pg_relation_filepath('t')";
    let path = source.server.sql("postgres", sql);
    source.server.data().join(path)
}

fn assert_lost(directory: &std::path::Path) {
    assert!(hook::state(directory).unwrap().lost.is_some());
    let opened = HookImage::open(directory);
    assert!(matches!(opened.err(), Some(HookError::Lost { .. })));
}

#[test]
fn a_copy_that_was_not_durable_is_passed_over_for_ever() {
    let mut source = source();
    let snapshot = source.durable("one");
    let before = sums(&snapshot.directory);
    let path = table(&source);
    source.crash_system();
    // A page of which only the entry came to the disk. The source was not overwritten.
    let found = std::fs::metadata(&path).unwrap();
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    let key = FileKey::new(major, minor, found.ino());
    let mut page = [0; PAGE as usize];
    let table = std::fs::File::open(&path).unwrap();
    table.read_exact_at(&mut page, 0).unwrap();
    let (store, slots) = store(&source);
    let slot = Slot::try_from(slots.len()).unwrap();
    let entry = SlotEntry {
        file: key.inode,
        block: 0,
        owner: u64::from(key.device) << 32 | 1,
        page_crc: crc32c(&page),
    };
    let geometry = Geometry::new(PAGE).unwrap();
    store
        .write_all_at(&[0; PAGE as usize], geometry.page_offset(slot))
        .unwrap();
    store
        .write_all_at(&entry.encode(), geometry.entry_offset(slot))
        .unwrap();
    source.server.run();
    assert!(sums(&snapshot.directory) == before, "after one start");
    write(&source);
    assert!(sums(&snapshot.directory) == before, "overwritten");
    source.crash_system();
    source.server.run();
    assert!(sums(&snapshot.directory) == before, "after two starts");
    hook::remove(&snapshot.directory).unwrap();
}

#[test]
fn a_damaged_copy_that_the_source_does_not_have_loses_the_snapshot() {
    let mut source = source();
    let snapshot = source.durable("one");
    write(&source);
    let table = std::fs::metadata(table(&source)).unwrap().ino();
    source.crash_system();
    let (store, slots) = store(&source);
    // Every row was changed, so the source has another page by now.
    let mut slots = slots.iter().zip(0..);
    let found = slots.find(|(entry, _)| (entry.file, entry.block) == (table, 0));
    let at = Geometry::new(PAGE).unwrap().page_offset(found.unwrap().1);
    store.write_all_at(b"damage", at + 100).unwrap();
    source.server.run();
    assert_lost(&snapshot.directory);
    write(&source);
    source.crash_system();
    source.server.run();
    assert_lost(&snapshot.directory);
    hook::remove(&snapshot.directory).unwrap();
}

/// The file that brings the only durable snapshot back.
fn saved_index(source: &Source) -> PathBuf {
    let place = source.server.data().join(SAVED_DIRECTORY);
    let named = |index| place.join(OsStr::from_bytes(&saved_name(index)));
    let saved = (0..SNAPSHOTS_MAX).map(named).find(|path| path.exists());
    saved.unwrap()
}

/// The hook goes on when it cannot remove the index of a snapshot that it lost.
#[test]
fn what_would_bring_back_a_snapshot_that_is_lost_goes_with_the_next_one() {
    let source = source();
    let snapshot = source.durable("one");
    let saved = saved_index(&source);
    let bytes = std::fs::read(&saved).unwrap();
    hook::give_up(&snapshot.directory).unwrap();
    assert!(!saved.exists());
    std::fs::write(&saved, bytes).unwrap();
    source.snapshot("two");
    assert!(!saved.exists());
    assert_lost(&snapshot.directory);
    hook::remove(&snapshot.directory).unwrap();
}

/// A power cut would bring it back without what it lacks by then.
#[test]
fn a_snapshot_that_cannot_be_forgotten_is_neither_dropped_nor_given_up() {
    let source = source();
    let snapshot = source.durable("one");
    let before = sums(&snapshot.directory);
    let saved = saved_index(&source);
    let bytes = std::fs::read(&saved).unwrap();
    std::fs::remove_file(&saved).unwrap();
    // Nobody can remove that as a file.
    std::fs::create_dir(&saved).unwrap();
    assert!(hook::remove(&snapshot.directory).is_err());
    assert!(hook::give_up(&snapshot.directory).is_err());
    write(&source);
    assert!(sums(&snapshot.directory) == before);
    std::fs::remove_dir(&saved).unwrap();
    std::fs::write(&saved, bytes).unwrap();
    hook::give_up(&snapshot.directory).unwrap();
    assert!(!saved.exists());
    assert_lost(&snapshot.directory);
    hook::remove(&snapshot.directory).unwrap();
}

#[test]
fn a_copy_of_the_data_directory_has_no_snapshots_and_leaves_those_of_the_original() {
    let mut source = source();
    let snapshot = source.durable("one");
    let before = sums(&snapshot.directory);
    source.crash_system();
    let copy = source.place.path().join("copy");
    let mut tool = std::process::Command::new("cp");
    windlass_testkit::postgres::succeed(tool.arg("-a").arg(source.server.data()).arg(&copy));
    let original = std::mem::replace(
        &mut source.server,
        PrivateCluster::adopt_stopped(&copy, DEFAULT_BIN.as_ref()),
    );
    source.server.run();
    write(&source);
    assert_lost(&snapshot.directory);
    source.crash_system();
    source.server = original;
    source.server.run();
    assert!(sums(&snapshot.directory) == before);
    write(&source);
    assert!(sums(&snapshot.directory) == before);
}
