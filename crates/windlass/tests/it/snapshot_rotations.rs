//! What a rotation says of lost snapshots by the hook, and of a cluster that is another one. What
//! it drops of those that ended by a limit, and if the clock has gone back.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root, succeed};

use crate::opening::Scratch;
use crate::snapshot_forged::forge_record;
use crate::snapshot_hook::{forget, library, restart, run};
use crate::snapshots::{ledger, listed};
use crate::support::json;

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

#[test]
fn a_rotation_keeps_the_new_snapshot_if_the_clock_has_gone_back() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let ledger = ledger(place.path());
    let database = ledger.path.to_str().unwrap();
    let rotate = ["snapshot", "rotate", database, "--keep", "1"];
    let made = || {
        let (code, document) = json(&rotate);
        assert_eq!(code, 0, "{document}");
        document["name"].as_str().unwrap().to_owned()
    };
    let names = || -> Vec<String> {
        let all = listed(database).into_iter();
        all.map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let later = made();
    let home = place.path().join("shop.db.windlass-snapshots");
    forge_record(&home.join(&later), |record| {
        record["created"] = "2999-12-31T00:00:00Z".into();
    });
    for _ in 0..2 {
        let new = made();
        assert_eq!(names(), [new.as_str(), later.as_str()]);
    }
}
