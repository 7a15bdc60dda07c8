//! What a rotation says of lost snapshots by the hook, and of a cluster that is another one. What
//! it drops of those that ended by a limit, and if the clock has gone back.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root, succeed};

use crate::opening::Scratch;
use crate::snapshot_forged::forge_record;
use crate::snapshot_hook::{forget, library, restart, run};
use crate::snapshot_room::traced;
use crate::snapshots::{ledger, listed};
use crate::support::{json, text};

/// Nobody reads what a timer prints as long as it ends well.
#[test]
fn a_rotation_says_once_that_the_server_has_no_hook_any_more_and_lost_its_snapshots() {
    stay_root();
    let scratch = Scratch::new();
    let load = format!(
        "shared_preload_libraries = '{}'",
        library(&scratch).display()
    );
    let mut cluster = PrivateCluster::start(&ClusterOptions::default().setting(load));
    let conninfo = cluster.conninfo();
    let rotate = ["snapshot", "rotate", &conninfo, "--keep", "2", "--quiet"];
    for _ in 0..2 {
        assert_eq!(run(&scratch, 0, &rotate), "");
    }
    cluster.configure(&["shared_preload_libraries = ''"]);
    restart(&mut cluster);
    let said = run(&scratch, 3, &rotate);
    for part in ["(snapshots-lost)", "1 older one", "(method-changed)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // What cannot be read does not count, so nothing was dropped. It goes with the next one.
    let listed = run(&scratch, 3, &["snapshot", "list", &conninfo]);
    assert_eq!(listed.matches("lost: ").count(), 2, "{listed}");
    assert_eq!(run(&scratch, 0, &rotate), "");
    let listed = run(&scratch, 0, &["snapshot", "list", &conninfo]);
    assert_eq!(listed.matches("kept").count(), 2, "{listed}");
    forget(&cluster);
}

/// There are never two that are kept.
#[test]
fn a_rotation_whose_snapshots_end_by_their_limit_leaves_as_many_as_are_to_stay() {
    stay_root();
    let scratch = Scratch::new();
    let load = format!(
        "shared_preload_libraries = '{}'",
        library(&scratch).display()
    );
    let cluster = PrivateCluster::start(&ClusterOptions::default().setting(load));
    let conninfo = cluster.conninfo();
    let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 5000) i";
    cluster.sql("postgres", &format!("CREATE TABLE many AS {rows}"));
    let rotate = ["snapshot", "rotate", &conninfo, "--keep", "2", "--quiet"];
    let rotate = [&rotate[..], &["--max-size", "64KiB"]].concat();
    for _ in 0..4 {
        assert_eq!(run(&scratch, 0, &rotate), "");
        cluster.sql("postgres", "UPDATE many SET x = md5(x)");
        cluster.sql("postgres", "CHECKPOINT");
    }
    let listed = run(&scratch, 3, &["snapshot", "list", &conninfo]);
    let rows = listed.lines().filter(|line| line.starts_with("rolling-"));
    assert_eq!(rows.count(), 2, "{listed}");
    assert_eq!(listed.matches("ended: ").count(), 2, "{listed}");
    forget(&cluster);
}

#[test]
fn a_rotation_drops_no_snapshot_of_a_cluster_that_another_one_has_replaced() {
    stay_root();
    let scratch = Scratch::new();
    let mut cluster = PrivateCluster::start(&ClusterOptions::default());
    let conninfo = cluster.conninfo();
    let rotate = ["snapshot", "rotate", &conninfo, "--keep", "1", "--quiet"];
    run(&scratch, 0, &rotate);
    cluster.stop("fast");
    let data = cluster.data().to_owned();
    let settings = std::fs::read(data.join("postgresql.conf")).unwrap();
    std::fs::remove_dir_all(&data).unwrap();
    let mut initdb = cluster.tool("initdb");
    initdb.args(["--auth=trust", "--username=postgres", "--no-sync", "-D"]);
    succeed(initdb.arg(&data));
    std::fs::write(data.join("postgresql.conf"), settings).unwrap();
    cluster.run();
    for _ in 0..2 {
        let said = run(&scratch, 3, &rotate);
        assert!(said.contains("(other-cluster)"), "{said}");
        assert!(said.contains("nothing is dropped"), "{said}");
    }
    let accept = ["--accept", "other-cluster"];
    run(&scratch, 0, &[&rotate[..], &accept].concat());
    run(&scratch, 0, &rotate);
}

/// Makes a rolling snapshot, and returns its name and what else was said of it.
fn rotated(database: &str, keep: &str, expected: i32) -> (String, String) {
    let (code, made) = json(&["snapshot", "rotate", database, "--keep", keep]);
    assert_eq!(code, expected, "{made}");
    let name = made["name"].as_str().unwrap().to_owned();
    (name, made.to_string())
}

fn names(database: &str) -> Vec<String> {
    let all = listed(database).into_iter();
    let names = all.map(|one| one["name"].as_str().unwrap().to_owned());
    names.collect()
}

/// Else each rotation would drop the last one before it, and the count would not hold.
#[test]
fn snapshots_of_a_clock_that_was_ahead_go_first_and_newer_ones_stay() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let home = place.path().join("shop.db.windlass-snapshots");
    let early = [(); 3].map(|()| rotated(database, "3", 0).0);
    for (name, year) in early.iter().zip(2997..) {
        forge_record(&home.join(name), |record| {
            for field in ["created", "as_of"] {
                record[field] = format!("{year}-12-31T00:00:00Z").into();
            }
        });
    }
    ledger.commit(21, 22);
    let scratch = Scratch::new();
    let word = format!("{database}@rolling");
    let count = "select count(*) from log";
    let open = ["open", "--quiet", &word, "--", "sqlite3", "{}", count];
    let mut made = Vec::new();
    for ahead in ["3 snapshots of", "2 snapshots of", "1 snapshot of"] {
        let (name, said) = rotated(database, "3", 3);
        assert!(
            said.contains("clock-ahead") && said.contains(ahead),
            "{said}"
        );
        assert!(said.contains("or when you drop "), "{said}");
        made.push(name);
        let names = names(database);
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(made.iter().all(|name| names.contains(name)), "{names:?}");
        assert!(run(&scratch, 0, &open).ends_with("22\n"));
    }
    made.push(rotated(database, "3", 0).0);
    assert_eq!(names(database), made[1..]);
}

/// To list them is to read each, which takes long if there are many by the hook.
#[test]
fn a_rotation_reads_the_other_snapshots_no_more_often_than_a_creation() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let disk = place.path().join("disk").display().to_string();
    let create = ["snapshot", "create", database, "one", "--to", &disk];
    assert_eq!(json(&create).0, 0);
    let reads = |words: &[&str]| {
        let (log, output) = traced("openat", &[words, &["--to", &disk]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        log.matches("/disk/one/record\"").count()
    };
    let created = reads(&["snapshot", "create", database, "two"]);
    let rotated = reads(&["snapshot", "rotate", database, "--keep", "9"]);
    assert!(created > 0);
    assert_eq!(rotated, created);
}

/// Nobody can bring that back, so a timer has nothing to fail for each time.
#[test]
fn a_rotation_tells_once_of_an_ended_snapshot_that_has_what_a_revert_overwrote() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let home = place.path().join("shop.db.windlass-snapshots");
    let (first, _) = rotated(database, "1", 0);
    ledger.commit(21, 40);
    let scratch = Scratch::new();
    let word = format!("{database}@{first}");
    run(&scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    forge_record(&home.join(&first), |record| {
        record["state"] = serde_json::json!({"lost": {"why": "it grew beyond its limit"}});
    });
    let rotate = ["snapshot", "rotate", database, "--keep", "1", "--quiet"];
    let said = run(&scratch, 3, &rotate);
    let drop = format!("windlass snapshot drop {database} {first}");
    for part in ["no later rotation says so", &drop] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(run(&scratch, 0, &rotate), "");
    let (_, said) = rotated(database, "1", 0);
    let with_undo = format!("\"with_undo\":[\"{first}\"]");
    assert!(said.contains(&with_undo), "{said}");
    let drop = ["snapshot", "drop", database, &first];
    run(&scratch, 0, &drop);
    assert_eq!(names(database).len(), 1);
}

/// The process that makes snapshots may have another clock than the server.
#[test]
fn snapshots_of_a_cluster_are_as_old_as_its_server_says() {
    stay_root();
    let scratch = Scratch::new();
    let cluster = PrivateCluster::start(&ClusterOptions::default());
    let conninfo = cluster.conninfo();
    let rotate = |keep: &str| {
        let words = ["snapshot", "rotate", &conninfo, "--keep", keep, "--json"];
        let made = run(&scratch, 0, &words);
        let made: serde_json::Value = serde_json::from_str(made.trim()).unwrap();
        (made["name"].clone(), made["dropped"].clone(), made)
    };
    let (first, ..) = rotate("3");
    let (second, _, made) = rotate("3");
    let path = std::path::Path::new(made["place"].as_str().unwrap());
    forge_record(path, |record| {
        for field in ["created", "as_of"] {
            record[field] = "2001-12-31T00:00:00Z".into();
        }
    });
    let (_, dropped, _) = rotate("2");
    assert_eq!(dropped, serde_json::json!([first]));
    let (_, dropped, _) = rotate("2");
    assert_eq!(dropped, serde_json::json!([second]));
}
