//! `backup --type log` with real servers: what it copies, how far a restore then gets, and what it
//! says about log that is gone.

use std::path::Path;

use serde_json::Value;
use windlass_testkit::counted::{counted, drawn, killed};
use windlass_testkit::installed::all_versions;
use windlass_testkit::postgres::{ClusterOptions, DEFAULT_BIN, PrivateCluster, become_server_user};

use crate::log::rows;
use crate::moments::TIME;
use crate::run::*;

/// A server that archives nothing, and a place. It removes log only when a test has it do so.
struct Plain {
    server: PrivateCluster,
    dir: tempfile::TempDir,
}

impl Plain {
    fn start(bin: &Path) -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("place")).unwrap();
        let mut options = ClusterOptions::default().initdb("--wal-segsize=1");
        options = options
            .setting("min_wal_size = 2MB")
            .setting("checkpoint_timeout = 1d")
            .setting("autovacuum = off");
        options.bin = bin.into();
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i int)");
        Self { server, dir }
    }

    fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn sql(&self, sql: &str) -> String {
        self.server.sql("postgres", sql)
    }

    fn insert(&self, row: u32) {
        self.sql(&format!("INSERT INTO t VALUES ({row})"));
    }

    fn switch(&self) {
        self.sql("SELECT pg_switch_wal()");
    }

    fn back_up(&self) {
        let words = [
            "backup",
            &self.server.conninfo(),
            "--to",
            &self.arg("place"),
        ];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }

    /// A backup of the log of this server, which must end with this code.
    fn log(&self, server: &PrivateCluster, code: i32) -> Value {
        let (conninfo, place) = (server.conninfo(), self.arg("place"));
        let (found, document) = json(&["backup", &conninfo, "--to", &place, "--type", "log"]);
        assert_eq!(found, code, "{document}");
        document
    }

    fn restored(&self, into: &str, words: &[&str]) -> PrivateCluster {
        let (place, into) = (self.arg("place"), self.arg(into));
        let output = windlass(&[&["restore", &place, "--into", &into], words].concat());
        assert_eq!(
            output.status.code(),
            Some(0),
            "{words:?}: {}",
            text(&output)
        );
        let server = PrivateCluster::adopt(Path::new(&into), self.server.bin());
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        server
    }
}

#[test]
fn a_cluster_of_each_version_goes_back_to_a_backup_of_its_log() {
    for (_, bin) in all_versions() {
        let source = Plain::start(&bin);
        source.back_up();
        source.insert(1);
        source.switch();
        source.insert(2);
        let first = source.log(&source.server, 0);
        assert_eq!(first["objects"], 1, "{first}");
        // Nobody commits between this moment and the next backup of the log.
        source.insert(3);
        let moment = source.sql(TIME);
        let second = source.log(&source.server, 0);
        assert!(second["bytes"].as_u64().unwrap() < 1 << 16, "{second}");
        source.insert(4);
        source.switch();
        let third = source.log(&source.server, 0);
        assert_eq!(third["gap"], Value::Null);
        let back = source.restored("back", &["--target-time", &moment]);
        assert_eq!(rows(&back), "1 2 3", "{}", bin.display());
    }
}

#[test]
fn a_transaction_that_did_not_wait_for_its_log_is_in_the_backup() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    source.back_up();
    source.sql("ALTER SYSTEM SET wal_writer_delay = '10s'");
    source.sql("SELECT pg_reload_conf()");
    source.sql("SET synchronous_commit = off; INSERT INTO t VALUES (1)");
    source.log(&source.server, 0);
    assert_eq!(rows(&source.restored("into", &["--target-latest"])), "1");
}

#[test]
fn log_that_the_server_removed_is_named_and_the_next_set_ends_the_gap() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    let without = source.log(&source.server, 3);
    assert_eq!(without["warnings"][0]["name"], "log-without-set");
    source.back_up();
    source.log(&source.server, 0);
    for row in 1..=6 {
        source.insert(row);
        source.switch();
        source.sql("CHECKPOINT");
    }
    let lost = source.log(&source.server, 3);
    assert_eq!(lost["warnings"][0]["name"], "log-gap", "{lost}");
    let gap = &lost["gap"];
    assert!(gap["start"].as_str() < gap["end"].as_str(), "{lost}");
    let words = ["restore", &source.arg("place"), "--into", &source.arg("no")];
    let output = windlass(&[&words[..], &["--target-latest"]].concat());
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let start = gap["start"].as_str().unwrap();
    assert!(
        printed.contains("has a gap: ") && printed.contains(start),
        "{printed}"
    );
    source.back_up();
    source.insert(7);
    source.log(&source.server, 0);
    let server = source.restored("into", &["--target-latest"]);
    assert_eq!(rows(&server), "1 2 3 4 5 6 7");
}

#[test]
fn a_standby_gives_its_log_and_a_promoted_one_its_new_timeline() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    source.back_up();
    let copy = source.dir.path().join("standby");
    let mut tool = source.server.tool("pg_basebackup");
    tool.args(["--checkpoint=fast", "--no-sync", "-R", "-D"])
        .arg(&copy);
    assert!(tool.status().unwrap().success());
    let standby = PrivateCluster::adopt(&copy, source.server.bin());
    source.insert(1);
    let end = source.sql("SELECT pg_current_wal_lsn()");
    standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{end}'"), "t");
    let of_standby = source.log(&standby, 0);
    assert_eq!(of_standby["timeline"], 1);
    standby.sql("postgres", "SELECT pg_promote()");
    standby.sql("postgres", "INSERT INTO t VALUES (20)");
    let of_promoted = source.log(&standby, 0);
    assert_eq!(of_promoted["timeline"], 2);
    // The old primary goes on, too, on the timeline that was left.
    source.insert(2);
    let (conninfo, place) = (source.server.conninfo(), source.arg("place"));
    let output = windlass(&["backup", &conninfo, "--to", &place, "--type", "log"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("--into PATH --target-timeline 1"), "{said}");
    assert_eq!(rows(&source.restored("new", &["--target-latest"])), "1 20");
    let old = source.restored("old", &["--target-timeline", "current"]);
    assert_eq!(rows(&old), "1 2");
}

#[test]
fn another_servers_log_is_refused() {
    let mut source = Plain::start(Path::new(DEFAULT_BIN));
    source.back_up();
    // A copy of a stopped server begins with the same log, on the same timeline.
    source.server.stop("fast");
    let twin = source.dir.path().join("twin");
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").arg(source.server.data()).arg(&twin);
    assert!(copy.status().unwrap().success());
    source.server.run();
    let twin = PrivateCluster::adopt(&twin, source.server.bin());
    source.insert(1);
    source.log(&source.server, 0);
    twin.sql("postgres", "INSERT INTO t VALUES (7), (8), (9)");
    let (conninfo, place) = (twin.conninfo(), source.arg("place"));
    let output = windlass(&["backup", &conninfo, "--to", &place, "--type", "log"]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("is archived already, with other content"),
        "{printed}"
    );
    assert!(printed.contains("hint: "), "{printed}");
    source.insert(2);
    source.log(&source.server, 0);
    assert_eq!(rows(&source.restored("into", &["--target-latest"])), "1 2");
}

#[test]
fn what_a_backup_of_the_log_cannot_use_is_refused() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    let conninfo = source.server.conninfo();
    let (place, new) = (source.arg("place"), source.arg("new"));
    let database = source.arg("shop.db");
    let made = std::process::Command::new("sqlite3")
        .args([&*database, "CREATE TABLE t (i)"])
        .status();
    assert!(made.unwrap().success());
    for (words, says) in [
        (
            &[&*conninfo, "--to", "nul"][..],
            "goes to one directory that exists",
        ),
        (
            &[&*conninfo, "--to", &new],
            "goes to one directory that exists",
        ),
        (
            &[&*conninfo, "--to", &place, "--to", "/tmp"],
            "goes to one directory that exists",
        ),
        (
            &[&*database, "--to", &place],
            "is in rollback mode, so it has no log",
        ),
        (
            &[&*conninfo, "--to", &place, "--dry-run"],
            "cannot be predicted",
        ),
    ] {
        let output = windlass(&[&["backup", "--type", "log"], words].concat());
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {printed}");
        assert!(
            printed.contains(says) && printed.contains("hint: "),
            "{printed}"
        );
    }
    assert!(!Path::new(&new).exists());
}

/// The log is that of the cluster whose sets lie beside it. Neither it nor a run that fails gives
/// the cluster another name.
#[test]
fn the_history_knows_whose_log_was_copied() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    let (conninfo, place) = (source.server.conninfo(), source.arg("place"));
    let run = |words: &[&str]| {
        let mut command = command();
        command.env_remove("WINDLASS_NO_HISTORY");
        command.env("WINDLASS_STATE_DIR", source.arg("state"));
        command.args(words).output().unwrap()
    };
    let back_up = |to: &str, code: i32, kind: &str| {
        let output = run(&["backup", &conninfo, "--to", to, "--type", kind]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
    };
    let history = || {
        let output = run(&["history", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    back_up(&place, 0, "full");
    let before = history();
    let name = &before["databases"][0]["name"];
    source.insert(1);
    back_up(&place, 0, "log");
    back_up(&source.arg("no/such"), 1, "full");
    let after = history();
    let databases = after["databases"].as_array().unwrap();
    assert_eq!(databases.len(), 1, "{after}");
    assert_eq!(&databases[0]["name"], name);
    let [full, log, failed] = after["runs"].as_array().unwrap().as_slice() else {
        panic!("three runs: {after}")
    };
    assert_eq!(log["type"], "log");
    assert_eq!(log["key"], full["key"]);
    assert!(full["key"].is_string());
    assert_eq!(databases[0]["restorable"], log["started"]);
    assert_eq!(failed["result"], "failed");
    for one in [full, log, failed] {
        assert_eq!(&one["database"], name, "{after}");
    }
}

/// Calls by which a copy of the log changes something.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,ftruncate,mkdir,rename,renameat2,unlink,flock";

/// What a copy leaves that is killed is a log without a gap, and the next copy goes on behind it.
#[test]
fn a_backup_of_the_log_that_is_killed_at_any_system_call_leaves_no_gap() {
    let source = Plain::start(Path::new(DEFAULT_BIN));
    source.back_up();
    let (conninfo, place) = (source.server.conninfo(), source.arg("place"));
    let mut copy = command();
    copy.args(["backup", &conninfo, "--to", &place, "--type", "log"]);
    // The first one begins an object, and the second one goes on with it over a whole segment.
    let mut calls = Vec::new();
    for row in 1..=2 {
        source.insert(row);
        let (output, made) = counted(&copy, CALLS, &source.dir.path().join("trace"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        calls.extend(made);
        source.switch();
    }
    calls.sort();
    calls.dedup();
    assert!(calls.len() > 12, "{calls:?}");
    let mut rows_there = vec!["1".to_owned(), "2".to_owned()];
    for (row, call) in (3..).zip(drawn(calls, 8, 3)) {
        source.insert(row);
        rows_there.push(row.to_string());
        if row % 2 == 0 {
            source.switch();
        }
        killed(&copy, &call);
        let (code, document) = json(&["info", &place]);
        assert_eq!(code, 0, "{call}: {document}");
        let timeline = &document["logs"][0]["timelines"][0];
        let gaps = timeline["gaps"].as_array().map(Vec::len);
        assert_eq!(gaps, Some(0), "{call}: {document}");
    }
    source.log(&source.server, 0);
    let verified = windlass(&["verify", &place]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let restored = source.restored("into", &["--target-latest"]);
    assert_eq!(rows(&restored), rows_there.join(" "));
}
