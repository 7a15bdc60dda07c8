//! Log that is received from real servers: nothing that was confirmed is lost.

use std::path::Path;
use std::process::{Child, Stdio};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::log::rows;
use crate::run::*;

pub struct Receiving {
    dir: tempfile::TempDir,
    pub child: Child,
}

impl Receiving {
    pub fn new() -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir_all(dir.path().join("place/log")).unwrap();
        let child = command()
            .arg("--version")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { dir, child }
    }

    pub fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub fn start(&mut self, server: &PrivateCluster, words: &[&str]) {
        let mut receive = command();
        receive.args(["receive", &server.conninfo(), "--to", &self.arg("place")]);
        receive
            .args(["--interval", "0.05s"])
            .args(words)
            .stdout(Stdio::piped());
        self.child = receive.spawn().unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it, as a signal does.
    pub fn end(&mut self) {
        signal(&self.child, "TERM");
        assert!(self.child.wait().unwrap().success());
    }

    pub fn back_up(&self, server: &PrivateCluster) {
        let output = windlass(&["backup", &server.conninfo(), "--to", &self.arg("place")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }

    /// Inserts a row, and waits until the server hears that its log is durable elsewhere.
    pub fn insert(&self, server: &PrivateCluster, row: u32) {
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        let lsn = server.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
        let question =
            format!("SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{lsn}'");
        server.wait_until(&question, "1");
    }

    pub fn recovered(&self, into: &str, bin: &Path) -> PrivateCluster {
        let (place, into) = (self.arg("place"), self.arg(into));
        let output = windlass(&["restore", &place, "--into", &into, "--target-latest"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let server = PrivateCluster::adopt(Path::new(&into), bin);
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        server
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

pub fn cluster() -> PrivateCluster {
    let server = PrivateCluster::start(&ClusterOptions::default().initdb("--wal-segsize=1"));
    server.sql("postgres", "CREATE TABLE t (i int)");
    server
}

#[test]
fn what_a_killed_receiver_confirmed_is_restored_and_the_next_timeline_too() {
    let mut receiving = Receiving::new();
    let mut server = cluster();
    let place = receiving.arg("place");
    let output = windlass(&["backup", &server.conninfo(), "--to", &place]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let slot = ["--slot", "kept", "--create-slot"];
    receiving.start(&server, &slot);
    for row in 1..=6 {
        receiving.insert(&server, row);
        if row % 2 == 0 {
            receiving.kill();
            server.sql("postgres", "INSERT INTO t VALUES (0)");
            receiving.start(&server, &slot);
        }
        if row % 3 == 0 {
            server.sql("postgres", "SELECT pg_switch_wal()");
        }
    }
    receiving.insert(&server, 7);
    receiving.kill();
    server.stop("immediate");
    let second = receiving.recovered("second", server.bin());
    assert_eq!(rows(&second), "0 0 0 1 2 3 4 5 6 7");

    // The restored server goes on, on a timeline of its own. A signal ends the receiver.
    receiving.start(&second, &[]);
    receiving.insert(&second, 8);
    second.sql("postgres", "SELECT pg_switch_wal()");
    receiving.insert(&second, 9);
    signal(&receiving.child, "TERM");
    assert!(receiving.child.wait().unwrap().success());
    let third = receiving.recovered("third", server.bin());
    assert_eq!(rows(&third), "0 0 0 1 2 3 4 5 6 7 8 9");
}

#[test]
fn received_segments_equal_those_of_the_server() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.start(&server, &[]);
    receiving.insert(&server, 1);
    let first = server.sql("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn())");
    server.sql("postgres", "INSERT INTO t SELECT generate_series(1, 60000)");
    receiving.insert(&server, 2);
    let last = server.sql("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn())");
    assert!(first < last);
    let mut count = 0;
    for entry in std::fs::read_dir(server.data().join("pg_wal")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.len() != 24 || name < first || name >= last {
            continue;
        }
        let into = receiving.arg("fetched");
        let output = windlass(&[
            "archive-get",
            &name,
            &into,
            "--from",
            &receiving.arg("place"),
        ]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output));
        let own = std::fs::read(server.data().join("pg_wal").join(&name)).unwrap();
        assert!(std::fs::read(&into).unwrap() == own, "{name}");
        count += 1;
    }
    assert!(count > 2, "only {count} segments");
}

/// Keeps only whole segments in the place, as a server archives them.
fn keep_whole_segments(receiving: &Receiving) {
    let mut waiting = vec![std::path::PathBuf::from(receiving.arg("place")).join("log")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                waiting.push(path);
            } else if !name.ends_with("00000.wlog") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

/// It has the timeline of its source, so nothing else tells its log from that of the source.
#[test]
fn a_restored_server_does_not_continue_the_log_of_its_source() {
    let mut receiving = Receiving::new();
    let server = cluster();
    server.sql("postgres", "ALTER SYSTEM SET min_wal_size = '2MB'");
    server.sql("postgres", "SELECT pg_reload_conf()");
    receiving.back_up(&server);
    let (place, into) = (receiving.arg("place"), receiving.arg("copy"));
    // A set that is named keeps its timeline.
    let output = windlass(&["restore", &place, "--set", "latest", "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let slot = ["--slot", "kept", "--create-slot"];
    receiving.start(&server, &slot);
    receiving.insert(&server, 1);
    receiving.end();
    let copy = PrivateCluster::adopt(Path::new(&into), server.bin());
    let refused = |receiving: &Receiving| {
        let lsn = "SELECT pg_current_wal_flush_lsn()";
        let reached = server.sql("postgres", lsn);
        copy.sql(
            "postgres",
            "INSERT INTO t SELECT generate_series(100, 9000)",
        );
        let behind = format!("SELECT pg_current_wal_flush_lsn() <= '{reached}'");
        while copy.sql("postgres", &behind) == "t" {
            copy.sql(
                "postgres",
                "INSERT INTO t SELECT generate_series(100, 9000)",
            );
            copy.sql("postgres", "SELECT pg_switch_wal()");
        }
        let output = windlass(&["receive", &copy.conninfo(), "--to", &receiving.arg("place")]);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("is archived already, with other content"),
            "{said}"
        );
        assert!(said.contains("hint: "), "{said}");
    };
    refused(&receiving);
    receiving.start(&server, &slot);
    receiving.insert(&server, 2);
    server.sql("postgres", "SELECT pg_switch_wal()");
    receiving.insert(&server, 3);
    receiving.end();
    keep_whole_segments(&receiving);
    refused(&receiving);
    // The server itself goes on, also if it no longer has the segment that the place has.
    let first = server.sql(
        "postgres",
        "SELECT pg_walfile_name(restart_lsn) FROM pg_replication_slots",
    );
    let directory = server.data().join("pg_wal");
    let has_older = || {
        let names = std::fs::read_dir(&directory).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .into_iter()
            .any(|name| name.len() == 24 && name < first)
    };
    while has_older() {
        server.sql("postgres", "SELECT pg_switch_wal()");
        server.sql("postgres", "CHECKPOINT");
    }
    receiving.start(&server, &slot);
    receiving.insert(&server, 4);
    receiving.end();
    let recovered = receiving.recovered("recovered", server.bin());
    assert_eq!(rows(&recovered), "1 2 3 4");
}

#[test]
fn what_cannot_be_received_is_refused() {
    let receiving = Receiving::new();
    let server = cluster();
    let empty = receiving.arg("empty");
    std::fs::create_dir(&empty).unwrap();
    for (words, code) in [
        (&[&*server.conninfo(), "--to", "/nonexistent"][..], 1),
        (&[&server.conninfo(), "--to", &empty], 1),
        (&["host=/nonexistent", "--to", &receiving.arg("place")], 1),
        (
            &[
                &server.conninfo(),
                "--to",
                &receiving.arg("place"),
                "--slot",
                "missing",
            ],
            1,
        ),
    ] {
        let output = windlass(&[&["receive"], words].concat());
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
    }
}
