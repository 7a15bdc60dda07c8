//! What a snapshot shows is the database at its creation, whatever the server does later.

use windlass_testkit::installed::all_versions;
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{PrivateCluster, succeed};

use crate::support::Source;

/// Tables whose content is known, each for one way to be changed later.
const TABLES: [&str; 7] = [
    "updated", "emptied", "dropped", "packed", "grown", "cut", "moved",
];

fn prepare(server: &PrivateCluster) {
    succeed(
        server
            .tool("pgbench")
            .args(["-i", "-s", "2", "-q", "postgres"]),
    );
    server.sql("postgres", "CREATE TABLE kept (n bigint)");
    for table in TABLES {
        let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
        server.sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
        server.sql("postgres", &format!("CREATE INDEX ON {table} (i)"));
    }
    server.sql(
        "postgres",
        "SELECT lo_from_bytea(4711, convert_to(repeat('x', 9000), 'UTF8'))",
    );
}

/// Changes each table in its own way.
fn change(server: &PrivateCluster) {
    for sql in [
        "UPDATE updated SET x = 'changed'",
        "TRUNCATE emptied",
        "DROP TABLE dropped",
        "DELETE FROM packed WHERE i % 2 = 0",
        "VACUUM FULL packed",
        "INSERT INTO grown SELECT i, 'new' FROM generate_series(1, 20000) i",
        "DELETE FROM cut WHERE i > 10",
        "VACUUM cut",
        "REINDEX TABLE updated",
        "CLUSTER moved USING moved_i_idx",
        "SELECT lo_put(4711, 0, 'changed')",
        "CREATE DATABASE later",
        "CHECKPOINT",
    ] {
        server.sql("postgres", sql);
    }
    server.sql("later", "CREATE TABLE t AS SELECT 1");
    server.sql("postgres", "DROP DATABASE later");
    server.sql("postgres", "CHECKPOINT");
}

/// A checksum of the rows of every table.
fn rows(server: &PrivateCluster) -> Vec<String> {
    let sum = |table: &&str| {
        let sql =
            format!("SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t");
        server.sql("postgres", &sql)
    };
    let mut sums: Vec<_> = TABLES.iter().map(sum).collect();
    sums.push(server.sql("postgres", "SELECT md5(lo_get(4711))"));
    sums
}

/// The sums of pgbench belong together only if each transaction is there as a whole or not at all.
fn assert_sums(server: &PrivateCluster) {
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = \
         (SELECT sum(bbalance) FROM pgbench_branches) \
         AND (SELECT sum(bbalance) FROM pgbench_branches) = \
         (SELECT sum(tbalance) FROM pgbench_tellers) \
         AND (SELECT coalesce(sum(delta), 0) FROM pgbench_history) = \
         (SELECT sum(bbalance) FROM pgbench_branches)";
    assert_eq!(server.sql("postgres", sums), "t");
}

fn assert_sound(view: &mut PrivateCluster) {
    if view.bin().join("pg_amcheck").exists() {
        view.sql("postgres", "CREATE EXTENSION IF NOT EXISTS amcheck");
        succeed(
            view.tool("pg_amcheck")
                .args(["--all", "--heapallindexed", "--parent-check"]),
        );
        view.stop("fast");
        let data = view.data().to_owned();
        succeed(view.tool("pg_checksums").args(["--check", "-D"]).arg(data));
    }
}

#[test]
fn a_snapshot_under_load_shows_the_database_at_its_creation() {
    for (major, bin) in all_versions().into_iter().rev() {
        let source = Source::start(&bin);
        prepare(&source.server);
        let before = rows(&source.server);
        let snapshot = under_load(&source.server, || {
            let snapshot = source.snapshot("one");
            change(&source.server);
            snapshot
        });
        assert_ne!(rows_of_changed(&source.server), before[0]);
        assert!(snapshot.made.linked_files > 100);
        let mut view = source.view(&snapshot);
        assert_eq!(rows(&view), before, "version {major}");
        assert_sums(&view);
        assert_sound(&mut view);
    }
}

#[test]
fn a_snapshot_of_a_pause_shows_what_a_crash_would_have_left() {
    for (major, bin) in all_versions() {
        let source = Source::start(&bin);
        prepare(&source.server);
        let before = rows(&source.server);
        let snapshots = under_load(&source.server, || {
            // One with links, and one whose files the hook links when they are removed.
            let snapshots = [source.pause("one"), source.late("two")];
            change(&source.server);
            snapshots
        });
        for snapshot in snapshots {
            assert!(snapshot.made.writers_stopped_seconds > 0.0);
            let mut view = source.view(&snapshot);
            assert_eq!(rows(&view), before, "version {major}");
            assert_sums(&view);
            assert_sound(&mut view);
        }
    }
}

fn rows_of_changed(server: &PrivateCluster) -> String {
    server.sql(
        "postgres",
        "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t",
    )
}
