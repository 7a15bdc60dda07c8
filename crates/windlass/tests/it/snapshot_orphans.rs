//! Somebody removes what snapshots by the hook need, without Windlass: the file with the pages, the
//! directory of one snapshot, all of it. The next snapshot is right, and what is lost is told.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};

const DIGEST: &str = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM t";

struct Orphaned {
    cluster: PrivateCluster,
    scratch: Scratch,
}

impl Orphaned {
    fn new() -> Self {
        stay_root();
        let scratch = Scratch::new();
        let library = library(&scratch).display().to_string();
        let options = ClusterOptions::default();
        let options = options.setting(format!("shared_preload_libraries = '{library}'"));
        let cluster = PrivateCluster::start(&options);
        let rows = "SELECT i, repeat('x', 200) AS x FROM generate_series(1, 5000) i";
        cluster.sql("postgres", &format!("CREATE TABLE t AS {rows}"));
        Self { cluster, scratch }
    }

    fn home(&self) -> PathBuf {
        let mut name = self.cluster.data().file_name().unwrap().to_owned();
        name.push(".windlass-snapshots");
        self.cluster.data().with_file_name(name)
    }

    fn snapshot(&self, code: i32, verb: &str, rest: &[&str]) -> String {
        let conninfo = self.cluster.conninfo();
        let words = [&["snapshot", verb, &conninfo], rest].concat();
        run(&self.scratch, code, &words)
    }

    fn create(&self, code: i32, name: &str) -> String {
        self.snapshot(code, "create", &[name, "--method", "hook"])
    }

    /// Every page changes.
    fn write(&self) {
        for sql in ["UPDATE t SET x = md5(x) || 'y'", "VACUUM t", "CHECKPOINT"] {
            self.cluster.sql("postgres", sql);
        }
    }

    fn rows(&self) -> String {
        self.cluster.sql("postgres", DIGEST)
    }

    fn assert_shows(&self, name: &str, rows: &str) {
        let word = format!("{}@{name}", self.cluster.conninfo());
        let ask = [
            "open", "--quiet", &word, "--", "psql", "-XqAt", "-c", DIGEST,
        ];
        assert_eq!(run(&self.scratch, 0, &ask).trim(), rows, "{name}");
    }

    /// The new snapshot is made, says what is the matter, and keeps its pages.
    fn assert_next_is_right(&self, name: &str, said: &str) -> String {
        let rows = self.rows();
        let made = self.create(3, name);
        assert!(made.contains(said), "{made}");
        self.write();
        self.assert_shows(name, &rows);
        rows
    }

    fn store(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.home()).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        let is_store = |path: &PathBuf| path.extension().is_some_and(|it| it == "pages");
        paths.find(is_store).unwrap()
    }

    fn links(&self) -> usize {
        let links = self.cluster.data().join("pg_subtrans/windlass");
        std::fs::read_dir(links).map_or(0, |entries| entries.count())
    }

    fn assert_nothing_left(&self) {
        assert!(!self.home().exists(), "{:?}", self.home());
        assert_eq!(self.links(), 0);
    }
}

impl Drop for Orphaned {
    fn drop(&mut self) {
        if self.cluster.data().exists() {
            forget(&self.cluster);
        }
    }
}

fn copied(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn a_snapshot_after_all_others_were_removed_by_hand_keeps_its_pages() {
    let mut source = Orphaned::new();
    source.create(0, "one");
    source.write();
    std::fs::remove_dir_all(source.home()).unwrap();
    // The memory outlives a start of the server.
    source.cluster.stop("fast");
    source.cluster.run();
    let rows = source.assert_next_is_right("two", "an older snapshot is lost: the file with its");
    source.write();
    source.assert_shows("two", &rows);
    source.snapshot(0, "drop", &["two"]);
    source.assert_nothing_left();
    // Nobody can drop what has no directory, so it does not hinder.
    source.create(0, "three");
    std::fs::remove_dir_all(source.home()).unwrap();
    let said = source.snapshot(1, "disable", &[]);
    assert!(!said.contains("would be lost"), "{said}");
}

#[test]
fn a_snapshot_whose_pages_were_removed_or_replaced_is_lost_at_once_and_the_next_is_right() {
    let source = Orphaned::new();
    let remove = |source: &Orphaned| std::fs::remove_file(source.store()).unwrap();
    let replace = |source: &Orphaned| {
        let (home, copy) = (source.home(), source.scratch.path().join("copy"));
        copied(&home, &copy);
        std::fs::remove_dir_all(&home).unwrap();
        copied(&copy, &home);
        std::fs::remove_dir_all(&copy).unwrap();
    };
    for gone in [&remove as &dyn Fn(&Orphaned), &replace] {
        source.create(0, "one");
        source.write();
        gone(&source);
        let listed = source.snapshot(3, "list", &[]);
        assert!(listed.contains("lost: the file with its pages"), "{listed}");
        let rows = source.assert_next_is_right("two", "an older snapshot is lost");
        let listed = source.snapshot(3, "list", &[]);
        assert_eq!(listed.matches("lost: ").count(), 1, "{listed}");
        // What the older one had in the old file is not freed in the new one.
        source.snapshot(0, "drop", &["one"]);
        source.assert_shows("two", &rows);
        source.write();
        source.assert_shows("two", &rows);
        source.snapshot(0, "drop", &["two"]);
        source.assert_nothing_left();
    }
}

#[test]
fn a_snapshot_whose_directory_was_removed_costs_nothing_after_the_next_one() {
    let source = Orphaned::new();
    source.create(0, "one");
    source.write();
    let rows = source.rows();
    source.create(0, "two");
    source.write();
    std::fs::remove_dir_all(source.home().join("one")).unwrap();
    source.assert_next_is_right(
        "three",
        "an older snapshot is dropped: somebody removed its",
    );
    source.assert_shows("two", &rows);
    assert_eq!(source.links(), 2, "the links of those that are there");
    for name in ["two", "three"] {
        source.snapshot(0, "drop", &[name]);
    }
    source.assert_nothing_left();
}
