//! Snapshots of PostgreSQL clusters, under load, and killed while they are made.

use std::process::Command;

use serde_json::Value;
use windlass_testkit::counted::{counted, drawn, killed};
use windlass_testkit::load::under_load;
use windlass_testkit::postgres::{ClusterOptions, DEFAULT_BIN, PrivateCluster, stay_root, succeed};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::Scratch;
use crate::support::text;

/// What pgbench keeps true in every state: money is conserved.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT sum(delta) FROM pgbench_history)";

fn run(scratch: &Scratch, words: &[&str]) -> String {
    let output = scratch.run(None, words);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    said
}

#[test]
fn a_cluster_under_load_has_snapshots_that_open_verify_and_restore() {
    stay_root();
    let mut cluster = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    succeed(
        cluster
            .tool("pgbench")
            .args(["-i", "-q", "-s", "2", "postgres"]),
    );
    cluster.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    cluster.sql("postgres", "CREATE TABLE kept (n bigint)");
    let (scratch, conninfo) = (Scratch::new(), cluster.conninfo());
    let create = ["snapshot", "create", &conninfo, "before", "--json"];
    let made = under_load(&cluster, || run(&scratch, &create));
    let made: serde_json::Value = serde_json::from_str(made.trim()).unwrap();
    assert_eq!(made["method"], "copy");
    assert!(made["lsn"].as_str().unwrap().contains('/'), "{made}");
    assert_eq!(made["writers_stopped_seconds"], 0.0);
    cluster.sql(
        "postgres",
        "INSERT INTO mark SELECT generate_series(2, 100)",
    );
    let word = format!("{conninfo}@before");
    let ask = |word: &str, sql: &str| {
        run(
            &scratch,
            &["open", "--quiet", word, "--", "psql", "-XqAt", "-c", sql],
        )
    };
    assert_eq!(ask(&word, SUMS), "t\n");
    assert_eq!(ask(&word, "SELECT count(*) FROM mark"), "1\n");
    let listed = run(&scratch, &["snapshot", "list", &conninfo]);
    assert!(
        listed.contains("before") && listed.contains("kept"),
        "{listed}"
    );
    let printed = run(&scratch, &["verify", "--open", &word]);
    assert!(printed.contains("nothing wrong was found"), "{printed}");
    // A warning changes the exit code, unless it is accepted.
    std::os::unix::fs::symlink("/nowhere", cluster.data().join("dangling")).unwrap();
    for (name, more, code) in [
        ("warned", &[][..], 3),
        ("accepted", &["--accept", "link-dangling"], 0),
    ] {
        let words = ["snapshot", "create", &conninfo, name, "--method", "copy"];
        let output = scratch.run(None, &[&words[..], more].concat());
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("(link-dangling)"), code == 3, "{said}");
        run(&scratch, &["snapshot", "drop", &conninfo, name]);
    }
    // Without its server, the cluster has its snapshots all the same.
    cluster.stop("fast");
    let data = cluster.data().to_str().unwrap().to_owned();
    let word = format!("{data}@before");
    assert_eq!(ask(&word, SUMS), "t\n");
    let sets = scratch.path().join("sets");
    let sets = sets.to_str().unwrap();
    run(&scratch, &["backup", &word, "--to", sets]);
    assert_eq!(ask(sets, SUMS), "t\n");
    let into = scratch.path().join("restored");
    let into = into.to_str().unwrap();
    run(&scratch, &["restore", sets, "--into", into]);
    succeed(cluster.tool("pg_verifybackup").arg(into));
    run(&scratch, &["snapshot", "drop", &data, "before"]);
    let home = format!("{data}.windlass-snapshots");
    assert!(!std::path::Path::new(&home).exists());
    scratch.assert_clean();
}

/// Calls that change something.
const CHANGES: &str = "openat,mkdir,write,pwrite64,ioctl,copy_file_range,ftruncate,fsync,fdatasync,\
    rename,renameat2,unlink,sendto";
/// So many of them are tried in the suite.
const FEW: usize = 2;
const SEED: u64 = 23;

/// The server ends the backup with the session, and the next snapshot removes what is left.
#[test]
fn a_copy_or_a_clone_of_a_cluster_that_is_killed_leaves_nothing_that_counts() {
    stay_root();
    let (volume, scratch) = (Volume::new(VolumeKind::Xfs, 1500), Scratch::new());
    let mut made = PrivateCluster::start(&ClusterOptions::default());
    made.sql("postgres", "CREATE TABLE mark AS SELECT 1 AS i");
    made.stop("fast");
    let data = volume.at().join("data");
    succeed(Command::new("cp").arg("-a").arg(made.data()).arg(&data));
    let cluster = PrivateCluster::adopt(&data, DEFAULT_BIN.as_ref());
    let (conninfo, trace) = (cluster.conninfo(), scratch.path().join("trace"));
    let listed = || {
        let listed = run(&scratch, &["snapshot", "list", &conninfo, "--json"]);
        let listed: Value = serde_json::from_str(listed.trim()).unwrap();
        listed["snapshots"].as_array().unwrap().clone()
    };
    for method in ["copy", "clone"] {
        let create = |name: &str| {
            let words = ["snapshot", "create", &conninfo, name, "--method", method];
            scratch.command(None, &words)
        };
        let (output, calls) = counted(&create("whole"), CHANGES, &trace);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert!(calls.len() > 20, "{method}: {calls:?}");
        run(&scratch, &["snapshot", "drop", &conninfo, "whole"]);
        for call in drawn(calls, FEW, SEED) {
            let at = format!("{method}, killed at {call}");
            killed(&create("killed"), &call);
            let next = create("next").output().unwrap();
            assert_eq!(next.status.code(), Some(0), "{at}: {}", text(&next));
            for one in listed() {
                assert_eq!(one["state"], "kept", "{at}: {one}");
                let name = one["name"].as_str().unwrap();
                if name == "killed" {
                    let word = format!("{conninfo}@{name}");
                    let ask = ["psql", "-XqAt", "-c", "SELECT i FROM mark"];
                    let open = ["open", "--quiet", &word, "--"];
                    assert_eq!(run(&scratch, &[&open[..], &ask].concat()), "1\n", "{at}");
                }
                run(&scratch, &["snapshot", "drop", &conninfo, name]);
            }
            assert!(
                !volume.at().join("data.windlass-snapshots").exists(),
                "{at}"
            );
        }
    }
}
