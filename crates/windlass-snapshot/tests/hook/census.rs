//! No write escapes the hook: every byte that a snapshot shows stays the same, whatever the server
//! does, and the hook has seen every block that a statement has changed.

use std::path::PathBuf;

use windlass_testkit::installed::hooked_versions;
use windlass_testkit::postgres::{PrivateCluster, succeed};

use crate::changed::Watched;
use crate::support::{Snapshot, Source, sums};

/// All ways in which a server writes to files that it had before.
const STATEMENTS: [&str; 23] = [
    "UPDATE t SET x = x || 'a'",
    "VACUUM (FREEZE, ANALYZE) t",
    "DELETE FROM t WHERE i % 3 = 0",
    "VACUUM t",
    "CREATE INDEX t_x ON t (x)",
    "REINDEX INDEX t_i",
    "CLUSTER t USING t_i",
    "VACUUM FULL t",
    "ALTER TABLE t ADD COLUMN y int DEFAULT 5",
    "ALTER TABLE t ALTER COLUMN i TYPE bigint",
    "ALTER TABLE u SET LOGGED",
    "ALTER TABLE w SET UNLOGGED",
    "ALTER TABLE v SET TABLESPACE s",
    "TRUNCATE u",
    "BEGIN; CREATE TABLE z AS SELECT 1; TRUNCATE z; INSERT INTO z VALUES (1); COMMIT",
    "BEGIN; INSERT INTO v SELECT i, 'p' FROM generate_series(1, 3000) i; PREPARE TRANSACTION 'p'",
    "COMMIT PREPARED 'p'",
    "SELECT lo_unlink(1)",
    "DROP TABLE w",
    "CREATE DATABASE d",
    "ALTER DATABASE d SET TABLESPACE s",
    "DROP DATABASE d",
    "UPDATE in_space SET x = 'c'",
];
/// What only newer versions know.
const STATEMENTS_15: [&str; 4] = [
    "CREATE DATABASE e STRATEGY wal_log",
    "DROP DATABASE e",
    "CREATE DATABASE e STRATEGY file_copy",
    "DROP DATABASE e",
];
const STATEMENTS_18: [&str; 4] = [
    "ALTER ROLE postgres SET file_copy_method = clone",
    "CREATE DATABASE e STRATEGY file_copy",
    "ALTER DATABASE e SET TABLESPACE s",
    "DROP DATABASE e",
];

fn statements(major: u32) -> impl Iterator<Item = &'static str> {
    let newer = STATEMENTS_15.iter().filter(move |_| major >= 15);
    let newest = STATEMENTS_18.iter().filter(move |_| major >= 18);
    STATEMENTS.iter().chain(newer).chain(newest).copied()
}

/// The versions, and settings that change how they write or read.
fn servers() -> Vec<(u32, PathBuf, &'static str)> {
    let servers = hooked_versions().into_iter().flat_map(|(major, bin)| {
        let others = ["io_method = sync"]
            .into_iter()
            .filter(move |_| major == 18);
        let all = ["autovacuum = off"].into_iter().chain(others);
        all.map(move |setting| (major, bin.clone(), setting))
    });
    servers.collect()
}

fn prepare(server: &PrivateCluster, space: &str) {
    let rows = "AS SELECT i, md5(i::text) AS x FROM generate_series(1, 5000) i";
    for sql in [
        &format!("CREATE TABLESPACE s LOCATION '{space}'"),
        &format!("CREATE TABLE t {rows}"),
        "CREATE INDEX t_i ON t (i)",
        &format!("CREATE UNLOGGED TABLE u {rows}"),
        &format!("CREATE TABLE v {rows}"),
        &format!("CREATE TABLE w {rows}"),
        &format!("CREATE TABLE in_space TABLESPACE s {rows}"),
        "SELECT lo_from_bytea(1, decode(repeat('00', 50000), 'hex'))",
        "VACUUM",
        "CHECKPOINT",
    ] {
        server.sql("postgres", sql);
    }
}

/// Two hundred subtransactions and many small ones, for the status of transactions.
fn transactions(server: &PrivateCluster) {
    let nested = "DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN INSERT INTO v VALUES (i, 's'); \
         EXCEPTION WHEN others THEN NULL; END; END LOOP; END $$";
    server.sql("postgres", nested);
    server.sql("postgres", "UPDATE in_space SET x = 'b'");
    server.sql("postgres", "CREATE TABLE pgbench_marker (n int)");
    succeed(
        server
            .tool("pgbench")
            .args(["-i", "-s", "1", "-q", "postgres"]),
    );
    succeed(
        server
            .tool("pgbench")
            .args(["-c", "4", "-t", "100", "-n", "postgres"]),
    );
}

#[test]
fn no_write_to_a_file_of_a_snapshot_escapes_the_hook() {
    for (major, bin, setting) in servers() {
        let settings = ["max_prepared_transactions = 5", "autovacuum = off", setting];
        let source = Source::start_with(&bin, &settings);
        let space = source.place.path().join("space");
        std::fs::create_dir(&space).unwrap();
        prepare(&source.server, &space.display().to_string());
        let snapshot = source.snapshot("one");
        let before = sums(&snapshot.directory);
        let late = source.late("two");
        let before_late = sums(&late.directory);
        let version = format!("version {major}, {setting}");
        // The hook must have seen each block, also those that a snapshot has long kept.
        let mut watched = Watched::begin(&source);
        for sql in statements(major) {
            source.server.sql("postgres", sql);
            source.server.sql("postgres", "CHECKPOINT");
            watched = watched.next(&source.server, &format!("{version}: {sql}"));
        }
        transactions(&source.server);
        source.server.sql("postgres", "CHECKPOINT");
        watched.next(&source.server, &version);
        let after = sums(&snapshot.directory);
        let differing: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(differing.is_empty(), "{version}: {differing:?}");
        assert!(sums(&late.directory) == before_late, "{version}");
        let state = |it: &Snapshot| windlass_snapshot::hook::state(&it.directory).unwrap();
        assert_eq!((state(&snapshot).lost, state(&late).lost), (None, None));
        let pages = state(&snapshot).pages + state(&late).pages;
        assert!(pages > 50, "{version}: {pages}");
    }
}
