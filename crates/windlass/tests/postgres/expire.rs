//! `windlass expire` of places with sets and log of real servers.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;
use windlass_testkit::postgres::PrivateCluster;

use crate::log::{Archiving, rows};
use crate::moments::{TIME, recovered};
use crate::run::*;

const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";

fn ids(place: &str) -> Vec<String> {
    let (code, document) = json(&["info", place]);
    assert_eq!(code, 0, "{document}");
    let sets = document["sets"].as_array().unwrap().iter();
    sets.map(|set| set["set_id"].as_str().unwrap().to_owned())
        .collect()
}

/// The number of objects of the log, without those of files.
fn objects(place: &str) -> usize {
    let mut find = std::process::Command::new("find");
    let found = find
        .arg(Path::new(place).join("log"))
        .args(["-name", "*-*.wlog"])
        .output();
    String::from_utf8(found.unwrap().stdout)
        .unwrap()
        .lines()
        .count()
}

fn done(words: &[&str]) -> Value {
    let (code, document) = json(words);
    assert_eq!(code, 0, "{document}");
    document
}

/// The log goes with the sets that lead into it, and every moment after the oldest set that counts
/// is still reached.
#[test]
fn log_goes_up_to_the_oldest_set_that_counts_and_the_rest_leads_everywhere() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    source.insert_and_archive(2);
    source.back_up();
    source.insert_and_archive(3);
    let moment = source.server.sql("postgres", TIME);
    source.insert_and_archive(4);
    source.back_up();
    source.insert_and_archive(5);
    let sets = ids(&place);
    let (before, of_first) = (objects(&place), &sets[0]);
    // The oldest set is held: it stays, but its log is not needed.
    done(&["hold", &place, "--set", of_first]);
    let plan = done(&["expire", &place, "--keep-full", "2", "--dry-run"]);
    let planned = plan["databases"][0]["logs"][0]["objects"].as_u64().unwrap();
    assert!(planned >= 2, "{plan}");
    assert_eq!(objects(&place), before);
    on_a_full_disk(&source, &["--keep-full", "2"], planned);
    let expired = done(&["expire", &place, "--keep-full", "2"]);
    assert_eq!(expired["removed"].as_array().unwrap().len(), 0);
    assert_eq!(objects(&place) as u64, before as u64 - planned);
    assert_eq!(ids(&place), sets);
    // What is gone is no gap, and nothing is damaged.
    assert_eq!(json(&["verify", &place]).0, 0);
    let server = recovered(&source, "moment", &["--target-time", &moment]);
    assert_eq!(rows(&server), "1 2 3");
    drop(server);
    let server = recovered(&source, "latest", &["--target-latest"]);
    assert_eq!(rows(&server), "1 2 3 4 5");
    drop(server);
    let into = source.arg("first");
    done(&["restore", &place, "--set", of_first, "--into", &into]);
    // The set goes when it is released, and a second run finds nothing.
    done(&["hold", &place, "--set", of_first, "--release"]);
    let expired = done(&["expire", &place, "--keep-full", "2"]);
    assert_eq!(expired["removed"][0], of_first.as_str());
    assert_eq!(ids(&place), sets[1..]);
    let expired = done(&["expire", &place, "--keep-full", "2"]);
    assert_eq!(expired["logs_removed"].as_array().unwrap().len(), 0);
}

/// Log goes from a copy of the place that has no room for the note which says so.
fn on_a_full_disk(source: &Archiving, rules: &[&str], planned: u64) {
    let disk = source.arg("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = r#"mount -t tmpfs -o size=256m none "$1" && cp -a "$2/." "$1" || exit 9
        place=$1; program=$3; shift 3
        cat /dev/zero > "$place/fill"
        "$program" expire "$place" --json "$@" || exit
        "$program" info "$place" > "$place/fill""#;
    let mut unshare = std::process::Command::new("unshare");
    unshare.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    unshare.args([&disk, &source.arg("place"), env!("CARGO_BIN_EXE_windlass")]);
    unshare.args(rules).env("WINDLASS_CONFIG", "/dev/null");
    let output = unshare.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let expired: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(expired["logs_removed"][0]["objects"], planned, "{expired}");
}

/// A server that went back to an old set goes on with its own log. The set from which it comes
/// stays until it has one of its own, although newer sets are there.
#[test]
fn the_set_that_leads_to_the_newest_timeline_stays() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let moment = source.server.sql("postgres", TIME);
    source.insert_and_archive(2);
    source.back_up();
    source.insert_and_archive(3);
    let sets = ids(&place);
    // The copy archives into the same place.
    let words = ["--target-time", &moment, "--archive", "keep"];
    let copy = recovered(&source, "copy", &words);
    copy.sql("postgres", "INSERT INTO t VALUES (7)");
    let segment = copy.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
    let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
    copy.wait_until(&question, "t");
    let plan = done(&["expire", &place, "--keep-full", "1", "--dry-run"]);
    let first = &plan["databases"][0]["sets"][0];
    assert_eq!(first["set_id"], sets[0].as_str());
    assert_eq!(first["reasons"], serde_json::json!(["timeline"]), "{plan}");
    done(&["expire", &place, "--keep-full", "1"]);
    assert_eq!(ids(&place), sets);
    let words = ["--set", &sets[0], "--target-latest"];
    let server = recovered(&source, "latest", &words);
    assert_eq!(rows(&server), "1 7");
}

/// A server fetches its log long after the restore has ended. What it still needs stays.
#[test]
fn a_restored_server_that_has_not_recovered_finds_its_log() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let set = ids(&place).remove(0);
    for row in 1..=3 {
        source.insert_and_archive(row);
    }
    let into = source.arg("into");
    done(&[
        "restore",
        &place,
        "--set",
        &set,
        "--target-latest",
        "--into",
        &into,
    ]);
    source.back_up();
    let expired = done(&["expire", &place, "--keep-full", "1"]);
    assert_eq!(expired["removed"][0], set.as_str());
    // The log before the set may go, and no more.
    let before = objects(&place);
    let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), "1 2 3");
    // It has read up to the end, so the log before that goes now.
    let expired = done(&["expire", &place, "--keep-full", "1"]);
    assert_eq!(
        expired["logs_removed"].as_array().unwrap().len(),
        1,
        "{expired}"
    );
    assert!(objects(&place) < before);
}

/// A segment is ended, archived and found. If the server archives elsewhere, the check says so.
#[test]
fn a_check_of_a_repository_finds_a_segment_that_the_server_archives() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let config = source.arg("windlass.toml");
    let check = |place: &str| {
        let text = format!("[repository.main]\nto = \"{place}\"\n");
        std::fs::write(&config, text).unwrap();
        let conninfo = source.server.conninfo();
        let words = ["check", &*conninfo, "--repo", "main", "--config", &config];
        let (code, document) = json(&words);
        let checks = document["checks"].as_array().unwrap().iter();
        let found = checks.clone().find(|check| check["name"] == "archive");
        let found = found.unwrap_or_else(|| panic!("{document}"));
        (code, found.to_string())
    };
    let (code, archive) = check(&source.arg("place"));
    assert_ne!(code, 1, "{archive}");
    assert!(archive.contains("is found in"), "{archive}");
    let other = source.arg("other");
    std::fs::create_dir(&other).unwrap();
    let (code, archive) = check(&other);
    assert_eq!(code, 1, "{archive}");
    assert!(archive.contains("is not in"), "{archive}");
}

/// Nobody knows which log an encrypted set needs, nor one whose stripe is elsewhere: then no log
/// goes, and the run says so.
#[test]
fn log_stays_while_a_set_that_may_need_it_cannot_be_read() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let key = source.arg("id");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&key);
    file.unwrap().write_all(IDENTITY.as_bytes()).unwrap();
    let key = format!("identity-file:{key}");
    source.insert_and_archive(1);
    let conninfo = source.server.conninfo();
    let more = source.arg("more");
    std::fs::create_dir(&more).unwrap();
    let back_up = |words: &[&str]| {
        let outcome = done(&[&["backup", &conninfo, "--to", &place], words].concat());
        outcome["set_id"].as_str().unwrap().to_owned()
    };
    let locked = back_up(&["--encrypt", RECIPIENT]);
    source.insert_and_archive(2);
    let apart = back_up(&["--to", &more]);
    source.insert_and_archive(3);
    source.back_up();
    source.insert_and_archive(4);
    let before = objects(&place);
    let withheld = |words: &[&str], because: &str| {
        let (code, expired) = json(&[&["expire", &place], words].concat());
        assert_eq!((code, objects(&place)), (3, before), "{expired}");
        let withheld = &expired["databases"][0]["withheld"];
        assert!(withheld["logs"][0]["objects"].as_u64().unwrap() > 0);
        assert_eq!(withheld["because"][0]["set_id"], because, "{expired}");
    };
    withheld(&["--keep-full", "3"], &locked);
    let away = source.arg("away");
    std::fs::rename(&more, &away).unwrap();
    withheld(&["--keep-full", "2", "--key", &key], &apart);
    std::fs::rename(&away, &more).unwrap();
    // Everything that stays still gets to the end.
    for set in [&locked, &apart] {
        let words = ["--set", set, "--target-latest", "--key", &key];
        let server = recovered(&source, &set[..8], &words);
        assert_eq!(rows(&server), "1 2 3 4");
    }
    let expired = done(&["expire", &place, "--keep-full", "2", "--key", &key]);
    assert_eq!(expired["logs_removed"].as_array().unwrap().len(), 1);
    assert!(objects(&place) < before);
    let words = ["--set", &apart, "--target-latest"];
    let server = recovered(&source, "last", &words);
    assert_eq!(rows(&server), "1 2 3 4");
}
