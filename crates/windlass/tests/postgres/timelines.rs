//! Two restores of one server to earlier moments. Each of them goes on, on a timeline of its own,
//! and is backed up into the same place: a set of one branch is never taken for the other, whatever
//! is newer.

use serde_json::Value;
use windlass_testkit::postgres::PrivateCluster;

use crate::log::{Archiving, rows};
use crate::moments::{TIME, recovered};
use crate::run::*;

fn insert(server: &PrivateCluster, row: u32) {
    server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
}

/// Goes on from a restore, on this timeline: a row, a set, a row, a moment, and a last row, which
/// is archived. Returns the set and the moment.
fn go_on(server: &PrivateCluster, timeline: u32, kind: &str, place: &str) -> (Value, String) {
    insert(server, timeline * 10);
    let conninfo = server.conninfo();
    let words = ["backup", &conninfo, "--to", place, "--type", kind];
    let (code, set) = json(&words);
    assert_eq!((code, &set["type"]), (0, &kind.into()), "{set}");
    insert(server, timeline * 10 + 1);
    let time = server.sql("postgres", TIME);
    insert(server, timeline * 10 + 2);
    let segment = server.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
    let expected = format!("{timeline:08X}");
    assert!(segment.starts_with(&expected), "{segment}");
    let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    server.wait_until(&question, "t");
    (set, time)
}

#[test]
fn each_branch_goes_on_with_its_own_sets_and_its_own_log() {
    let source = Archiving::start(&["--wal-segsize=1", "--data-checksums"]);
    let place = source.back_up();
    let first = json(&["info", &place]).1["sets"][0]["set_id"].clone();
    let now = || source.server.sql("postgres", TIME);
    insert(&source.server, 1);
    let one = now();
    source.insert_and_archive(2);
    let two = now();
    source.insert_and_archive(3);

    let words = ["--target-time", &one, "--archive", "keep"];
    let copy = recovered(&source, "copy-2", &words);
    assert_eq!(rows(&copy), "1");
    let (_, on_two) = go_on(&copy, 2, "full", &place);
    let words = ["--target-time", &two, "--archive", "keep"];
    let words = [&words[..], &["--target-timeline", "1"]].concat();
    let other = recovered(&source, "copy-3", &words);
    assert_eq!(rows(&other), "1 2");
    // The full set of the other branch is newer than the one from which this branch comes.
    let (set, on_three) = go_on(&other, 3, "incr", &place);
    assert_eq!(set["base"], first, "{set}");

    for (count, (words, expected)) in [
        (&[][..], "1 2 30 31 32"),
        (&["--target-time", &on_three], "1 2 30 31"),
        (
            &["--target-time", &on_two, "--target-timeline", "2"],
            "1 20 21",
        ),
        (&["--target-timeline", "2"], "1 20 21 22"),
        (&["--target-timeline", "1"], "1 2 3"),
        (&["--target-time", &one], "1"),
    ]
    .into_iter()
    .enumerate()
    {
        let server = recovered(&source, &format!("into-{count}"), words);
        assert_eq!(rows(&server), expected, "{words:?}");
    }
    // At that moment the newest branch had nothing of its own yet. The set of the other branch fits
    // better, and does not lead to it.
    let into = source.arg("into");
    let words = ["restore", &place, "--into", &into, "--target-time", &on_two];
    let output = windlass(&[&words[..], &["--dry-run"]].concat());
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("Timeline 1 went on without it"), "{said}");

    let (code, plan) = json(&["expire", &place, "--keep-full", "1", "--dry-run"]);
    let sets = plan["databases"][0]["sets"].as_array().unwrap().iter();
    let fates: Vec<_> = sets.map(|set| set["fate"].as_str().unwrap()).collect();
    assert_eq!((code, &*fates), (0, &["stays"; 3][..]), "{plan}");
    let output = windlass(&["verify", &place]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}
