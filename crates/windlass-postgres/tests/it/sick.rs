//! File systems whose lists leave entries out: the backup finds what they hide, or fails.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use windlass_postgres::PostgresError;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};
use windlass_testkit::sick::SickDirectory;

use crate::support::{Wish, holds_no_set, restore_and_judge, try_backup};

/// A cluster with a database that nobody writes to, and the path of its table.
fn cluster() -> (tempfile::TempDir, PrivateCluster, PathBuf) {
    become_server_user();
    let source = PrivateCluster::start(&ClusterOptions::default().setting("autovacuum = off"));
    source.sql("postgres", "CREATE DATABASE quiet");
    source.sql(
        "quiet",
        "CREATE TABLE t AS SELECT generate_series(1, 5000) i",
    );
    source.sql("quiet", "VACUUM FREEZE");
    let path = source.sql("quiet", "SELECT pg_relation_filepath('t')");
    source.sql("postgres", "CHECKPOINT");
    let path = source.data().join(path);
    (tempfile::tempdir().unwrap(), source, path)
}

fn hide(path: &Path, reads: u32) -> SickDirectory {
    let hidden = path.file_name().unwrap().to_owned();
    let leaves_out = move |read, name: &OsStr| read < reads && name == hidden;
    SickDirectory::cover(path.parent().unwrap(), Box::new(leaves_out))
}

#[test]
fn a_table_that_one_list_leaves_out_is_in_the_set() {
    let (place, source, table) = cluster();
    let set = place.path().join("set");
    let sick = hide(&table, 1);
    try_backup(&source, &set, &Wish::default()).unwrap();
    drop(sick);
    let restored = restore_and_judge(&source, &set, &place.path().join("restored"), &[]);
    assert_eq!(restored.sql("quiet", "SELECT count(*) FROM t"), "5000");
}

#[test]
fn a_table_that_every_list_leaves_out_fails_the_backup() {
    let (place, source, table) = cluster();
    let set = place.path().join("set");
    let sick = hide(&table, u32::MAX);
    let error = try_backup(&source, &set, &Wish::default()).unwrap_err();
    drop(sick);
    assert!(
        matches!(&error, PostgresError::Unlisted { path } if *path == table),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("file system"));
    assert!(holds_no_set(&set));
    try_backup(&source, &set, &Wish::default()).unwrap();
}

#[test]
fn a_database_that_every_list_leaves_out_fails_the_backup() {
    let (place, source, table) = cluster();
    let set = place.path().join("set");
    let database = table.parent().unwrap();
    let sick = hide(database, u32::MAX);
    let error = try_backup(&source, &set, &Wish::default()).unwrap_err();
    drop(sick);
    assert!(
        matches!(&error, PostgresError::Unlisted { path } if path == database),
        "{error}"
    );
    assert!(holds_no_set(&set));
}

/// No name can be looked up there either, so the directory looks as if the server had emptied it.
#[test]
fn a_cluster_without_its_newest_multixacts_is_not_sealed() {
    let (place, source, _) = cluster();
    for directory in ["pg_multixact/offsets", "pg_multixact/members"] {
        let set = place.path().join("set");
        let (there, away) = (source.data().join(directory), place.path().join("away"));
        std::fs::rename(&there, &away).unwrap();
        std::fs::create_dir(&there).unwrap();
        let error = try_backup(&source, &set, &Wish::default()).unwrap_err();
        std::fs::remove_dir_all(&there).unwrap();
        std::fs::rename(&away, &there).unwrap();
        let expected = format!("the copy is not a whole cluster: it holds no {directory}/0000");
        assert_eq!(error.to_string(), expected);
        assert!(holds_no_set(&set));
    }
}
