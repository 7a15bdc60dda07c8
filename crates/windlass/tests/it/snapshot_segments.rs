//! Snapshots of a table of more than 1 GiB, which has several files, while sessions write to both.
//! Most of the first file is a hole, so it takes hardly any room.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use windlass_testkit::load::Load;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root, succeed};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};

/// The rows begin after so many empty pages of 8 KiB. About half of them are before the end of the
/// first file, which has 131,072 pages.
const HOLE: u64 = 130_200;
/// What pgbench keeps true in every state; how many rows there are, and how many that were changed
/// after the snapshots; whether the rows and the index are whole. Nothing reads the hole.
const SHOWN: &str = "SET enable_seqscan = off;
    SELECT (SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history);
    SELECT count(*), count(*) FILTER (WHERE filler LIKE 'x%') FROM pgbench_accounts WHERE aid > 0;
    CREATE EXTENSION amcheck;
    DO $$ BEGIN PERFORM bt_index_check('pgbench_accounts_pkey'); END $$;
    SELECT count(*) FROM verify_heapam('pgbench_accounts', startblock => 130200)";

/// A server with pgbench's tables. The accounts are in two files.
fn source(scratch: &Scratch) -> PrivateCluster {
    stay_root();
    let library = library(scratch).display().to_string();
    let options = ClusterOptions::default().initdb("--data-checksums");
    let options = options.setting(format!("shared_preload_libraries = '{library}'"));
    // It would read the hole, and give its pages to new rows.
    let options = options.setting("autovacuum = off");
    let mut cluster = PrivateCluster::start(&options);
    let init = ["-i", "-q", "-s", "1", "postgres"];
    succeed(cluster.tool("pgbench").args(init));
    cluster.sql("postgres", "TRUNCATE pgbench_accounts");
    let path = cluster.sql(
        "postgres",
        "SELECT pg_relation_filepath('pgbench_accounts')",
    );
    cluster.stop("fast");
    let path = cluster.data().join(path);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // The server takes pages of zeros for pages that nobody has used yet.
    file.set_len(HOLE * 8192).unwrap();
    cluster.run();
    let rows = "SELECT i, 1, 0, '' FROM generate_series(1, 100000) i";
    cluster.sql("postgres", &format!("INSERT INTO pgbench_accounts {rows}"));
    cluster.sql("postgres", "CHECKPOINT");
    let second = path.with_extension("1").metadata().unwrap();
    assert!(second.len() > 500 * 8192, "{}", second.len());
    cluster
}

#[test]
fn snapshots_of_a_table_of_several_files_are_of_one_moment_under_load() {
    let scratch = Scratch::new();
    let cluster = source(&scratch);
    let conninfo = cluster.conninfo();
    let mut load = Load::start(&cluster, 3);
    let written = |more: u32| {
        let count = "SELECT count(*) FROM pgbench_history";
        let before = cluster.sql("postgres", count);
        cluster.wait_until(&format!("SELECT ({count}) > {before} + {more}"), "t");
    };
    let snapshot = |words: &[&str]| run(&scratch, 0, &[&["snapshot"][..], words].concat());
    let assert_shows = |name: &str| {
        let word = format!("{conninfo}@{name}");
        let open = ["open", "--quiet", "--writable", &word, "--"];
        let ask = [&open[..], &["psql", "-XqAt", "-c", SHOWN]].concat();
        assert_eq!(run(&scratch, 0, &ask), "t\n100000|0\n0\n", "{name}");
    };
    written(20);
    snapshot(&["create", &conninfo, "linked", "--method", "hook"]);
    written(20);
    let paused = ["create", &conninfo, "paused", "--method", "hook"];
    snapshot(&[&paused[..], &["--checkpoint", "none"]].concat());
    // Rows of both files, in every session's way.
    let all = "ARRAY(SELECT generate_series(100, 100000, 100))";
    let update = format!("UPDATE pgbench_accounts SET filler = 'x' WHERE aid = ANY ({all})");
    cluster.sql("postgres", &update);
    written(20);
    cluster.sql("postgres", "CHECKPOINT");
    assert_shows("linked");
    assert_shows("paused");
    // Its pages go to the older one, while both files are written to.
    snapshot(&["drop", &conninfo, "paused"]);
    written(20);
    cluster.sql("postgres", "CHECKPOINT");
    load.check();
    assert_shows("linked");
    load.end();
    snapshot(&["drop", &conninfo, "linked"]);
    forget(&cluster);
    scratch.assert_clean();
}
