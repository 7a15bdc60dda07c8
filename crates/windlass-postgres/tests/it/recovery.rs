//! Restored servers that stop their recovery where they were told to.

use std::path::Path;

use windlass_postgres::{
    Lsn, PostgresError, Recovery, RecoveryAction, RecoveryPoint, RecoveryTimeline, RestoreRequest,
    Timeline,
};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{backup, check_relations, restore_as, verify_backup};

/// A cluster that archives. Its configuration names a target, which only a recovery would use.
fn archiving(archive: &Path) -> PrivateCluster {
    let command = format!("archive_command = 'cp %p {}/%f'", archive.display());
    let options = ClusterOptions::default()
        .setting("archive_mode = on")
        .setting("recovery_target_name = 'of the source'");
    PrivateCluster::start(&options.setting(&command))
}

fn fetching(archive: &Path, point: RecoveryPoint) -> Recovery {
    Recovery {
        fetch: Some(format!("cp {}/%f %p", archive.display())),
        ..Recovery::to(point)
    }
}

/// What came of a recovery: the rows of the table, and whether it takes writes.
fn recovered(
    source: &PrivateCluster,
    set: &Path,
    into: &Path,
    recovery: Recovery,
) -> (PrivateCluster, String) {
    let request = RestoreRequest {
        into: into.into(),
        recovery: Some(recovery),
        ..RestoreRequest::default()
    };
    let plan = restore_as(set, &request).unwrap();
    assert!(plan.next_steps().contains("It recovers up to "));
    verify_backup(source, into);
    let server = PrivateCluster::adopt(into, source.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    let rows = "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t";
    let rows = server.sql("postgres", rows);
    (server, rows)
}

#[test]
fn a_server_recovers_to_each_kind_of_target_and_no_farther() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    let source = archiving(&archive);
    let sql = |text: &str| source.sql("postgres", text);
    sql("CREATE TABLE t AS SELECT 0 AS i");
    let set = place.path().join("set");
    backup(&source, &set);
    let insert = |row: u32| {
        let text = format!("INSERT INTO t VALUES ({row}) RETURNING pg_current_xact_id()");
        sql(&text)
    };
    insert(1);
    let lsn = Lsn::parse(&sql("SELECT pg_current_wal_flush_lsn()")).unwrap();
    insert(2);
    sql("SELECT pg_create_restore_point('it''s here')");
    let transaction: u64 = insert(3).parse().unwrap();
    let iso = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let time = sql(&format!("SELECT {iso}")).parse().unwrap();
    insert(4);
    let given = sql("SELECT pg_walfile_name(pg_switch_wal() - 1)");
    let archived = format!("SELECT last_archived_wal >= '{given}' FROM pg_stat_archiver");
    source.wait_until(&archived, "t");

    let before = Recovery {
        inclusive: false,
        ..fetching(&archive, RecoveryPoint::Transaction(transaction))
    };
    let current = Recovery {
        timeline: RecoveryTimeline::Current,
        ..fetching(&archive, RecoveryPoint::Latest)
    };
    // Without a command it has only the log of the set.
    let own = |point| Recovery::to(point);
    let name = RecoveryPoint::Name("it's here".into());
    for (number, (recovery, rows)) in [
        (own(RecoveryPoint::Immediate), "0"),
        (own(RecoveryPoint::Latest), "0"),
        (fetching(&archive, RecoveryPoint::Immediate), "0"),
        (fetching(&archive, RecoveryPoint::Lsn(lsn)), "0 1"),
        (fetching(&archive, name), "0 1 2"),
        (before, "0 1 2"),
        (
            fetching(&archive, RecoveryPoint::Transaction(transaction)),
            "0 1 2 3",
        ),
        (fetching(&archive, RecoveryPoint::Time(time)), "0 1 2 3"),
        (current, "0 1 2 3 4"),
    ]
    .into_iter()
    .enumerate()
    {
        let (into, shown) = (
            place.path().join(format!("to{number}")),
            format!("{recovery:?}"),
        );
        let (mut server, found) = recovered(&source, &set, &into, recovery);
        assert_eq!(found, rows, "{shown}");
        // It takes writes on a timeline of its own, and starts again as any server.
        assert_eq!(
            server.sql(
                "postgres",
                "SELECT timeline_id FROM pg_control_checkpoint()"
            ),
            "2"
        );
        server.sql("postgres", "INSERT INTO t VALUES (100)");
        if number == 0 {
            check_relations(&server);
        }
        server.stop("fast");
        assert!(!into.join("recovery.signal").exists());
        server.run();
        assert_eq!(server.sql("postgres", "SELECT max(i) FROM t"), "100");
    }
}

#[test]
fn a_server_may_wait_at_its_target() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql("postgres", "CREATE TABLE t AS SELECT 7 AS i");
    let (set, into) = (place.path().join("set"), place.path().join("into"));
    backup(&source, &set);
    let request = RestoreRequest {
        into: into.clone(),
        recovery: Some(Recovery {
            action: RecoveryAction::Pause,
            ..Recovery::to(RecoveryPoint::Immediate)
        }),
        ..RestoreRequest::default()
    };
    restore_as(&set, &request).unwrap();
    let server = PrivateCluster::adopt(&into, source.bin());
    server.wait_until("SELECT pg_get_wal_replay_pause_state()", "paused");
    assert_eq!(server.sql("postgres", "SELECT i FROM t"), "7");
    assert!(!server.try_sql("postgres", "DELETE FROM t").status.success());
    server.sql("postgres", "SELECT pg_wal_replay_resume()");
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    server.sql("postgres", "DELETE FROM t");
}

#[test]
fn a_target_that_no_server_could_reach_is_refused_before_anything_is_written() {
    become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let set = place.path().join("set");
    let facts = backup(&source, &set).facts;
    let into = place.path().join("into");
    let refused = |recovery| {
        let request = RestoreRequest {
            into: into.clone(),
            recovery: Some(recovery),
            ..RestoreRequest::default()
        };
        let error = restore_as(&set, &request).unwrap_err();
        assert!(
            matches!(error, PostgresError::RecoveryTarget { .. }),
            "{error}"
        );
        assert!(!into.exists());
        error.to_string()
    };
    let before = refused(Recovery::to(RecoveryPoint::Lsn(Lsn(facts.stop_lsn.0 - 1))));
    assert!(before.contains("before the end of the backup"), "{before}");
    let start = facts.start_time.parse().unwrap();
    refused(Recovery::to(RecoveryPoint::Time(start)));
    for name in ["", &"n".repeat(64), "two\nlines"] {
        refused(Recovery::to(RecoveryPoint::Name(name.to_owned())));
    }
    refused(Recovery {
        timeline: RecoveryTimeline::Number(Timeline(0)),
        ..Recovery::to(RecoveryPoint::Latest)
    });
    refused(Recovery {
        fetch: Some("cp %f %p\nrm".into()),
        ..Recovery::to(RecoveryPoint::Latest)
    });
}
