//! Power cuts: what a durable snapshot by the hook shows afterwards, and what becomes of others.
//!
//! The cluster and its snapshots are on an XFS volume that is shut down under the running server:
//! what nobody had synced is gone. Then the server's processes are killed, and the shared memory is
//! removed, as a system that starts again does it.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use windlass_testkit::load::Load;
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::Scratch;
use crate::snapshot_cluster_back::settled_in;
use crate::snapshot_hook::{forget, library, run};

const TABLES: [&str; 5] = ["updated", "emptied", "dropped", "packed", "cut"];
/// So many bytes are kept before the power is cut under load.
const GROWN_BYTES: u64 = 400 * 8192;
/// What pgbench keeps true in every state.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

pub struct Powered {
    pub cluster: PrivateCluster,
    pub scratch: Scratch,
    volume: Volume,
    /// Another disk, with a tablespace.
    far: Option<Volume>,
}

impl Powered {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// One whose tables are on two disks.
    pub fn on_two_disks() -> Self {
        Self::with(Some(Volume::new(VolumeKind::Xfs, 600)))
    }

    fn with(far: Option<Volume>) -> Self {
        stay_root();
        let volume = Volume::new(VolumeKind::Xfs, 1500);
        let scratch = Scratch::new();
        let options = ClusterOptions::default().initdb("--data-checksums");
        let mut made = PrivateCluster::start(&options);
        made.stop("fast");
        let data = volume.at().join("data");
        succeed(Command::new("cp").arg("-a").arg(made.data()).arg(&data));
        let mut cluster = PrivateCluster::adopt_stopped(&data, DEFAULT_BIN.as_ref());
        let library = library(&scratch);
        cluster.configure(&[
            format!("shared_preload_libraries = '{}'", library.display()).as_str(),
            "fsync = on",
            // Otherwise the server syncs each file of its own when it starts after a power cut.
            "recovery_init_sync_method = syncfs",
            "shared_buffers = 2MB",
        ]);
        // A test that was killed may have left the memory of a server with the same numbers.
        forget(&cluster);
        cluster.run();
        let init = ["-i", "-q", "-s", "2", "postgres"];
        succeed(cluster.tool("pgbench").args(init));
        for table in TABLES {
            let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
            cluster.sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
        }
        let powered = Self {
            cluster,
            scratch,
            volume,
            far,
        };
        powered.fill_far();
        powered.cluster.sql("postgres", "CHECKPOINT");
        for volume in powered.volumes() {
            succeed(Command::new("sync").arg("-f").arg(volume.at()));
        }
        powered
    }

    fn fill_far(&self) {
        let Some(far) = &self.far else {
            return;
        };
        give_to_servers(far.at());
        let at = far.at().display();
        let sql = |sql: &str| self.cluster.sql("postgres", sql);
        sql(&format!("CREATE TABLESPACE far LOCATION '{at}'"));
        for table in ["updated", "packed", "pgbench_accounts"] {
            sql(&format!("ALTER TABLE {table} SET TABLESPACE far"));
        }
    }

    fn volumes(&self) -> impl Iterator<Item = &Volume> {
        std::iter::once(&self.volume).chain(&self.far)
    }

    pub fn snapshot(&self, code: i32, words: &[&str]) -> String {
        let conninfo = self.cluster.conninfo();
        let (verb, rest) = words.split_first().unwrap();
        let words = [&["snapshot", verb, &conninfo], rest].concat();
        run(&self.scratch, code, &words)
    }

    pub fn create(&self, name: &str, more: &[&str]) {
        let words = [&["create", name, "--method", "hook"], more].concat();
        self.snapshot(0, &words);
    }

    /// Cuts the power under the running server, and starts the system again but not the server.
    pub fn cut(&mut self) {
        self.cut_beside(|| ());
    }

    /// The same while Windlass works, which is then ended.
    pub fn cut_beside(&mut self, end: impl FnOnce()) {
        let unsynced = self.volume.at().join("unsynced");
        let file = File::create(&unsynced).unwrap();
        let is_off = AtomicBool::new(false);
        let last = std::thread::scope(|scope| {
            let counter = scope.spawn(|| counted_up(&file, &is_off));
            if self.far.is_some() {
                // Both disks are off at one moment: nobody writes between.
                self.cluster.hold();
            }
            self.volumes().for_each(Volume::power_off);
            is_off.store(true, Ordering::Relaxed);
            counter.join().unwrap()
        });
        drop(file);
        end();
        self.cluster.kill();
        self.volumes().for_each(Volume::power_on);
        let left = std::fs::read(&unsynced).unwrap_or_default();
        assert_ne!(left, last.to_le_bytes(), "the power cut lost nothing");
        // Until somebody waits for it, the process still has its number.
        let lock = self.cluster.place().join(".s.PGSQL.5432.lock");
        for path in [self.cluster.data().join("postmaster.pid"), lock] {
            // A server that was shut down has removed them.
            std::fs::remove_file(path).unwrap_or_default();
        }
        forget(&self.cluster);
    }

    fn cut_and_start(&mut self) {
        self.cut();
        self.cluster.run();
    }

    /// A checksum of the rows of every table, and whether the sums of pgbench belong together.
    fn questions() -> String {
        let hash = |table: &str| {
            format!("; SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t")
        };
        let hashes = TABLES.map(hash).concat();
        format!("{SUMS}{hashes}")
    }

    pub fn rows(&self) -> String {
        self.cluster.sql("postgres", &Self::questions())
    }

    pub fn rows_of(&self, name: &str) -> String {
        let word = format!("{}@{name}", self.cluster.conninfo());
        let sql = Self::questions();
        let ask = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", &sql];
        run(&self.scratch, 0, &ask).trim_end().to_owned()
    }

    fn state(&self, name: &str) -> Value {
        self.found(name).unwrap()
    }

    /// What the list says of a snapshot.
    pub fn found(&self, name: &str) -> Option<Value> {
        // The server may be down.
        let data = self.cluster.data().to_str().unwrap();
        let list = ["snapshot", "list", data, "--json"];
        let output = self.scratch.run(None, &list);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = all["snapshots"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["name"] == name)
    }

    fn assert_lost(&self, name: &str) {
        let state = self.state(name);
        assert!(state["state"]["lost"]["why"].is_string(), "{state}");
        let word = format!("{}@{name}", self.cluster.conninfo());
        let refused = self.scratch.run(None, &["open", &word, "--", "true"]);
        assert_eq!(refused.status.code(), Some(1));
    }

    /// pgbench, until the snapshot has grown by enough.
    fn under_load(&self, name: &str) -> Load {
        let mut load = Load::start(&self.cluster, 3);
        let grown = || self.state(name)["grown_bytes"].as_u64().unwrap();
        let before = grown();
        while grown() < before + GROWN_BYTES {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // From the cut on they may fail.
        load.check();
        load
    }
}

/// Writes numbers over each other until the power is off, and returns the last that was written.
/// The system may write any of them to the disk in time, if the machine is busy, but not that one.
fn counted_up(file: &File, is_off: &AtomicBool) -> u64 {
    let mut number: u64 = 0;
    while !is_off.load(Ordering::Relaxed) {
        if file.write_all_at(&(number + 1).to_le_bytes(), 0).is_err() {
            break;
        }
        number += 1;
    }
    number
}

impl Drop for Powered {
    fn drop(&mut self) {
        if self.cluster.data().exists() {
            forget(&self.cluster);
        }
    }
}

#[test]
fn a_durable_snapshot_outlives_each_power_cut_and_another_one_is_lost() {
    let mut powered = Powered::new();
    let before = powered.rows();
    powered.create("first", &["--durable"]);
    assert_eq!(powered.state("first")["survives"], "power_cut");
    powered.cut_and_start();
    assert_eq!(powered.rows_of("first"), before, "cut after the creation");

    powered.create("plain", &["--checkpoint", "none"]);
    assert_eq!(powered.state("plain")["survives"], "crash");
    let load = powered.under_load("first");
    powered.cut();
    drop(load);
    // Nothing is lost, but nothing can be read before the hook has seen the server's start.
    assert!(
        powered
            .state("first")
            .to_string()
            .contains("when the server starts")
    );
    powered.cluster.run();
    assert_eq!(powered.rows_of("first"), before, "cut under load");
    powered.assert_lost("plain");
    powered.snapshot(0, &["drop", "plain"]);

    let between = powered.rows();
    powered.create("second", &["--durable", "--checkpoint", "none"]);
    powered.create("dropped", &[]);
    for sql in [
        "UPDATE updated SET x = 'changed'",
        "TRUNCATE emptied",
        "DROP TABLE dropped",
        "DELETE FROM packed WHERE i % 2 = 0",
        "VACUUM FULL packed",
        "DELETE FROM cut WHERE i > 10",
        "VACUUM cut",
        "CHECKPOINT",
    ] {
        powered.cluster.sql("postgres", sql);
    }
    powered.snapshot(0, &["drop", "dropped"]);
    powered.cut_and_start();
    assert_eq!(powered.rows_of("first"), before, "cut after statements");
    assert_eq!(powered.rows_of("second"), between);

    let load = powered.under_load("second");
    powered.cut();
    drop(load);
    powered.cluster.run();
    assert_eq!(powered.rows_of("first"), before, "cut under load again");
    assert_eq!(powered.rows_of("second"), between);
    assert!(powered.cluster.sql("postgres", SUMS).starts_with('t'));
    powered.snapshot(0, &["drop", "first"]);
    assert_eq!(powered.rows_of("second"), between);
    powered.snapshot(0, &["drop", "second"]);
    let kept = powered.cluster.data().join("pg_subtrans/windlass");
    let left = std::fs::read_dir(kept).unwrap();
    assert_eq!(left.count(), 0, "neither links nor saved indexes");
}

#[test]
fn what_ended_or_was_written_unseen_does_not_come_back_after_a_power_cut() {
    let mut powered = Powered::new();
    powered.create("limited", &["--durable", "--max-size", "64KiB"]);
    powered.create("kept", &["--durable"]);
    let before = powered.rows();
    powered
        .cluster
        .sql("postgres", "UPDATE updated SET x = 'changed'; CHECKPOINT");
    powered.assert_lost("limited");
    powered.cut_and_start();
    powered.assert_lost("limited");
    assert_eq!(powered.rows_of("kept"), before);
    powered.cut();
    // A server without the hook: what it writes is not preserved.
    let settings = std::fs::read_to_string(powered.cluster.data().join("postgresql.conf")).unwrap();
    powered
        .cluster
        .configure(&["shared_preload_libraries = ''"]);
    powered.cluster.run();
    powered
        .cluster
        .sql("postgres", "UPDATE updated SET x = 'unseen'; CHECKPOINT");
    powered.cluster.stop("fast");
    std::fs::write(powered.cluster.data().join("postgresql.conf"), settings).unwrap();
    powered.cluster.run();
    powered.assert_lost("kept");
    powered.cut_and_start();
    powered.assert_lost("kept");
    for name in ["limited", "kept"] {
        powered.snapshot(0, &["drop", name]);
    }
}

#[test]
fn durable_snapshots_outlive_a_power_cut_right_after_a_revert() {
    let mut powered = Powered::new();
    let data = powered.cluster.data().display().to_string();
    let before = powered.rows();
    powered.create("first", &["--durable"]);
    powered
        .cluster
        .sql("postgres", "UPDATE updated SET x = 'changed'");
    let between = powered.rows();
    powered.create("second", &["--durable"]);
    powered
        .cluster
        .sql("postgres", "UPDATE updated SET x = 'again'");
    powered.cluster.stop("fast");
    // pg_control is that of the target, and a server begins to recover. PostgreSQL was asked for
    // its directory three times before.
    let mut strace = powered.scratch.command_of("strace");
    strace.args([
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=wait4:signal=KILL:when=4",
    ]);
    strace.arg(env!("CARGO_BIN_EXE_windlass"));
    strace.args(["snapshot", "revert", &format!("{data}@first"), "--yes"]);
    assert!(!strace.output().unwrap().status.success());
    powered.cut();
    let listed = settled_in(&powered.scratch, &data);
    assert!(listed.contains("finished a revert"), "{listed}");
    powered.cluster.run();
    assert_eq!(powered.rows(), before);
    assert_eq!(powered.rows_of("first"), before);
    assert_eq!(powered.rows_of("second"), between);
}
