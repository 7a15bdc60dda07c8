//! `restore --delta`: a cluster that is there becomes that of the set, whatever had become of it,
//! and whatever kills the restore.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster};

use crate::clusters::{bindir, directory, place};
use crate::opening::Scratch;
use crate::support::{killed_at, text};

fn run(words: &[&str], code: i32) -> String {
    let output: Output = Scratch::new().run(None, words);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{words:?}: {}",
        text(&output)
    );
    text(&output)
}

/// A chain of two sets of a cluster, and what it restores to.
struct Restored {
    place: tempfile::TempDir,
    sets: String,
    fresh: String,
    bin: PathBuf,
    rows: String,
}

const ROWS: &str = "SELECT count(*), sum(i) FROM t";

impl Restored {
    fn new() -> Self {
        let place = place();
        let options = ClusterOptions {
            bin: bindir(18),
            ..ClusterOptions::default()
        };
        let source = PrivateCluster::start(&options.setting("summarize_wal = on"));
        let sql = |sql: &str| source.sql("postgres", sql);
        sql("CREATE TABLE t AS SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i");
        sql("CREATE TABLE dropped AS SELECT 1");
        let sets = directory(place.path(), "sets");
        let sets = sets.to_str().unwrap().to_owned();
        for kind in ["full", "incr"] {
            let conninfo = source.conninfo();
            run(
                &[
                    "backup", &conninfo, "--to", &sets, "--type", kind, "--quiet",
                ],
                0,
            );
            sql("DELETE FROM t WHERE i % 7 = 0");
        }
        let fresh = place.path().join("fresh").to_str().unwrap().to_owned();
        let restored = Self {
            bin: source.bin().to_owned(),
            rows: "17143 171431429".to_owned(),
            place,
            sets,
            fresh,
        };
        run(
            &["restore", &restored.sets, "--into", &restored.fresh, "-q"],
            0,
        );
        restored
    }

    /// A copy of what the chain restores to.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.place.path().join(name);
        let words = ["-a", &self.fresh, copy.to_str().unwrap()];
        assert!(Command::new("cp").args(words).status().unwrap().success());
        copy
    }

    fn delta(&self, into: &Path, more: &[&str], code: i32) -> String {
        let into = into.to_str().unwrap();
        let words = ["restore", &self.sets, "--into", into, "--delta"];
        run(&[&words, more].concat(), code)
    }

    /// Fails unless a directory is what the chain restores to.
    fn check(&self, into: &Path) {
        // Each restore writes a number of its own there.
        let words = ["-r", "-q", "--no-dereference"];
        let mut diff = Command::new("diff");
        diff.args(words).arg("--exclude=postgresql.auto.conf");
        let output = diff.arg(&self.fresh).arg(into).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }

    fn check_rows(&self, into: &Path) -> PrivateCluster {
        let server = PrivateCluster::adopt(into, &self.bin);
        assert_eq!(server.sql("postgres", ROWS).replace('|', " "), self.rows);
        server
    }
}

/// The largest file below a directory: that of the table.
fn largest(data: &Path) -> PathBuf {
    let find = ["-type", "f", "-path", "*/base/*", "-printf", "%s %p\n"];
    let output = Command::new("find").arg(data).args(find).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let size = |line: &&str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    let line = text.lines().max_by_key(size).unwrap();
    PathBuf::from(line.split_once(' ').unwrap().1)
}

/// Changes a byte of a file, and leaves its length and its time.
fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[!byte[0]], at).unwrap();
    file.set_modified(modified).unwrap();
}

#[test]
fn a_cluster_that_went_on_goes_back_and_only_what_differs_is_written() {
    let restored = Restored::new();
    let into = restored.copy("into");
    let server = restored.check_rows(&into);
    let sql = |sql: &str| server.sql("postgres", sql);
    sql("UPDATE t SET i = i + 1 WHERE i % 1000 = 1");
    sql("CREATE TABLE later AS SELECT 1");
    sql("DROP TABLE dropped");
    sql("CREATE DATABASE other");
    sql("CHECKPOINT");
    let said = restored.delta(&into, &["-q"], 1);
    assert!(said.contains("a running server"), "{said}");
    drop(server);
    let into_text = into.to_str().unwrap();
    let said = run(&["restore", &restored.sets, "--into", into_text], 1);
    assert!(
        said.contains("is not empty") && said.contains("--delta"),
        "{said}"
    );
    // What would happen is told, and nothing happens.
    let list = || {
        let find = Command::new("find").arg(&into).arg("-ls").output();
        text(&find.unwrap())
    };
    let before = list();
    let said = restored.delta(&into, &["--dry-run"], 0);
    assert!(said.contains("only what differs is written"), "{said}");
    assert!(said.contains("would be removed"), "{said}");
    assert_eq!(list(), before);
    let document = restored.delta(&into, &["--json"], 0);
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let number = |field: &str| document[field].as_u64().unwrap();
    assert!(number("removed") > 2, "{document}");
    assert!(number("changed_bytes") > 0, "{document}");
    assert!(
        number("changed_bytes") * 2 < number("bytes_written"),
        "{document}"
    );
    restored.check(&into);
    // Nothing differs now. pg_control is new each time.
    let document = restored.delta(&into, &["--json"], 0);
    assert!(document.contains("\"changed_bytes\":8192,"), "{document}");
    restored.check(&into);
    drop(restored.check_rows(&into));
}

#[test]
fn every_kind_of_damage_is_mended() {
    let restored = Restored::new();
    let into = restored.copy("into");
    let table = largest(&into);
    flip(&table, 100_000);
    let length = table.metadata().unwrap().len();
    let part = |name: &str| into.join(name);
    let file = File::options()
        .write(true)
        .open(part("global/1262"))
        .unwrap();
    file.set_len(length).unwrap();
    File::options()
        .write(true)
        .open(part("pg_xact/0000"))
        .unwrap()
        .set_len(10)
        .unwrap();
    fs::remove_file(part("global/1260")).unwrap();
    fs::remove_file(part("pg_hba.conf")).unwrap();
    fs::create_dir_all(part("pg_hba.conf/in/the/way")).unwrap();
    fs::remove_dir_all(part("pg_subtrans")).unwrap();
    fs::write(part("pg_subtrans"), "a file").unwrap();
    fs::write(part("base/1/99999999"), "nobody knows it").unwrap();
    fs::create_dir(part("base/77777")).unwrap();
    symlink("/etc", part("base/77777/elsewhere")).unwrap();
    fs::write(part("postmaster.pid"), "999999999\n").unwrap();
    // This file has a second name, which belongs to somebody else.
    let other = restored.place.path().join("other");
    fs::hard_link(part("global/1261"), &other).unwrap();
    flip(&other, 5);
    let kept = fs::read(&other).unwrap();
    let mut give = Command::new("chown");
    give.args(["-R", "-h", &format!("--reference={}", restored.fresh)]);
    assert!(give.arg(&into).status().unwrap().success());
    restored.delta(&into, &["-q"], 0);
    restored.check(&into);
    assert_eq!(fs::read(&other).unwrap(), kept);
    assert!(Path::new("/etc/passwd").exists());
    drop(restored.check_rows(&into));
}

#[test]
fn a_delta_that_is_killed_starts_no_server_and_can_be_repeated() {
    let restored = Restored::new();
    let into = restored.place.path().join("into");
    let into_text = into.to_str().unwrap();
    let words = [
        "restore",
        &restored.sets,
        "--into",
        into_text,
        "--delta",
        "-q",
        "--no-ring",
    ];
    restored.copy("into");
    let mut kills = 0;
    for (call, numbers) in [
        ("pwrite64", &[1, 5, 12, 100][..]),
        ("unlink", &[1, 2, 9]),
        ("rename", &[1, 2]),
        ("renameat2", &[1, 2]),
        ("syncfs", &[1, 2]),
        ("fsync", &[1, 2, 3, 4, 5]),
        ("ftruncate", &[1, 300]),
        ("pread64", &[300, 700]),
    ] {
        for &number in numbers {
            let table = largest(&into);
            (0..20).for_each(|page| flip(&table, page * 100_000));
            fs::write(into.join("base/1/99999999"), "nobody knows it").unwrap();
            fs::remove_file(into.join("global/1260")).unwrap();
            kills += u32::from(killed_at((call, number), &words));
            // A server starts only on what is whole, or untouched.
            let is_begun = !into.join("base/1/99999999").exists();
            if is_begun && into.join("global/pg_control").exists() {
                restored.check_but_old_control(&into);
            }
            restored.delta(&into, &["-q"], 0);
            restored.check(&into);
        }
    }
    // strace counts the calls of each thread, so it depends on the machine which of the higher
    // numbers are reached.
    assert!(kills > 4, "only {kills} kills");
}

impl Restored {
    /// A directory on which a server could start is the cluster as a whole.
    fn check_but_old_control(&self, into: &Path) {
        let old = into.join("global/.windlass-old-control");
        fs::remove_file(old).ok();
        self.check(into);
    }
}

#[test]
fn what_is_not_this_cluster_is_not_touched() {
    let restored = Restored::new();
    let into = restored.copy("into");
    let files = directory(restored.place.path(), "files");
    fs::write(files.join("letter"), "dear").unwrap();
    let said = restored.delta(&files, &[], 1);
    assert!(said.contains("is no data directory"), "{said}");
    // Another cluster, or one that nobody knows.
    let control = into.join("global/pg_control");
    let bytes = fs::read(&control).unwrap();
    fs::remove_file(&control).unwrap();
    let said = restored.delta(&into, &[], 1);
    assert!(
        said.contains("identifier is unknown") && said.contains("--force"),
        "{said}"
    );
    let other = PrivateCluster::start(&ClusterOptions {
        bin: bindir(18),
        ..ClusterOptions::default()
    });
    let other_data = other.data().to_owned();
    let said = restored.delta(&other_data, &["--force"], 1);
    assert!(said.contains("a running server"), "{said}");
    fs::write(
        &control,
        fs::read(other_data.join("global/pg_control")).unwrap(),
    )
    .unwrap();
    let said = restored.delta(&into, &[], 1);
    assert!(said.contains("belongs to another cluster"), "{said}");
    // A link leads elsewhere.
    fs::write(&control, &bytes).unwrap();
    let (wal, moved) = (into.join("pg_wal"), restored.place.path().join("moved"));
    fs::rename(&wal, &moved).unwrap();
    symlink(&moved, &wal).unwrap();
    let said = restored.delta(&into, &[], 1);
    assert!(said.contains("is a symbolic link"), "{said}");
    fs::remove_file(&wal).unwrap();
    fs::rename(&moved, &wal).unwrap();
    // The sets lie where everything that does not belong is removed.
    let inside = into.join("sets");
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(&restored.sets)
            .arg(&inside)
            .status()
            .unwrap()
            .success()
    );
    let words = [
        "restore",
        inside.to_str().unwrap(),
        "--into",
        into.to_str().unwrap(),
        "--delta",
    ];
    let dry = [&words[..], &["--dry-run"]].concat();
    for words in [&dry[..], &words] {
        let said = run(words, 1);
        assert!(said.contains("removes what does not belong"), "{said}");
    }
    fs::remove_dir_all(&inside).unwrap();
    restored.check(&into);
    // Who forces it gets it.
    fs::remove_file(&control).unwrap();
    restored.delta(&into, &["--force", "-q"], 0);
    restored.check(&into);
}

#[test]
fn a_tablespace_stays_where_the_cluster_has_it() {
    let place = place();
    let source = PrivateCluster::start(&ClusterOptions {
        bin: bindir(18),
        ..ClusterOptions::default()
    });
    let arg = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    for name in ["space", "sets", "occupied"] {
        directory(place.path(), name);
    }
    let sql = |sql: &str| source.sql("postgres", sql);
    sql(&format!(
        "CREATE TABLESPACE far LOCATION '{}'",
        arg("space")
    ));
    sql("CREATE TABLE t TABLESPACE far AS SELECT generate_series(1, 5000) i");
    let sets = arg("sets");
    run(&["backup", &source.conninfo(), "--to", &sets, "-q"], 0);
    let map = |to: &str| format!("{}={}", arg("space"), arg(to));
    let restore = |to: &str, more: &[&str], code: i32| {
        let (into, map) = (arg("into"), map(to));
        let words = ["restore", &sets, "--into", &into, "--tablespace-map", &map];
        run(&[&words, more].concat(), code)
    };
    restore("moved", &["-q"], 0);
    // Windlass leaves alone what is beside the directory of this version.
    fs::write(arg("moved/note"), "beside").unwrap();
    fs::write(arg("occupied/note"), "of others").unwrap();
    let find = ["-name", "PG_18_*", "-printf", "%p"];
    let found = Command::new("find").arg(arg("moved")).args(find).output();
    let version = PathBuf::from(String::from_utf8(found.unwrap().stdout).unwrap());
    fs::create_dir(version.join("77777")).unwrap();
    let table = Command::new("find")
        .arg(&version)
        .args(["-type", "f", "-size", "+100k"])
        .output();
    let table = String::from_utf8(table.unwrap().stdout).unwrap();
    flip(Path::new(table.trim()), 9000);
    restore("moved", &["--delta", "-q"], 0);
    assert!(!version.join("77777").exists());
    assert_eq!(fs::read(arg("moved/note")).unwrap(), b"beside");
    let said = restore("occupied", &["--delta"], 1);
    assert!(said.contains("is not empty"), "{said}");
    let server = PrivateCluster::adopt(Path::new(&arg("into")), source.bin());
    assert_eq!(server.sql("postgres", "SELECT sum(i) FROM t"), "12502500");
    drop(server);
    // It can move: the old directory is left, and its link leads to the new one.
    restore("new", &["--delta", "-q"], 0);
    let server = PrivateCluster::adopt(Path::new(&arg("into")), source.bin());
    assert_eq!(server.sql("postgres", "SELECT sum(i) FROM t"), "12502500");
    assert!(Path::new(&arg("moved/note")).exists());
}
