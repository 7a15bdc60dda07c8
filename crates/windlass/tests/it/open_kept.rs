//! `windlass open --keep` leaves a database open in the background, and `windlass close` closes it.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::process::Command;

use serde_json::Value;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, give_to_servers, stay_root};

use crate::clusters::{back_up, place};
use crate::opening::{Scratch, User, open_to_all, users, wait_until};
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

fn json(scratch: &Scratch, words: &[&str]) -> Value {
    let said = run(scratch, 0, &[words, &["--json"]].concat());
    serde_json::from_str(said.trim()).unwrap()
}

fn text_of(document: &Value, field: &str) -> String {
    let value = &document[field];
    value
        .as_str()
        .unwrap_or_else(|| panic!("{document}"))
        .to_owned()
}

/// The operation of the database that is kept open under a name. Root sees those of other tests,
/// too, so each has its own name.
fn kept(scratch: &Scratch, user: User, name: &str) -> Option<Value> {
    let listed = scratch.run(user, &["status", "--json"]);
    let mut listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let operations = listed["operations"].as_array_mut().unwrap();
    let found = operations
        .iter_mut()
        .find(|one| one["numbers"]["kept"]["name"] == name);
    found.map(Value::take)
}

/// Closes what a test that fails leaves open.
struct Closing<'a>(&'a Scratch, &'a str);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.run(None, &["close", self.1]);
        }
    }
}

/// What psql prints of this command, with this connection string.
fn ask(scratch: &Scratch, conninfo: &str, sql: &str) -> String {
    let mut psql = scratch.command_of("psql");
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", sql]);
    let output = psql.output().unwrap();
    assert!(output.status.success(), "{sql}: {}", text(&output));
    text(&output).trim().to_owned()
}

#[test]
fn a_server_stays_open_under_its_name_until_it_is_closed() {
    stay_root();
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql("postgres", "CREATE TABLE t AS SELECT 42 AS answer");
    let set = back_up(&source, place.path(), &[]);
    drop(source);
    for user in users() {
        let scratch = Scratch::new();
        let _closing = Closing(&scratch, "old");
        let output = scratch.run(user, &["open", &set, "--keep", "old", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let opened: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(opened["name"], "old");
        assert!(text_of(&opened, "host").ends_with("/old"), "{opened}");
        let conninfo = text_of(&opened, "conninfo");
        assert_eq!(ask(&scratch, &conninfo, "SELECT answer FROM t"), "42");

        let operation = kept(&scratch, user, "old").unwrap();
        assert_eq!(operation["numbers"]["kept"]["reach"], *conninfo);

        let again = scratch.run(user, &["open", &set, "--keep", "old"]);
        let said = text(&again);
        assert_eq!(again.status.code(), Some(1), "{said}");
        assert!(said.contains("windlass close NAME"), "{said}");
        assert_eq!(ask(&scratch, &conninfo, "SELECT answer FROM t"), "42");

        let other = scratch.run(user, &["close", "other"]);
        let said = text(&other);
        assert_eq!(other.status.code(), Some(1), "{said}");
        assert!(said.contains("old"), "{said}");

        let closed = scratch.run(user, &["close", "old", "--json"]);
        assert_eq!(closed.status.code(), Some(0), "{}", text(&closed));
        let closed: Value = serde_json::from_slice(&closed.stdout).unwrap();
        assert_eq!(closed["damaged"], false);
        scratch.assert_clean();
    }
}

#[test]
fn a_file_stays_open_under_its_name_at_one_path() {
    stay_root();
    let scratch = Scratch::new();
    let shop = scratch.path().join("shop.db");
    let sqlite = |path: &str, sql: &str| {
        let output = Command::new("sqlite3").args([path, sql]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        text(&output).trim().to_owned()
    };
    let shop = shop.to_str().unwrap();
    sqlite(shop, "CREATE TABLE t (i); INSERT INTO t VALUES (1)");
    let sets = scratch.path().join("sets");
    let sets = sets.to_str().unwrap();
    run(&scratch, 0, &["backup", shop, "--to", sets, "--quiet"]);
    let _closing = Closing(&scratch, "first");
    let first = json(&scratch, &["open", sets, "--keep", "first"]);
    let path = text_of(&first, "path");
    assert!(path.ends_with("/first/data/shop.db"), "{path}");
    assert_eq!(sqlite(&path, "SELECT * FROM t"), "1");
    run(&scratch, 0, &["close", "first"]);
    // A timer that opens it each night sends no mail.
    let quiet = ["open", sets, "--keep", "first", "--quiet"];
    assert_eq!(run(&scratch, 0, &quiet), "");
    assert_eq!(sqlite(&path, "SELECT * FROM t"), "1");
    run(&scratch, 0, &["close", "first"]);
    assert_eq!(
        json(&scratch, &["open", sets, "--keep", "first"])["path"],
        *path
    );
    // A killed process leaves a link and a mount, and the name is free.
    let process = kept(&scratch, None, "first").unwrap()["pid"]
        .as_i64()
        .unwrap();
    let killed = Command::new("kill")
        .args(["-9", &process.to_string()])
        .status();
    assert!(killed.unwrap().success());
    wait_until(|| kept(&scratch, None, "first").is_none());
    assert_eq!(
        json(&scratch, &["open", sets, "--keep", "first"])["path"],
        *path
    );
    assert_eq!(sqlite(&path, "SELECT * FROM t"), "1");
    run(&scratch, 0, &["close", "first"]);
}

#[test]
fn a_name_that_is_no_name_opens_nothing() {
    let scratch = Scratch::new();
    run(&scratch, 2, &["open", "nowhere", "--keep", "../up"]);
    run(
        &scratch,
        2,
        &["open", "nowhere", "--keep", "a", "--", "true"],
    );
    run(&scratch, 1, &["open", "nowhere", "--keep", "a"]);
    let said = run(&scratch, 1, &["close", "a"]);
    assert!(said.contains("no database is kept open as a"), "{said}");
    scratch.assert_clean();
}

/// As the manual's recipe does it: the live server reads the table of yesterday.
#[test]
fn a_kept_snapshot_is_joined_with_the_live_database_and_closed_when_it_is_dropped() {
    stay_root();
    let scratch = Scratch::new();
    let source = PrivateCluster::start(&ClusterOptions::default());
    source.sql(
        "postgres",
        "CREATE TABLE orders AS SELECT i AS id, 1 AS price FROM generate_series(1, 100) i",
    );
    let database = source.conninfo();
    let to = scratch.path().join("snapshots");
    std::fs::create_dir(&to).unwrap();
    give_to_servers(&to);
    open_to_all(&to, 0o700);
    let to = to.to_str().unwrap();
    let words = [
        "snapshot",
        "create",
        &database,
        "yesterday",
        "--to",
        to,
        "--method",
        "copy",
    ];
    run(&scratch, 0, &words);
    source.sql("postgres", "UPDATE orders SET price = 2 WHERE id <= 7");
    let name = format!("{database}@yesterday");
    let _closing = Closing(&scratch, "yesterday");
    let opened = json(&scratch, &["open", &name, "--keep", "yesterday"]);
    let field = |name: &str| text_of(&opened, name);
    source.sql("postgres", "CREATE EXTENSION postgres_fdw");
    let server = format!(
        "CREATE SERVER yesterday FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{}', port '{}', dbname '{}')",
        field("host"),
        opened["port"],
        field("dbname"),
    );
    source.sql("postgres", &server);
    let mapping = format!(
        "CREATE USER MAPPING FOR CURRENT_USER SERVER yesterday OPTIONS (user '{}')",
        field("user"),
    );
    source.sql("postgres", &mapping);
    source.sql("postgres", "CREATE SCHEMA yesterday");
    source.sql(
        "postgres",
        "IMPORT FOREIGN SCHEMA public LIMIT TO (orders) FROM SERVER yesterday INTO yesterday",
    );
    let changed = "SELECT count(*) FROM orders o JOIN yesterday.orders y USING (id)
        WHERE o.price <> y.price";
    assert_eq!(source.sql("postgres", changed), "7");
    run(&scratch, 0, &["snapshot", "drop", &database, "yesterday"]);
    assert_eq!(kept(&scratch, None, "yesterday"), None);
    run(&scratch, 1, &["close", "yesterday"]);
}

/// A drop is refused while somebody reads such a snapshot, so it has to close it first. The next
/// one is found at the same place.
#[test]
fn a_kept_snapshot_by_the_hook_is_closed_when_it_is_dropped() {
    stay_root();
    let scratch = Scratch::new();
    let library = library(&scratch).display().to_string();
    let load = format!("shared_preload_libraries = '{library}'");
    let source = PrivateCluster::start(&ClusterOptions::default().setting(load));
    let database = source.conninfo();
    source.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    let names = ["first", "second"];
    for name in names {
        let words = ["snapshot", "create", &database, name, "--method", "hook"];
        run(&scratch, 0, &words);
        source.sql("postgres", "UPDATE mark SET i = i + 1");
        source.sql("postgres", "CHECKPOINT");
    }
    let _closing = Closing(&scratch, "by-hook");
    let mut reached = Vec::new();
    for (name, rows) in names.into_iter().zip(["1", "2"]) {
        let word = format!("{database}@{name}");
        let opened = json(&scratch, &["open", &word, "--keep", "by-hook"]);
        let conninfo = text_of(&opened, "conninfo");
        assert_eq!(ask(&scratch, &conninfo, "SELECT i FROM mark"), rows);
        reached.push(conninfo);
        let steps = opened["steps"].as_array().unwrap();
        for step in ["mounting the image", "starting the server", "redo"] {
            assert!(steps.iter().any(|one| one["name"] == step), "{opened}");
        }
        run(&scratch, 0, &["snapshot", "drop", &database, name]);
        assert_eq!(kept(&scratch, None, "by-hook"), None);
    }
    assert_eq!(reached[0], reached[1]);
    forget(&source);
    scratch.assert_clean();
}
