//! Chains over what moves a cluster or its files: promotions, tablespaces, a log that was reset,
//! and one that left changes out.
//!
//! With `chains.rs` and `chains_beside_core.rs` these are the scenarios of PostgreSQL's own tests
//! of pg_combinebackup (002 to 012), on our chains.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_engine::media::BackupType::{self, Diff, Incr};
use windlass_postgres::{BackupOutcome, ChainFault, PostgresError};
use windlass_testkit::postgres::{DEFAULT_BIN, PrivateCluster, succeed};

use crate::chains::{Fixture, content};
use crate::support::{Wish, check_relations, restore_set, try_backup};
use crate::versions::own_clients;

/// Backs a server up on top of the set `base` of a fixture.
fn link(
    fixture: &Fixture,
    server: &PrivateCluster,
    (name, kind, base): (&str, BackupType, &str),
) -> Result<BackupOutcome, PostgresError> {
    let wish = Wish {
        chain: Some((kind, fixture.path(base))),
        strict: true,
        ..Wish::default()
    };
    try_backup(server, &fixture.path(name), &wish)
}

/// A restore of a set holds what the server holds. Nobody may write.
fn judge(fixture: &Fixture, server: &PrivateCluster, set: &str, map: &[(PathBuf, PathBuf)]) {
    let into = fixture.path(&format!("restored-{set}"));
    restore_set(&fixture.path(set), &into, map);
    let restored = PrivateCluster::adopt(&into, server.bin());
    assert_eq!(content(&restored), content(server), "{set}");
    check_relations(&restored);
    drop(restored);
    std::fs::remove_dir_all(&into).unwrap();
    for (_, moved) in map {
        std::fs::remove_dir_all(moved).unwrap();
    }
}

/// A program of PostgreSQL 18 that works on a server, or on its files.
fn client(server: &PrivateCluster, name: &str) -> Command {
    let (_, clients) = own_clients(18).pop().unwrap();
    let mut command = Command::new(clients.join(name));
    server.lead(&mut command);
    command.env_remove("PGDATABASE");
    command
}

/// A standby that follows a server.
fn standby(fixture: &Fixture, of: &PrivateCluster, name: &str) -> PrivateCluster {
    let copy = fixture.path(name);
    let mut tool = client(of, "pg_basebackup");
    succeed(
        tool.args(["--checkpoint=fast", "--no-sync", "-R", "-D"])
            .arg(&copy),
    );
    let mut standby = PrivateCluster::adopt_stopped(&copy, of.bin());
    standby.configure(&["archive_mode = off"]);
    standby.run();
    standby
}

fn follow(primary: &PrivateCluster, standby: &PrivateCluster) {
    primary.sql("postgres", "CHECKPOINT");
    let sent = primary.sql("postgres", "SELECT pg_current_wal_lsn()");
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{sent}'");
    standby.wait_until(&replayed, "t");
}

#[test]
fn a_chain_goes_on_on_a_standby_and_over_its_promotions() {
    let fixture = Fixture::summarizing(18, &[]);
    let primary = &fixture.source;
    primary.sql(
        "postgres",
        "CREATE TABLE t AS SELECT i, repeat('x', 100) AS x FROM generate_series(1, 20000) i",
    );
    // Each has the log since before the base, and summarizes it by itself.
    let middle = standby(&fixture, primary, "middle");
    follow(primary, &middle);
    let last = standby(&fixture, &middle, "last");
    fixture.back_up("full", None);
    primary.sql("postgres", "UPDATE t SET x = 'one' WHERE i % 1000 = 1");
    follow(primary, &middle);
    let one = link(&fixture, &middle, ("one", Incr, "full")).unwrap();
    assert!(one.facts.standby);
    judge(&fixture, &middle, "one", &[]);
    for (round, (promoted, follower)) in [(&middle, Some(&last)), (&last, None)].iter().enumerate()
    {
        promoted.sql("postgres", "SELECT pg_promote()");
        promoted.sql("postgres", "DELETE FROM t WHERE i % 7 = 3");
        promoted.sql("postgres", "VACUUM t");
        let sql = format!("INSERT INTO t SELECT i, 'round {round}' FROM generate_series(1, 500) i");
        promoted.sql("postgres", &sql);
        promoted.sql("postgres", "UPDATE t SET x = 'late' WHERE i % 3000 = 2");
        let (name, base) = (format!("p{round}"), ["one", "p0"][round]);
        let done = link(&fixture, promoted, (&name, Incr, base)).unwrap();
        assert_eq!(done.facts.timeline.0, u32::try_from(round).unwrap() + 2);
        judge(&fixture, promoted, &name, &[]);
        if let Some(follower) = follower {
            follow(promoted, follower);
        }
    }
    // From the first timeline to the third in one step.
    link(&fixture, &last, ("diff", Diff, "full")).unwrap();
    judge(&fixture, &last, "diff", &[]);
    // The old primary went another way.
    primary.sql("postgres", "INSERT INTO t VALUES (-1, 'old')");
    primary.sql("postgres", "CHECKPOINT");
    let fault = link(&fixture, primary, ("old", Incr, "p0"));
    let is_other = |fault: &ChainFault| matches!(fault, ChainFault::OtherTimeline { .. });
    assert!(
        matches!(&fault, Err(PostgresError::Chain(fault)) if is_other(fault)),
        "{fault:?}"
    );
}

struct Spaces<'a> {
    fixture: &'a Fixture,
    names: Vec<&'a str>,
}

impl Spaces<'_> {
    fn location(&self, name: &str) -> PathBuf {
        self.fixture.path(&format!("space-{name}"))
    }

    fn sql(&self, sql: &str) {
        self.fixture.source.sql("postgres", sql);
    }

    /// Restores a set with all its tablespaces elsewhere.
    fn judge(&self, set: &str) {
        let moved = |name: &&str| {
            let elsewhere = self.fixture.path(&format!("moved-{name}"));
            (self.location(name), elsewhere)
        };
        let map: Vec<_> = self.names.iter().map(moved).collect();
        judge(self.fixture, &self.fixture.source, set, &map);
    }
}

fn chain_of_tablespaces(fixture: &Fixture) {
    let mut spaces = Spaces {
        fixture,
        names: vec!["a", "b"],
    };
    let make = |spaces: &Spaces<'_>, name: &str, directory: &str| {
        let path = spaces.location(directory);
        std::fs::create_dir(&path).unwrap();
        spaces.sql(&format!(
            "CREATE TABLESPACE {name} LOCATION '{}'",
            path.display()
        ));
    };
    make(&spaces, "one", "a");
    make(&spaces, "two", "b");
    let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 9000) i";
    for sql in [
        &format!("CREATE TABLE inside TABLESPACE one AS {rows}"),
        &format!("CREATE TABLE goes AS {rows}"),
        &format!("CREATE TABLE comes TABLESPACE two AS {rows}"),
        "CREATE INDEX ON comes (i) TABLESPACE one",
        "CREATE DATABASE moved TABLESPACE two",
    ] {
        spaces.sql(sql);
    }
    fixture
        .source
        .sql("moved", &format!("CREATE TABLE m AS {rows}"));
    fixture.back_up("full", None);
    for sql in [
        "UPDATE inside SET x = 'new' WHERE i % 900 = 5",
        "ALTER TABLE goes SET TABLESPACE two",
        "ALTER TABLE comes SET TABLESPACE pg_default",
        "ALTER DATABASE moved SET TABLESPACE one",
        "INSERT INTO goes VALUES (-1, 'after')",
    ] {
        spaces.sql(sql);
    }
    for sql in ["DELETE FROM m WHERE i < 50", "VACUUM m"] {
        fixture.source.sql("moved", sql);
    }
    fixture.back_up("first", Some((Incr, "full")));
    spaces.judge("first");
    // Under the same name it is another tablespace, in another place.
    for sql in [
        "ALTER TABLE goes SET TABLESPACE one",
        "DROP TABLESPACE two",
        "UPDATE inside SET x = 'newer' WHERE i % 800 = 5",
    ] {
        spaces.sql(sql);
    }
    spaces.names = vec!["a", "c"];
    make(&spaces, "two", "c");
    spaces.sql("ALTER TABLE comes SET TABLESPACE two");
    fixture
        .source
        .sql("moved", "INSERT INTO m VALUES (-1, 'late')");
    fixture.back_up("second", Some((Incr, "first")));
    spaces.judge("second");
    fixture.back_up("diff", Some((Diff, "full")));
    spaces.judge("diff");
}

#[test]
fn tablespaces_come_go_and_move_between_links_that_summaries_tell() {
    chain_of_tablespaces(&Fixture::summarizing(18, &[]));
}

#[test]
fn tablespaces_come_go_and_move_between_links_that_pages_tell() {
    let bin = Path::new(DEFAULT_BIN);
    chain_of_tablespaces(&Fixture::new(bin, &["--data-checksums"], &[]));
}

#[test]
fn a_log_that_was_reset_between_two_links_is_refused() {
    let mut fixture = Fixture::summarizing(18, &[]);
    fixture.source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 9000) i",
    );
    fixture.back_up("full", None);
    fixture.source.sql("postgres", "UPDATE t SET i = i + 1");
    fixture.source.stop("fast");
    let mut reset = client(&fixture.source, "pg_resetwal");
    succeed(reset.arg("-D").arg(fixture.source.data()));
    fixture.source.run();
    fixture.source.sql("postgres", "UPDATE t SET i = i + 1");
    fixture.source.sql("postgres", "CHECKPOINT");
    let fault = link(&fixture, &fixture.source, ("one", Incr, "full"));
    assert!(
        matches!(&fault, Err(PostgresError::Chain(ChainFault::Gap { .. }))),
        "{fault:?}"
    );
}

/// Fills, copies and builds files that no log has, if it is minimal, and changes others.
fn change_under_a_minimal_log(source: &PrivateCluster, space: &Path) {
    let made = "BEGIN; \
         CREATE TABLE made AS SELECT i, point(i, i) AS p FROM generate_series(1, 9000) i; \
         TRUNCATE made; \
         INSERT INTO made SELECT i, point(-i, i) FROM generate_series(1, 7000) i; \
         CREATE INDEX ON made (i); \
         CREATE INDEX ON made USING hash (i); \
         CREATE INDEX ON made USING gist (p); \
         CREATE INDEX ON made USING spgist (p); \
         CREATE INDEX ON made USING gin ((ARRAY[i])); \
         CREATE INDEX ON made USING brin (i); \
         COMMIT";
    for sql in [
        &format!("CREATE TABLESPACE space LOCATION '{}'", space.display()),
        // These pages are copied with the positions that they have.
        "ALTER TABLE moved SET TABLESPACE space",
        "ALTER INDEX moved_p SET TABLESPACE space",
        "ALTER TABLE moved SET TABLESPACE pg_default",
        "ALTER INDEX moved_p SET TABLESPACE pg_default",
        "DROP TABLESPACE space",
        "BEGIN; TRUNCATE emptied; INSERT INTO emptied SELECT generate_series(1, 5000); COMMIT",
        made,
        "CLUSTER clustered USING clustered_i",
        "REINDEX TABLE stays",
        "UPDATE stays SET x = 'new' WHERE i % 900 = 5",
        "DELETE FROM stays WHERE i BETWEEN 4000 AND 6000",
        "VACUUM (FREEZE) stays",
        "CREATE DATABASE copied TEMPLATE filled STRATEGY file_copy",
    ] {
        source.sql("postgres", sql);
    }
}

/// With `wal_level = minimal`, a file that was made in the same transaction is not logged: its
/// pages have no position, or an old one. Such a file is new since the base, and so it is whole.
/// Whatever else is written is logged as ever. On 17 and later the summaries have a gap there.
#[test]
fn what_a_minimal_log_leaves_out_is_in_files_that_are_whole() {
    let bin = Path::new(DEFAULT_BIN);
    let mut fixture = Fixture::new(bin, &["--data-checksums"], &[]);
    let space = fixture.path("space");
    std::fs::create_dir(&space).unwrap();
    for sql in [
        "CREATE TABLE moved AS SELECT i, point(i, i) AS p FROM generate_series(1, 9000) i",
        "CREATE INDEX moved_p ON moved USING gist (p)",
        "CREATE TABLE emptied AS SELECT generate_series(1, 9000) i",
        "CREATE TABLE clustered AS SELECT i, 9000 - i AS j FROM generate_series(1, 9000) i",
        "CREATE INDEX clustered_i ON clustered (j)",
        "CREATE TABLE stays AS SELECT i, md5(i::text) AS x FROM generate_series(1, 9000) i",
        "CREATE INDEX ON stays (i)",
        "CREATE DATABASE filled",
    ] {
        fixture.source.sql("postgres", sql);
    }
    let rows = "CREATE TABLE t AS SELECT generate_series(1, 9000) i";
    fixture.source.sql("filled", rows);
    fixture.back_up("full", None);
    // Also what is short is written to its file at once, and not to the log.
    let minimal = "-c wal_level=minimal -c max_wal_senders=0 -c archive_mode=off";
    let all = format!("{minimal} -c wal_skip_threshold=0");
    let replica = "-c wal_level=replica -c max_wal_senders=10 -c archive_mode=on";
    fixture.source.option(&all);
    fixture.source.stop("fast");
    fixture.source.run();
    assert_eq!(fixture.source.sql("postgres", "SHOW wal_level"), "minimal");
    change_under_a_minimal_log(&fixture.source, &space);
    fixture.source.option(replica);
    fixture.source.stop("fast");
    fixture.source.run();
    let one = fixture.back_up("one", Some((Incr, "full")));
    assert_eq!(one.facts.changes_from.as_deref(), Some("pages"));
    let held = fixture.mark("one");
    fixture.judge("one", "one", &held);
}

/// Makes a table whose file has the number of one that is gone. A server gives a number again when
/// it has given all, and when it is told to, as by those who take databases over to a new version.
fn make_under_number(fixture: &mut Fixture, number: &str) {
    fixture.source.stop("fast");
    let mut told = PrivateCluster::adopt_stopped(fixture.source.data(), fixture.source.bin());
    told.option("-b");
    told.run();
    let numbers = [
        ("pg_type_oid", "60001"),
        ("array_pg_type_oid", "60002"),
        ("heap_pg_class_oid", "60003"),
        ("heap_relfilenode", number),
    ];
    let set = |(of, number): (&str, &str)| {
        format!("SELECT pg_catalog.binary_upgrade_set_next_{of}('{number}'::oid); ")
    };
    let sql = numbers.map(set).concat() + "CREATE TABLE again (i int)";
    told.sql("postgres", &sql);
    told.stop("fast");
    drop(told);
    fixture.source.run();
}

fn chain_over_a_number_that_is_used_again(mut fixture: Fixture) {
    let rows = "CREATE TABLE old AS SELECT i, 'old' AS x FROM generate_series(1, 20000) i";
    fixture.source.sql("postgres", rows);
    fixture.source.sql("postgres", "VACUUM old");
    let number = fixture
        .source
        .sql("postgres", "SELECT pg_relation_filenode('old')");
    fixture.back_up("full", None);
    fixture.source.sql("postgres", "DROP TABLE old");
    fixture.source.sql("postgres", "CHECKPOINT");
    make_under_number(&mut fixture, &number);
    let source = &fixture.source;
    let found = source.sql("postgres", "SELECT pg_relation_filenode('again')");
    assert_eq!(found, number);
    // It is shorter, and has no other forks.
    let insert = "INSERT INTO again SELECT generate_series(1, 5000)";
    source.sql("postgres", insert);
    source.sql("postgres", "CHECKPOINT");
    link(&fixture, source, ("one", Incr, "full")).unwrap();
    judge(&fixture, source, "one", &[]);
}

#[test]
fn a_table_with_the_number_of_one_that_is_gone_has_nothing_of_it_by_summaries() {
    chain_over_a_number_that_is_used_again(Fixture::summarizing(18, &[]));
}

#[test]
fn a_table_with_the_number_of_one_that_is_gone_has_nothing_of_it_by_pages() {
    let bin = Path::new(DEFAULT_BIN);
    let fixture = Fixture::new(bin, &["--data-checksums"], &[]);
    chain_over_a_number_that_is_used_again(fixture);
}
