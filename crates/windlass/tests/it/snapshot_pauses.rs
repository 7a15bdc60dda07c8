//! A pause that takes longer than the server waits: Windlass stands still in it until the server
//! goes on by itself. What was taken in that pause is in no snapshot.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::process::Output;

use serde_json::Value;
use windlass_testkit::counted::{Call, stopped_at};
use windlass_testkit::load::Load;
use windlass_testkit::postgres::{
    ClusterOptions, PrivateCluster, give_to_servers, stay_root, succeed,
};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

/// A file of the user in the data directory. Windlass opens it only to copy it, and that is in the
/// pause, after the hook sees the snapshot and before the end of the log is copied.
const HELD: &str = "held";
const SESSIONS: usize = 2;
/// The server's processes wait for no longer than this many seconds.
const SERVER_SECONDS_MAX: f64 = 3.0;
/// What pgbench keeps true in every state; how often `mark` was written; whether the rows are where
/// the index and the map say.
const SHOWN: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history);
    SELECT i FROM mark;
    CREATE EXTENSION amcheck;
    DO $$ BEGIN PERFORM bt_index_check('pgbench_accounts_pkey', true); END $$;
    SELECT count(*) FROM verify_heapam('pgbench_accounts')";

fn source(scratch: &Scratch) -> PrivateCluster {
    stay_root();
    let library = library(scratch).display().to_string();
    let options = ClusterOptions::default().initdb("--data-checksums");
    let options = options.setting(format!("shared_preload_libraries = '{library}'"));
    let cluster = PrivateCluster::start(&options);
    let init = ["-i", "-q", "-s", "1", "postgres"];
    succeed(cluster.tool("pgbench").args(init));
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    let held = cluster.data().join(HELD);
    std::fs::write(&held, "x").unwrap();
    give_to_servers(&held);
    cluster
}

/// Makes a snapshot, and stands still in its first pause until the server has written.
fn held_in_its_first_pause(cluster: &PrivateCluster, scratch: &Scratch, words: &[&str]) -> Output {
    let (call, trace) = (Call::new("openat", 1), scratch.path().join("trace"));
    let held = cluster.data().join(HELD);
    let command = scratch.command(None, words);
    let stopped = stopped_at(&command, (&call, &held), &trace).unwrap();
    // The first of them waits until the server does not wait any more.
    for sql in ["UPDATE mark SET i = 2", "CHECKPOINT"] {
        cluster.sql("postgres", sql);
    }
    stopped.go_on()
}

#[test]
fn what_was_taken_in_a_pause_that_the_server_ended_is_in_no_snapshot() {
    let scratch = Scratch::new();
    let cluster = source(&scratch);
    let conninfo = cluster.conninfo();
    let mut load = Load::start(&cluster, SESSIONS);
    let create = ["snapshot", "create", &conninfo, "one", "--method", "hook"];
    let words = [&create[..], &["--checkpoint", "none", "--json"]].concat();
    let output = held_in_its_first_pause(&cluster, &scratch, &words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let made: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = made["steps"].as_array().unwrap().iter();
    let is_again = |step: &Value| step["name"] == "letting writers go on";
    assert!(steps.clone().any(is_again), "{made}");
    let paused = steps.filter(|step| step["name"] == "waiting for writers");
    assert!(paused.count() > 1, "{made}");
    // The pause that did not hold is counted, too.
    let stopped = made["writers_stopped_seconds"].as_f64().unwrap();
    assert!(stopped > SERVER_SECONDS_MAX, "{made}");
    // It is of a moment after the first pause. The pages that the hook has kept since then would
    // show the row of before.
    let word = format!("{conninfo}@one");
    let open = ["open", "--quiet", "--writable", &word, "--"];
    let ask = [&open[..], &["psql", "-XqAt", "-c", SHOWN]].concat();
    assert_eq!(run(&scratch, 0, &ask), "t\n2\n0\n");
    load.check();
    drop(load);
    run(&scratch, 0, &["snapshot", "drop", &conninfo, "one"]);
    let links = cluster.data().join("pg_subtrans/windlass");
    assert_eq!(std::fs::read_dir(links).unwrap().count(), 0);
    forget(&cluster);
    scratch.assert_clean();
}
