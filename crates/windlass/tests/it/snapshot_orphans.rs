//! Somebody removes what snapshots by the hook need, without Windlass: the file with the pages, the
//! directory of one snapshot, all of it. The next snapshot is right, and what is lost is told.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, give_to_servers, stay_root};

use crate::opening::Scratch;
use crate::snapshot_forged::{forge_document, forge_record};
use crate::snapshot_hook::{forget, library, run};

const DIGEST: &str = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM t";

/// A server with the hook, whose snapshots somebody removes or damages.
pub struct Orphaned {
    pub cluster: PrivateCluster,
    pub scratch: Scratch,
}

impl Orphaned {
    pub fn new() -> Self {
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

    /// One that is stopped and has the snapshot `one` of these rows. Every page was written since.
    pub fn stopped() -> (Self, String) {
        let mut source = Self::new();
        source.create(0, "one");
        let rows = source.rows();
        source.write();
        source.cluster.stop("fast");
        (source, rows)
    }

    /// Copies the data directory and that of its snapshots. Returns both copies.
    pub fn copied_beside(&self) -> (PathBuf, PathBuf) {
        let copy = self.cluster.data().with_file_name("copied");
        let home = copy.with_file_name("copied.windlass-snapshots");
        copied(self.cluster.data(), &copy);
        copied(&self.home(), &home);
        (copy, home)
    }

    pub fn home(&self) -> PathBuf {
        let mut name = self.cluster.data().file_name().unwrap().to_owned();
        name.push(".windlass-snapshots");
        self.cluster.data().with_file_name(name)
    }

    pub fn snapshot(&self, code: i32, verb: &str, rest: &[&str]) -> String {
        let conninfo = self.cluster.conninfo();
        let words = [&["snapshot", verb, &conninfo], rest].concat();
        run(&self.scratch, code, &words)
    }

    pub fn create(&self, code: i32, name: &str) -> String {
        self.snapshot(code, "create", &[name, "--method", "hook"])
    }

    /// Every page changes.
    pub fn write(&self) {
        for sql in ["UPDATE t SET x = md5(x) || 'y'", "VACUUM t", "CHECKPOINT"] {
            self.cluster.sql("postgres", sql);
        }
    }

    /// Whoever looks for snapshots learns that the server has more than the list.
    fn assert_listed_as_gone(&self, count: usize) -> String {
        let listed = self.snapshot(3, "list", &[]);
        let said = format!("warning: {count} snapshot");
        assert!(listed.contains(&said), "{listed}");
        assert!(
            listed.contains("gone: somebody removed the directory"),
            "{listed}"
        );
        assert!(!listed.contains("no snapshots"), "{listed}");
        let listed = self.snapshot(3, "list", &["--json"]);
        assert!(listed.contains(&format!("\"removed\":{count}")), "{listed}");
        listed
    }

    pub fn rows(&self) -> String {
        self.cluster.sql("postgres", DIGEST)
    }

    pub fn assert_shows(&self, name: &str, rows: &str) {
        self.assert_image(&format!("{}@{name}", self.cluster.conninfo()), rows);
    }

    fn assert_image(&self, image: &str, rows: &str) {
        let ask = [
            "open", "--quiet", image, "--", "psql", "-XqAt", "-c", DIGEST,
        ];
        assert_eq!(run(&self.scratch, 0, &ask).trim(), rows, "{image}");
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

    pub fn links(&self) -> usize {
        let links = self.cluster.data().join("pg_subtrans/windlass");
        let entries = std::fs::read_dir(links).into_iter().flatten();
        entries
            .filter(|entry| is_directory(entry.as_ref().unwrap()))
            .count()
    }

    /// Moves the data directory, and leaves a link. Returns its old path and that of its snapshots.
    fn moved_behind_a_link(&mut self) -> (PathBuf, PathBuf) {
        self.cluster.stop("fast");
        let (data, home) = (self.cluster.data().to_owned(), self.home());
        let elsewhere = data.with_file_name("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        give_to_servers(&elsewhere);
        let moved = elsewhere.join("data");
        std::fs::rename(&data, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &data).unwrap();
        self.cluster.run();
        (data, home)
    }

    pub fn assert_nothing_left(&self) {
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

fn is_directory(entry: &std::fs::DirEntry) -> bool {
    entry.file_type().unwrap().is_dir()
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
    source.assert_listed_as_gone(1);
    // The memory outlives a start of the server.
    source.cluster.stop("fast");
    source.cluster.run();
    source.assert_listed_as_gone(1);
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
    let listed = source.assert_listed_as_gone(1);
    assert!(listed.contains("\"name\":\"two\""), "{listed}");
    source.assert_next_is_right(
        "three",
        "an older snapshot is dropped: somebody removed its",
    );
    source.snapshot(0, "list", &[]);
    source.assert_shows("two", &rows);
    assert_eq!(source.links(), 2, "the links of those that are there");
    for name in ["two", "three"] {
        source.snapshot(0, "drop", &[name]);
    }
    source.assert_nothing_left();
}

/// The entries of its snapshots are beside the path that it had before, where nobody looks who
/// knows its path of today.
#[test]
fn snapshots_of_a_data_directory_that_was_moved_behind_a_link_stay() {
    let mut source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    let (data, home) = source.moved_behind_a_link();
    let moved = data.canonicalize().unwrap();
    let elsewhere = moved.parent().unwrap();
    source.create(0, "two");
    source.write();
    let image = home.join("one").display().to_string();
    source.assert_image(&image, &rows);
    assert_eq!(source.links(), 2);
    // They are found by every name of the database, and no name is given twice.
    let listed = source.snapshot(0, "list", &[]);
    assert!(listed.contains("one") && listed.contains("two"), "{listed}");
    source.assert_shows("one", &rows);
    for of in [&data, &moved] {
        source.assert_image(&format!("{}@one", of.display()), &rows);
    }
    let taken = source.create(1, "one");
    assert!(taken.contains(&image), "{taken}");
    // Whoever removes its directory is still understood.
    std::fs::remove_dir_all(&image).unwrap();
    source.assert_next_is_right(
        "three",
        "an older snapshot is dropped: somebody removed its",
    );
    assert_eq!(source.links(), 2);
    for name in ["two", "three"] {
        source.snapshot(0, "drop", &[name]);
    }
    assert_eq!(source.links(), 0);
    assert!(!home.exists(), "the pages of all snapshots were there");
    assert!(!elsewhere.join("data.windlass-snapshots").exists());
}

/// The last snapshot of the place before is dropped by its name, and reverted to before that.
#[test]
fn a_snapshot_of_the_place_before_is_reverted_to_and_dropped_by_its_name() {
    let mut source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    let (data, home) = source.moved_behind_a_link();
    let word = format!("{}@one", source.cluster.conninfo());
    run(&source.scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    assert_eq!(source.rows(), rows);
    source.snapshot(0, "undo", &["--yes"]);
    assert_ne!(source.rows(), rows);
    source.create(0, "two");
    source.snapshot(0, "drop", &["one"]);
    source.snapshot(0, "drop", &["two"]);
    assert_eq!(source.links(), 0);
    assert!(!home.exists(), "{}", home.display());
    let mut today = data.canonicalize().unwrap().into_os_string();
    today.push(".windlass-snapshots");
    assert!(!Path::new(&today).exists());
}

/// That one is in no memory any more, and its number was given again.
#[test]
fn a_directory_of_an_earlier_start_of_the_system_hides_no_removed_one() {
    let source = Orphaned::new();
    for name in ["one", "two"] {
        source.create(0, name);
    }
    let old = source.home().join("old");
    copied(&source.home().join("one"), &old);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    forge_document(&old, |document| {
        let earlier = document.replacen(boot.trim(), "an earlier start", 1);
        assert_ne!(earlier, document);
        earlier
    });
    forge_record(&old, |record| record["name"] = "old".into());
    std::fs::remove_dir_all(source.home().join("two")).unwrap();
    source.assert_listed_as_gone(1);
    let made = source.create(3, "three");
    assert!(made.contains("an older snapshot is dropped"), "{made}");
}

/// The note of where the entries are cannot be read.
#[test]
fn a_damaged_note_is_a_warning_of_the_list_and_keeps_no_snapshot_from_use() {
    let source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    let note = source.cluster.data().join("pg_subtrans/windlass/homes");
    std::fs::write(&note, "broken").unwrap();
    let listed = source.snapshot(3, "list", &[]);
    assert!(listed.contains("one "), "{listed}");
    assert_eq!(listed.matches("(snapshots-unseen)").count(), 1, "{listed}");
    assert!(listed.contains(&note.display().to_string()), "{listed}");
    let listed = source.snapshot(3, "list", &["--json"]);
    assert!(listed.contains("\"unseen\":[\"read "), "{listed}");
    // The name may be taken, and the server may need what nobody finds.
    source.create(1, "two");
    source.snapshot(1, "disable", &[]);
    let word = format!("{}@one", source.cluster.conninfo());
    run(&source.scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    assert_eq!(source.rows(), rows);
    source.snapshot(0, "drop", &["one"]);
    // Nobody knows whether a state is in a place before, so the newest number stays noted.
    let left = std::fs::read_dir(source.home()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".undo-newest"]);
    assert_eq!(source.links(), 0);
}

#[test]
fn a_snapshot_that_may_not_be_read_is_not_lost_and_not_half_dropped() {
    let source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    let content = source.home().join("one/hook");
    let allow = |mode: u32| {
        std::fs::set_permissions(&content, PermissionsExt::from_mode(mode)).unwrap();
    };
    allow(0);
    let listed = source.snapshot(3, "list", &[]);
    assert!(listed.contains("Permission denied"), "{listed}");
    assert!(!listed.contains("lost"), "{listed}");
    let said = source.snapshot(1, "drop", &["one"]);
    assert!(said.contains("Permission denied"), "{said}");
    assert!(!said.contains("make another one"), "{said}");
    allow(0o700);
    // Nor is one that a newer Windlass made.
    let version = |from: u32, to: u32| {
        let words = [from, to].map(|version| format!("\"version\":{version},"));
        forge_document(&source.home().join("one"), |document| {
            assert!(document.contains(&words[0]), "{document}");
            document.replacen(&words[0], &words[1], 1)
        });
    };
    version(1, 2);
    let listed = source.snapshot(3, "list", &[]);
    assert!(listed.contains("it has version 2"), "{listed}");
    assert!(!listed.contains("lost"), "{listed}");
    version(2, 1);
    source.assert_shows("one", &rows);
    source.snapshot(0, "drop", &["one"]);
    source.assert_nothing_left();
}

/// A copy of the directory has the number that the original has in its server.
#[test]
fn dropping_a_copy_of_a_snapshot_beside_a_copied_cluster_leaves_the_original() {
    let (mut source, rows) = Orphaned::stopped();
    let (copy, home) = source.copied_beside();
    source.cluster.run();
    let copy = copy.to_str().unwrap();
    run(&source.scratch, 0, &["snapshot", "drop", copy, "one"]);
    assert!(!home.join("one").exists());
    source.write();
    source.assert_shows("one", &rows);
    source.snapshot(0, "drop", &["one"]);
    source.assert_nothing_left();
    std::fs::remove_dir_all(copy).unwrap();
}

/// The record of the copy names the directory that has the copied cluster now.
#[test]
fn dropping_a_copy_that_has_the_old_name_of_a_renamed_cluster_leaves_the_original() {
    let (mut source, rows) = Orphaned::stopped();
    let (data, home) = (source.cluster.data().to_owned(), source.home());
    let (moved, moved_home) = (
        data.with_file_name("moved"),
        data.with_file_name("moved.windlass-snapshots"),
    );
    std::fs::rename(&data, &moved).unwrap();
    std::fs::rename(&home, &moved_home).unwrap();
    copied(&moved, &data);
    copied(&moved_home, &home);
    let copy = data.to_str().unwrap();
    run(&source.scratch, 0, &["snapshot", "drop", copy, "one"]);
    assert!(!home.join("one").exists());
    for path in [&data, &home] {
        std::fs::remove_dir_all(path).unwrap();
    }
    std::fs::rename(&moved_home, &home).unwrap();
    // The place may have kept its old name, and something else may have that of the cluster.
    std::fs::create_dir(&data).unwrap();
    let list = ["snapshot", "list", moved.to_str().unwrap()];
    let listed = run(&source.scratch, 0, &list);
    assert!(listed.contains("kept"), "{listed}");
    std::fs::remove_dir(&data).unwrap();
    std::fs::rename(&moved, &data).unwrap();
    source.cluster.run();
    source.write();
    source.assert_shows("one", &rows);
    source.snapshot(0, "drop", &["one"]);
    source.assert_nothing_left();
}

/// Each has the number that the original has in the server: one that is whole, and one whose `cp`
/// was killed.
#[test]
fn a_copy_beside_the_original_goes_without_it() {
    let source = Orphaned::new();
    source.create(0, "one");
    let rows = source.rows();
    source.write();
    let at = |name: &str| source.home().join(name);
    copied(&at("one"), &at("whole"));
    source.snapshot(4, "list", &[]);
    source.snapshot(0, "drop", &["whole"]);
    assert!(!at("whole").exists());
    source.assert_shows("one", &rows);
    copied(&at("one"), &at("half"));
    std::fs::remove_file(at("half/record")).unwrap();
    source.create(0, "two");
    assert!(!at("half").exists());
    assert_eq!(source.links(), 2);
    source.write();
    source.assert_shows("one", &rows);
    for name in ["one", "two"] {
        source.snapshot(0, "drop", &[name]);
    }
    source.assert_nothing_left();
}

/// The place of the snapshots is not where it was. Somebody may bring it back.
#[test]
fn snapshots_whose_place_was_moved_away_stay_until_it_is_back() {
    let source = Orphaned::new();
    let store = source.scratch.path().join("store");
    std::fs::create_dir(&store).unwrap();
    give_to_servers(&store);
    let to = store.display().to_string();
    source.snapshot(0, "create", &["one", "--method", "hook", "--to", &to]);
    let rows = source.rows();
    source.write();
    let (home, away) = (source.home(), source.home().with_extension("away"));
    std::fs::rename(&home, &away).unwrap();
    let said = format!(
        "an older snapshot stays in the server, without a directory here: {} is not where it was \
         (snapshots-elsewhere)",
        home.display()
    );
    let listed = source.snapshot(3, "list", &[]);
    assert!(
        listed.contains("the server has 1 snapshot without a directory here"),
        "{listed}"
    );
    source.assert_next_is_right("two", &said);
    let refused = source.snapshot(1, "disable", &[]);
    assert!(refused.contains("2 snapshots would be lost"), "{refused}");
    std::fs::rename(away.join("one"), home.join("one")).unwrap();
    source.create(0, "three");
    source.assert_shows("one", &rows);
    for name in ["one", "two", "three"] {
        source.snapshot(0, "drop", &[name]);
    }
    assert_eq!(source.links(), 0);
}
