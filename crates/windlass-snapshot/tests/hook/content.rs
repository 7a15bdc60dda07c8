//! What a snapshot shows is the database at its creation, whatever the server does later.

use std::path::Path;
use std::process::Command;

use windlass_testkit::installed::{clients, hooked_versions};
use windlass_testkit::load::under_load_of;
use windlass_testkit::postgres::{PrivateCluster, succeed};

use crate::nested::Nested;
use crate::support::{Snapshot, Source};

/// Tables whose content is known, each for one way to be changed later. The load moves the last one
/// from tablespace to tablespace.
const TABLES: [&str; 8] = [
    "updated", "emptied", "dropped", "packed", "grown", "cut", "moved", "carried",
];

/// What the load does beside its own statements.
const MOVES: [&str; 4] = [
    "ALTER TABLE carried SET TABLESPACE space",
    "ALTER INDEX carried_i_idx SET TABLESPACE space",
    "ALTER TABLE carried SET TABLESPACE pg_default",
    "ALTER INDEX carried_i_idx SET TABLESPACE pg_default",
];

/// Copies of a database, made in both ways. Version 14 has one way only.
fn copies(major: u32) -> [String; 2] {
    let strategies = match major {
        14 => ["", ""],
        _ => [" STRATEGY wal_log", " STRATEGY file_copy"],
    };
    let names = ["logged", "copied"].iter().zip(strategies);
    let made = names.map(|(name, how)| format!("CREATE DATABASE {name} TEMPLATE model{how}"));
    made.collect::<Vec<_>>().try_into().unwrap()
}

fn source(bin: &Path) -> Source {
    let source = Source::start_with(bin, &["max_prepared_transactions = 5"]);
    let space = source.place.path().join("space");
    std::fs::create_dir(&space).unwrap();
    let create = format!("CREATE TABLESPACE space LOCATION '{}'", space.display());
    source.server.sql("postgres", &create);
    prepare(&source.server);
    source
}

fn prepare(server: &PrivateCluster) {
    Nested::prepare(server);
    server.sql("postgres", "CREATE DATABASE model");
    server.sql(
        "model",
        "CREATE TABLE t AS SELECT generate_series(1, 5000) i",
    );
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
    // Recovery would make the tablespace at its place in the source.
    server.sql("postgres", "CHECKPOINT");
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
        "DROP DATABASE logged",
        "DROP DATABASE copied",
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

/// A client program, of the server's own version if that makes a difference.
fn client(view: &PrivateCluster, major: u32, name: &str) -> Command {
    let found = clients().into_iter().find(|(of, _)| *of == major);
    let Some((_, bin)) = found else {
        return view.tool(name);
    };
    let mut command = Command::new(bin.join(name));
    view.lead(&mut command);
    command
}

/// Debian's programs check the databases of versions 14 to 16, too, and those of 17 from inside.
fn assert_sound(view: &mut PrivateCluster, major: u32) {
    view.sql("postgres", "CREATE EXTENSION IF NOT EXISTS amcheck");
    let checks = ["--all", "--heapallindexed", "--parent-check"];
    succeed(client(view, major, "pg_amcheck").args(checks));
    view.stop("fast");
    if major == 17 {
        return;
    }
    let data = view.data().to_owned();
    // A program of another version does not know the directories of tablespaces. The server has
    // read what is in them.
    for link in std::fs::read_dir(data.join("pg_tblspc")).unwrap() {
        std::fs::remove_file(link.unwrap().path()).unwrap();
    }
    let mut checksums = client(view, major, "pg_checksums");
    succeed(checksums.args(["--check", "-D"]).arg(data));
}

/// What a snapshot of a source shows that had these rows.
fn assert_shown(source: &Source, snapshot: &Snapshot, (before, major): (&[String], u32)) {
    let mut view = source.view(snapshot);
    assert_eq!(rows(&view), before, "version {major}");
    assert_sums(&view);
    for database in ["logged", "copied"] {
        let sum = view.sql(database, "SELECT sum(i) FROM t");
        assert_eq!(sum, "12502500", "{database} of version {major}");
    }
    Nested::assert_open(&view);
    assert_sound(&mut view, major);
}

/// Makes snapshots under load, and changes everything after that.
fn made<T>(source: &Source, major: u32, make: impl FnOnce() -> T) -> T {
    under_load_of(&source.server, &MOVES, || {
        for sql in copies(major) {
            source.server.sql("postgres", &sql);
        }
        let nested = Nested::begin(&source.server);
        let snapshots = make();
        nested.commit(&source.server);
        change(&source.server);
        snapshots
    })
}

#[test]
fn a_snapshot_under_load_shows_the_database_at_its_creation() {
    for (major, bin) in hooked_versions().into_iter().rev() {
        let source = source(&bin);
        let before = rows(&source.server);
        let snapshot = made(&source, major, || source.snapshot("one"));
        assert_ne!(rows_of_changed(&source.server), before[0]);
        assert!(snapshot.made.linked_files > 100);
        assert_shown(&source, &snapshot, (&before, major));
    }
}

#[test]
fn a_snapshot_of_a_pause_shows_what_a_crash_would_have_left() {
    for (major, bin) in hooked_versions() {
        let source = source(&bin);
        let before = rows(&source.server);
        // One with links, and one whose files the hook links when they are removed.
        let snapshots = made(&source, major, || [source.pause("one"), source.late("two")]);
        for snapshot in snapshots {
            assert!(snapshot.made.writers_stopped_seconds > 0.0);
            assert_shown(&source, &snapshot, (&before, major));
        }
    }
}

fn rows_of_changed(server: &PrivateCluster) -> String {
    server.sql(
        "postgres",
        "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t",
    )
}
