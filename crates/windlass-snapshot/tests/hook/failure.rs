//! Whatever breaks on our side: the source goes on, and no snapshot shows a wrong page.

use windlass_image::Image;
use windlass_snapshot::hook::{self, HookError, HookImage, HookStart};
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster};

use crate::support::{Source, kill_checkpointer, sums};

fn source() -> Source {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
    source
        .server
        .sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    source
}

fn write(server: &PrivateCluster) {
    server.sql("postgres", "UPDATE t SET x = repeat('y', 200)");
    server.sql("postgres", "CHECKPOINT");
    assert_eq!(
        server.sql("postgres", "SELECT count(*) FROM t WHERE x LIKE 'y%'"),
        "5000"
    );
}

fn assert_lost(directory: &std::path::Path, why: &str) {
    let state = hook::state(directory).unwrap();
    let lost = state.lost.unwrap_or_default();
    assert!(lost.contains(why), "{lost}");
    let error = HookImage::open(directory).err().unwrap();
    assert!(matches!(error, HookError::Lost { .. }), "{error}");
}

#[test]
fn a_store_that_is_gone_loses_the_snapshot_and_no_statement() {
    let source = source();
    let snapshot = source.snapshot("one");
    let store = std::fs::read_dir(source.store()).unwrap().next().unwrap();
    std::fs::remove_file(store.unwrap().path()).unwrap();
    write(&source.server);
    assert_lost(&snapshot.directory, "store");
    hook::remove(&snapshot.directory).unwrap();
    let second = source.snapshot("two");
    let before = sums(&second.directory);
    write(&source.server);
    assert_eq!(sums(&second.directory), before);
}

/// The name of the store is known before it is made, and others may write its directory.
#[test]
fn a_link_in_the_place_of_the_store_is_not_followed_and_nothing_is_emptied() {
    let source = source();
    let name = source.memory().unwrap();
    let name = name.file_name().unwrap().to_string_lossy().into_owned();
    let store = source.store().join(format!(".{name}.pages"));
    let other = source.server.data().join("PG_VERSION");
    let bytes = std::fs::read(&other).unwrap();
    std::os::unix::fs::symlink(&other, &store).unwrap();
    let refused = source.try_snapshot("one", HookStart::Checkpoint);
    let error = refused.err().unwrap();
    assert!(matches!(error, HookError::StoreTaken { .. }), "{error}");
    assert_eq!(std::fs::read(&other).unwrap(), bytes);
    std::fs::remove_file(&store).unwrap();
    let second = source.snapshot("two");
    // Nor is it when the last snapshot goes.
    std::fs::rename(&store, source.store().join("away")).unwrap();
    std::os::unix::fs::symlink(&other, &store).unwrap();
    write(&source.server);
    hook::remove(&second.directory).unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), bytes);
    std::fs::remove_file(&store).unwrap();
    let third = source.snapshot("three");
    let before = sums(&third.directory);
    source.server.sql("postgres", "UPDATE t SET x = 'z'");
    source.server.sql("postgres", "CHECKPOINT");
    assert_eq!(sums(&third.directory), before);
}

/// Whoever may write the directory of the store could read there what the database has.
#[test]
fn no_page_is_written_to_another_file_in_the_place_of_the_store() {
    let mut source = source();
    let snapshot = source.snapshot("one");
    // A process that has the store open goes on with it.
    source.server.stop("fast");
    let store = std::fs::read_dir(source.store()).unwrap().next().unwrap();
    let store = store.unwrap().path();
    let away = source.place.path().join("away");
    std::fs::rename(&store, &away).unwrap();
    std::fs::copy(&away, &store).unwrap();
    let bytes = std::fs::read(&store).unwrap();
    source.server.run();
    write(&source.server);
    assert!(std::fs::read(&store).unwrap() == bytes);
    assert_lost(&snapshot.directory, "store");
}

#[test]
fn a_damaged_page_of_the_store_is_an_error_and_never_an_answer() {
    use std::os::unix::fs::FileExt;
    let source = source();
    let snapshot = source.snapshot("one");
    write(&source.server);
    let store = std::fs::read_dir(source.store())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(store.path())
        .unwrap();
    for page in (2..40).step_by(3) {
        file.write_all_at(b"damage", page * 8192 + 100).unwrap();
    }
    let image = HookImage::open(&snapshot.directory).unwrap();
    let mut faults = 0;
    for entry in &windlass_image::Image::files(&image).0 {
        let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
        let read = windlass_image::Image::read(&image, entry.file, 0, &mut bytes);
        if let Err(error) = read {
            assert!(error.is_damage(), "{error}");
            faults += 1;
        }
    }
    assert!(faults > 0);
}

#[test]
fn a_server_that_ran_without_the_hook_loses_every_snapshot() {
    let mut source = source();
    let snapshot = source.snapshot("one");
    let path = source
        .server
        .sql("postgres", "SELECT pg_relation_filepath('t')");
    let opened = HookImage::open(&snapshot.directory).unwrap();
    let mut files = opened.files().0.iter();
    let table = files.find(|entry| entry.path == path.as_bytes());
    let table = table.unwrap().file;
    opened.read(table, 0, &mut [0; 8192]).unwrap();
    source.server.stop("fast");
    source.server.option("-c shared_preload_libraries=");
    source.server.run();
    write(&source.server);
    // Nobody who reads it now may take what that server wrote for the snapshot's, wherever it was
    // opened.
    assert_lost(&snapshot.directory, "without the hook");
    let read = opened.read(table, 0, &mut [0; 8192]);
    let error = read.unwrap_err().to_string();
    assert!(error.contains("without the hook"), "{error}");
    source.server.stop("fast");
    assert_lost(&snapshot.directory, "without the hook");
    let library = source.place.path().join("windlass.so");
    source.server.option(&format!(
        "-c shared_preload_libraries={}",
        library.display()
    ));
    source.server.run();
    assert_lost(&snapshot.directory, "without the hook");
}

/// After an update the memory of the old library is still there.
#[test]
fn a_library_of_another_version_begins_with_a_memory_of_its_own() {
    use std::os::unix::fs::FileExt;
    let mut source = source();
    let snapshot = source.snapshot("one");
    source.server.stop("fast");
    let memory = source.memory().unwrap();
    let file = std::fs::File::options().write(true).open(memory).unwrap();
    let version = windlass_image::layout::hook::VERSION - 1;
    file.write_all_at(&version.to_le_bytes(), 4).unwrap();
    source.server.run();
    assert_lost(&snapshot.directory, "hook of another version");
    let second = source.snapshot("two");
    let before = sums(&second.directory);
    write(&source.server);
    assert_eq!(sums(&second.directory), before);
    hook::remove(&snapshot.directory).unwrap();
    assert_eq!(sums(&second.directory), before);
}

/// The system's start takes the memory with it, and a later one gives the same numbers again.
#[test]
fn a_snapshot_of_before_the_systems_start_takes_nothing_of_a_later_one_with_it() {
    let mut source = source();
    let snapshot = source.snapshot("one");
    source.crash_system();
    source.server.run();
    let second = source.snapshot("two");
    let before = sums(&second.directory);
    hook::remove(&snapshot.directory).unwrap();
    write(&source.server);
    source.server.sql("postgres", "DROP TABLE t");
    source.server.sql("postgres", "CHECKPOINT");
    assert_eq!(sums(&second.directory), before);
}

#[test]
fn a_server_without_the_hook_is_told_from_one_with_it() {
    let server = PrivateCluster::start(&Default::default());
    let place = tempfile::tempdir().unwrap();
    let mut cluster = windlass_postgres::Cluster::connect(&server.conninfo()).unwrap();
    let request = hook::HookRequest {
        directory: place.path(),
        store: place.path(),
        home: None,
        start: hook::HookStart::Checkpoint,
        limits: hook::HookLimits::default(),
        durable: false,
        label: "none",
        links_max: usize::MAX,
        progress: &windlass_engine::Progress::default(),
    };
    let made = hook::create(&mut cluster, &request, &windlass_engine::Cancel::new());
    assert!(matches!(made, Err(HookError::NotLoaded { .. })));
}

/// The directory that was to have its entry may go with it, and nobody is to look for that.
#[test]
fn a_snapshot_that_cannot_be_completed_leaves_no_note_of_where_its_entry_was_to_be() {
    let source = source();
    let note = source.server.data().join("pg_subtrans/windlass/homes");
    let home = source.place.path().join("home");
    let (directory, store) = (home.join("one"), source.store());
    std::fs::create_dir_all(&directory).unwrap();
    let request = hook::HookRequest {
        directory: &directory,
        store: &store,
        home: Some(&home),
        start: HookStart::Checkpoint,
        limits: hook::HookLimits::default(),
        durable: false,
        label: "one",
        links_max: usize::MAX,
        progress: &windlass_engine::Progress::default(),
    };
    let create = || {
        let conninfo = source.server.conninfo();
        let mut cluster = windlass_postgres::Cluster::connect(&conninfo).unwrap();
        hook::create(&mut cluster, &request, &windlass_engine::Cancel::new())
    };
    // Something has the name of its table, and goes with what was made of the snapshot.
    std::fs::create_dir(directory.join("files")).unwrap();
    assert!(create().is_err());
    assert!(!note.exists());
    create().unwrap();
    assert!(note.exists());
}

#[test]
fn a_backend_that_is_killed_harms_nobody() {
    let source = source();
    let snapshot = source.snapshot("one");
    let before = sums(&snapshot.directory);
    for _ in 0..3 {
        let mut pgbench = source.server.tool("psql");
        pgbench.args(["-d", "postgres", "-c", "UPDATE t SET x = x || 'z'"]);
        pgbench.stdout(std::process::Stdio::null());
        let mut client = pgbench.stderr(std::process::Stdio::null()).spawn().unwrap();
        kill_checkpointer(&source.server);
        client.wait().unwrap();
    }
    write(&source.server);
    assert_eq!(sums(&snapshot.directory), before);
}
