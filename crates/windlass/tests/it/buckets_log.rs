//! The log of a SQLite database in a bucket: received and copied, read by every command, cut off at
//! each request, beside writers while the bucket cannot be reached, and by two that sleep.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use windlass_testkit::bucket::SECRET_KEY;
use windlass_testkit::evil::{Asked, Evil};
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec, Shell, run_once};

use crate::buckets::{Shop, place};
use crate::run::{signal, text};

/// More often than any run tries.
const ALWAYS: usize = 100_000;

/// A receiver that runs, and what it says from its second line on.
struct Receiver {
    child: Child,
    said: Option<JoinHandle<String>>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A failed test leaves no receiver behind. One that has ended cannot be killed.
        self.child.kill().unwrap_or_default();
        self.child.wait().ok();
    }
}

impl Receiver {
    /// Waits until it ends with this code. Returns what it said.
    fn ends(mut self, code: Option<i32>) -> String {
        let ended = self.child.wait().unwrap().code();
        let said = self.said.take().unwrap().join().unwrap();
        assert_eq!(ended, code, "{said}");
        said
    }

    fn stop(self) {
        signal(&self.child, "INT");
        self.ends(Some(0));
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.ends(None);
    }
}

/// A bucket, and a database with 20 transactions.
struct Bucket {
    shop: Shop,
    ledger: CommitLedger,
    place: String,
    database: String,
}

impl Bucket {
    fn new() -> Self {
        let shop = Shop::new();
        let spec = LedgerSpec {
            accounts: 200,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&shop.path("shop.db"), spec);
        ledger.commit(1, 20);
        Self {
            place: place("night"),
            database: shop.word("shop.db"),
            shop,
            ledger,
        }
    }

    /// Starts `receive`, and waits until it captures. Returns what it said first.
    fn receive(&self) -> (Receiver, String) {
        let words = ["receive", &self.database, "--to", &self.place];
        let mut command = self
            .shop
            .command(&[&words[..], &["--interval", "10ms"]].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("timeline"), "{line}");
        let said = std::thread::spawn(move || {
            let mut said = String::new();
            lines.read_to_string(&mut said).unwrap();
            said
        });
        let said = Some(said);
        (Receiver { child, said }, line)
    }

    fn back_up(&self, kind: &str, code: i32) -> String {
        let words = ["backup", &self.database, "--to", &self.place];
        self.shop
            .ends(&[&words[..], &["--type", kind]].concat(), code)
    }

    /// The timelines of the log.
    fn timelines(&self) -> Vec<Value> {
        let output = self.shop.run(&["info", &self.place, "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
        let timelines = document["logs"][0]["timelines"].as_array();
        timelines.cloned().unwrap_or_default()
    }

    /// Waits until the newest timeline has so many transactions.
    fn wait_for(&self, number: u64) {
        let has = |timelines: &[Value]| {
            let last = timelines.last().map(|one| one["transactions"].as_u64());
            last.flatten().unwrap_or_default()
        };
        while has(&self.timelines()) < number {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Restores with these options. Returns how many transactions the database has.
    fn restored(&self, options: &[&str]) -> u64 {
        let into = self.shop.word("copy.db");
        let words = ["restore", &self.place, "--into", &into];
        self.shop.done(&[&words[..], options].concat());
        let found = self.ledger.check(&self.shop.path("copy.db"));
        std::fs::remove_file(&into).unwrap();
        found
    }

    /// The ranges of the objects of the log, by their beginnings.
    fn log(&self) -> Vec<(u64, u64)> {
        let mut keys = self.shop.server.keys();
        keys.retain(|key| key.ends_with(".wlog"));
        let range = |key: &String| {
            let name = key.rsplit('/').next().unwrap();
            let (start, end) = name.trim_end_matches(".wlog").split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            (number(start), number(end))
        };
        let mut ranges: Vec<_> = keys.iter().map(range).collect();
        ranges.sort_unstable();
        ranges
    }

    /// Commits this transaction, and stops a receiver that is about to store it: it has not heard
    /// yet whether its note is there. Then no receiver has a note that counts.
    fn put_to_sleep(&self, receiver: &mut Receiver, shell: &mut Shell, number: u64) {
        self.shop.proxy.rule(Asked::Head, (0, 1), Evil::Hold);
        self.commit(shell, number);
        assert!(self.shop.proxy.holds(&mut receiver.child));
        signal(&receiver.child, "STOP");
        let then = SystemTime::now() - Duration::from_secs(8 * 60);
        for note in self.notes() {
            let file = File::options().write(true).open(note).unwrap();
            file.set_modified(then).unwrap();
        }
    }

    /// The notes of receivers.
    fn notes(&self) -> Vec<PathBuf> {
        let keys = self.shop.server.keys().into_iter();
        let notes = keys.filter(|key| key.contains("/readers/"));
        notes
            .map(|key| self.shop.server.objects().join(key))
            .collect()
    }

    fn wake(&self, receiver: &Receiver) {
        self.shop.proxy.let_go();
        signal(&receiver.child, "CONT");
    }

    fn follows(&self) {
        let log = self.log();
        let follow = log.windows(2).all(|pair| pair[0].1 == pair[1].0);
        assert!(follow, "{log:?}");
    }

    fn commit(&self, shell: &mut Shell, number: u64) {
        shell.run(&self.ledger.transaction(number));
    }
}

/// The host is lost: what is in the bucket leads to every moment.
#[test]
fn the_log_of_a_database_in_a_bucket_leads_to_any_moment() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    let (receiver, _) = bucket.receive();
    bucket.commit(&mut shell, 21);
    bucket.back_up("full", 0);
    let mut moments = Vec::new();
    let between = [
        "PRAGMA wal_checkpoint(PASSIVE);",
        "PRAGMA wal_checkpoint(RESTART);",
        "PRAGMA wal_checkpoint(TRUNCATE);",
        "",
    ];
    for (number, sql) in (22..).zip(between) {
        bucket.commit(&mut shell, number);
        bucket.wait_for(number - 20);
        run_once(&bucket.ledger.path, sql).ok();
        moments.push((jiff::Timestamp::now().to_string(), number));
    }
    // What is received just now is read like any other log.
    assert_eq!(bucket.restored(&["--target-latest"]), 25);
    let said = bucket.back_up("log", 1);
    assert!(said.contains("note below readers/"), "{said}");
    bucket.back_up("incr", 0);
    bucket.commit(&mut shell, 26);
    receiver.stop();
    // One object has taken the place of those that came each interval.
    assert_eq!(bucket.log().len(), 1, "{:?}", bucket.log());
    assert_eq!(bucket.restored(&[]), 26);
    assert_eq!(bucket.restored(&["--set", "latest"]), 25);
    for (moment, number) in &moments {
        assert_eq!(bucket.restored(&["--target-time", moment]), *number);
    }
    let query = "select max(id) from log";
    let open = ["open", &bucket.place, "--at", &moments[1].0];
    let open = [&open[..], &["--", "sqlite3", "{}", query]].concat();
    let said = bucket.shop.done(&open);
    assert!(said.lines().any(|line| line == "23"), "{said}");
    bucket.shop.done(&["verify", &bucket.place]);
    bucket.shop.done(&["verify", &bucket.place, "--quick"]);
    let timelines = bucket.timelines();
    assert_eq!(timelines.len(), 1);
    assert_eq!(timelines[0]["sets"].as_array().unwrap().len(), 2);
    // Without receiver: once.
    bucket.commit(&mut shell, 27);
    bucket.back_up("log", 0);
    assert_eq!(bucket.restored(&[]), 27);
    // A second host needs nothing but the bucket, and a directory of the same objects leads there.
    let copied = bucket.shop.path("copied");
    let log = bucket.shop.server.objects().join("night/log");
    copy(&log, &copied.join("log"));
    assert_eq!(
        bucket.restored(&["--log-from", copied.to_str().unwrap()]),
        27
    );
}

/// Copies a directory with all below it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Nobody empties the database's log meanwhile, so nothing is lost, and no gap is claimed.
#[test]
fn a_copy_of_the_log_into_a_bucket_that_is_killed_at_any_request_leaves_no_gap() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0;");
    bucket.commit(&mut shell, 21);
    // The log begins.
    bucket.back_up("log", 3);
    bucket.back_up("full", 0);
    let proxy = &bucket.shop.proxy;
    let steps = [
        (Asked::List, 0),
        (Asked::Note, 0),
        (Asked::Log, 0),
        (Asked::Log, 1),
        (Asked::Log, 2),
        (Asked::Log, 3),
        (Asked::Remove, 0),
    ];
    let mut number = 21;
    for (asked, skip) in steps {
        for evil in [Evil::KillBefore, Evil::KillAfter] {
            let what = format!("{asked:?} {skip} {evil:?}");
            number += 1;
            bucket.commit(&mut shell, number);
            proxy.rule(asked, (skip, 1), evil);
            let words = [
                "backup",
                &bucket.database,
                "--to",
                &bucket.place,
                "--type",
                "log",
            ];
            let mut run = bucket.shop.spawn(&words);
            proxy.victim(run.id());
            assert_eq!(run.wait().unwrap().code(), None, "{what}");
            proxy.reset();
            let found = bucket.restored(&["--target-latest"]);
            assert!((number - 1..=number).contains(&found), "{what}: {found}");
            bucket.back_up("log", 0);
            assert_eq!(bucket.restored(&["--target-latest"]), number, "{what}");
            let log = bucket.log();
            let follow = log.windows(2).all(|pair| pair[0].1 == pair[1].0);
            assert!(follow, "{what}: {log:?}");
        }
    }
    assert_eq!(bucket.timelines().len(), 1);
    bucket.shop.done(&["verify", &bucket.place]);
}

#[test]
fn a_killed_receiver_into_a_bucket_goes_on_or_names_the_gap() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0;");
    let (mut receiver, _) = bucket.receive();
    bucket.commit(&mut shell, 21);
    bucket.back_up("full", 0);
    let mut number = 21;
    for _ in 0..3 {
        number += 1;
        bucket.commit(&mut shell, number);
        receiver.kill();
        number += 1;
        bucket.commit(&mut shell, number);
        receiver = bucket.receive().0;
    }
    receiver.stop();
    assert_eq!(bucket.timelines().len(), 1);
    assert_eq!(bucket.restored(&[]), number);
    // Nobody captures while the database's log begins again.
    bucket.commit(&mut shell, number + 1);
    shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
    bucket.commit(&mut shell, number + 2);
    let (receiver, line) = bucket.receive();
    assert!(line.contains("may be missing before timeline 2"), "{line}");
    bucket.commit(&mut shell, number + 3);
    bucket.wait_for(1);
    receiver.stop();
    assert_eq!(bucket.timelines().len(), 2);
    bucket.shop.ends(&["verify", &bucket.place], 3);
    bucket.back_up("full", 0);
    assert_eq!(bucket.restored(&["--set", "latest"]), number + 3);
}

/// The request stands still until the writers are done. None of them waits for a lock.
#[test]
fn writers_do_not_wait_for_a_bucket_that_does_not_answer() {
    let bucket = Bucket::new();
    let shell = bucket.ledger.shell();
    let proxy = &bucket.shop.proxy;
    (bucket.shop).configure(&proxy.endpoint(), SECRET_KEY, "10m");
    let (mut receiver, _) = bucket.receive();
    bucket.back_up("full", 0);
    proxy.rule(Asked::Log, (0, 1), Evil::Hold);
    run_once(&bucket.ledger.path, &bucket.ledger.transaction(21)).unwrap();
    assert!(proxy.holds(&mut receiver.child));
    for number in 22..60 {
        run_once(&bucket.ledger.path, &bucket.ledger.transaction(number)).unwrap();
    }
    proxy.let_go();
    bucket.wait_for(39);
    receiver.stop();
    shell.close();
    assert_eq!(bucket.timelines().len(), 1);
    assert_eq!(bucket.restored(&[]), 59);
}

/// Its machine was suspended, and its note counted no more. It was about to store a transaction.
#[test]
fn a_receiver_that_slept_stores_nothing_beside_another_one() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    let proxy = &bucket.shop.proxy;
    (bucket.shop).configure(&proxy.endpoint(), SECRET_KEY, "10m");
    let (mut sleeper, _) = bucket.receive();
    bucket.back_up("full", 0);
    bucket.commit(&mut shell, 21);
    bucket.wait_for(1);
    bucket.put_to_sleep(&mut sleeper, &mut shell, 22);
    let (other, line) = bucket.receive();
    assert!(line.contains("on timeline 1"), "{line}");
    bucket.wait_for(2);
    bucket.wake(&sleeper);
    let said = sleeper.ends(Some(1));
    assert!(said.contains("the note of this receiver"), "{said}");
    assert!(said.contains("another process receives this log"), "{said}");
    bucket.commit(&mut shell, 23);
    bucket.wait_for(3);
    other.stop();
    bucket.follows();
    assert_eq!(bucket.timelines().len(), 1);
    assert_eq!(bucket.restored(&[]), 23);
    bucket.shop.done(&["verify", &bucket.place]);
}

#[test]
fn a_receiver_that_slept_goes_on_behind_one_that_has_ended() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    let proxy = &bucket.shop.proxy;
    (bucket.shop).configure(&proxy.endpoint(), SECRET_KEY, "10m");
    let (mut sleeper, _) = bucket.receive();
    bucket.back_up("full", 0);
    bucket.commit(&mut shell, 21);
    bucket.wait_for(1);
    bucket.put_to_sleep(&mut sleeper, &mut shell, 22);
    let (other, _) = bucket.receive();
    bucket.commit(&mut shell, 23);
    bucket.wait_for(3);
    other.stop();
    bucket.wake(&sleeper);
    // It holds the database's log again before it leaves its note.
    while bucket.notes().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    bucket.commit(&mut shell, 24);
    bucket.wait_for(4);
    signal(&sleeper.child, "INT");
    let said = sleeper.ends(Some(0));
    assert!(said.contains("the note of this receiver"), "{said}");
    bucket.follows();
    assert_eq!(bucket.timelines().len(), 1);
    assert_eq!(bucket.restored(&[]), 24);
}

/// It says where the transactions are that the bucket lacks, and finds them there later.
#[test]
fn a_receiver_whose_bucket_refuses_it_ends_and_loses_nothing() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    let (receiver, _) = bucket.receive();
    bucket.back_up("full", 0);
    bucket.commit(&mut shell, 21);
    bucket.wait_for(1);
    let refused = Evil::Answer(403, "AccessDenied");
    bucket.shop.proxy.rule(Asked::Log, (0, ALWAYS), refused);
    bucket.commit(&mut shell, 22);
    let said = receiver.ends(Some(1));
    assert!(said.contains("shop.db-wal ("), "{said}");
    assert!(said.contains("AccessDenied"), "{said}");
    bucket.shop.proxy.reset();
    bucket.commit(&mut shell, 23);
    let (receiver, line) = bucket.receive();
    assert!(line.contains("on timeline 1"), "{line}");
    bucket.wait_for(3);
    receiver.stop();
    assert_eq!(bucket.restored(&[]), 23);
}

/// Its keys remove nothing, so the note of its first session stays. It is its own.
#[test]
fn a_receiver_that_cannot_remove_its_note_goes_on_with_another_file() {
    let bucket = Bucket::new();
    let (mut receiver, _) = bucket.receive();
    bucket.back_up("full", 0);
    let refused = Evil::Answer(403, "AccessDenied");
    bucket.shop.proxy.rule(Asked::Remove, (0, ALWAYS), refused);
    let (path, other) = (&bucket.ledger.path, bucket.shop.path("other.db"));
    std::fs::copy(path, &other).unwrap();
    std::fs::rename(&other, path).unwrap();
    while bucket.timelines().len() < 2 {
        assert!(receiver.child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let mut shell = bucket.ledger.shell();
    bucket.commit(&mut shell, 21);
    bucket.wait_for(1);
    bucket.shop.proxy.reset();
    receiver.stop();
}

/// An object of a bucket is in memory until it is there, so there is a limit. The gap is named.
#[test]
fn a_transaction_that_is_too_long_for_a_bucket_is_a_gap() {
    let bucket = Bucket::new();
    let mut shell = bucket.ledger.shell();
    // Else what is deleted is written over, as Debian does it: that would be too long, too.
    shell.run("PRAGMA secure_delete=0; PRAGMA wal_autocheckpoint=0; CREATE TABLE blob(content);");
    bucket.back_up("log", 3);
    bucket.back_up("full", 0);
    bucket.commit(&mut shell, 21);
    shell.run("INSERT INTO blob VALUES (zeroblob(280000000)); DELETE FROM blob;");
    bucket.commit(&mut shell, 22);
    let said = bucket.back_up("log", 3);
    assert!(said.contains("timeline 2"), "{said}");
    let timelines = bucket.timelines();
    assert_eq!(timelines.len(), 2);
    let lost = timelines[1]["lost"].as_str().unwrap();
    assert!(lost.contains("too much for one object"), "{lost}");
    let into = bucket.shop.word("copy.db");
    let latest = ["restore", &bucket.place, "--into", &into, "--target-latest"];
    let said = bucket.shop.ends(&latest, 1);
    assert!(said.contains("may lack transactions"), "{said}");
}
