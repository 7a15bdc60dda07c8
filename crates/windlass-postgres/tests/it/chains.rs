//! Differential and incremental backups of real clusters: at every link a restore is the source.

use std::path::{Path, PathBuf};

use windlass_engine::media::BackupType::{self, Diff, Full, Incr};
use windlass_postgres::{BackupOutcome, ChainFault, PostgresError};
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, become_server_user, succeed,
};

use crate::support::{Wish, check_relations, restore_set, try_backup};
use crate::versions::{check_manifest, versions};

/// All tables of all databases: how many rows, and a sum over what they hold.
const TABLES: &str = "SELECT string_agg(format('SELECT %L AS name, count(*), \
    sum(hashtextextended(t::text, 0)::numeric) FROM %s t', oid::regclass, oid::regclass), \
    ' UNION ALL ' ORDER BY oid) FROM pg_class \
    WHERE relkind IN ('r', 'm') AND relpersistence = 'p'";

/// A cluster with an archive, and the sets of its chain.
pub struct Fixture {
    place: tempfile::TempDir,
    pub source: PrivateCluster,
}

impl Fixture {
    pub fn new(bin: &Path, initdb: &[&str], settings: &[&str]) -> Self {
        become_server_user();
        let place = tempfile::tempdir().unwrap();
        let archive = place.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        let mut options = ClusterOptions {
            bin: bin.into(),
            ..ClusterOptions::default()
        };
        for argument in initdb {
            options = options.initdb(*argument);
        }
        let archive = format!("archive_command = 'cp %p {}/%f'", archive.display());
        options = options.setting("archive_mode = on").setting(archive);
        options = options.setting("autovacuum = off");
        for line in settings {
            options = options.setting(*line);
        }
        let source = PrivateCluster::start(&options);
        Self { place, source }
    }

    /// A cluster of this version that says which pages changed.
    pub fn summarizing(major: u32, initdb: &[&str]) -> Self {
        Self::new(&bin_of(major), initdb, &["summarize_wal = on"])
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Backs up to the directory `name`, on top of the set in `base`.
    pub fn back_up(&self, name: &str, chain: Option<(BackupType, &str)>) -> BackupOutcome {
        self.try_back_up(name, chain, true).unwrap()
    }

    fn try_back_up(
        &self,
        name: &str,
        chain: Option<(BackupType, &str)>,
        strict: bool,
    ) -> Result<BackupOutcome, PostgresError> {
        let wish = Wish {
            chain: chain.map(|(kind, base)| (kind, self.path(base))),
            strict,
            ..Wish::default()
        };
        try_backup(&self.source, &self.path(name), &wish)
    }

    /// Names this moment in the log, and returns what the cluster holds. Nobody may write.
    pub fn mark(&self, name: &str) -> Vec<(String, String)> {
        let held = content(&self.source);
        let sql = format!("SELECT pg_create_restore_point('{name}')");
        let at = self.source.sql("postgres", &sql);
        self.source.sql("postgres", "SELECT pg_switch_wal()");
        let archived =
            format!("SELECT last_archived_wal >= pg_walfile_name('{at}') FROM pg_stat_archiver");
        self.source.wait_until(&archived, "t");
        held
    }

    /// The server that a set becomes at a moment of the log.
    pub fn restored_at(&self, set: &str, moment: &str) -> PrivateCluster {
        let into = self.path(&format!("restored-{set}"));
        restore_set(&self.path(set), &into, &[]);
        let version = self.source.sql("postgres", "SHOW server_version_num");
        let major = version.parse::<u32>().unwrap() / 10_000;
        check_manifest(&self.source, major, &into);
        self.recovered_at(&into, moment)
    }

    pub fn recovered_at(&self, data: &Path, moment: &str) -> PrivateCluster {
        let mut server = PrivateCluster::adopt_stopped(data, self.source.bin());
        let archive = self.path("archive");
        server.configure(&[
            &format!("restore_command = 'cp {}/%f %p'", archive.display()),
            &format!("recovery_target_name = '{moment}'"),
            "recovery_target_action = promote",
            "archive_mode = off",
        ]);
        std::fs::write(data.join("recovery.signal"), "").unwrap();
        server.run();
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        server
    }

    /// The restored set holds what the source held, and PostgreSQL finds no fault in it.
    pub fn judge(&self, set: &str, moment: &str, held: &[(String, String)]) {
        let server = self.restored_at(set, moment);
        for ((database, found), (_, expected)) in content(&server).iter().zip(held) {
            assert_eq!(found, expected, "{set}: {database}");
        }
        assert_eq!(content(&server).len(), held.len(), "{set}");
        check_relations(&server);
        check_visibility(&server);
        drop(server);
        std::fs::remove_dir_all(self.path(&format!("restored-{set}"))).unwrap();
    }
}

pub fn bin_of(major: u32) -> PathBuf {
    let mut all = versions().into_iter();
    all.find(|(of, _)| *of == major).unwrap().1
}

/// What every database holds.
pub fn content(server: &PrivateCluster) -> Vec<(String, String)> {
    let names = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1";
    let names = server.sql("postgres", names);
    let of = |name: &str| {
        let tables = server.sql(name, TABLES);
        (
            name.to_owned(),
            server.sql(name, &format!("{tables} ORDER BY name")),
        )
    };
    names.lines().map(of).collect()
}

/// The visibility maps say nothing that is wrong.
fn check_visibility(server: &PrivateCluster) {
    let names = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1";
    for name in server.sql("postgres", names).lines() {
        server.sql(name, "CREATE EXTENSION IF NOT EXISTS pg_visibility");
        let wrong = "SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 't', 'm') \
             AND (EXISTS (SELECT FROM pg_check_visible(oid)) \
             OR EXISTS (SELECT FROM pg_check_frozen(oid)))";
        assert_eq!(server.sql(name, wrong), "", "{name}");
    }
}

/// Statements that make, cut off, move and remove relations between two backups.
fn change(source: &PrivateCluster, round: u32) {
    let gone = i64::from(round) - 2;
    let sql = format!(
        "UPDATE plain SET x = x || 'r{round}' WHERE i % 97 = {round}; \
         TRUNCATE emptied; INSERT INTO emptied SELECT generate_series(1, {round} * 100); \
         DELETE FROM cut WHERE i > 20000 - {round} * 3000; \
         CREATE TABLE made_{round} AS SELECT * FROM plain WHERE i % 3 = {round} % 3; \
         CREATE INDEX ON made_{round} (i); \
         DROP TABLE IF EXISTS \"made_{gone}\"; \
         REINDEX TABLE plain; \
         CLUSTER clustered USING clustered_i"
    );
    source.sql("postgres", &sql);
    source.sql(
        "postgres",
        "BEGIN; CREATE TABLE never AS SELECT * FROM plain; ROLLBACK",
    );
    source.sql("postgres", "VACUUM cut");
    source.sql("postgres", "VACUUM FULL pg_class");
    source.sql(
        "postgres",
        "INSERT INTO cut SELECT generate_series(20001, 20100)",
    );
    source.sql("postgres", "DROP DATABASE IF EXISTS again");
    // Before 15 there is one way only, which copies the files.
    let has_strategies = "SELECT current_setting('server_version_num')::int >= 150000";
    let has_strategies = source.sql("postgres", has_strategies) == "t";
    for strategy in ["wal_log", "file_copy"] {
        let drop = format!("DROP DATABASE IF EXISTS \"{strategy}_{gone}\"");
        source.sql("postgres", &drop);
        let mut sql = format!("CREATE DATABASE {strategy}_{round}");
        if has_strategies {
            sql += &format!(" STRATEGY {strategy}");
        }
        source.sql("postgres", &sql);
    }
    source.sql("postgres", "CREATE DATABASE again");
    source.sql("again", &format!("CREATE TABLE t AS SELECT {round} AS i"));
}

fn prepare(source: &PrivateCluster) {
    succeed(
        source
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    source.sql(
        "postgres",
        "CREATE TABLE kept (n bigint); \
         CREATE TABLE plain AS SELECT i, md5(i::text) AS x FROM generate_series(1, 20000) i; \
         CREATE INDEX ON plain (i); \
         CREATE TABLE emptied AS SELECT generate_series(1, 9000) i; \
         CREATE TABLE cut AS SELECT generate_series(1, 20000) i; \
         CREATE TABLE clustered AS SELECT i, 20000 - i AS j FROM generate_series(1, 9000) i; \
         CREATE INDEX clustered_i ON clustered (j); \
         CREATE UNLOGGED TABLE fleeting AS SELECT generate_series(1, 9999)",
    );
}

/// A full set, two incremental ones, and a differential one, each made under load; and the
/// statements between them.
pub fn chain_under_load(fixture: &Fixture) {
    prepare(&fixture.source);
    let links = [
        ("full", None),
        ("one", Some((Incr, "full"))),
        ("two", Some((Incr, "one"))),
        ("diff", Some((Diff, "full"))),
    ];
    for (round, (name, chain)) in (0..).zip(links) {
        change(&fixture.source, round);
        let outcome = under_load(&fixture.source, || fixture.back_up(name, chain));
        assert_eq!(outcome.backup_type, chain.map_or(Full, |(kind, _)| kind));
        let held = fixture.mark(name);
        fixture.judge(name, name, &held);
    }
}

#[test]
fn every_link_of_a_chain_under_load_and_ddl_is_the_source() {
    // At times the newest that Windlass supports cannot be had.
    let (newest, _) = versions().into_iter().max().unwrap();
    chain_under_load(&Fixture::summarizing(newest, &["--no-data-checksums"]));
}

#[test]
fn every_link_of_a_chain_of_the_oldest_version_with_summaries_is_the_source() {
    chain_under_load(&Fixture::summarizing(17, &["--data-checksums"]));
}

#[test]
fn every_link_of_a_chain_by_the_positions_of_pages_is_the_source() {
    let bin = Path::new(DEFAULT_BIN);
    chain_under_load(&Fixture::new(bin, &["--data-checksums"], &[]));
}

#[test]
fn a_database_that_was_made_again_under_its_number_is_whole() {
    let fixture = Fixture::new(Path::new(DEFAULT_BIN), &[], &["wal_log_hints = on"]);
    let source = &fixture.source;
    source.sql("postgres", "CREATE DATABASE app");
    source.sql(
        "app",
        "CREATE TABLE t AS SELECT i, 'old' AS x FROM generate_series(1, 20000) i",
    );
    // The files of the template have the same names, and pages that are older than the base.
    source.sql("postgres", "CREATE DATABASE tpl TEMPLATE app");
    source.sql("tpl", "UPDATE t SET x = 'new'");
    source.sql("tpl", "VACUUM FULL t");
    source.sql("tpl", "TRUNCATE t");
    source.sql(
        "tpl",
        "INSERT INTO t SELECT i, 'new' FROM generate_series(1, 15000) i",
    );
    fixture.back_up("full", None);
    let oid = source.sql(
        "postgres",
        "SELECT oid FROM pg_database WHERE datname = 'app'",
    );
    source.sql("postgres", "DROP DATABASE app");
    let again = format!("CREATE DATABASE app OID {oid} TEMPLATE tpl STRATEGY file_copy");
    source.sql("postgres", &again);
    let one = fixture.back_up("one", Some((Incr, "full")));
    assert_eq!(one.backup_type, Incr);
    let held = fixture.mark("end");
    fixture.judge("one", "end", &held);
}

#[test]
fn pages_prove_nothing_if_hint_bits_are_not_logged() {
    let fixture = Fixture::new(&bin_of(14), &[], &[]);
    fixture.back_up("full", None);
    let fault = refused(fixture.try_back_up("one", Some((Incr, "full")), true));
    assert!(matches!(fault, ChainFault::HintsUnlogged { .. }), "{fault}");
    assert!(fault.hint().unwrap().contains("wal_log_hints"));
}

#[test]
fn what_has_not_changed_is_not_read() {
    let fixture = Fixture::summarizing(18, &["--wal-segsize=1"]);
    let source = &fixture.source;
    source.sql(
        "postgres",
        "CREATE TABLE large AS SELECT i, repeat('x', 500) AS x FROM generate_series(1, 60000) i",
    );
    // Hint bits would be written, and logged, when the rows are first read.
    source.sql("postgres", "VACUUM (FREEZE) large");
    let full = fixture.back_up("full", None);
    source.sql(
        "postgres",
        "UPDATE large SET x = 'y' WHERE i IN (5, 30000, 59999)",
    );
    let one = fixture.back_up("one", Some((Incr, "full")));
    let large: u64 = source
        .sql("postgres", "SELECT pg_relation_size('large')")
        .parse()
        .unwrap();
    let saved = full.report.bytes_read - one.report.bytes_read;
    assert!(saved > large * 9 / 10, "{saved} of {large}");
    let held = fixture.mark("one");
    fixture.judge("one", "one", &held);
}

#[test]
fn what_the_server_did_not_use_of_its_last_segment_is_not_read() {
    let fixture = Fixture::summarizing(18, &[]);
    let source = &fixture.source;
    source.sql("postgres", "ALTER SYSTEM SET wal_keep_size = '1GB'");
    source.sql("postgres", "SELECT pg_reload_conf()");
    fixture.back_up("full", None);
    let one = fixture.back_up("one", Some((Incr, "full")));
    // Free space maps, visibility maps and small files, and not 16 MiB of log.
    assert!(
        one.report.bytes_read < 12 << 20,
        "{}",
        one.report.bytes_read
    );
    let into = fixture.path("restored");
    restore_set(&fixture.path("one"), &into, &[]);
    let mut compared = 0;
    for entry in std::fs::read_dir(into.join("pg_wal")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = Path::new("pg_wal").join(path.file_name().unwrap());
            let own = std::fs::read(source.data().join(name)).unwrap();
            assert!(std::fs::read(&path).unwrap() == own, "{}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 0);
}

/// The fault that kept a backup from its base.
fn refused(result: Result<BackupOutcome, PostgresError>) -> ChainFault {
    match result {
        Err(PostgresError::Chain(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gap_in_the_summaries_is_named_and_the_backup_is_a_full_one() {
    let fixture = Fixture::summarizing(18, &[]);
    let source = &fixture.source;
    source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 5000) i",
    );
    fixture.back_up("full", None);
    source.sql("postgres", "UPDATE t SET i = i + 1; CHECKPOINT");
    fixture.back_up("one", Some((Incr, "full")));
    for entry in std::fs::read_dir(source.data().join("pg_wal/summaries")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    source.sql("postgres", "UPDATE t SET i = i + 1; CHECKPOINT");
    let chain = Some((Incr, "full"));
    let fault = refused(fixture.try_back_up("two", chain, true));
    assert!(matches!(fault, ChainFault::Gap { .. }), "{fault}");
    assert!(fault.hint().unwrap().contains("wal_summary_keep_time"));
    let outcome = fixture.try_back_up("three", chain, false).unwrap();
    assert_eq!(outcome.backup_type, Full);
    assert!(matches!(outcome.instead, Some(ChainFault::Gap { .. })));
    let held = fixture.mark("three");
    fixture.judge("three", "three", &held);
}

#[test]
fn a_server_without_summaries_and_one_that_lost_its_log_level_are_refused() {
    let fixture = Fixture::summarizing(18, &[]);
    let mut source = PrivateCluster::adopt_stopped(fixture.source.data(), fixture.source.bin());
    fixture.back_up("full", None);
    let set = |line: &str| {
        let sql = format!("ALTER SYSTEM SET {line}");
        fixture.source.sql("postgres", &sql);
        fixture.source.sql("postgres", "SELECT pg_reload_conf()");
    };
    set("summarize_wal = off");
    let summarizes = "SELECT current_setting('summarize_wal')";
    fixture.source.wait_until(summarizes, "off");
    let chain = Some((Incr, "full"));
    let fault = refused(fixture.try_back_up("off", chain, true));
    assert_eq!(fault, ChainFault::SummariesOff);
    // In between the log says little, so nobody knows what changed.
    let minimal = "-c wal_level=minimal -c max_wal_senders=0 -c archive_mode=off";
    set("max_wal_senders = 0");
    source.option(minimal);
    source.stop("fast");
    source.run();
    source.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 5000) i",
    );
    source.stop("fast");
    drop(source);
    let mut source = PrivateCluster::adopt_stopped(fixture.source.data(), fixture.source.bin());
    source.option("-c summarize_wal=on -c max_wal_senders=10");
    source.run();
    let wish = Wish {
        chain: Some((Incr, fixture.path("full"))),
        strict: true,
        ..Wish::default()
    };
    let fault = refused(try_backup(&source, &fixture.path("minimal"), &wish));
    assert!(matches!(fault, ChainFault::Gap { .. }), "{fault}");
}

#[test]
fn a_set_of_another_cluster_or_of_a_timeline_that_was_left_is_no_base() {
    let fixture = Fixture::summarizing(18, &[]);
    let other = Fixture::summarizing(18, &[]);
    other.back_up("full", None);
    let wish = Wish {
        chain: Some((Incr, other.path("full"))),
        strict: true,
        ..Wish::default()
    };
    let fault = refused(try_backup(&fixture.source, &fixture.path("one"), &wish));
    assert!(matches!(fault, ChainFault::OtherCluster { .. }), "{fault}");
    // The source goes on behind the moment at which the other server left its timeline.
    fixture.back_up("full", None);
    fixture.mark("left");
    fixture.back_up("later", Some((Incr, "full")));
    let server = fixture.restored_at("full", "left");
    let wish = |base: &str| Wish {
        chain: Some((Incr, fixture.path(base))),
        strict: true,
        ..Wish::default()
    };
    let fault = refused(try_backup(&server, &fixture.path("two"), &wish("later")));
    assert!(matches!(fault, ChainFault::OtherTimeline { .. }), "{fault}");
    // The server that was restored has the log since the start of its set, and says what changed.
    let set = fixture.path("three");
    let outcome = try_backup(&server, &set, &wish("full")).unwrap();
    assert_eq!(outcome.backup_type, Incr);
    let into = fixture.path("restored-three");
    restore_set(&set, &into, &[]);
    let again = PrivateCluster::adopt(&into, server.bin());
    assert_eq!(content(&again), content(&server));
    check_relations(&again);
}
