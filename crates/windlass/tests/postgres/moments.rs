//! Restores to a moment, with real servers: each kind of target, timelines, and what is refused.

use std::path::Path;

use windlass_testkit::postgres::PrivateCluster;

use crate::log::{Archiving, rows};
use crate::run::*;

fn restore(place: &str, into: &str, words: &[&str]) -> std::process::Output {
    windlass(&[&["restore", place, "--into", into], words].concat())
}

/// Restores, starts the server, and waits until it takes writes.
pub fn recovered(source: &Archiving, into: &str, words: &[&str]) -> PrivateCluster {
    let (place, into) = (source.arg("place"), source.arg(into));
    let output = restore(&place, &into, words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {printed}");
    assert!(printed.contains("recovers up to "), "{words:?}: {printed}");
    let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    server
}

pub const TIME: &str = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', \
     'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";

#[test]
fn a_cluster_goes_back_to_each_kind_of_target() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let sql = |sql: &str| source.server.sql("postgres", sql);
    let place = source.back_up();
    sql("INSERT INTO t VALUES (1)");
    let lsn = sql("SELECT pg_current_wal_insert_lsn()");
    let number = sql("INSERT INTO t VALUES (2) RETURNING pg_current_xact_id()");
    sql("INSERT INTO t VALUES (3)");
    sql("SELECT pg_create_restore_point('before the change')");
    sql("INSERT INTO t VALUES (4)");
    let time = sql(TIME);
    sql("INSERT INTO t VALUES (5)");
    source.insert_and_archive(6);
    for (count, (words, expected)) in [
        (&["--target-immediate"][..], ""),
        (&["--target-lsn", &lsn], "1"),
        (&["--target-xid", &number], "1 2"),
        (&["--target-xid", &number, "--target-exclusive"], "1"),
        (&["--target-name", "before the change"], "1 2 3"),
        (&["--target-time", &time], "1 2 3 4"),
        (&["--target-latest"], "1 2 3 4 5 6"),
        (&[], "1 2 3 4 5 6"),
    ]
    .into_iter()
    .enumerate()
    {
        let server = recovered(&source, &format!("into-{count}"), words);
        assert_eq!(rows(&server), expected, "{words:?}");
        assert_eq!(server.sql("postgres", "SHOW archive_mode"), "off");
    }
    // What the server could not reach is refused, and nothing is made.
    let future = "2100-01-01T00:00:00Z";
    for (words, says) in [
        (
            &["--target-time", "2020-01-01T00:00:00Z"][..],
            "lies before the end of the backup",
        ),
        (
            &["--target-lsn", "0/1000"],
            "lies before the end of the backup",
        ),
        (
            &["--target-time", future],
            "is not in the log, which ends at",
        ),
        (&["--target-lsn", "7/0"], "is not in the log, which ends at"),
        (
            &["--target-name", "nobody made it"],
            "is not in the log, which ends at",
        ),
        (
            &["--target-xid", "123456"],
            "is not in the log, which ends at",
        ),
        (
            &["--target-latest", "--target-timeline", "7"],
            "the history of timeline 7",
        ),
        (
            &["--target-latest", "--log-from", "/nonexistent"],
            "/nonexistent",
        ),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let words = [words, dry].concat();
            let output = restore(&place, &source.arg("refused"), &words);
            let printed = text(&output);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
            assert!(printed.contains(says), "{words:?}: {printed}");
            assert!(!Path::new(&source.arg("refused")).exists());
        }
    }
    let output = restore(
        &place,
        &source.arg("refused"),
        &["--target-time", "2026-01-01 12:00"],
    );
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn an_older_set_is_taken_for_a_moment_before_the_newest() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let sql = |sql: &str| source.server.sql("postgres", sql);
    source.back_up();
    sql("INSERT INTO t VALUES (1)");
    sql("SELECT pg_create_restore_point('early')");
    let (lsn, time) = (sql("SELECT pg_current_wal_insert_lsn()"), sql(TIME));
    source.insert_and_archive(2);
    let place = source.back_up();
    source.insert_and_archive(3);
    for (count, words) in [
        &["--target-lsn", &lsn][..],
        &["--target-time", &time],
        &["--target-name", "early"],
    ]
    .into_iter()
    .enumerate()
    {
        let server = recovered(&source, &format!("into-{count}"), words);
        assert_eq!(rows(&server), "1", "{words:?}");
    }
    // A set that somebody chose stays the one.
    let output = restore(
        &place,
        &source.arg("refused"),
        &["--target-lsn", &lsn, "--set", "latest"],
    );
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("lies before the end of the backup"),
        "{printed}"
    );
}

/// Makes the end of a backup wait for a row in `go`.
const HELD: [&str; 2] = [
    "CREATE TABLE go (i int)",
    "SET allow_system_table_mods = on; \
     ALTER FUNCTION pg_backup_stop(boolean) RENAME TO held_backup_stop; \
     CREATE FUNCTION pg_catalog.pg_backup_stop(wait_for_archive boolean, \
         OUT lsn pg_lsn, OUT labelfile text, OUT spcmapfile text) LANGUAGE plpgsql AS $$ \
     BEGIN \
         WHILE NOT EXISTS (SELECT FROM public.go) LOOP PERFORM pg_sleep(0.01); END LOOP; \
         SELECT * INTO lsn, labelfile, spcmapfile FROM held_backup_stop(wait_for_archive); \
     END $$",
];

/// A server stops at the first restore point of a name, and fails if it is not consistent there.
#[test]
fn a_point_within_a_backup_is_refused_and_reached_from_an_older_set() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let sql = |sql: &str| source.server.sql("postgres", sql);
    let place = source.back_up();
    source.insert_and_archive(1);
    HELD.iter().for_each(|statement| drop(sql(statement)));
    let mut backup = command();
    backup.args(["backup", &source.server.conninfo(), "--to", &place]);
    let child = backup.stdout(std::process::Stdio::null()).spawn().unwrap();
    let question = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' \
                    AND query LIKE '%FROM pg_backup_stop(%' AND pid <> pg_backend_pid()";
    source.server.wait_until(question, "1");
    let number = sql("INSERT INTO t VALUES (2) RETURNING pg_current_xact_id()");
    sql("SELECT pg_create_restore_point('within')");
    sql("DELETE FROM t WHERE i = 2");
    sql("INSERT INTO go VALUES (1)");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    source.insert_and_archive(3);
    for words in [["--target-name", "within"], ["--target-xid", &number]] {
        let chosen = [&words[..], &["--set", "latest"]].concat();
        let output = restore(&place, &source.arg("refused"), &chosen);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("within the backup of the set"),
            "{printed}"
        );
        assert!(printed.contains("hint: Take an older set"), "{printed}");
        assert!(!Path::new(&source.arg("refused")).exists());
        let server = recovered(&source, &words[0][2..], &words);
        assert_eq!(rows(&server), "1 2", "{words:?}");
    }
}

#[test]
fn a_cluster_follows_the_timeline_that_is_asked_for() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    source.back_up();
    source.insert_and_archive(1);
    // A copy becomes a primary of its own, and archives to the same place on timeline 2.
    let copy = recovered(&source, "copy", &["--target-latest", "--archive", "keep"]);
    assert_eq!(rows(&copy), "1");
    source.insert_and_archive(2);
    copy.sql("postgres", "INSERT INTO t VALUES (20)");
    let segment = copy.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
    assert!(segment.starts_with("00000002"), "{segment}");
    let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    copy.wait_until(&question, "t");
    for (into, words, expected) in [
        ("latest", &["--target-latest"][..], "1 20"),
        ("one", &["--target-timeline", "current"], "1 2"),
        ("two", &["--target-timeline", "2"], "1 20"),
    ] {
        let server = recovered(&source, into, words);
        assert_eq!(rows(&server), expected, "{words:?}");
    }
}

#[test]
fn what_a_user_may_not_expect_at_a_target_is_said() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let sql = |sql: &str| source.server.sql("postgres", sql);
    let point = "SELECT pg_create_restore_point('nightly')";
    sql(point);
    let number: u64 = sql("SELECT pg_current_xact_id()").parse().unwrap();
    let fails = "INSERT INTO t SELECT 1 / (3 - i) FROM generate_series(1, 5) i";
    assert!(!source.server.try_sql("postgres", fails).status.success());
    sql(point);
    source.insert_and_archive(1);
    let copy = recovered(&source, "copy", &["--target-latest", "--archive", "keep"]);
    source.insert_and_archive(2);
    let time = source.server.sql("postgres", TIME);
    source.insert_and_archive(3);
    copy.sql("postgres", "INSERT INTO t VALUES (20)");
    let segment = copy.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
    let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    copy.wait_until(&question, "t");
    let (good, bad) = (number.to_string(), (number + 1).to_string());
    let into = source.arg("into");
    for (words, code, says) in [
        (&["--target-xid", &good][..], 0, ""),
        (&["--target-xid", &bad], 3, "was rolled back"),
        (&["--target-name", "nightly"], 3, "1 later restore point"),
        (
            &["--target-time", &time],
            3,
            "Timeline 1 went on without it, and has transactions up to 2",
        ),
        (
            &["--target-time", &time, "--target-timeline", "current"],
            0,
            "",
        ),
    ] {
        let output = restore(&place, &into, &[words, &["--dry-run"]].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}");
        assert!(printed.contains(says), "{words:?}: {printed}");
        assert_eq!(code == 3, printed.contains("warning: "), "{printed}");
    }
    // Nobody restores into the log that he restores from.
    let inside = format!("{place}/log/inside");
    let output = restore(&place, &inside, &[]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("holds archived log"), "{printed}");
    assert!(!Path::new(&inside).exists());
}

#[test]
fn a_set_goes_on_only_with_the_log_of_its_own_server() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    // A copy goes on beside the source, on the same timeline, and has a set in the same place.
    let copy = source.arg("copy");
    let output = restore(&place, &copy, &["--set", "latest"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let copy = PrivateCluster::adopt(Path::new(&copy), source.server.bin());
    copy.sql("postgres", "INSERT INTO t VALUES (20)");
    let output = windlass(&["backup", &copy.conninfo(), "--to", &place]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    (1..=6).for_each(|row| drop(source.insert_and_archive(row)));
    for target in ["--target-immediate", "--target-latest"] {
        let words = ["--set", "latest", target];
        let output = restore(&place, &source.arg("into"), &words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        let says = "another server of this cluster wrote it";
        assert!(printed.contains(says), "{printed}");
        assert!(!Path::new(&source.arg("into")).exists());
    }
    // Who asks for no point gets the newest set, without the log of the other server.
    let plain = source.arg("plain");
    let output = restore(&place, &plain, &[]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(printed.contains("ends with the set: "), "{printed}");
    let plain = PrivateCluster::adopt(Path::new(&plain), source.server.bin());
    assert_eq!(rows(&plain), "20");
    // Without --set, the set of the server that wrote the log is found.
    let server = recovered(&source, "latest", &["--target-latest"]);
    assert_eq!(rows(&server), "1 2 3 4 5 6");
}

#[test]
fn a_gap_on_the_way_is_refused_and_named() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let segments: Vec<_> = (1..=3).map(|row| source.insert_and_archive(row)).collect();
    let number = u64::from_str_radix(&segments[1][16..], 16).unwrap();
    let pattern = format!("{:016X}-*", number << 20);
    let find = ["log", "-name", &pattern, "-delete"];
    let mut command = std::process::Command::new("find");
    command.current_dir(&place).args(find);
    assert!(command.status().unwrap().success());
    for words in [&["--target-latest"][..], &[]] {
        let output = restore(&place, &source.arg("into"), words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("has a gap: "), "{printed}");
        assert!(!Path::new(&source.arg("into")).exists());
    }
}

#[test]
fn without_a_target_a_place_is_restored_to_its_latest_state_and_a_set_as_it_is() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    // The new server goes on beside the source, on a timeline of its own, in the same place.
    let copy = recovered(&source, "copy", &["--archive", "keep"]);
    assert_eq!(rows(&copy), "1");
    let segment = copy.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
    assert!(segment.starts_with("00000002"), "{segment}");
    let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    copy.wait_until(&question, "t");
    // Who names a set gets that set, on its timeline.
    let document = windlass(&["info", &place, "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    let id = document["sets"][0]["set_id"].as_str().unwrap();
    for (into, words) in [("set", ["--set", id]), ("latest-set", ["--set", "latest"])] {
        let into = source.arg(into);
        let output = restore(&place, &into, &words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(0), "{printed}");
        assert!(!printed.contains("recovers up to "), "{printed}");
        let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
        assert_eq!(rows(&server), "");
        let timeline = "SELECT timeline_id FROM pg_control_checkpoint()";
        assert_eq!(server.sql("postgres", timeline), "1");
    }
    // Without its log, the place has nothing but the set.
    std::fs::remove_dir_all(Path::new(&place).join("log")).unwrap();
    for (into, words) in [("alone", &[][..]), ("immediate", &["--target-immediate"])] {
        let into = source.arg(into);
        let output = restore(&place, &into, words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
        assert_eq!(rows(&server), "");
    }
    let output = restore(&place, &source.arg("no"), &["--target-latest"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}
