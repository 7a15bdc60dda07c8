//! Random histories of a SQLite database whose log is received: transactions, checkpoints of every
//! mode, VACUUM, writers in other processes, changes of the journal mode, other files in its place,
//! receivers that are stopped, killed and started, and backups of every kind in between. Each set,
//! and each moment to which the log leads, has exactly the content that the database had then.
//!
//! WINDLASS_TEST_SEED draws the histories; in `scripts/soak` there are more, and they are longer.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::PathBuf;

use windlass_testkit::counted::is_soak;
use windlass_testkit::sqlite::{Random, Shell, run_once};

use crate::chains_captured::{is_known, until_at_rest, until_it_waits};
use crate::receive_sqlite::Receiving;
use crate::support::*;

/// How many histories there are, and how many rounds each has.
const SHORT: (u64, u32) = (2, 2);
const IN_SOAK: (u64, u32) = (4, 8);
/// What happens in a round behind its backups.
const SHAKEN: u32 = 5;
/// The parts of a transaction that changes rows and takes that back.
const TAKEN_BACK: &str = "SAVEPOINT one; UPDATE account SET payload = printf('%.*c', 2000, 'z');
    ROLLBACK TO one; COMMIT;";

/// A set, and what the database was when it was made.
struct Made {
    id: String,
    content: Vec<String>,
    case: String,
}

/// A moment at which the log ended.
struct Moment {
    time: String,
    content: Vec<String>,
    /// The newest set leads there.
    is_reached: bool,
    case: String,
}

struct History {
    receiving: Receiving,
    shell: Option<Shell>,
    random: Random,
    seed: u64,
    step: u32,
    sets: Vec<Made>,
    moments: Vec<Moment>,
    /// How many timelines the log has.
    timelines: usize,
    /// The newest set stands in the newest one.
    leads: bool,
    /// For how many sets a log said what to read.
    by_log: u32,
}

impl History {
    /// A small database whose log is received, and a full backup.
    fn new(seed: u64) -> Self {
        let place = Place::with_accounts(50);
        let mut history = Self {
            receiving: Receiving { place, child: None },
            shell: None,
            random: Random(seed),
            seed,
            step: 0,
            sets: Vec::new(),
            moments: Vec::new(),
            timelines: 0,
            leads: false,
            by_log: 0,
        };
        history.open();
        history.run("PRAGMA auto_vacuum=incremental; VACUUM;");
        history.start();
        history.back_up("full");
        history
    }

    /// Opens the shell that keeps the database open. Its transactions go into the log in parts.
    fn open(&mut self) {
        let mut shell = self.receiving.place.ledger.shell();
        shell.run("PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=20;");
        self.shell = Some(shell);
    }

    fn run(&mut self, sql: &str) -> Vec<String> {
        self.shell.as_mut().unwrap().run(sql)
    }

    fn content(&mut self) -> Vec<String> {
        content_of(self.shell.as_mut().unwrap())
    }

    fn case(&self, what: &str) -> String {
        format!("seed {}, step {}: {what}", self.seed, self.step)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.receiving.place.path(name)
    }

    fn is_received(&self) -> bool {
        self.receiving.child.is_some()
    }

    fn start(&mut self) {
        self.receiving.start();
        self.end_of_log();
    }

    fn stop(&mut self) {
        let mut child = self.receiving.child.take().unwrap();
        signal(&child, "INT");
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(0 | 3)), "{}", self.case("stop"));
        self.note_moment();
    }

    fn copy_log(&mut self) {
        let (code, document) = self.receiving.back_up("log");
        assert!(matches!(code, 0 | 3), "{}: {document}", self.case("log"));
        self.note_moment();
    }

    /// The log has everything up to now.
    fn note_moment(&mut self) {
        let moment = Moment {
            time: self.end_of_log(),
            content: self.content(),
            is_reached: self.leads,
            case: self.case("moment"),
        };
        self.moments.push(moment);
    }

    /// The moment at which the log ends. No set that was made before leads to a new timeline.
    fn end_of_log(&mut self) -> String {
        let timelines = self.receiving.timelines();
        if timelines.len() != self.timelines {
            (self.timelines, self.leads) = (timelines.len(), false);
        }
        let newest = timelines.last().unwrap();
        newest["end_time"].as_str().unwrap().to_owned()
    }

    fn back_up(&mut self, kind: &str) {
        let (content, case) = (self.content(), self.case(kind));
        let (code, document) = self.receiving.back_up(kind);
        assert!(matches!(code, 0 | 3), "{case}: {document}");
        assert_eq!(document["type"], kind, "{case}: {document}");
        self.by_log += u32::from(document["database"]["changes_from"] == "log");
        // With a warning, it may not stand in the log.
        self.leads = code == 0 && self.is_received();
        let id = document["set_id"].as_str().unwrap().to_owned();
        self.sets.push(Made { id, content, case });
    }

    /// A transaction that changes one of some tables.
    fn transaction(&mut self) -> String {
        let random = &mut self.random;
        let table = format!("t{}", random.below(4));
        let letter = char::from(b'a' + u8::try_from(random.below(26)).unwrap());
        let (count, length) = (1 + random.below(40), 1 + random.below(1500));
        let (of, rest) = (2 + random.below(5), random.below(2));
        let change = match random.below(8) {
            0..=2 => format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {count})
                 INSERT INTO {table}(x) SELECT printf('%.*c', {length}, '{letter}') FROM n;"
            ),
            3 | 4 => format!(
                "UPDATE {table} SET x = printf('%.*c', {length}, '{letter}')
                 WHERE id % {of} = {rest};"
            ),
            5 | 6 => format!("DELETE FROM {table} WHERE id % {of} = {rest};"),
            _ => format!("DROP TABLE {table};"),
        };
        format!(
            "BEGIN IMMEDIATE;
             CREATE TABLE IF NOT EXISTS {table}(id INTEGER PRIMARY KEY, x TEXT);
             {change} COMMIT;"
        )
    }

    /// Commits a transaction, or leaves one behind that nobody commits.
    fn write(&mut self) {
        let sql = self.transaction();
        let begun = sql.strip_suffix("COMMIT;").unwrap();
        match self.random.below(6) {
            0 => {
                let patient = format!("PRAGMA busy_timeout=60000; {sql}");
                run_once(&self.path("shop.db"), &patient).unwrap();
            }
            1 => {
                let mut other = self.receiving.place.ledger.shell();
                other.run("PRAGMA cache_size=5;");
                other.run(begun);
                other.kill();
            }
            2 => drop(self.run(&format!("{begun} {TAKEN_BACK}"))),
            _ => drop(self.run(&sql)),
        }
    }

    fn checkpoint(&mut self) {
        let modes = ["PASSIVE", "FULL", "RESTART", "TRUNCATE"];
        let mode = modes[self.random.below(4) as usize];
        self.run(&format!("PRAGMA wal_checkpoint({mode});"));
    }

    /// There and back, with other pages. Nobody else has the database open.
    fn change_journal_mode(&mut self) {
        assert_eq!(self.run("PRAGMA journal_mode=delete;"), ["delete"]);
        if self.random.below(2) == 0 {
            let page_bytes = 512 << self.random.below(4);
            self.run(&format!("PRAGMA page_size={page_bytes}; VACUUM;"));
        }
        let sql = self.transaction();
        self.run(&sql);
        if self.random.below(2) == 0 {
            self.back_up("incr");
        }
        assert_eq!(self.run("PRAGMA journal_mode=wal;"), ["wal"]);
    }

    /// Closes the database, keeps a copy or puts the last one back, and opens it again.
    fn replace(&mut self) {
        self.shell.take().unwrap().close();
        let (database, kept) = (self.path("shop.db"), self.path("kept.db"));
        assert!(!self.path("shop.db-wal").exists(), "{}", self.case("close"));
        let copied = match (kept.exists(), self.random.below(3)) {
            (true, 0) => std::fs::copy(&kept, &database).map(drop),
            (true, 1) => std::fs::rename(&kept, &database),
            _ => std::fs::copy(&database, &kept).map(drop),
        };
        copied.unwrap();
        self.open();
    }

    fn shake(&mut self) {
        self.step += 1;
        match (self.random.below(14), self.is_received()) {
            (0..=3, _) => self.checkpoint(),
            (4, _) => drop(self.run("VACUUM;")),
            (5, _) => {
                let count = 1 + self.random.below(40);
                self.run(&format!("PRAGMA incremental_vacuum({count});"));
            }
            (6 | 7, true) => self.stop(),
            (6 | 7, false) => self.start(),
            (8, true) => self.receiving.kill(),
            (8, false) => self.copy_log(),
            (9, false) => self.change_journal_mode(),
            (10, false) => self.replace(),
            (11, _) => self.back_up("incr"),
            _ => self.write(),
        }
    }

    /// The file is at rest when it begins, so that its logs can say what the two sets have to read.
    fn round(&mut self) {
        self.step += 1;
        let kind = ["full", "diff", "incr", "incr"][self.random.below(4) as usize];
        self.back_up(kind);
        for _ in 0..=self.random.below(3) {
            self.write();
        }
        self.back_up("incr");
        for _ in 0..SHAKEN {
            self.shake();
        }
    }

    /// Restores everything.
    fn check(&self) {
        for set in &self.sets {
            match self.restored(&["--set", &set.id]) {
                Ok(found) => check_same(&found, &set.content, &set.case),
                Err(said) => panic!("{}: {said}", set.case),
            }
        }
        for moment in &self.moments {
            match self.restored(&["--target-time", &moment.time]) {
                Ok(found) => check_same(&found, &moment.content, &moment.case),
                Err(said) => assert!(!moment.is_reached, "{}: {said}", moment.case),
            }
        }
        let verified = windlass(&["verify", &self.receiving.place.arg("sets")]);
        let code = verified.status.code();
        assert!(matches!(code, Some(0 | 3)), "{}", text(&verified));
    }

    /// The content of the restored database, or what was said.
    fn restored(&self, options: &[&str]) -> Result<Vec<String>, String> {
        let into = self.path("restored.db");
        let sets = self.receiving.place.arg("sets");
        let words = ["restore", &sets, "--into", into.to_str().unwrap()];
        let output = windlass(&[&words[..], options].concat());
        if !matches!(output.status.code(), Some(0 | 3)) {
            assert!(!into.exists());
            return Err(text(&output));
        }
        let mut shell = Shell::open(&into);
        let found = content_of(&mut shell);
        shell.close();
        std::fs::remove_file(&into).unwrap();
        Ok(found)
    }
}

/// Everything that is in a database, and how many pages it has.
fn content_of(shell: &mut Shell) -> Vec<String> {
    let pages = "PRAGMA page_size; PRAGMA page_count; PRAGMA freelist_count;";
    shell.run(&format!("{pages}\nPRAGMA integrity_check;\n.dump"))
}

/// Fails with the first line that differs: all of them would be too much to read.
fn check_same(found: &[String], expected: &[String], case: &str) {
    let lines = 0..found.len().max(expected.len());
    let mut pairs = lines.map(|line| (found.get(line), expected.get(line)));
    if let Some((found, expected)) = pairs.find(|(found, expected)| found != expected) {
        panic!("{case}: restored {found:?}, and it was {expected:?}");
    }
}

#[test]
fn each_set_and_moment_of_a_random_history_has_the_content_of_its_time() {
    let seed = std::env::var("WINDLASS_TEST_SEED").unwrap_or_default();
    let seed = seed.parse().unwrap_or(1_u64).wrapping_mul(100);
    let (count, rounds) = if is_soak() { IN_SOAK } else { SHORT };
    let seeds = (0..count).map(|number| seed.wrapping_add(number));
    let mut histories: Vec<_> = seeds.map(History::new).collect();
    for _ in 0..rounds {
        // They wait side by side.
        for history in &histories {
            until_at_rest(&history.receiving);
            if history.is_received() {
                until_it_waits(&history.receiving);
            }
        }
        histories.iter_mut().for_each(History::round);
    }
    histories.iter().for_each(History::check);
    let by_log: u32 = histories.iter().map(|history| history.by_log).sum();
    assert!(by_log > 0 || !is_known(&histories[0].receiving));
}
