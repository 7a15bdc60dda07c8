//! Snapshots without links, and the journal that keeps the pause short.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_image::Image;
use windlass_snapshot::hook::{self, HookError, HookImage};
use windlass_testkit::postgres::{DEFAULT_BIN, succeed};

use crate::support::{Snapshot, Source, sums};

/// Tables in a database of their own and in a tablespace. Nobody writes but the tests.
fn source() -> Source {
    let source = Source::start_with(DEFAULT_BIN.as_ref(), &["autovacuum = off"]);
    let space = source.place.path().join("space");
    std::fs::create_dir(&space).unwrap();
    let rows = "AS SELECT i, md5(i::text) AS x FROM generate_series(1, 3000) i";
    let space = format!("CREATE TABLESPACE s LOCATION '{}'", space.display());
    source.server.sql("postgres", &space);
    source.server.sql("postgres", "CREATE DATABASE old");
    source.server.sql("postgres", "CREATE DATABASE moved");
    source
        .server
        .sql("moved", &format!("CREATE TABLE t {rows}"));
    for sql in ["CREATE TABLE a", "CREATE TABLE b", "CREATE TABLE c"] {
        source.server.sql("old", &format!("{sql} {rows}"));
        source.server.sql("postgres", &format!("{sql} {rows}"));
    }
    source
        .server
        .sql("postgres", &format!("CREATE TABLE d TABLESPACE s {rows}"));
    source.server.sql("postgres", "CHECKPOINT");
    source
}

/// Where files come to that a snapshot without links has.
fn graves(source: &Source) -> Vec<PathBuf> {
    let places = [
        source.server.data().join("pg_subtrans/windlass"),
        source.place.path().join("space/windlass"),
    ];
    let listed = |place: PathBuf| std::fs::read_dir(place).into_iter().flatten();
    let inside = places.into_iter().flat_map(listed);
    let inside = inside.map(|entry| entry.unwrap().path());
    let directories = inside.filter(|path| path.display().to_string().ends_with("-graves"));
    let files = directories.flat_map(|path| std::fs::read_dir(path).unwrap());
    files.map(|entry| entry.unwrap().path()).collect()
}

/// Takes the names of many files away, in every way.
fn remove(source: &Source) {
    for sql in [
        "TRUNCATE a",
        "DROP TABLE b",
        "VACUUM FULL c",
        "DROP TABLE d",
        "DROP DATABASE old",
        "ALTER DATABASE moved SET TABLESPACE s",
        "CHECKPOINT",
    ] {
        source.server.sql("postgres", sql);
    }
}

#[test]
fn a_snapshot_without_links_keeps_what_the_server_removes() {
    let mut source = source();
    let first = source.late("first");
    let before = sums(&first.directory);
    assert!(graves(&source).is_empty(), "nothing is linked at first");
    source
        .server
        .sql("postgres", "CREATE TABLE new AS SELECT 1");
    let second = source.late("second");
    let before_second = sums(&second.directory);
    remove(&source);
    assert!(graves(&source).len() > 100, "a database and more");
    assert_eq!(sums(&first.directory), before);
    // The files outlive the processes that linked them.
    source.server.stop("immediate");
    source.server.run();
    source.server.sql("postgres", "DROP TABLE new; CHECKPOINT");
    assert_eq!(sums(&first.directory), before);
    assert_eq!(sums(&second.directory), before_second);
    let copy = source.place.path().join("copy");
    let mut tool = source.server.tool("pg_basebackup");
    let (space, to) = (source.place.path().join("space"), copy.join("space"));
    tool.arg(format!(
        "--tablespace-mapping={}={}",
        space.display(),
        to.display()
    ));
    succeed(tool.args(["-c", "fast", "-D"]).arg(copy.join("data")));
    assert!(!copy.join("data/pg_subtrans/windlass").exists());
    assert!(!to.join("windlass").exists());
    // Dropped in any order, and the other one stays.
    hook::remove(&first.directory).unwrap();
    assert_eq!(sums(&second.directory), before_second);
    let count = graves(&source).len();
    let third = source.late("third");
    let before_third = sums(&third.directory);
    hook::remove(&second.directory).unwrap();
    assert!(graves(&source).len() < count, "nobody needs these");
    assert_eq!(sums(&third.directory), before_third);
    hook::remove(&third.directory).unwrap();
    let left = std::fs::read_dir(source.server.data().join("pg_subtrans/windlass"));
    assert_eq!(left.unwrap().count(), 0);
}

#[test]
fn a_snapshot_through_the_backup_api_has_no_links_of_many_files_either() {
    let mut source = source();
    let snapshot = source.late_window("one");
    let made = &snapshot.made;
    assert!(
        made.linked_files > 1000 && made.files_in_pause < 50,
        "{made:?}"
    );
    assert!(made.writers_stopped_seconds > 0.0, "{made:?}");
    let place = source.server.data().join("pg_subtrans/windlass");
    let names = std::fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().all(|name| !name.ends_with("-1")), "{names:?}");
    let before = sums(&snapshot.directory);
    remove(&source);
    assert!(graves(&source).len() > 100, "a database and more");
    assert_eq!(sums(&snapshot.directory), before);
    source.server.stop("fast");
    source.server.run();
    assert_eq!(sums(&snapshot.directory), before);
    hook::remove(&snapshot.directory).unwrap();
    assert!(graves(&source).is_empty());
}

#[test]
fn the_files_of_a_tablespace_that_was_dropped_go_with_the_snapshot() {
    let source = source();
    let snapshots = [source.late("one"), source.snapshot("two")];
    let before = snapshots.each_ref().map(|it| sums(&it.directory));
    source.server.sql("postgres", "DROP TABLE d");
    source.server.sql("postgres", "CHECKPOINT");
    source.server.sql("postgres", "DROP TABLESPACE s");
    let space = source.place.path().join("space");
    for (snapshot, before) in snapshots.iter().zip(&before) {
        assert!(sums(&snapshot.directory) == *before);
        assert!(space.join("windlass").is_dir());
        hook::remove(&snapshot.directory).unwrap();
    }
    assert!(graves(&source).is_empty());
    let left = std::fs::read_dir(&space).unwrap().count();
    assert_eq!(
        left, 0,
        "the directory is as empty as before the tablespace"
    );
}

fn assert_lost(snapshot: &Snapshot) {
    let opened = HookImage::open(&snapshot.directory);
    assert!(matches!(opened.err(), Some(HookError::Lost { .. })));
}

/// Such a tablespace is a directory in the data directory, which the server removes as a whole.
#[test]
fn a_snapshot_without_links_keeps_the_files_of_a_tablespace_in_place() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let allow = "ALTER ROLE postgres SET allow_in_place_tablespaces = on";
    for sql in [allow, "CREATE TABLESPACE inplace LOCATION ''"] {
        source.server.sql("postgres", sql);
    }
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
    let table = format!("CREATE TABLE p TABLESPACE inplace AS {rows}");
    source.server.sql("postgres", &table);
    source.server.sql("postgres", "CHECKPOINT");
    let snapshot = source.late("one");
    let before = sums(&snapshot.directory);
    source.server.sql("postgres", "DROP TABLE p");
    source.server.sql("postgres", "CHECKPOINT");
    source.server.sql("postgres", "DROP TABLESPACE inplace");
    assert_eq!(sums(&snapshot.directory), before);
}

#[test]
fn a_snapshot_without_links_is_lost_when_a_server_without_the_hook_removes_files() {
    let mut source = source();
    let snapshot = source.late("one");
    let image = HookImage::open(&snapshot.directory).unwrap();
    source.server.stop("fast");
    source.server.configure(&["shared_preload_libraries = ''"]);
    source.server.run();
    source.server.sql("postgres", "DROP TABLE b");
    source
        .server
        .sql("postgres", "CREATE TABLE e AS SELECT 7 AS i");
    source.server.sql("postgres", "CHECKPOINT");
    let table = image.files().0.iter();
    let read = |entry: &windlass_engine::media::FileEntry| {
        let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
        image.read(entry.file, 0, &mut bytes).is_err()
    };
    let mut relations =
        table.filter(|entry| entry.path.starts_with(b"base/") && entry.bytes > 8192);
    assert!(relations.all(read));
    assert_lost(&snapshot);
    source.server.stop("fast");
    let library = source.place.path().join("windlass.so");
    let setting = format!("shared_preload_libraries = '{}'", library.display());
    source.server.configure(&[setting]);
    source.server.run();
    assert_lost(&snapshot);
    hook::remove(&snapshot.directory).unwrap();
    assert!(graves(&source).is_empty());
}

#[test]
fn a_file_that_somebody_replaced_while_the_server_was_stopped_is_an_error() {
    let mut source = source();
    let snapshot = source.late("one");
    let path = source
        .server
        .sql("postgres", "SELECT pg_relation_filepath('b')");
    let image = HookImage::open(&snapshot.directory).unwrap();
    source.end("fast");
    let file = source.server.data().join(&path);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    // The file system may give it the number of the old one.
    std::fs::write(&file, vec![0; bytes.len()]).unwrap();
    assert!(HookImage::open(&snapshot.directory).is_err());
    let entry = image
        .files()
        .0
        .iter()
        .find(|entry| entry.path_lossy() == path);
    let entry = entry.unwrap();
    let read = image.read(entry.file, 0, &mut [0; 8192]);
    assert!(read.is_err(), "{read:?}");
}

/// The server makes files, and makes them longer, without a rest.
fn grow(source: &Source, is_over: &AtomicBool) {
    let long = "x".repeat(100);
    let mut turn: i32 = 0;
    while !is_over.load(Ordering::Relaxed) {
        turn += 1;
        let sql = format!(
            "INSERT INTO a SELECT i, 'g' FROM generate_series(1, 2000) i; CHECKPOINT; \
             CREATE TABLE n{turn} AS SELECT i FROM generate_series(1, 500) i; CHECKPOINT; \
             DROP TABLE IF EXISTS n{}",
            (turn - 2).max(0)
        );
        for sql in sql.split(';') {
            source.server.sql("postgres", sql);
        }
        if turn % 4 == 0 {
            // A name that is too long for the journal: then every file is looked at again.
            let path = source.place.path().join(&long);
            let sql = format!("SELECT lo_export(1, '{}')", path.display());
            source.server.sql("postgres", &sql);
        }
    }
}

#[test]
fn a_pause_sees_what_has_come_and_grown_since_the_files_were_listed() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 3000) i";
    let sql = format!("CREATE TABLE a AS {rows}");
    source.server.sql("postgres", &sql);
    source
        .server
        .sql("postgres", "SELECT lo_from_bytea(1, 'x')");
    let is_over = AtomicBool::new(false);
    let made: Vec<_> = std::thread::scope(|scope| {
        scope.spawn(|| grow(&source, &is_over));
        let made = (0..9).map(|turn| match turn % 3 {
            0 => source.late(&format!("s{turn}")),
            1 => source.pause(&format!("s{turn}")),
            _ => source.late_window(&format!("s{turn}")),
        });
        let made = made.collect();
        is_over.store(true, Ordering::Relaxed);
        made
    });
    let busiest = made.iter().map(|it: &Snapshot| it.made.files_in_pause);
    assert!(busiest.max().unwrap_or(0) > 0);
    // All files of each are there, under their own names or in the graveyards.
    source.server.stop("fast");
    source.server.run();
    for snapshot in &made {
        let lost = hook::state(&snapshot.directory).unwrap().lost;
        assert_eq!(lost, None, "{:?}", snapshot.made);
        let view = source.view(snapshot);
        // Each turn adds its rows as a whole.
        let sql = "SELECT (count(*) - 3000) % 2000, sum(length(x)) FROM a";
        let sums = view.sql("postgres", sql);
        assert!(sums.starts_with("0|"), "{sums}");
        let tables = "SELECT relname FROM pg_class WHERE relname ~ '^n[0-9]+$'";
        for table in view.sql("postgres", tables).lines() {
            let count = view.sql("postgres", &format!("SELECT count(*) FROM {table}"));
            assert_eq!(count, "500");
        }
    }
}

#[test]
fn a_pause_looks_only_at_what_has_changed() {
    let source = source();
    let quiet = source.late("one");
    assert!(quiet.made.linked_files > 1000);
    // The server itself writes about its sessions now and then.
    assert!(quiet.made.files_in_pause < 50, "{:?}", quiet.made);
    let linked = source.pause("two");
    assert!(linked.made.files_in_pause < 50, "{:?}", linked.made);
}
