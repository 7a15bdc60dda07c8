//! Snapshots on the disk of the database itself, where there is little room: the database must be
//! able to go on.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;

use windlass_testkit::volume::{Volume, VolumeKind};

use crate::snapshots::{ledger, listed};
use crate::support::*;

pub const MIB: u64 = 1 << 20;

/// How many bytes of the file system of this directory are free.
fn free(at: &Path) -> u64 {
    let output = std::process::Command::new("df")
        .args(["--output=avail", "--block-size=1"])
        .arg(at)
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    printed.lines().nth(1).unwrap().trim().parse().unwrap()
}

/// Fills the file system until so many bytes are free.
pub fn leave(at: &Path, bytes: u64) {
    let ballast = free(at).checked_sub(bytes).unwrap().to_string();
    let mut command = std::process::Command::new("fallocate");
    command.args(["--length", &ballast]).arg(at.join("ballast"));
    assert!(command.status().unwrap().success());
}

/// The file is allocated ahead in steps of 64 MiB, of which ext4 kept what it had when there was no
/// room for all of it: nothing was left for the database, and the copy failed on that, too.
#[test]
fn a_copy_of_a_small_database_takes_no_more_room_than_it_needs() {
    let volume = Volume::new(VolumeKind::Ext4, 200);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    leave(volume.at(), 24 * MIB);
    let before = free(volume.at());
    let words = ["snapshot", "create", database, "small", "--method", "copy"];
    // A call that asks for most of what is free takes it, for a while, from the database.
    let (log, output) = traced("fallocate", &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let asked = log
        .lines()
        .filter(|line| line.contains(" fallocate(") && line.contains(") "));
    let asked: Vec<u64> = asked.map(length_of).collect();
    assert!(!asked.is_empty(), "{log}");
    assert!(asked.iter().all(|bytes| *bytes <= before / 4), "{log}");
    assert_eq!(listed(database).len(), 1);
    assert_eq!(ledger.check(&ledger.path), 20);
}

/// The last argument of a traced call.
fn length_of(line: &str) -> u64 {
    let (arguments, _) = line.split_once(") ").unwrap();
    let length = arguments.rsplit_once(", ").unwrap().1;
    length.parse().unwrap()
}

/// Runs a command under strace. Returns what it logged of these calls.
pub fn traced(calls: &str, words: &[&str]) -> (String, std::process::Output) {
    let place = Place::new();
    let log = place.arg("calls");
    let trace = format!("trace={calls}");
    let mut command = around("strace");
    command.args(["-f", "-qq", "-o", &log, "-e", &trace]);
    command.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    let output = command.output().unwrap();
    (std::fs::read_to_string(log).unwrap(), output)
}

#[test]
fn a_copy_that_would_fill_the_disk_of_the_database_ends_before() {
    let volume = Volume::new(VolumeKind::Ext4, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    let connection = rusqlite::Connection::open(&ledger.path).unwrap();
    let sql =
        "CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
               WHERE i < 400) SELECT i, randomblob(65536) AS x FROM n";
    connection.execute_batch(sql).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    leave(volume.at(), 40 * MIB);
    let before = free(volume.at());
    let words = ["snapshot", "create", database, "large", "--method", "copy"];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("must stay so"), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    assert!(free(volume.at()) + MIB > before, "{printed}");
    assert_eq!(listed(database).len(), 0);
    // There was no moment at which a transaction could not be written.
    connection
        .execute_batch("DELETE FROM filler WHERE i = 1")
        .unwrap();
}

/// SQLite leaves the log as long as it was, also if all of it is in the database. And a page that
/// was written many times is written over the clone once.
#[test]
fn a_clone_needs_room_for_the_pages_of_the_log_and_not_for_the_length_of_its_file() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    let connection = rusqlite::Connection::open(&ledger.path).unwrap();
    let by_hand = "PRAGMA wal_autocheckpoint=0";
    connection.query_row(by_hand, [], |_| Ok(())).unwrap();
    let sql =
        "CREATE TABLE filler AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
               WHERE i < 500) SELECT i, randomblob(65536) AS x FROM n";
    connection.execute_batch(sql).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
    connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    let log = ledger.path.with_extension("db-wal");
    assert!(log.metadata().unwrap().len() > 30 * MIB);
    // A twentieth of the disk stays free, which is less than 20 MiB.
    leave(volume.at(), 36 * MIB);
    let create = ["snapshot", "create", database, "--method", "clone"];
    let made = windlass(&[&create[..], &["copied"]].concat());
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    let change = "UPDATE filler SET x = randomblob(65536)";
    connection.execute_batch(change).unwrap();
    let refused = windlass(&[&create[..], &["logged"]].concat());
    let printed = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{printed}");
    assert!(printed.contains("must stay so"), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    assert_eq!(listed(database).len(), 1);
}

#[test]
fn a_clone_is_refused_where_a_database_would_have_too_little_room() {
    let volume = Volume::new(VolumeKind::Xfs, 400);
    let ledger = ledger(volume.at());
    let database = ledger.path.to_str().unwrap();
    leave(volume.at(), 8 * MIB);
    let words = ["snapshot", "create", database, "small", "--method", "clone"];
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("must stay so"), "{printed}");
    assert!(printed.contains("hint: "), "{printed}");
    assert_eq!(listed(database).len(), 0);
    assert_eq!(ledger.check(&ledger.path), 20);
}
