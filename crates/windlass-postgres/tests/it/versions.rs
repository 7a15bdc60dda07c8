//! The other supported versions of PostgreSQL. Each has its own functions, manifest and layout.
//!
//! WINDLASS_TEST_PG_BINDIRS says where they are (`14=/dir:17=/dir`). WINDLASS_TEST_PG_CLIENTS says
//! where the `pg_verifybackup` of the newest versions is (`18=/dir`). `scripts/test` installs both.
//! The newest version comes from Debian's unstable suites. At times these lack some packages. Then
//! `scripts/test` says so, and the tests run without that version.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_postgres::{Cluster, MAJOR_OLDEST};
use windlass_testkit::installed::{clients, other_versions};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, restore_set, try_backup};

/// The newest version that the tests can always use.
const MAJOR_STABLE: u32 = 18;

pub fn versions() -> Vec<(u32, PathBuf)> {
    let versions = other_versions();
    for needed in [MAJOR_OLDEST, MAJOR_STABLE] {
        assert!(
            versions.iter().any(|(major, _)| *major == needed),
            "no {needed} in {versions:?}"
        );
    }
    versions
}

/// Checks the manifest with PostgreSQL's own tool, if the tool understands the manifest's version.
/// Also checks that this server writes manifests of that version.
pub fn check_manifest(source: &PrivateCluster, major: u32, restored: &Path) {
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
    } else {
        // The tool's pg_waldump has another version than the log, so it checks everything else.
        let mut verify = source.tool("pg_verifybackup");
        succeed(verify.arg("--no-parse-wal").arg(restored));
    }
    // The tool of the server's own version also checks the log.
    for (_, bin) in own_clients(major) {
        let mut verify = Command::new(bin.join("pg_verifybackup"));
        let said = succeed(verify.arg(restored));
        assert!(said.contains("successfully verified"), "{said}");
    }
}

pub fn own_clients(major: u32) -> Vec<(u32, PathBuf)> {
    let clients = clients();
    assert!(clients.iter().any(|(major, _)| *major == MAJOR_STABLE));
    clients.into_iter().filter(|(of, _)| *of == major).collect()
}

/// A wrong manifest of version 2 must fail the check. This tests the checking tool itself.
fn check_judge(major: u32, restored: &Path) {
    for (_, bin) in own_clients(major) {
        let path = restored.join("backup_manifest");
        let right = std::fs::read(&path).unwrap();
        let text = String::from_utf8(right.clone()).unwrap();
        let identifier = text.split("\"System-Identifier\": ").nth(1).unwrap();
        let digit = identifier.as_bytes()[0];
        let wrong = text.replacen(
            &format!("\"System-Identifier\": {}", char::from(digit)),
            &format!("\"System-Identifier\": {}", char::from(digit ^ 1)),
            1,
        );
        write(&path, wrong.as_bytes());
        let verify = Command::new(bin.join("pg_verifybackup"))
            .arg(restored)
            .output();
        assert!(!verify.unwrap().status.success(), "a wrong manifest passed");
        write(&path, &right);
    }
}

#[expect(clippy::disallowed_methods, reason = "a fixture needs no durability")]
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
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
    check_judge(major, &into);
    assert_eq!(into.join("pg_wal/summaries").exists(), major >= 17);
    let server = PrivateCluster::adopt(&into, bin);
    assert_eq!(server.sql("postgres", "SELECT sum(i) FROM t"), "1250025000");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM u"), "0");
    // VACUUM reads every page through the server, which checks each checksum.
    server.sql("postgres", "VACUUM (FREEZE, DISABLE_PAGE_SKIPPING)");
}

#[test]
fn every_supported_version_is_backed_up_and_starts_again() {
    become_server_user();
    for (major, bin) in versions() {
        round_trip(major, &bin);
    }
}
