//! The other supported versions of PostgreSQL: each has its own functions, manifest and layout.
//!
//! WINDLASS_TEST_PG_BINDIRS says where they are (`14=/dir:17=/dir`); `scripts/test` installs them.

use std::path::{Path, PathBuf};

use windlass_postgres::{Cluster, MAJOR_NEWEST, MAJOR_OLDEST};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, restore_set, try_backup};

pub fn versions() -> Vec<(u32, PathBuf)> {
    let text = std::env::var("WINDLASS_TEST_PG_BINDIRS");
    let text = text.expect("WINDLASS_TEST_PG_BINDIRS is not set: run scripts/test");
    let parse = |pair: &str| {
        let (major, bin) = pair.split_once('=').expect("MAJOR=DIRECTORY");
        (major.parse().expect("a major version"), PathBuf::from(bin))
    };
    let versions: Vec<_> = text.split(':').map(parse).collect();
    for needed in [MAJOR_OLDEST, MAJOR_NEWEST] {
        assert!(
            versions.iter().any(|(major, _)| *major == needed),
            "no {needed} in {text}"
        );
    }
    versions
}

/// What PostgreSQL's own tool says of the manifest, where it understands its version; and that
/// the version is the one this server writes.
fn check_manifest(source: &PrivateCluster, major: u32, restored: &Path) {
    let text = std::fs::read(restored.join("backup_manifest")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let version = &json["PostgreSQL-Backup-Manifest-Version"];
    assert_eq!(*version, if major < 17 { 1 } else { 2 });
    if major >= 17 {
        let identifier = source.sql(
            "postgres",
            "SELECT system_identifier FROM pg_control_system()",
        );
        assert_eq!(json["System-Identifier"].to_string(), identifier);
        return;
    }
    // The log is of another version than the tool's pg_waldump; everything else is checked.
    let mut verify = source.tool("pg_verifybackup");
    succeed(verify.arg("--no-parse-wal").arg(restored));
}

fn round_trip(major: u32, bin: &Path) {
    let place = tempfile::tempdir().unwrap();
    let mut options = ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default()
    };
    options = options.initdb("--data-checksums");
    if major >= 17 {
        options = options.setting("summarize_wal = on");
    }
    let source = PrivateCluster::start(&options);
    let space = place.path().join("space");
    std::fs::create_dir(&space).unwrap();
    source.sql(
        "postgres",
        &format!("CREATE TABLESPACE s LOCATION '{}'", space.display()),
    );
    source.sql(
        "postgres",
        "CREATE TABLE t TABLESPACE s AS SELECT generate_series(1, 50000) i",
    );
    source.sql("postgres", "CREATE UNLOGGED TABLE u AS SELECT 1");
    let facts = Cluster::connect(&source.conninfo())
        .unwrap()
        .facts()
        .clone();
    assert_eq!(facts.major(), major);
    assert!(facts.data_checksums);
    let outcome = try_backup(&source, &place.path().join("set"), &Wish::default()).unwrap();
    assert_eq!(outcome.facts.checksums.pages_bad, 0);
    assert!(outcome.facts.checksums.pages_checked > 500);

    let into = place.path().join("restored");
    let map = [(space, place.path().join("moved"))];
    restore_set(&place.path().join("set"), &into, &map);
    check_manifest(&source, major, &into);
    assert_eq!(into.join("pg_wal/summaries").exists(), major >= 17);
    let server = PrivateCluster::adopt(&into, bin);
    assert_eq!(server.sql("postgres", "SELECT sum(i) FROM t"), "1250025000");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM u"), "0");
    // Reads every page through the server, which checks each checksum.
    server.sql("postgres", "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)");
}

#[test]
fn every_supported_version_is_backed_up_and_starts_again() {
    become_server_user();
    for (major, bin) in versions() {
        round_trip(major, &bin);
    }
}
