//! Images that are no sets are opened: a restored directory, with the facts of its set.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use windlass_engine::media::Facts;
use windlass_engine::{Cancel, METADATA_LIMIT_DEFAULT, OpenSet};
use windlass_image::{CompareOptions, DirectoryImage, compare};
use windlass_operations::{Observer, OpenSettings, Opened, OperationError, ToOpen, Unobserved};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, server_ids, succeed};

use crate::clusters::{back_up, directory, place};
use crate::opening::{Scratch, open_to_all};
use crate::support::{Place, text, windlass};

fn settings(scratch: &Path, writable: bool) -> OpenSettings {
    OpenSettings {
        scratch: Some(scratch.to_owned()),
        cache_bytes: 1 << 24,
        bindir: None,
        preload: String::new(),
        settings: Vec::new(),
        role: None,
        run_as: None,
        port: None,
        listen: String::new(),
        writable,
        name: None,
    }
}

fn facts(set: &str) -> Facts {
    let set = OpenSet::open(&[PathBuf::from(set)], METADATA_LIMIT_DEFAULT).unwrap();
    set.description().facts.clone()
}

fn open(what: &ToOpen, settings: &OpenSettings) -> Result<Opened, OperationError> {
    let observer: Arc<dyn Observer> = Arc::new(Unobserved);
    Opened::open(&observer, what, settings, &Cancel::new())
}

/// What a query of an opened cluster answers.
fn answer(cluster: &PrivateCluster, opened: &Opened, sql: &str) -> String {
    let Opened::Postgres { server, .. } = opened else {
        panic!("no cluster")
    };
    let mut psql: Command = cluster.tool("psql");
    psql.arg(server.connection().conninfo());
    succeed(psql.args(["-XqAtv", "ON_ERROR_STOP=1", "-c", sql]))
        .trim()
        .to_owned()
}

#[test]
fn a_restored_cluster_is_opened_from_its_directory_and_stays_as_it_is() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    let space = directory(place.path(), "space");
    let sql = |text: &str| source.sql("postgres", text);
    sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'",
        space.display()
    ));
    sql("CREATE TABLE t TABLESPACE s AS SELECT generate_series(1, 9000) i");
    let oid = sql("SELECT oid FROM pg_tablespace WHERE spcname = 's'");
    let set = back_up(&source, place.path(), &[]);
    let home = directory(place.path(), "restored");
    let (into, moved) = (home.join("data"), home.join("space"));
    let map = format!("{}={}", space.display(), moved.display());
    let words = [
        "restore",
        &set,
        "--into",
        into.to_str().unwrap(),
        "--tablespace-map",
        &map,
    ];
    let output = Scratch::new().run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));

    let mounts = [(format!("pg_tblspc/{oid}").into_bytes(), moved)];
    let image = || Arc::new(DirectoryImage::open_with(&into, &mounts).unwrap());
    let before = image();
    let scratch = directory(place.path(), "scratch");
    open_to_all(&scratch, 0o755);
    for writable in [false, true] {
        let what = ToOpen::image(image(), facts(&set), "restored", server_ids()).unwrap();
        let opened = open(&what, &settings(&scratch, writable)).unwrap();
        assert_eq!(answer(&source, &opened, "SELECT sum(i) FROM t"), "40504500");
        if writable {
            answer(&source, &opened, "DELETE FROM t; CHECKPOINT");
            assert_eq!(answer(&source, &opened, "SELECT count(*) FROM t"), "0");
        }
        assert!(!opened.close().unwrap());
    }
    let differences = compare(&*before, &*image(), &CompareOptions::default()).unwrap();
    assert!(differences.is_empty(), "{differences:?}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn a_restored_database_file_is_opened_from_its_directory() {
    let place = Place::new();
    let set = place.back_up();
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let words = ["restore", set.to_str().unwrap(), "--into"];
    let output = windlass(&[&words[..], &[home.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let facts = facts(set.to_str().unwrap());
    let image = Arc::new(DirectoryImage::open(&home).unwrap());
    let what = ToOpen::image(image, facts.clone(), "restored", None).unwrap();
    let opened = open(&what, &settings(&place.path("sets"), false)).unwrap();
    let Opened::Sqlite { database, .. } = &opened else {
        panic!("no database")
    };
    assert!(windlass_sqlite::is_sqlite(database).unwrap());
    assert!(!opened.close().unwrap());
    // Facts of one kind do not make an image of another kind.
    let image = Arc::new(DirectoryImage::open(place.dir.path()).unwrap());
    assert!(ToOpen::image(image, facts, "other files", None).is_err());
}
