//! The disk of a store: full, or gone under the running server. No statement of the source fails,
//! no process of the server faults, and the snapshot is lost loudly.

use std::io::Read;
use std::process::Output;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, stay_root};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::{Opened, Scratch};
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

const ROWS: &str = "20000";

struct Stored {
    cluster: PrivateCluster,
    scratch: Scratch,
    volume: Volume,
}

impl Stored {
    /// A server with the hook, and a volume for the stores of its snapshots.
    fn new(kind: VolumeKind, mebibytes: u64) -> Self {
        stay_root();
        let volume = Volume::new(kind, mebibytes);
        let scratch = Scratch::new();
        let library = library(&scratch).display().to_string();
        let options = ClusterOptions::default();
        let options = options.setting(format!("shared_preload_libraries = '{library}'"));
        // A vacuum of a session cancels one of the server's own, which logs an error.
        let options = options.setting("autovacuum = off");
        let cluster = PrivateCluster::start(&options.setting("shared_buffers = 2MB"));
        let rows = format!("SELECT i, repeat('x', 400) AS x FROM generate_series(1, {ROWS}) i");
        cluster.sql("postgres", &format!("CREATE TABLE t AS {rows}"));
        cluster.sql("postgres", "VACUUM t");
        cluster.sql("postgres", "CHECKPOINT");
        Self {
            cluster,
            scratch,
            volume,
        }
    }

    fn snapshot(&self, words: &[&str]) -> Output {
        let conninfo = self.cluster.conninfo();
        let (verb, rest) = words.split_first().unwrap();
        let words = [&["snapshot", verb, &conninfo], rest].concat();
        self.scratch.run(None, &words)
    }

    fn create(&self, name: &str, more: &[&str]) {
        let to = self.volume.at().to_str().unwrap();
        let words = ["create", name, "--method", "hook", "--to", to];
        let made = self.snapshot(&[&words[..], more].concat());
        assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    }

    /// Takes all the room of the volume that the server could use.
    fn fill(&self) -> std::path::PathBuf {
        let path = self.volume.at().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        let full = std::io::copy(&mut std::io::repeat(7), &mut file);
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        path
    }

    /// Leaves so many bytes to the server.
    fn leave(&self, bytes: u64) {
        let found = rustix::fs::statvfs(self.volume.at()).unwrap();
        let taken = found.f_bavail * found.f_frsize - bytes;
        let mut file = std::fs::File::create(self.volume.at().join("ballast")).unwrap();
        std::io::copy(&mut std::io::repeat(7).take(taken), &mut file).unwrap();
        file.sync_all().unwrap();
    }

    /// Every page of the table is overwritten, by a session and by the checkpointer.
    fn write(&self, letter: &str) {
        let begun = self.begun();
        for sql in [
            format!("UPDATE t SET x = repeat('{letter}', 400)"),
            "CHECKPOINT".to_owned(),
            "VACUUM t".to_owned(),
        ] {
            self.cluster.sql("postgres", &sql);
        }
        let sql = format!("SELECT count(*) FROM t WHERE x LIKE '{letter}%'");
        assert_eq!(self.cluster.sql("postgres", &sql), ROWS);
        assert_eq!(self.begun(), begun, "no process of the server died");
        let log = self.cluster.log();
        for bad in ["terminated by signal", "ERROR:", "PANIC:", "FATAL:"] {
            assert!(!log.contains(bad), "{bad} in {log}");
        }
    }

    /// When the server's processes were started. A crash of one starts all of them again.
    fn begun(&self) -> String {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'";
        self.cluster.sql("postgres", sql)
    }

    fn assert_lost(&self, name: &str, why: &str) {
        let listed = text(&self.snapshot(&["list"]));
        assert!(listed.contains(why), "{listed}");
        let word = format!("{}@{name}", self.cluster.conninfo());
        let said = run(&self.scratch, 1, &["open", &word, "--", "true"]);
        assert!(said.contains("lost") || said.contains(why), "{said}");
        let log = self.cluster.log();
        assert!(log.contains("windlass: a snapshot is lost"), "{log}");
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if self.cluster.data().exists() {
            forget(&self.cluster);
        }
    }
}

#[test]
fn a_full_store_loses_the_snapshot_and_no_statement_and_the_next_one_is_right() {
    let stored = Stored::new(VolumeKind::Ext4, 100);
    stored.create("one", &[]);
    let ballast = stored.fill();
    stored.write("y");
    stored.assert_lost("one", "the store was full");
    let dropped = stored.snapshot(&["drop", "one"]);
    assert_eq!(dropped.status.code(), Some(0), "{}", text(&dropped));
    std::fs::remove_file(&ballast).unwrap();
    stored.cluster.sql(
        "postgres",
        "CREATE TABLE small AS SELECT 1 AS i; CHECKPOINT",
    );
    stored.create("two", &["--durable"]);
    stored
        .cluster
        .sql("postgres", "UPDATE small SET i = 2; CHECKPOINT");
    let word = format!("{}@two", stored.cluster.conninfo());
    let ask = [
        "open",
        "--quiet",
        &word,
        "--",
        "psql",
        "-XqAt",
        "-c",
        "SELECT i FROM small",
    ];
    assert_eq!(run(&stored.scratch, 0, &ask), "1\n");
    stored.fill();
    stored.write("z");
    stored.assert_lost("two", "the store was full");
}

/// The path of a file of the server would say that its own disk is full.
#[test]
fn a_full_disk_of_the_snapshot_is_named_and_not_that_of_the_server() {
    let stored = Stored::new(VolumeKind::Ext4, 100);
    stored.leave(3 << 20);
    let to = stored.volume.at().to_str().unwrap();
    // After a checkpoint the hook's method copies little of the log. A pause copies a segment.
    for (method, start) in [("hook", "none"), ("copy", "fast")] {
        let how = ["--method", method, "--checkpoint", start, "--to", to];
        let made = stored.snapshot(&[&["create", "one"][..], &how].concat());
        let said = text(&made);
        assert_eq!(made.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("error: write {to}/one/")), "{said}");
        assert!(said.contains("No space left"), "{said}");
        assert!(said.contains("hint: Free space there"), "{said}");
    }
}

/// The server has the store open, and the memory with the map is not on its disk.
#[test]
fn a_store_whose_disk_is_gone_loses_the_snapshot_and_harms_nobody() {
    for more in [&[][..], &["--durable"]] {
        let stored = Stored::new(VolumeKind::Xfs, 400);
        let conninfo = stored.cluster.conninfo();
        let to = stored.volume.at().to_str().unwrap();
        stored.create("one", more);
        stored
            .cluster
            .sql("postgres", "UPDATE t SET x = 'y' WHERE i < 100; CHECKPOINT");
        let word = format!("{conninfo}@one");
        let mut view = Opened::start(&stored.scratch, None, &[&word]);
        stored.volume.power_off();
        stored.write("z");
        let log = stored.cluster.log();
        assert!(log.contains("windlass: a snapshot is lost"), "{log}");
        // Whoever reads the view gets an error, and no rows of now.
        let host = view.document["conninfo"].as_str().unwrap().to_owned();
        let mut psql = stored.scratch.command_of("psql");
        psql.args([
            "-XqAt",
            "-d",
            &host,
            "-c",
            "SELECT count(*) FROM t WHERE x LIKE 'z%'",
        ]);
        let asked = psql.output().unwrap();
        let shown = String::from_utf8_lossy(&asked.stdout);
        assert!(!asked.status.success() || shown.trim() == "0", "{shown}");
        view.child.kill().unwrap();
        view.child.wait().unwrap();
        // The list of a directory that cannot be read is an error that names it.
        let listed = stored.snapshot(&["list"]);
        let said = text(&listed);
        assert_ne!(listed.status.code(), Some(0), "{said}");
        assert!(
            said.contains("Input/output error") || said.contains("lost"),
            "{said}"
        );
        // A snapshot elsewhere is made, and is right.
        let created = stored.snapshot(&["create", "two", "--method", "copy"]);
        assert_eq!(created.status.code(), Some(0), "{}", text(&created));
        stored.cluster.sql("postgres", "SELECT 1");
        assert!(!to.is_empty());
    }
}
