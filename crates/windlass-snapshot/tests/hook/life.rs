//! Snapshots by the hook from the name to the drop, as the operations make them.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use windlass_engine::media::{FileEntry, FileKind, crc32c};
use windlass_engine::{Cancel, Progress};
use windlass_postgres::{BackupRequest, Cluster};
use windlass_snapshot::hook::{self, HookStart, PostgresHook};
use windlass_snapshot::{
    Back, ClusterBack, Content, Entry, Maker, Method, Obstacle, Place, PostgresCopy, Snapshot,
    SnapshotError, SnapshotName, Source as Of, State, choose, create,
};
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster};

use crate::support::Source;

fn makers(server: &PrivateCluster) -> Vec<Box<dyn Maker>> {
    let cluster = || Cluster::connect(&server.conninfo()).unwrap();
    let (request, start) = (BackupRequest::default(), HookStart::default());
    vec![
        Box::new(PostgresHook::new(cluster(), request, start)),
        Box::new(PostgresCopy::new(cluster(), BackupRequest::default())),
    ]
}

fn make(source: &Source, name: &str) -> Snapshot {
    made_by(&source.server, name, makers(&source.server))
}

fn made_by(server: &PrivateCluster, name: &str, makers: Vec<Box<dyn Maker>>) -> Snapshot {
    let place = Place::beside(server.data()).unwrap();
    let name = SnapshotName::parse(name).unwrap();
    let reserved = place.reserve(&name, None, &mut |_| ()).unwrap();
    let mut chosen = choose(makers, None, reserved.directory()).unwrap();
    assert_eq!(chosen.maker.method(), Method::Hook, "the cheapest method");
    let of = Of {
        kind: "postgresql".to_owned(),
        path: server.data().to_owned(),
    };
    let progress = Arc::<Progress>::default();
    let made = create(reserved, &mut *chosen.maker, of, &progress, &Cancel::new());
    made.unwrap().snapshot
}

/// Bytes of the file with the version, from a snapshot's image.
fn version(snapshot: &Snapshot) -> Vec<u8> {
    let Content::Files(image) = snapshot.content().unwrap() else {
        panic!("a snapshot by the hook is no set");
    };
    let files = &image.files().0;
    let entry = files.iter().find(|entry| entry.path == b"PG_VERSION");
    let entry = entry.unwrap().clone();
    let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
    image.read(entry.file, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn snapshots_are_made_listed_read_and_dropped() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    source
        .server
        .sql("postgres", "CREATE TABLE t AS SELECT 1 AS i");
    let place = Place::beside(source.server.data()).unwrap();
    let snapshot = make(&source, "one");
    make(&source, "two");
    let steps: Vec<_> = snapshot
        .record()
        .steps
        .iter()
        .map(|step| &step.name)
        .collect();
    assert!(steps.len() > 5, "{steps:?}");
    assert_eq!(version(&snapshot), b"15\n");
    assert_eq!(place.list().unwrap().len(), 2);
    let name = |text: &str| SnapshotName::parse(text).unwrap();
    place.remove(&name("one"), &mut |_| ()).unwrap();
    assert_eq!(version(&place.find(&name("two")).unwrap()), b"15\n");
    place.remove(&name("two"), &mut |_| ()).unwrap();
    assert!(
        !place.home().exists(),
        "the store and the place go with the last snapshot"
    );
}

#[test]
fn log_that_the_server_did_not_use_takes_no_room_in_a_snapshot() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    source
        .server
        .sql("postgres", "CREATE TABLE t AS SELECT 4711 AS i");
    let snapshot = source.snapshot("one");
    let copies = std::fs::read_dir(snapshot.directory.join("copied")).unwrap();
    let copies = copies.map(|entry| entry.unwrap().metadata().unwrap());
    let of_copy = |found: std::fs::Metadata| (found.len(), found.blocks() * 512);
    let (lengths, allocated): (Vec<u64>, Vec<u64>) = copies.map(of_copy).unzip();
    // The server writes little, and ends the segment early.
    let segment = 16 << 20;
    assert!(lengths.contains(&segment), "{lengths:?}");
    assert!(allocated.iter().sum::<u64>() < segment / 2, "{allocated:?}");
    let view = source.view(&snapshot);
    assert_eq!(view.sql("postgres", "SELECT i FROM t"), "4711");
}

#[test]
fn a_list_shows_a_snapshot_that_was_lost() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    source.server.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 1000) AS i",
    );
    let snapshot = make(&source, "one");
    windlass_snapshot::hook::give_up(&snapshot.path().join("hook")).unwrap();
    let place = Place::beside(source.server.data()).unwrap();
    let listed = place.list().unwrap();
    let [Entry::Snapshot(found)] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert!(matches!(found.record().state, State::Lost { .. }));
    assert!(matches!(found.content(), Err(SnapshotError::Lost { .. })));
    place
        .remove(&SnapshotName::parse("one").unwrap(), &mut |_| ())
        .unwrap();
}

/// The shared memory is found by the number of the data directory, which stays.
#[test]
fn a_cluster_that_is_made_anew_in_its_directory_does_not_have_the_snapshots_of_the_old_one() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let old = source.snapshot("old");
    source.server.stop("fast");
    source.make_anew();
    let state = |snapshot: &crate::support::Snapshot| hook::state(&snapshot.directory).unwrap();
    assert!(state(&old).lost.is_some(), "before the first server");
    source.server.run();
    assert!(state(&old).lost.is_some());
    let table = "CREATE TABLE t AS SELECT i, 'old' AS x FROM generate_series(1, 5000) i";
    source.server.sql("postgres", table);
    let new = source.snapshot("new");
    source.server.sql("postgres", "UPDATE t SET x = 'new'");
    source.server.sql("postgres", "CHECKPOINT");
    assert_eq!(state(&new).lost, None);
    let view = source.view(&new);
    let count = view.sql("postgres", "SELECT count(*) FROM t WHERE x = 'old'");
    assert_eq!(count, "5000");
}

#[test]
fn without_the_hook_the_next_method_is_taken_and_the_reason_is_told() {
    let server = PrivateCluster::start(&Default::default());
    let place = tempfile::tempdir().unwrap();
    let chosen = choose(makers(&server), None, place.path()).unwrap();
    assert_eq!(chosen.maker.method(), Method::Copy);
    let passed = &chosen.passed_over[0];
    assert!(
        matches!(passed.obstacle, Obstacle::NoHook { .. }),
        "{passed:?}"
    );
}

#[test]
fn a_method_that_the_kind_of_database_does_not_have_is_refused() {
    let server = PrivateCluster::start(&Default::default());
    let place = tempfile::tempdir().unwrap();
    let chosen = choose(makers(&server), Some(Method::Clone), place.path());
    let error = chosen.err().unwrap();
    let is_refused = matches!(
        error,
        SnapshotError::Method {
            obstacle: Obstacle::OtherDatabase,
            ..
        }
    );
    assert!(is_refused, "{error}");
}

/// Snapshots of a moment without links, of a database that goes back to the older one: what the
/// revert removes and overwrites is still in the newer one.
#[test]
fn a_cluster_goes_back_to_a_snapshot_without_links_and_a_newer_one_stays() {
    let source = Source::start(DEFAULT_BIN.as_ref());
    let server = &source.server;
    let rows = "AS SELECT i, md5(i::text) AS x FROM generate_series(1, 3000) i";
    for table in ["updated", "dropped", "emptied"] {
        server.sql("postgres", &format!("CREATE TABLE {table} {rows}"));
    }
    let place = Place::beside(server.data()).unwrap();
    let late = |name: &str| {
        let cluster = Cluster::connect(&server.conninfo()).unwrap();
        let hook = PostgresHook::new(cluster, BackupRequest::default(), HookStart::Pause);
        made_by(&source.server, name, vec![Box::new(hook.links_max(0))])
    };
    let hash = "SELECT (SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t), \
         (SELECT count(*) FROM dropped), (SELECT count(*) FROM emptied)";
    let before = server.sql("postgres", hash);
    let older = late("older");
    for sql in [
        "UPDATE updated SET x = 'changed'",
        "DROP TABLE dropped",
        "TRUNCATE emptied",
        "CREATE TABLE later AS SELECT generate_series(1, 2000) AS i",
        "CHECKPOINT",
    ] {
        server.sql("postgres", sql);
    }
    let newer = late("newer");
    let sums = |snapshot: &Snapshot| crate::support::sums(&snapshot.path().join("hook"));
    let kept = sums(&newer);
    let back = ClusterBack::new(server.data()).unwrap();
    let (progress, cancel) = (Progress::default(), Cancel::new());
    let went = back.run(&place, (&older, Back::ToSnapshot), &progress, &cancel);
    let state = went.unwrap().kept.unwrap();
    assert_eq!(server.sql("postgres", hash), before);
    assert!(sums(&newer) == kept);
    server.sql("postgres", "DROP TABLE dropped; CHECKPOINT");
    assert!(sums(&newer) == kept);
    back.run(&place, (&older, Back::ToState(state)), &progress, &cancel)
        .unwrap();
    let count = server.sql("postgres", "SELECT count(*) FROM later");
    assert_eq!(count, "2000");
    assert!(sums(&newer) == kept);
    for name in ["older", "newer"] {
        let name = SnapshotName::parse(name).unwrap();
        place.remove(&name, &mut |_| ()).unwrap();
    }
    let links = server.data().join("pg_subtrans/windlass");
    assert_eq!(std::fs::read_dir(links).unwrap().count(), 0);
}

/// A checksum of each file of a snapshot.
fn sums(snapshot: &Snapshot) -> Vec<(String, u32)> {
    let Content::Files(image) = snapshot.content().unwrap() else {
        panic!("a snapshot by the hook is no set");
    };
    let files = image.files().0.iter();
    let files = files.filter(|entry| entry.kind == FileKind::File);
    let sum = |entry: &FileEntry| {
        let mut bytes = vec![0; usize::try_from(entry.bytes).unwrap()];
        image.read(entry.file, 0, &mut bytes).unwrap();
        (entry.path_lossy(), crc32c(&bytes))
    };
    files.map(sum).collect()
}

/// The server has its snapshots by the number of its data directory, whatever that is called.
#[test]
fn a_data_directory_with_another_name_has_its_snapshots_and_drops_them_in_the_server() {
    let mut source = Source::start(DEFAULT_BIN.as_ref());
    let old = source.server.data().to_owned();
    let home = Place::beside(&old).unwrap().home().to_owned();
    let make = |server: &PrivateCluster, name: &str| {
        let cluster = Cluster::connect(&server.conninfo()).unwrap();
        let hook = PostgresHook::new(cluster, BackupRequest::default(), HookStart::default());
        let place = Place::beside(server.data()).unwrap();
        made_by(server, name, vec![Box::new(hook.among(place.home()))])
    };
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 2000) i";
    source
        .server
        .sql("postgres", &format!("CREATE TABLE t AS {rows}"));
    let before = sums(&make(&source.server, "one"));
    make(&source.server, "other");
    source.server.stop("fast");
    // Beside the old name, and where nobody looks who did not learn it.
    let elsewhere = old.with_file_name("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for new in [old.with_file_name("moved"), elsewhere.join("moved")] {
        std::fs::rename(&old, &new).unwrap();
        let mut server = PrivateCluster::adopt_stopped(&new, source.server.bin());
        server.run();
        server.sql("postgres", "UPDATE t SET x = md5(x)");
        server.sql("postgres", "CHECKPOINT");
        let place = Place::beside(&new).unwrap();
        let name = |name: &str| SnapshotName::parse(name).unwrap();
        let one = place.find(&name("one")).unwrap();
        assert_eq!(one.record().state, State::Kept);
        // Whoever lists it reads the document once, whatever he asks then.
        let document = one.path().join("hook/hook.json");
        let aside = document.with_extension("aside");
        std::fs::rename(&document, &aside).unwrap();
        assert_eq!(place.owner_of(&one), None);
        assert!(one.growth().unwrap().grown_bytes > 0);
        assert!(one.disk_bytes().unwrap() > 0);
        std::fs::rename(&aside, &document).unwrap();
        assert!(sums(&one) == before, "{}", new.display());
        // One that is made under this name, and one that was made under the old one.
        make(&server, "more");
        if place.has(&name("other")) {
            place.remove(&name("other"), &mut |_| ()).unwrap();
        }
        let place = Place::beside(&new).unwrap();
        assert!(!hook::missed(&new, place.home()).unwrap().has_any());
        server.stop("fast");
        std::fs::rename(&new, &old).unwrap();
        let place = Place::beside(&old).unwrap();
        let more = place.find(&name("more")).unwrap();
        assert_eq!(more.record().state, State::Kept);
        place.remove(&name("more"), &mut |_| ()).unwrap();
        assert!(!hook::missed(&old, place.home()).unwrap().has_any());
        assert!(!Place::beside(&new).unwrap().home().exists());
    }
    let place = Place::beside(&old).unwrap();
    let one = SnapshotName::parse("one").unwrap();
    place.remove(&one, &mut |_| ()).unwrap();
    assert!(!home.exists());
}
