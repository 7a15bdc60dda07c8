//! Databases that vanish while they are copied: the set is right if they are gone when the backup
//! stops.
//!
//! The backup reads slowly, one database after the other. So when something happens to several
//! databases, the files of all but the first are still unread.

use std::path::PathBuf;

use windlass_postgres::{BackupOutcome, Cluster, PostgresError, Warning};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::refusals::IN_BACKUP;
use crate::support::{
    Wish, backup_connected, check_relations, holds_no_set, restore_set, try_backup, verify_backup,
};

const CRAWL: u64 = 2 << 20;
const GOING: [&str; 3] = ["first", "second", "third"];
/// Returns 1 while a backup waits for databases to be dropped.
const IS_WAITING: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE application_name = 'windlass' AND query LIKE '%dattablespace%'";

fn cluster() -> (tempfile::TempDir, PrivateCluster) {
    become_server_user();
    let source = PrivateCluster::start(&ClusterOptions::default());
    for database in GOING {
        source.sql("postgres", &format!("CREATE DATABASE {database}"));
    }
    (tempfile::tempdir().unwrap(), source)
}

/// The directories of the databases that are being dropped.
fn directories(source: &PrivateCluster) -> Vec<PathBuf> {
    let sql = "SELECT oid FROM pg_database WHERE datname IN ('first', 'second', 'third')";
    let oids = source.sql("postgres", sql);
    let base = source.data().join("base");
    oids.lines().map(|oid| base.join(oid)).collect()
}

/// Takes a slow backup and runs `disturb` during it.
fn backup_while(
    source: &PrivateCluster,
    place: &tempfile::TempDir,
    disturb: impl FnOnce(),
) -> Result<BackupOutcome, PostgresError> {
    let wish = Wish {
        source_rate: Some(CRAWL),
        ..Wish::default()
    };
    let set = place.path().join("set");
    std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(source, &set, &wish));
        source.wait_until(IN_BACKUP, "1");
        disturb();
        backup.join().unwrap()
    })
}

fn drop_all(source: &PrivateCluster) {
    for database in GOING {
        source.sql("postgres", &format!("DROP DATABASE {database}"));
    }
}

/// Restores the set, and checks every database that is left.
fn judge(source: &PrivateCluster, place: &tempfile::TempDir) {
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    verify_backup(source, &into);
    let server = PrivateCluster::adopt(&into, source.bin());
    check_relations(&server);
    let databases = "SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database";
    let left = server.sql("postgres", databases);
    assert_eq!(left, "postgres,template0,template1");
}

#[test]
fn a_dropped_database_is_no_fault_though_its_directory_is_there_again() {
    let (place, source) = cluster();
    let directories = directories(&source);
    let outcome = backup_while(&source, &place, || {
        drop_all(&source);
        for directory in &directories {
            std::fs::create_dir(directory).unwrap();
        }
    });
    assert_eq!(outcome.unwrap().facts.warnings, []);
    judge(&source, &place);
}

#[test]
fn a_backup_waits_for_databases_whose_files_have_gone_to_be_dropped() {
    let (place, source) = cluster();
    let directories = directories(&source);
    let outcome = backup_while(&source, &place, || {
        for directory in &directories {
            std::fs::remove_file(directory.join("PG_VERSION")).unwrap();
        }
        source.wait_until(IS_WAITING, "1");
        drop_all(&source);
    });
    assert_eq!(outcome.unwrap().facts.warnings, []);
    judge(&source, &place);
}

#[test]
fn a_database_that_was_being_dropped_when_the_backup_began_is_no_fault() {
    let (place, source) = cluster();
    // The server removes the files first, and the row afterwards.
    for directory in directories(&source) {
        std::fs::remove_file(directory.join("PG_VERSION")).unwrap();
    }
    let outcome = backup_while(&source, &place, || drop_all(&source));
    assert_eq!(outcome.unwrap().facts.warnings, []);
    judge(&source, &place);
}

/// The server gives numbers out again when it has used all of them, and pg_upgrade names them.
#[test]
fn a_database_that_got_the_number_of_a_dropped_one_is_no_database_without_files() {
    let (place, source) = cluster();
    let directories = directories(&source);
    for directory in &directories {
        std::fs::remove_file(directory.join("PG_VERSION")).unwrap();
    }
    let outcome = backup_while(&source, &place, || {
        drop_all(&source);
        for (directory, name) in directories.iter().zip(GOING) {
            let number = directory.file_name().unwrap().to_str().unwrap();
            let create = format!("CREATE DATABASE {name} OID = {number}");
            source.sql("postgres", &create);
        }
    });
    assert_eq!(outcome.unwrap().facts.warnings, []);
    let into = place.path().join("restored");
    restore_set(&place.path().join("set"), &into, &[]);
    let server = PrivateCluster::adopt(&into, source.bin());
    for database in GOING {
        assert_eq!(server.sql(database, "SELECT 1"), "1");
    }
}

#[test]
fn a_database_that_is_there_without_its_files_fails_the_backup() {
    let (place, source) = cluster();
    let directories = directories(&source);
    let error = backup_while(&source, &place, || {
        for directory in &directories {
            std::fs::rename(directory, directory.with_extension("aside")).unwrap();
        }
    });
    let error = error.unwrap_err();
    assert!(matches!(error, PostgresError::Vanished { .. }), "{error}");
    assert!(holds_no_set(&place.path().join("set")));
    // The files were missing from the start: the set is like the source, and warns about it.
    for directory in &directories[1..] {
        std::fs::rename(directory.with_extension("aside"), directory).unwrap();
    }
    let outcome = try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    let warnings = outcome.facts.warnings;
    let [Warning::DatabaseWithoutFiles { database }] = &warnings[..] else {
        panic!("{warnings:?}");
    };
    assert!(GOING.contains(&database.as_str()));
}

/// The server removes a tablespace's link first, and its row afterwards. In between it cannot say
/// where the tablespace is.
#[test]
fn a_tablespace_that_was_being_dropped_when_the_backup_began_is_no_fault() {
    let (place, source) = cluster();
    let location = place.path().join("space");
    std::fs::create_dir(&location).unwrap();
    let make = format!("CREATE TABLESPACE going LOCATION '{}'", location.display());
    source.sql("postgres", &make);
    let oid = source.sql(
        "postgres",
        "SELECT oid FROM pg_tablespace WHERE spcname = 'going'",
    );
    let link = source.data().join("pg_tblspc").join(oid);
    let away = place.path().join("link");
    std::fs::rename(&link, &away).unwrap();
    let mut connected = Cluster::connect(&source.conninfo()).unwrap();
    std::fs::rename(&away, &link).unwrap();
    source.sql("postgres", "DROP TABLESPACE going");
    drop_all(&source);
    let set = place.path().join("set");
    let outcome = backup_connected(&mut connected, &set, &Wish::default()).unwrap();
    assert_eq!(outcome.facts.warnings, []);
    assert_eq!(outcome.facts.tablespaces, []);
    judge(&source, &place);
}

#[test]
fn a_catalog_of_databases_without_rows_ends_in_no_panic() {
    become_server_user();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let place = tempfile::tempdir().unwrap();
    // Nobody can connect any more when the rows are gone.
    let mut connected = Cluster::connect(&source.conninfo()).unwrap();
    let empty = "SET allow_system_table_mods = on; DELETE FROM pg_database";
    source.sql("postgres", empty);
    let set = place.path().join("set");
    backup_connected(&mut connected, &set, &Wish::default()).unwrap();
    assert!(!holds_no_set(&set));
}
