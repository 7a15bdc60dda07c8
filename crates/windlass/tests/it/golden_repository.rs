//! A repository that was written once: an encrypted chain of a SQLite database on two devices and
//! one with parity, and its encrypted log. It must be read for ever, also without any one device.
//!
//! `testdata/repositories/v1` has the directories `a`, `b` and `p`: a full set, an incremental one
//! on it, and transactions up to behind that one. [`make`] made them, and makes those of a later
//! version of the format:
//!
//!     cargo test -p windlass --test it -- --ignored golden_repository

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;

use crate::support::*;

/// A pair whose private key is 32 times the byte 42.
const IDENTITY: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const RECIPIENT: &str = "age:age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const DEVICES: [&str; 3] = ["a", "b", "p"];
/// How many words the database has in the full set, in the incremental one, and at the end of the
/// log.
const WORDS: [usize; 3] = [400, 440, 443];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/repositories/v1")
}

/// A directory with the devices of a repository, and the file with its key.
struct Repository(tempfile::TempDir);

impl Repository {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("golden-")
            .tempdir_in("/var/tmp");
        let repository = Self(dir.unwrap());
        let id = repository.0.path().join("id");
        std::fs::write(&id, IDENTITY).unwrap();
        std::fs::set_permissions(&id, Permissions::from_mode(0o600)).unwrap();
        repository
    }

    /// A copy of the one that was written once: commands leave notes in what they read.
    fn copied() -> Self {
        let repository = Self::new();
        for device in DEVICES {
            let from = golden().join(device);
            assert!(from.exists(), "{} must be made once", from.display());
            copy(&from, repository.0.path());
        }
        repository
    }

    fn arg(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A command with the places and the key. Returns its exit code, and what it said.
    fn run(&self, command: &str, more: &[&str]) -> (Option<i32>, String) {
        let places = DEVICES.map(|device| self.arg(device));
        let key = format!("identity-file:{}", self.arg("id"));
        let mut words = vec![command];
        words.extend(places.iter().map(String::as_str));
        words.extend(["--key", &key]);
        words.extend(more);
        let output = windlass(&words);
        (output.status.code(), text(&output))
    }

    /// The ids of the sets, the oldest first, and how many logs there are.
    fn listed(&self) -> (Vec<String>, usize) {
        let places = DEVICES.map(|device| self.arg(device));
        let key = format!("identity-file:{}", self.arg("id"));
        let mut words = vec!["info"];
        words.extend(places.iter().map(String::as_str));
        words.extend(["--key", &key]);
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        let sets = document["sets"].as_array().unwrap().iter();
        let ids = sets.map(|set| set["set_id"].as_str().unwrap().to_owned());
        (ids.collect(), document["logs"].as_array().unwrap().len())
    }

    /// Restores it, and looks that the database has the words that it had. Returns the exit code.
    fn restores(&self, more: &[&str], count: usize) -> Option<i32> {
        let into = self.arg("into.db");
        let (code, said) = self.run("restore", &[&["--into", &into], more].concat());
        assert!(Path::new(&into).exists(), "{more:?}: {said}");
        let database = Connection::open(&into).unwrap();
        let sql = "SELECT group_concat(word, ' ') FROM (SELECT word FROM item ORDER BY id)";
        let found: String = database.query_one(sql, [], |row| row.get(0)).unwrap();
        let expected: Vec<_> = (1..=count).map(word).collect();
        assert!(found == expected.join(" "), "{more:?}: {said}");
        drop(database);
        std::fs::remove_file(&into).unwrap();
        code
    }

    /// The files of a device of the sets.
    fn files(&self, device: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.0.path().join(device)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|end| end == "windlass"));
        files
    }
}

fn copy(from: &Path, into: &Path) {
    let mut copy = Command::new("cp");
    let copied = copy.arg("-r").arg(from).arg(into).status().unwrap();
    assert!(copied.success(), "{}", from.display());
}

fn word(number: usize) -> String {
    format!("word-{number}-{:x}", number * number * 7919)
}

#[test]
fn a_repository_of_every_version_is_read_for_ever() {
    let repository = Repository::copied();
    let (code, said) = repository.run("verify", &[]);
    assert_eq!(code, Some(0), "{said}");
    let (sets, logs) = repository.listed();
    assert_eq!((sets.len(), logs), (2, 1));
    let [full, incr, end] = WORDS;
    assert_eq!(repository.restores(&["--set", &sets[0]], full), Some(0));
    assert_eq!(repository.restores(&["--set", &sets[1]], incr), Some(0));
    assert_eq!(repository.restores(&["--target-latest"], end), Some(0));
    // Without the key nobody reads anything.
    let places = DEVICES.map(|device| repository.arg(device));
    let into = repository.arg("into.db");
    let mut words = vec!["restore", "--into", &into];
    words.extend(places.iter().map(String::as_str));
    let output = windlass(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("encrypted"), "{}", text(&output));
}

#[test]
fn a_repository_of_every_version_survives_the_loss_of_any_device() {
    for device in DEVICES {
        let repository = Repository::copied();
        let (sets, _) = repository.listed();
        let files = repository.files(device);
        assert_eq!(files.len(), 2, "{device}: {files:?}");
        let damaged = files.iter().map(|file| {
            let mut content = std::fs::read(file).unwrap();
            let middle = content.len() / 2;
            content[middle] ^= 1;
            std::fs::remove_file(file).unwrap();
            content
        });
        let damaged: Vec<_> = damaged.collect();
        let code = repository.restores(&["--set", &sets[1]], WORDS[1]);
        assert_eq!(code, Some(3), "{device} is lost");
        for (file, content) in files.iter().zip(damaged) {
            std::fs::write(file, content).unwrap();
        }
        for set in &sets {
            let (code, said) = repository.run("repair-set", &["--set", set]);
            assert_eq!(code, Some(0), "{device}: {said}");
        }
        let (code, said) = repository.run("verify", &[]);
        assert_eq!(code, Some(0), "{device}: {said}");
        let code = repository.restores(&["--target-latest"], WORDS[2]);
        assert_eq!(code, Some(0), "{device}");
    }
}

/// Writes words into a database, in one transaction.
fn commit(database: &Connection, numbers: std::ops::RangeInclusive<usize>) {
    let insert = "INSERT INTO item VALUES (?1, ?2)";
    database.execute_batch("BEGIN").unwrap();
    for number in numbers {
        let values = (i64::try_from(number).unwrap(), word(number));
        database.execute(insert, values).unwrap();
    }
    database.execute_batch("COMMIT").unwrap();
}

#[test]
#[ignore = "makes the repository once, for the other tests"]
fn make() {
    let repository = Repository::new();
    for device in DEVICES {
        std::fs::create_dir(repository.arg(device)).unwrap();
    }
    std::fs::create_dir(repository.arg("a/log")).unwrap();
    let source = repository.arg("shop.db");
    let database = Connection::open(&source).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    let table = "CREATE TABLE item (id INTEGER PRIMARY KEY, word TEXT)";
    database.execute_batch(table).unwrap();
    let key = format!("identity-file:{}", repository.arg("id"));
    let back_up = |to: &[String], more: &[&str]| {
        let to = to.join(",");
        let words = ["backup", &source, "--to", &to, "--hostname", "golden"];
        let keys = ["--encrypt", RECIPIENT, "--key", &key];
        let output = windlass(&[&words[..], &keys, more].concat());
        (output.status.code(), text(&output))
    };
    let devices = DEVICES.map(|device| repository.arg(device));
    let log = || back_up(&devices[..1], &["--type", "log"]);
    let set = |kind: &str| back_up(&devices, &["--parity", "1", "--type", kind]);
    let done = |(code, said): (Option<i32>, String)| assert_eq!(code, Some(0), "{said}");
    commit(&database, 1..=WORDS[0]);
    // The first copy begins the log, and no set leads to it yet.
    let (code, said) = log();
    assert!(matches!(code, Some(0 | 3)), "{said}");
    done(set("full"));
    commit(&database, WORDS[0] + 1..=WORDS[1]);
    done(log());
    done(set("incr"));
    commit(&database, WORDS[1] + 1..=WORDS[2]);
    done(log());
    drop(database);
    std::fs::create_dir_all(golden()).unwrap();
    for device in DEVICES {
        let there = golden().join(device);
        assert!(!there.exists(), "{} is for ever", there.display());
        copy(Path::new(&repository.arg(device)), &golden());
    }
}
