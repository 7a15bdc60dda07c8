//! Differential and incremental backups by the write hook's map of changes: on a version that says
//! nothing itself of what changed, without page checksums and wal_log_hints.

use std::path::{Path, PathBuf};

use serde_json::Value;
use windlass_testkit::installed::{hooked_versions, library, of_version};
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, become_server_user, succeed,
};

use crate::run::*;

/// What a table holds, in any order.
const TABLES: &str = "SELECT string_agg(format('SELECT %L AS name, count(*), \
    sum(hashtextextended(t::text, 0)::numeric) FROM %s t', oid::regclass, oid::regclass), \
    ' UNION ALL ' ORDER BY oid) FROM pg_class \
    WHERE relkind IN ('r', 'm') AND relpersistence = 'p'";

struct Hooked {
    server: PrivateCluster,
    dir: tempfile::TempDir,
}

impl Hooked {
    /// A server with the hook, that initdb made with these arguments.
    fn start(initdb: &[&str]) -> Self {
        Self::of_version(Path::new(DEFAULT_BIN), initdb)
    }

    fn of_version(bin: &Path, initdb: &[&str]) -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let copy = dir.path().join("windlass.so");
        std::fs::copy(library(), &copy).unwrap();
        let options = ClusterOptions {
            bin: bin.to_owned(),
            ..ClusterOptions::default()
        };
        let mut options = options
            .setting(format!("shared_preload_libraries = '{}'", copy.display()))
            .setting("autovacuum = off");
        for argument in initdb {
            options = options.initdb(*argument);
        }
        let server = PrivateCluster::start(&options);
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        Self { server, dir }
    }

    fn sets(&self) -> String {
        self.dir.path().join("sets").to_str().unwrap().to_owned()
    }

    fn words(&self, kind: &str, more: &[&str]) -> Vec<String> {
        let conninfo = self.server.conninfo();
        let words = ["backup", &conninfo, "--to", &self.sets(), "--type", kind];
        [&words, more]
            .concat()
            .into_iter()
            .map(String::from)
            .collect()
    }

    /// Backs up, which must end with this code.
    fn back_up(&self, kind: &str, more: &[&str], expected: i32) -> Value {
        let words = self.words(kind, more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, document) = json(&words);
        assert_eq!(code, expected, "{document:#}");
        document
    }

    /// A backup that builds on another one. Only what the map names is read.
    fn link(&self, kind: &str) -> Value {
        let done = self.back_up(kind, &["--strict"], 0);
        assert_eq!(
            (&done["type"], &done["database"]["changes_from"]),
            (&kind.into(), &"map".into())
        );
        assert!(
            !done["remarks"].to_string().contains("map of changes"),
            "{done:#}"
        );
        done
    }

    /// A restore of a set holds what the source holds. Nobody may write.
    fn judge(&self, set: &Value) {
        self.judge_by(set, check);
    }

    /// The same, with these checks.
    fn judge_by(&self, set: &Value, check: impl FnOnce(&PrivateCluster)) {
        let into: PathBuf = self.dir.path().join("restored");
        let id = set["set_id"].as_str().unwrap();
        let words = [
            "restore",
            &self.sets(),
            "--set",
            id,
            "--into",
            into.to_str().unwrap(),
        ];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let restored = PrivateCluster::adopt_stopped(&into, self.server.bin());
        restored.configure(&["shared_preload_libraries = ''"]);
        let mut restored = restored;
        restored.run();
        assert_eq!(content(&restored), content(&self.server), "{id}");
        check(&restored);
        drop(restored);
        std::fs::remove_dir_all(&into).unwrap();
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        forget_memory(self.server.data());
    }
}

/// What every database holds.
fn content(server: &PrivateCluster) -> Vec<String> {
    let of = |name: &str| {
        let tables = server.sql(name, TABLES);
        server.sql(name, &format!("{tables} ORDER BY name"))
    };
    databases(server).iter().map(|name| of(name)).collect()
}

fn databases(server: &PrivateCluster) -> Vec<String> {
    let names = "SELECT datname FROM pg_database WHERE datallowconn ORDER BY 1";
    let names = server.sql("postgres", names);
    names.lines().map(str::to_owned).collect()
}

/// PostgreSQL finds no fault in any relation, nor in what is said of visible rows.
fn check(server: &PrivateCluster) {
    let words = ["--all", "--install-missing", "--heapallindexed"];
    succeed(server.tool("pg_amcheck").args(words));
    for name in databases(server) {
        server.sql(&name, "CREATE EXTENSION IF NOT EXISTS pg_visibility");
        let wrong = "SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 't', 'm') \
             AND (EXISTS (SELECT FROM pg_check_visible(oid)) \
             OR EXISTS (SELECT FROM pg_check_frozen(oid)))";
        assert_eq!(server.sql(&name, wrong), "", "{name}");
    }
}

fn prepare(server: &PrivateCluster) {
    succeed(
        server
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    for sql in [
        "CREATE TABLE kept (n bigint)",
        "CREATE TABLE plain AS SELECT i, md5(i::text) AS x FROM generate_series(1, 20000) i",
        "CREATE INDEX ON plain (i)",
        "CREATE TABLE cut AS SELECT generate_series(1, 20000) i",
        "CREATE TABLE emptied AS SELECT generate_series(1, 9000) i",
        "CREATE UNLOGGED TABLE fleeting AS SELECT generate_series(1, 9999)",
    ] {
        server.sql("postgres", sql);
    }
}

/// Statements that change, cut off, move and remove relations. A server of 15 without checksums
/// logs no hint bits.
fn change(server: &PrivateCluster, round: u32) {
    let last = round.wrapping_sub(1);
    for sql in [
        "SELECT count(*) FROM plain",
        &format!("UPDATE plain SET x = x || 'r{round}' WHERE i % 97 = {round}"),
        &format!("DELETE FROM cut WHERE i > 20000 - {round} * 3000"),
        "VACUUM cut",
        "INSERT INTO cut SELECT generate_series(20001, 20100)",
        "TRUNCATE emptied",
        &format!("INSERT INTO emptied SELECT generate_series(1, {round} * 100)"),
        &format!("CREATE TABLE made_{round} AS SELECT * FROM plain WHERE i % 3 = {round} % 3"),
        &format!("DROP TABLE IF EXISTS made_{last}"),
        "VACUUM FULL pg_class",
        "VACUUM FULL plain",
        "DROP DATABASE IF EXISTS again",
        "CREATE DATABASE again STRATEGY file_copy",
    ] {
        server.sql("postgres", sql);
    }
    server.sql("again", &format!("CREATE TABLE t AS SELECT {round} AS i"));
}

#[test]
fn a_chain_by_the_map_of_the_hook_is_the_source_at_every_link() {
    let place = Hooked::start(&[]);
    prepare(&place.server);
    let full = under_load(&place.server, || place.back_up("full", &[], 0));
    assert_eq!(full["database"]["change_mark"]["generation"], 1, "{full:#}");
    for round in 1..=2 {
        change(&place.server, round);
        under_load(&place.server, || place.link("incr"));
        change(&place.server, round + 10);
        place.judge(&place.link("incr"));
    }
    place.judge(&place.link("diff"));
    let output = windlass(&["verify", &place.sets()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// The newest version that says nothing itself of what changed.
#[test]
fn the_newest_version_without_summaries_has_the_map_too() {
    let versions = hooked_versions().into_iter();
    let (_, bin) = versions.filter(|(major, _)| *major < 17).max().unwrap();
    let place = Hooked::of_version(&bin, &[]);
    prepare(&place.server);
    place.back_up("full", &[], 0);
    for (round, kind) in (1..).zip(["incr", "incr", "diff"]) {
        change(&place.server, round);
        place.judge_by(&place.link(kind), |_| {});
    }
}

/// The map of the hook and the summaries of the server, since one base: both find what changed, and
/// both leave out what did not. A server that summarizes makes no map, so it begins to do so behind
/// the base, out of the log that it has kept.
#[test]
fn the_map_and_the_summaries_of_the_server_agree() {
    let mut place = Hooked::of_version(&of_version(hooked_versions(), 18), &[]);
    let sql = |place: &Hooked, sql: &str| place.server.sql("postgres", sql);
    let set = |place: &Hooked, setting: &str| {
        sql(place, &format!("ALTER SYSTEM SET {setting}"));
        sql(place, "SELECT pg_reload_conf()");
    };
    set(&place, "wal_keep_size = '1GB'");
    prepare(&place.server);
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 60000) i";
    sql(&place, &format!("CREATE TABLE large AS {rows}"));
    sql(&place, "VACUUM FREEZE large");
    sql(&place, "CHECKPOINT");
    let full = place.back_up("full", &[], 0);
    set(&place, "summarize_wal = on");
    let summarizes = "SELECT current_setting('summarize_wal')";
    place.server.wait_until(summarizes, "on");
    change(&place.server, 1);
    let few = "UPDATE large SET x = 'y' WHERE i IN (5, 30000, 59999)";
    sql(&place, few);
    let large: u64 = sql(&place, "SELECT pg_relation_size('large')")
        .parse()
        .unwrap();
    let saves = |link: &Value| {
        let read = |of: &Value| of["bytes_read"].as_u64().unwrap();
        let saved = read(&full).saturating_sub(read(link));
        assert!(saved > large * 9 / 10, "{saved} of {large}: {link:#}");
        assert_eq!(link["base"], full["set_id"], "{link:#}");
    };
    let by_map = place.link("incr");
    saves(&by_map);
    place.judge_by(&by_map, |_| {});
    // Without the hook, the server's own word is all there is.
    place.server.stop("fast");
    place.server.configure(&["shared_preload_libraries = ''"]);
    place.server.run();
    let by_summaries = place.back_up("diff", &["--strict"], 0);
    let found = &by_summaries["database"]["changes_from"];
    assert_eq!(found, "summaries", "{by_summaries:#}");
    saves(&by_summaries);
    place.judge_by(&by_summaries, |_| {});
}

/// How large the log may become matters only for the size of the map.
#[test]
fn only_a_backup_that_makes_the_map_asks_how_large_the_log_may_become() {
    let place = Hooked::start(&[]);
    let all = "ALTER ROLE ALL SET log_statement = 'all'";
    place.server.sql("postgres", all);
    let question = "pg_size_bytes(current_setting('max_wal_size'))";
    let asked = || place.server.log().matches(question).count();
    place.back_up("full", &[], 0);
    assert_eq!(asked(), 1);
    place.link("incr");
    assert_eq!(asked(), 1);
}

#[test]
fn what_has_not_changed_is_not_read_until_the_server_starts_again() {
    let mut place = Hooked::start(&[]);
    let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 60000) i";
    let sql = |place: &Hooked, sql: &str| place.server.sql("postgres", sql);
    sql(&place, &format!("CREATE TABLE large AS {rows}"));
    sql(&place, "VACUUM FREEZE large");
    // What is only in memory yet is written after the full backup has begun, so it counts.
    sql(&place, "CHECKPOINT");
    let full = place.back_up("full", &[], 0);
    sql(
        &place,
        "UPDATE large SET x = 'y' WHERE i IN (5, 30000, 59999)",
    );
    // The server's log has marks in the map, too: these segments are as large as the files.
    for _ in 0..20 {
        sql(&place, "CREATE TABLE filler ()");
        sql(&place, "DROP TABLE filler");
        sql(&place, "SELECT pg_switch_wal()");
    }
    let (conninfo, sets) = (place.server.conninfo(), place.sets());
    let words = ["check", &conninfo, "--to", &sets, "--type", "incr"];
    let said = text(&windlass(&words));
    assert!(said.contains("by the map of the write hook"), "{said}");
    let one = place.link("incr");
    let read = |of: &Value| of["bytes_read"].as_u64().unwrap();
    let large: u64 = sql(&place, "SELECT pg_relation_size('large')")
        .parse()
        .unwrap();
    let saved = read(&full) - read(&one);
    assert!(saved > large * 9 / 10, "{saved} of {large}");
    place.judge(&one);
    place.server.stop("fast");
    place.server.run();
    let words = place.words("incr", &["--strict"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("wal_log_hints"), "{}", text(&output));
    let whole = place.back_up("incr", &[], 3);
    assert_eq!(whole["type"], "full");
    let remark =
        "the write hook's map of changes was not used: it is not the one that saw the base";
    let remarks = whole["remarks"].to_string();
    assert!(remarks.contains(remark), "{remarks}");
    sql(&place, "DELETE FROM large WHERE i < 100");
    place.judge(&place.link("incr"));
}

#[test]
fn without_the_map_the_positions_of_pages_say_it() {
    let mut place = Hooked::start(&["--data-checksums"]);
    place
        .server
        .sql("postgres", "CREATE TABLE t AS SELECT 1 AS i");
    place.back_up("full", &[], 0);
    place.server.stop("immediate");
    place.server.run();
    place.server.sql("postgres", "INSERT INTO t VALUES (2)");
    let one = place.back_up("incr", &["--strict"], 0);
    assert_eq!(one["database"]["changes_from"], "pages");
    assert_eq!(one["remarks"].as_array().unwrap().len(), 1, "{one:#}");
    place.judge(&one);
    place.server.sql("postgres", "INSERT INTO t VALUES (3)");
    place.judge(&place.link("incr"));
}
