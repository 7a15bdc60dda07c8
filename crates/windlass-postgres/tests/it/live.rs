//! Backups of busy clusters: what is restored is exactly one moment of the source.

use std::path::Path;

use windlass_testkit::gate::Gate;
use windlass_testkit::load::{assert_same_dump, under_load_of};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, succeed};

use crate::support::{
    Wish, backup_connected, check_relations, restore_and_judge, restore_set, try_backup,
    verify_backup,
};
use windlass_postgres::{BackupOutcome, Cluster};

/// So slow that the workload below changes many of the files during the copy.
const SOURCE_RATE: u64 = 24 << 20;

/// Each round drops a column of the tables that pgbench writes to, and adds another: rows with
/// different columns lie in one file, and the layouts of a backup are those of an earlier moment.
const COLUMNS: [&str; 2] = [
    "ALTER TABLE pgbench_accounts DROP COLUMN IF EXISTS more, ADD COLUMN more bigint DEFAULT 7",
    "ALTER TABLE pgbench_history DROP COLUMN IF EXISTS more, ADD COLUMN more text DEFAULT 'm'",
];
/// How many columns pgbench's table has had so far, dropped ones included. It begins with four.
const COLUMNS_EVER: &str = "SELECT count(*) FROM pg_attribute \
    WHERE attrelid = 'pgbench_accounts'::regclass AND attnum > 0";

fn busy_cluster(place: &Path, options: ClusterOptions) -> PrivateCluster {
    let archive = place.join("archive");
    windlass_testkit::postgres::become_server_user();
    let cluster = PrivateCluster::start(
        &options
            .setting("archive_mode = on")
            .setting(format!(
                "archive_command = 'cp %p {}/%f'",
                archive.display()
            ))
            .setting("wal_keep_size = 0")
            .setting("max_wal_size = 64MB"),
    );
    std::fs::create_dir(&archive).unwrap();
    succeed(
        cluster
            .tool("pgbench")
            .args(["-i", "-q", "-s", "6", "postgres"]),
    );
    cluster.sql("postgres", "CREATE TABLE kept (n bigint)");
    cluster.sql(
        "postgres",
        "CREATE UNLOGGED TABLE fleeting AS SELECT generate_series(1, 9999)",
    );
    cluster
}

/// Recovers a data directory to exactly the position `lsn` and dumps everything in it.
fn dump_at_stop(source: &PrivateCluster, data: &Path, restore: &str, lsn: &str) -> String {
    let server = PrivateCluster::adopt_stopped(data, source.bin());
    server.configure(&[
        &format!("restore_command = '{restore}'"),
        &format!("recovery_target_lsn = '{lsn}'"),
        "recovery_target_action = promote",
        "archive_mode = off",
    ]);
    std::fs::write(data.join("recovery.signal"), "").unwrap();
    let mut server = server;
    server.run();
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    check_relations(&server);
    server.sql("postgres", "DROP EXTENSION amcheck");
    succeed(server.tool("pg_dumpall").arg("--no-sync"))
}

/// Compares the same moment, reached in two ways: our set with its own log, and PostgreSQL's own
/// base backup, taken earlier, with the archive.
fn assert_same_content(source: &PrivateCluster, place: &Path, outcome: &BackupOutcome) {
    let lsn = outcome.facts.stop_lsn.to_string();
    let restored = place.join("restored");
    restore_set(&place.join("set"), &restored, &[]);
    verify_backup(source, &restored);
    source.sql("postgres", "SELECT pg_switch_wal()");
    let pending = "SELECT pg_walfile_name(pg_current_wal_lsn()) > last_archived_wal \
        AND last_archived_wal >= pg_walfile_name('LSN'::pg_lsn) FROM pg_stat_archiver";
    let pending = pending.replace("LSN", &lsn);
    source.wait_until(&pending, "t");
    let archive = format!("cp {}/%f %p", place.join("archive").display());
    let ours = dump_at_stop(source, &restored, "false", &lsn);
    let theirs = dump_at_stop(source, &place.join("reference"), &archive, &lsn);
    assert!(
        ours.len() > 1_000_000,
        "{} bytes of dump prove little",
        ours.len()
    );
    assert_same_dump(&ours, &theirs);
}

fn base_backup(source: &PrivateCluster, to: &Path) {
    let mut tool = source.tool("pg_basebackup");
    succeed(
        tool.args(["--checkpoint=fast", "--no-sync", "-X", "none", "-D"])
            .arg(to),
    );
}

fn live_round_trip(
    options: ClusterOptions,
    pages: bool,
) -> (tempfile::TempDir, PrivateCluster, BackupOutcome) {
    windlass_testkit::postgres::become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = busy_cluster(place.path(), options);
    base_backup(&source, &place.path().join("reference"));
    let wish = Wish {
        source_rate: Some(SOURCE_RATE),
        pages,
        ..Wish::default()
    };
    let set = place.path().join("set");
    let more: &[&str] = if pages { &COLUMNS } else { &[] };
    let outcome = under_load_of(&source, more, || try_backup(&source, &set, &wish)).unwrap();
    assert_same_content(&source, place.path(), &outcome);
    (place, source, outcome)
}

#[test]
fn a_backup_under_load_and_ddl_is_the_source_at_its_stop_position() {
    let options = ClusterOptions::default().initdb("--data-checksums");
    let (_place, _source, outcome) = live_round_trip(options, false);
    assert!(outcome.facts.checksums.pages_checked > 10_000);
    assert_eq!(
        outcome.facts.checksums.pages_bad, 0,
        "{:?}",
        outcome.facts.checksums
    );
    assert!(outcome.facts.stop_lsn > outcome.facts.start_lsn);
}

/// The pages are taken apart while the load writes to them and changes the tables' columns.
#[test]
fn a_backup_under_load_with_pages_apart_is_the_source_at_its_stop_position() {
    let options = ClusterOptions::default().initdb("--data-checksums");
    let (_place, source, outcome) = live_round_trip(options, true);
    assert!(outcome.facts.checksums.pages_checked > 10_000);
    let columns: u32 = source.sql("postgres", COLUMNS_EVER).parse().unwrap();
    assert!(columns > 4, "no column changed");
    let pages = outcome.report.pages.unwrap();
    // The accounts of pgbench stay as they are: they become very small without that.
    assert!(pages.apart_bytes > 10_000_000, "{pages:?}");
    assert_eq!(pages.wrong_frames, 0, "{pages:?}");
}

#[test]
fn full_page_writes_off_and_small_segments_make_no_difference() {
    let options = ClusterOptions::default().initdb("--wal-segsize=1");
    let (_place, _source, outcome) = live_round_trip(
        options
            .setting("full_page_writes = off")
            .setting("min_wal_size = 2MB"),
        false,
    );
    assert_eq!(outcome.facts.wal_segment_bytes, 1 << 20);
    let wal = outcome.facts.stop_lsn.0 - outcome.facts.start_lsn.0;
    assert!(
        wal > 3 << 20,
        "only {wal} bytes of log: segment boundaries were not passed"
    );
}

#[test]
fn two_backups_over_one_connection_each_restore() {
    windlass_testkit::postgres::become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    let mut connected = Cluster::connect(&source.conninfo()).unwrap();
    for round in ["one", "two"] {
        source.sql("postgres", &format!("CREATE TABLE {round} AS SELECT 1"));
        let set = place.path().join(round);
        backup_connected(&mut connected, &set, &Wish::default()).unwrap();
        let into = place.path().join(format!("restored-{round}"));
        let server = crate::support::restore_and_judge(&source, &set, &into, &[]);
        let tables = server.sql(
            "postgres",
            "SELECT string_agg(relname, ',' ORDER BY relname) \
            FROM pg_class WHERE relname IN ('one', 'two')",
        );
        assert_eq!(tables, if round == "one" { "one" } else { "one,two" });
    }
    // The server drops the temporary slot when it notices that the slot's session has ended.
    source.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
}

#[test]
fn a_table_dropped_while_it_waits_to_be_read_is_left_out() {
    windlass_testkit::postgres::become_server_user();
    let place = tempfile::tempdir().unwrap();
    let source = PrivateCluster::start(&ClusterOptions::default());
    for table in ["gone", "kept"] {
        let sql = format!("CREATE TABLE {table} AS SELECT generate_series(1, 1000) i");
        source.sql("postgres", &sql);
    }
    let path = source.sql("postgres", "SELECT pg_relation_filepath('gone')");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let set = place.path().join("set");
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(&source, &set, &wish));
        gate.wait_reached();
        // The checkpoint removes the file itself, not only its content.
        source.sql("postgres", "DROP TABLE gone");
        source.sql("postgres", "CHECKPOINT");
        let is_there = source.data().join(&path).exists();
        gate.open();
        assert!(!is_there);
        backup.join().unwrap().unwrap()
    });
    assert!(!outcome.facts.version.is_empty());
    let into = place.path().join("restored");
    let server = restore_and_judge(&source, &set, &into, &[]);
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM kept"), "1000");
    let gone = server.try_sql("postgres", "SELECT 1 FROM gone");
    assert!(!gone.status.success());
}
