//! Backups taken from a standby.

use std::path::Path;

use windlass_postgres::{PostgresError, WindowCause};
use windlass_testkit::gate::Gate;
use windlass_testkit::load::Load;
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
    let load = Load::start(&primary, 2);
    let wish = Wish {
        source_rate: Some(16 << 20),
        ..Wish::default()
    };
    // The standby's start waits for a restartpoint, and that needs a checkpoint of the primary.
    primary.sql("postgres", "CHECKPOINT");
    let outcome = try_backup(&standby, &set, &wish);
    load.end();
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
        AND (SELECT sum(abalance) FROM pgbench_accounts) = \
        (SELECT sum(delta) FROM pgbench_history)";
    assert_eq!(server.sql("postgres", sums), "t");
}

#[test]
fn a_standby_that_follows_a_switch_during_its_backup_keeps_both_timelines() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (primary, middle) = pair(place.path());
    let copy = place.path().join("last");
    primary.sql("postgres", "CHECKPOINT");
    let mut tool = middle.tool("pg_basebackup");
    succeed(
        tool.args(["--checkpoint=fast", "--no-sync", "-R", "-D"])
            .arg(&copy),
    );
    let last = PrivateCluster::adopt(&copy, primary.bin());
    let set = place.path().join("set");
    // The last standby may take seconds to find the new timeline, and the copy waits for it.
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&last, &set, &wish));
        gate.wait_reached();
        primary.sql("postgres", "CREATE TABLE before_switch AS SELECT 1");
        let sent = primary.sql("postgres", "SELECT pg_current_wal_lsn()");
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{sent}'");
        middle.wait_until(&replayed, "t");
        middle.sql("postgres", "SELECT pg_promote()");
        middle.sql("postgres", "CREATE TABLE after_switch AS SELECT 1");
        middle.sql("postgres", "CHECKPOINT");
        let sent = middle.sql("postgres", "SELECT pg_current_wal_lsn()");
        last.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{sent}'"), "t");
        // A restartpoint: the last standby records how far it has replayed, and on which timeline.
        last.sql("postgres", "CHECKPOINT");
        gate.open();
        backup.join().unwrap().unwrap()
    });
    let timelines: Vec<u32> = outcome
        .facts
        .wal
        .iter()
        .map(|range| range.timeline.0)
        .collect();
    assert_eq!(timelines, [1, 2], "{:?}", outcome.facts.wal);

    let server = restore_and_judge(&last, &set, &place.path().join("restored"), &[]);
    assert_eq!(
        server.sql("postgres", "SELECT 1 FROM before_switch, after_switch"),
        "1"
    );
}

#[test]
fn a_standby_promoted_during_its_backup_is_an_error() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (primary, standby) = pair(place.path());
    primary.sql("postgres", "CHECKPOINT");
    let set = place.path().join("set");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&standby, &set, &wish));
        gate.wait_reached();
        standby.sql("postgres", "SELECT pg_promote()");
        gate.open();
        backup.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, PostgresError::Promoted), "{error}");
    assert!(holds_no_set(&set));
}

/// On the standby, the database is copied by replay. Its second window begins behind a checkpoint
/// that the standby has replayed.
#[test]
fn a_database_copied_on_the_primary_makes_the_backup_of_a_standby_begin_again() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let (primary, standby) = pair(place.path());
    primary.sql("postgres", "CREATE DATABASE tpl");
    let fill = "CREATE TABLE t AS SELECT i, md5(i::text) FROM generate_series(1, 20000) i";
    primary.sql("tpl", fill);
    let replay = || {
        primary.sql("postgres", "CHECKPOINT");
        let sent = primary.sql("postgres", "SELECT pg_current_wal_lsn()");
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{sent}'");
        standby.wait_until(&replayed, "t");
    };
    replay();
    let set = place.path().join("set");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&standby, &set, &wish));
        gate.wait_reached();
        let copy = "CREATE DATABASE cpy TEMPLATE tpl STRATEGY file_copy";
        primary.sql("postgres", copy);
        primary.sql("postgres", "DROP DATABASE tpl");
        replay();
        gate.open();
        backup.join().unwrap().unwrap()
    });
    let earlier = &outcome.facts.earlier_windows;
    assert_eq!(earlier.len(), 1, "{earlier:?}");
    let WindowCause::DatabaseCopied { lsn, .. } = &earlier[0].cause else {
        panic!("{earlier:?}");
    };
    // It may begin before the first window ended, but not before what made it necessary.
    assert!(outcome.facts.start_lsn > *lsn, "{earlier:?}");

    let into = place.path().join("restored");
    let server = restore_and_judge(&standby, &set, &into, &[]);
    assert_eq!(server.sql("cpy", "SELECT count(*) FROM t"), "20000");
    assert!(!server.try_sql("tpl", "SELECT 1").status.success());
}
