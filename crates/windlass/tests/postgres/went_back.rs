//! A server that went back, because its files were replaced by an earlier copy, has no future set
//! as its base.

use std::process::Command;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::run::*;

#[test]
fn a_set_from_the_future_of_a_server_that_went_back_is_no_base() {
    become_server_user();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let options = ClusterOptions::default().initdb("--data-checksums");
    let mut server = PrivateCluster::start(&options.initdb("--wal-segsize=1"));
    server.sql(
        "postgres",
        "CREATE TABLE t AS SELECT generate_series(1, 100) i",
    );
    let back_up = |server: &PrivateCluster, kind: &str| {
        let place = place.to_str().unwrap();
        let words = ["backup", &server.conninfo(), "--to", place, "--type", kind];
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        document["set_id"].as_str().unwrap().to_owned()
    };
    let first = back_up(&server, "full");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let mut command = Command::new("cp");
        assert!(
            command
                .arg("-a")
                .args([from, to])
                .status()
                .unwrap()
                .success()
        );
    };
    server.stop("fast");
    let (data, kept) = (server.data().to_owned(), dir.path().join("kept"));
    copy(&data, &kept);
    server.run();
    server.sql("postgres", "INSERT INTO t SELECT generate_series(1, 50000)");
    back_up(&server, "full");
    server.stop("fast");
    std::fs::remove_dir_all(&data).unwrap();
    copy(&kept, &data);
    server.run();
    // Without the files that it made for later segments, nothing there differs from the set.
    let newest = "SELECT pg_walfile_name(pg_current_wal_insert_lsn())";
    let newest = server.sql("postgres", newest);
    for entry in std::fs::read_dir(data.join("pg_wal")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.len() == newest.len() && name > newest.as_str() {
            std::fs::remove_file(path).unwrap();
        }
    }
    server.sql("postgres", "INSERT INTO t VALUES (7)");
    let third = back_up(&server, "incr");
    let (_, document) = json(&["info", place.to_str().unwrap()]);
    let sets = document["chains"][0]["sets"].as_array().unwrap();
    let own = sets
        .iter()
        .find(|set| set["set_id"] == third.as_str())
        .unwrap();
    assert_eq!(own["base"], first.as_str(), "{document:#}");
}
