//! Places with sets and log, from real servers: what `info` and `verify` say of the log, and what a
//! restore refuses that no server could recover.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use windlass_testkit::postgres::PrivateCluster;

use crate::log::{Archiving, rows};
use crate::moments::{TIME, recovered};
use crate::run::*;

/// What `info` says of the only log of a place.
fn log_of(place: &str) -> Value {
    let (code, document) = json(&["info", place]);
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["logs"].as_array().unwrap().len(), 1, "{document}");
    document["logs"][0].clone()
}

/// The windows of a timeline.
fn windows(log: &Value, timeline: u32) -> Vec<Value> {
    let all = log["restorable"].as_array().unwrap();
    let of = all.iter().find(|one| one["timeline"] == timeline);
    of.map_or_else(Vec::new, |one| one["windows"].as_array().unwrap().clone())
}

/// Verifies a place, which must end with this code. Returns what it says of the log.
fn verified(place: &str, words: &[&str], code: i32) -> Value {
    let (found, document) = json(&[&["verify", place], words].concat());
    assert_eq!(found, code, "{words:?}: {document}");
    assert_eq!(document["ok"], code != 4, "{document}");
    document["logs"][0].clone()
}

/// The objects whose log begins with this segment of 1 MiB.
fn objects(place: &str, segment: &str) -> Vec<String> {
    let number = u64::from_str_radix(&segment[16..], 16).unwrap();
    let pattern = format!("{:016X}-*", number << 20);
    let mut find = Command::new("find");
    let found = find.arg(place).args(["-name", &pattern]).output().unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn info_and_verify_know_windows_gaps_and_damage_of_a_log() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let segments: Vec<_> = (1..=5).map(|row| source.insert_and_archive(row)).collect();
    let before = source.server.sql("postgres", TIME);
    let log = log_of(&place);
    let [window] = &windows(&log, 1)[..] else {
        panic!("{log}")
    };
    assert_eq!(window["sets"].as_array().unwrap().len(), 1);
    assert!(
        window["start_time"].as_str() < window["last_transaction"].as_str(),
        "{window}"
    );
    assert!(
        window["last_transaction"].as_str() < Some(&before),
        "{window}"
    );
    let whole = verified(&place, &[], 0);
    assert_eq!(whole["gaps"].as_array().unwrap().len(), 0);
    assert!(whole["objects"].as_u64() >= Some(5), "{whole}");
    verified(&place, &["--quick"], 0);
    // A gap ends the window of the first set. The second set begins another one.
    let gone = objects(&place, &segments[2]);
    assert_eq!(gone.len(), 1);
    std::fs::remove_file(&gone[0]).unwrap();
    source.back_up();
    source.insert_and_archive(6);
    let log = log_of(&place);
    let [old, new] = &windows(&log, 1)[..] else {
        panic!("{log}")
    };
    let gap = verified(&place, &["--quick"], 3)["gaps"][0].clone();
    assert_eq!(old["end"], gap["start"]);
    assert!(new["last_transaction"].as_str() > Some(&before), "{new}");
    let printed = text(&windlass(&["info", &place]));
    assert_eq!(printed.matches("restorable    ").count(), 2, "{printed}");
    let printed = text(&windlass(&["info", "--metrics", &place]));
    let gaps = printed
        .lines()
        .find(|line| line.starts_with("windlass_place_log_gaps{"));
    assert!(
        gaps.is_some_and(|line| line.ends_with("timeline=\"1\"} 1")),
        "{printed}"
    );
    assert!(
        printed.contains("windlass_place_restorable_end_time_seconds{"),
        "{printed}"
    );
    let printed = text(&windlass(&["verify", &place]));
    assert!(printed.contains("is not whole"), "{printed}");
    // A byte inside a frame: only who reads everything sees it.
    let damaged = &objects(&place, &segments[3])[0];
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(damaged)
        .unwrap();
    let mut byte = [0];
    let at = file.metadata().unwrap().len() / 2;
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    verified(&place, &["--quick"], 3);
    let found = verified(&place, &[], 4);
    assert_eq!(found["damage"].as_array().unwrap().len(), 1, "{found}");
    let output = windlass(&["verify", &place]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(4), "{printed}");
    assert!(
        printed.contains("the log of cluster") && printed.contains("hint: "),
        "{printed}"
    );
}

#[test]
fn a_place_that_has_only_log_is_verified_and_shown() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    source.insert_and_archive(1);
    let place = source.arg("place");
    let log = verified(&place, &[], 0);
    assert_eq!(log["ok"], true);
    assert_eq!(windows(&log_of(&place), 1).len(), 0);
    let printed = text(&windlass(&["verify", &place]));
    assert!(printed.contains("read and right"), "{printed}");
}

/// Three timelines: each copy leaves the one before it. Targets before, at and after each switch.
#[test]
fn a_tree_of_three_timelines_is_walked_to_each_side_of_each_switch() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let mut targets = Vec::new();
    let mut copies: Vec<PrivateCluster> = Vec::new();
    for (timeline, row) in [(2, 20), (3, 30)] {
        let name = format!("copy-{timeline}");
        let words = ["--target-latest", "--archive", "keep"];
        let copy = recovered(&source, &name, &words);
        let sql = |sql: &str| copy.sql("postgres", sql);
        let history = format!("{timeline:08X}.history");
        let text = sql(&format!("SELECT pg_read_file('pg_wal/{history}')"));
        let line = text.lines().rfind(|line| !line.is_empty()).unwrap();
        let switch = line.split('\t').nth(1).unwrap().to_owned();
        sql(&format!("INSERT INTO t VALUES ({row})"));
        let time = sql(TIME);
        sql(&format!("INSERT INTO t VALUES ({})", row + 1));
        let segment = sql("SELECT pg_walfile_name(pg_switch_wal())");
        assert!(segment.starts_with(&format!("{timeline:08X}")), "{segment}");
        let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
        copy.wait_until(&question, "t");
        targets.push((switch, time));
        copies.push(copy);
    }
    // The first timeline goes on, too.
    source.insert_and_archive(2);
    let [(first, after_first), (second, after_second)] = &targets[..] else {
        panic!()
    };
    for (count, (words, expected)) in [
        (&["--target-latest"][..], "1 20 21 30 31"),
        (&["--target-time", after_second], "1 20 21 30"),
        (&["--target-lsn", second], "1 20 21"),
        (&["--target-time", after_first], "1 20"),
        (&["--target-lsn", first], "1"),
        (&["--target-latest", "--target-timeline", "2"], "1 20 21"),
        (&["--target-latest", "--target-timeline", "current"], "1 2"),
    ]
    .into_iter()
    .enumerate()
    {
        let server = recovered(&source, &format!("into-{count}"), words);
        assert_eq!(rows(&server), expected, "{words:?}");
    }
    let log = log_of(&place);
    let ends: Vec<_> = [1, 2, 3].map(|one| windows(&log, one).len()).into();
    assert_eq!(ends, [1, 1, 1], "{log}");
    verified(&place, &[], 0);
}

#[test]
fn a_target_at_the_end_of_the_log_is_refused_because_no_record_follows() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let words = [
        "backup",
        &source.server.conninfo(),
        "--to",
        &place,
        "--type",
        "log",
    ];
    let (code, document) = json(&words);
    assert_eq!(code, 0, "{document}");
    let end = document["end"].as_str().unwrap();
    let into = source.arg("into");
    let restore = ["restore", &place, "--into", &into];
    let output = windlass(&[&restore[..], &["--target-lsn", end]].concat());
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("is not in the log, which ends at"),
        "{printed}"
    );
}

#[test]
fn log_of_wal_level_minimal_is_passed_by_no_recovery() {
    let mut source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let lines = |lines: &[&str], server: &mut PrivateCluster| {
        server.configure(lines);
        server.stop("fast");
        server.run();
    };
    let minimal = [
        "archive_mode = off",
        "wal_level = minimal",
        "max_wal_senders = 0",
    ];
    lines(&minimal, &mut source.server);
    source.server.sql("postgres", "INSERT INTO t VALUES (2)");
    let replica = [
        "archive_mode = on",
        "wal_level = replica",
        "max_wal_senders = 4",
    ];
    lines(&replica, &mut source.server);
    let time = source.server.sql("postgres", TIME);
    source.insert_and_archive(3);
    let words = [
        "backup",
        &source.server.conninfo(),
        "--to",
        &place,
        "--type",
        "log",
    ];
    assert_eq!(json(&words).0, 0);
    let lsn = source
        .server
        .sql("postgres", "SELECT pg_current_wal_lsn() - 200");
    for target in [
        &["--target-latest"][..],
        &["--target-time", &time],
        &["--target-lsn", &lsn],
    ] {
        let restore = ["restore", &place, "--into", &source.arg("refused")];
        let output = windlass(&[&restore[..], target].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{target:?}: {printed}");
        assert!(
            printed.contains("wal_level = minimal"),
            "{target:?}: {printed}"
        );
        assert!(!Path::new(&source.arg("refused")).exists());
    }
    source.back_up();
    source.insert_and_archive(4);
    assert_eq!(
        rows(&recovered(&source, "into", &["--target-latest"])),
        "1 2 3 4"
    );
}

/// A disk of the server changed a record before it was archived. The object is right, and a server
/// would take the record for the end of the log.
#[test]
fn a_record_that_was_damaged_before_it_was_archived_does_not_look_like_the_end() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let segments: Vec<_> = (1..=3).map(|row| source.insert_and_archive(row)).collect();
    let fetched = source.arg(&segments[1]);
    let get = ["archive-get", &segments[1], &fetched, "--from", &place];
    assert_eq!(windlass(&get).status.code(), Some(0));
    for object in objects(&place, &segments[1]) {
        std::fs::remove_file(object).unwrap();
    }
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&fetched)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 40 + 30).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 40 + 30).unwrap();
    let output = windlass(&["archive-push", &fetched, "--to", &place]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let restore = [
        "restore",
        &place,
        "--into",
        &source.arg("into"),
        "--target-latest",
    ];
    let output = windlass(&restore);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("cannot be replayed beyond"), "{printed}");
}

/// Each of the two devices of a set lies beside log. One is that of another server of the cluster,
/// which wrote other bytes at the end of the set, and got further.
#[test]
fn log_of_another_server_beside_a_device_is_passed_over_however_far_it_leads() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let (place, other) = (source.arg("place"), source.arg("other"));
    std::fs::create_dir_all(Path::new(&other).join("log")).unwrap();
    let conninfo = source.server.conninfo();
    let output = windlass(&["backup", &conninfo, "--to", &place, "--to", &other]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let mut segments: Vec<_> = (1..=3).map(|row| source.insert_and_archive(row)).collect();
    // The set ends in the segment before.
    let number = u32::from_str_radix(&segments[0][16..], 16).unwrap() - 1;
    segments.insert(0, format!("{}{number:08X}", &segments[0][..16]));
    for (count, segment) in segments.iter().enumerate() {
        let fetched = source.arg(segment);
        let get = ["archive-get", segment, &fetched, "--from", &place];
        assert_eq!(windlass(&get).status.code(), Some(0), "{segment}");
        if count == 0 {
            let mut bytes = std::fs::read(&fetched).unwrap();
            bytes[40 + 30] ^= 1;
            std::fs::write(&fetched, bytes).unwrap();
        }
        let output = windlass(&["archive-push", &fetched, "--to", &other]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    for object in objects(&place, &segments[3]) {
        std::fs::remove_file(object).unwrap();
    }
    let into = source.arg("into");
    let restore = ["restore", &place, &other, "--into", &into];
    let output = windlass(&[&restore[..], &["--target-latest"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), "1 2");
}

/// What the last object may be after a copy that was cut off, or on a bad disk.
fn torn(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut flipped = whole.to_vec();
    flipped[whole.len() / 2] ^= 1;
    let noise = (0..whole.len()).map(|at| u8::try_from(at * at % 251).unwrap());
    vec![
        ("empty", Vec::new()),
        ("its header", whole[..128].to_vec()),
        ("a half", whole[..whole.len() / 2].to_vec()),
        ("all but a byte", whole[..whole.len() - 1].to_vec()),
        ("a bit is wrong", flipped),
        ("zeros", vec![0; whole.len()]),
        ("garbage", noise.collect()),
    ]
}

/// The last segment of a log is cut off, or holds something else: it is named, it is not taken for
/// the end of the log, and the log before it leads to each moment in it.
#[test]
fn a_torn_last_segment_is_named_and_the_log_before_it_is_used() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let position = "SELECT pg_current_wal_insert_lsn()";
    let lsn = source.server.sql("postgres", position);
    source.insert_and_archive(2);
    let last = source.insert_and_archive(3);
    let [object] = &objects(&place, &last)[..] else {
        panic!("{last}")
    };
    let whole = std::fs::read(object).unwrap();
    let (into, dry) = (source.arg("refused"), ["--dry-run"]);
    let restore = ["restore", &place, "--into", &into];
    for (what, bytes) in torn(&whole) {
        std::fs::write(object, bytes).unwrap();
        verified(&place, &[], 4);
        let output = windlass(&[&restore[..], &["--target-latest"]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(4), "{what}: {printed}");
        assert!(printed.contains(object), "{what}: {printed}");
        assert!(!Path::new(&into).exists(), "{what}");
        let before = ["--target-lsn", &lsn];
        let output = windlass(&[&restore[..], &before, &dry].concat());
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output));
    }
    let into = source.arg("into");
    let output = windlass(&["restore", &place, "--into", &into, "--target-lsn", &lsn]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let mut server = PrivateCluster::adopt_stopped(Path::new(&into), source.server.bin());
    // It would read ahead, up to the damage, before it looks whether it has reached the target.
    server.configure(&["recovery_prefetch = off"]);
    server.run();
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), "1");
}
