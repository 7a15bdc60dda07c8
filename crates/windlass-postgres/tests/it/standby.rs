//! Backups taken from a standby.

use std::path::Path;

use windlass_postgres::PostgresError;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user, succeed};

use crate::support::{Wish, holds_no_set, restore_and_judge, try_backup};

/// A primary with some data, and a standby that follows it.
fn pair(place: &Path) -> (PrivateCluster, PrivateCluster) {
    let primary = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    succeed(
        primary
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    let copy = place.join("standby");
    let mut tool = primary.tool("pg_basebackup");
    succeed(
        tool.args(["--checkpoint=fast", "--no-sync", "-R", "-D"])
            .arg(&copy),
    );
    let standby = PrivateCluster::adopt(&copy, primary.bin());
    (primary, standby)
}

#[test]
fn a_backup_of_a_standby_under_load_restores_consistently() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (primary, standby) = pair(place.path());
    let set = place.path().join("set");
    let mut load = primary.tool("pgbench");
    load.args(["-n", "-c", "2", "-T", "100000", "postgres"]);
    let mut load = load.stdout(std::process::Stdio::null()).spawn().unwrap();
    let wish = Wish {
        source_rate: Some(16 << 20),
        ..Wish::default()
    };
    // The standby's start waits for a restartpoint, which needs a checkpoint of the primary.
    primary.sql("postgres", "CHECKPOINT");
    let outcome = try_backup(&standby, &set, &wish);
    load.kill().unwrap();
    load.wait().unwrap();
    let outcome = outcome.unwrap();
    assert!(outcome.facts.standby);
    assert_eq!(
        outcome.facts.checksums.pages_bad, 0,
        "{:?}",
        outcome.facts.checksums
    );

    let into = place.path().join("restored");
    let server = restore_and_judge(&standby, &set, &into, &[]);
    assert_eq!(server.sql("postgres", "SELECT pg_is_in_recovery()"), "f");
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = \
        (SELECT sum(bbalance) FROM pgbench_branches) AND \
        (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history) \
        AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)";
    assert_eq!(server.sql("postgres", sums), "t");
}

#[test]
fn a_standby_promoted_during_its_backup_is_an_error() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (primary, standby) = pair(place.path());
    primary.sql("postgres", "CHECKPOINT");
    let set = place.path().join("set");
    let wish = Wish {
        source_rate: Some(8 << 20),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&standby, &set, &wish).unwrap_err());
        let started = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'windlass' \
            AND state = 'idle' AND query LIKE '%pg_backup_start%'";
        standby.wait_until(started, "1");
        standby.sql("postgres", "SELECT pg_promote()");
        backup.join().unwrap()
    });
    assert!(matches!(error, PostgresError::Promoted), "{error}");
    assert!(holds_no_set(&set));
}
