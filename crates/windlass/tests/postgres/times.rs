//! A set whose time is in the future, because a clock was wrong for a night, and sets that end
//! behind it in the log.

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};
use windlass_testkit::reforge::reforge;

use crate::run::*;

#[test]
fn a_set_that_ends_behind_one_from_the_future_is_newer() {
    become_server_user();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let sets = place.to_str().unwrap();
    let options = ClusterOptions::default().initdb("--data-checksums");
    let server = PrivateCluster::start(&options.initdb("--wal-segsize=1"));
    let back_up = |kind: &str| {
        let words = ["backup", &server.conninfo(), "--to", sets, "--type", kind];
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        document["set_id"].as_str().unwrap().to_owned()
    };
    let fast = back_up("full");
    let stripe = std::fs::read_dir(&place).unwrap().next().unwrap();
    reforge(&stripe.unwrap().path(), |parts| {
        parts.description.facts.started = "2199-01-01T03:00:00Z".to_owned();
    });
    server.sql("postgres", "CREATE TABLE t AS SELECT 7 AS i");
    let full = back_up("full");
    let output = windlass(&["info", sets, "--set", "latest"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let (fast, newest) = (&fast[..8], &full[..8]);
    for words in [
        format!("note: set {fast} says that it was begun at 2199-01-01"),
        format!("but set {newest} ends behind it in the log"),
        format!("set {newest} of "),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    let third = back_up("incr");
    let (_, document) = json(&["info", sets]);
    let chains = document["chains"][0]["sets"].as_array().unwrap();
    let own = chains.iter().find(|set| set["set_id"] == third.as_str());
    assert_eq!(own.unwrap()["base"], full.as_str(), "{document:#}");
}
