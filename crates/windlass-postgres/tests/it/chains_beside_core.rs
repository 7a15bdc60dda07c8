//! Where PostgreSQL's own incremental backups lose data: its result beside ours.

use std::path::PathBuf;
use std::process::Command;

use windlass_engine::media::BackupType::Incr;
use windlass_testkit::postgres::{PrivateCluster, succeed};

use crate::chains::Fixture;
use crate::versions::own_clients;

/// How many rows an index-only scan finds in `t`, and how many a plain scan.
fn counts(server: &PrivateCluster) -> (String, String) {
    let by_index = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
         SELECT count(*) FROM t WHERE i > 0";
    let plain = "SET enable_indexscan = off; SET enable_indexonlyscan = off; \
         SET enable_bitmapscan = off; SELECT count(*) FROM t WHERE i > 0";
    (
        server.sql("postgres", by_index),
        server.sql("postgres", plain),
    )
}

/// What PostgreSQL's own tools make of a full and an incremental backup of their own.
struct Peer<'a> {
    fixture: &'a Fixture,
    clients: PathBuf,
}

impl<'a> Peer<'a> {
    fn new(fixture: &'a Fixture) -> Self {
        let (_, clients) = own_clients(18).pop().unwrap();
        Self { fixture, clients }
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.clients.join(name));
        self.fixture.source.lead(&mut command);
        command.env_remove("PGDATABASE");
        command
    }

    fn back_up(&self, name: &str, base: Option<&str>) {
        let mut tool = self.tool("pg_basebackup");
        tool.args(["--checkpoint=fast", "--no-sync", "-D"]);
        tool.arg(self.fixture.path(name));
        if let Some(base) = base {
            let manifest = self.fixture.path(base).join("backup_manifest");
            tool.arg("--incremental").arg(manifest);
        }
        succeed(&mut tool);
    }

    fn combined(&self, sets: [&str; 2], moment: &str) -> PrivateCluster {
        let into = self.fixture.path("combined");
        let mut tool = self.tool("pg_combinebackup");
        tool.args(sets.map(|set| self.fixture.path(set)));
        succeed(tool.arg("--no-sync").arg("-o").arg(&into));
        self.fixture.recovered_at(&into, moment)
    }
}

#[test]
fn a_vacuum_that_cuts_a_table_off_leaves_no_stale_visibility_map_behind() {
    // Without checksums and wal_log_hints, nothing in the log names the page of the map.
    let fixture = Fixture::summarizing(18, &["--no-data-checksums"]);
    let (source, peer) = (&fixture.source, Peer::new(&fixture));
    source.sql(
        "postgres",
        "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 91000); \
         CREATE INDEX ON t (i); DELETE FROM t WHERE i > 11000",
    );
    source.sql("postgres", "VACUUM (FREEZE, TRUNCATE false) t");
    peer.back_up("core-full", None);
    fixture.back_up("full", None);
    source.sql("postgres", "VACUUM t");
    source.sql(
        "postgres",
        "INSERT INTO t SELECT generate_series(11001, 91000)",
    );
    source.sql("postgres", "DELETE FROM t WHERE i > 51000");
    peer.back_up("core-one", Some("core-full"));
    let one = fixture.back_up("one", Some((Incr, "full")));
    assert_eq!(one.backup_type, Incr);
    let held = fixture.mark("end");
    let true_count = ("51000".to_owned(), "51000".to_owned());
    assert_eq!(counts(source), true_count);
    let core = peer.combined(["core-full", "core-one"], "end");
    assert_eq!(counts(&core), ("91000".to_owned(), "51000".to_owned()));
    assert_eq!(counts(&fixture.restored_at("one", "end")), true_count);
    std::fs::remove_dir_all(fixture.path("restored-one")).unwrap();
    fixture.judge("one", "end", &held);
}

#[test]
fn rows_that_were_deleted_do_not_come_back_where_a_table_was_cut_off_and_grew_again() {
    let fixture = Fixture::summarizing(18, &["--no-data-checksums"]);
    let (source, peer) = (&fixture.source, Peer::new(&fixture));
    source.sql(
        "postgres",
        "CREATE TABLE t (i int); INSERT INTO t SELECT generate_series(1, 90000)",
    );
    source.sql("postgres", "VACUUM (FREEZE) t");
    peer.back_up("core-full", None);
    fixture.back_up("full", None);
    source.sql("postgres", "DELETE FROM t WHERE i > 60000");
    source.sql("postgres", "VACUUM t");
    // A copy makes a table longer by many pages at once. Those that it does not fill are zeros, and
    // no log names them.
    source.sql("postgres", "COPY t FROM PROGRAM 'seq 60001 63000'");
    let zeros = source.sql(
        "postgres",
        "SELECT pg_relation_size('t') / 8192 > (SELECT max((ctid::text::point)[0]) + 1 FROM t)",
    );
    assert_eq!(zeros, "t", "there are pages that nobody has filled");
    peer.back_up("core-one", Some("core-full"));
    let one = fixture.back_up("one", Some((Incr, "full")));
    assert_eq!(one.backup_type, Incr);
    let held = fixture.mark("end");
    let count = |server: &PrivateCluster| server.sql("postgres", "SELECT count(*) FROM t");
    assert_eq!(count(source), "63000");
    let core = peer.combined(["core-full", "core-one"], "end");
    assert_ne!(
        count(&core),
        "63000",
        "PostgreSQL's own tools are right by now"
    );
    fixture.judge("one", "end", &held);
}
