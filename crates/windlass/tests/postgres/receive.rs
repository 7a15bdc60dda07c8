//! Log that is received from real servers: nothing that was confirmed is lost.

use std::path::Path;
use std::process::{Child, Stdio};

use windlass_testkit::installed::{of_version, other_versions};
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
        let (from, to) = (server.conninfo(), self.arg("place"));
        // A slot is a warning, since a restored server will not have it.
        let words = ["--accept", "replication-slots"];
        let output = windlass(&[&["backup", &from, "--to", &to], &words[..]].concat());
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
    cluster_of(ClusterOptions::default())
}

fn cluster_of(options: ClusterOptions) -> PrivateCluster {
    let server = PrivateCluster::start(&options.initdb("--wal-segsize=1"));
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

/// A server that stops asks its receivers until they have all of the log, and waits. This one would
/// make nothing durable in an hour, and no server asks anybody only because time has passed.
#[test]
fn a_receiver_that_is_asked_makes_durable_what_has_come_and_says_so_at_once() {
    let mut receiving = Receiving::new();
    let mut server = cluster_of(ClusterOptions::default().setting("wal_sender_timeout = 0"));
    receiving.back_up(&server);
    let (from, place) = (server.conninfo(), receiving.arg("place"));
    let mut receive = command();
    receive.args(["receive", &from, "--to", &place, "--interval", "1h"]);
    receive.stdout(Stdio::null());
    receiving.child = receive.spawn().unwrap();
    server.wait_until("SELECT count(*) FROM pg_stat_replication", "1");
    server.sql("postgres", "INSERT INTO t VALUES (1)");
    let lsn = server.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
    let has = |what: &str| {
        format!("SELECT count(*) FROM pg_stat_replication WHERE {what}_lsn >= '{lsn}'")
    };
    server.wait_until(&has("sent"), "1");
    assert_eq!(server.sql("postgres", &has("flush")), "0");
    server.stop("fast");
    receiving.kill();
    let recovered = receiving.recovered("recovered", server.bin());
    assert_eq!(rows(&recovered), "1");
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

/// Makes the server remove the log before this segment.
fn remove_log(server: &PrivateCluster, segment: &str) {
    let path = server.data().join("pg_wal").join(segment);
    for _ in 0..20 {
        server.sql("postgres", "INSERT INTO t VALUES (0)");
        server.sql("postgres", "SELECT pg_switch_wal()");
        server.sql("postgres", "CHECKPOINT");
    }
    assert!(!path.exists(), "{}", path.display());
}

/// The segment that the server writes.
fn segment(server: &PrivateCluster) -> String {
    server.sql(
        "postgres",
        "SELECT pg_walfile_name(pg_current_wal_insert_lsn())",
    )
}

impl Receiving {
    /// Starts it, and keeps what it says.
    fn start_noted(&mut self, server: &PrivateCluster, words: &[&str]) {
        let mut receive = command();
        receive.args(["receive", &server.conninfo(), "--to", &self.arg("place")]);
        let said = std::fs::File::create(self.arg("said")).unwrap();
        let receive = receive.args(["--interval", "0.05s"]).args(words);
        self.child = receive.stdout(Stdio::null()).stderr(said).spawn().unwrap();
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.arg("said")).unwrap()
    }

    /// Ends it, as a signal does, with warnings.
    fn end_warned(&mut self) -> String {
        signal(&self.child, "TERM");
        let code = self.child.wait().unwrap().code();
        assert_eq!(code, Some(3), "{}", self.said());
        self.said()
    }

    /// A gap is named, and no restore gets past it; a new set leads to what was received behind it.
    fn has_gap(&self, server: &PrivateCluster, expected: &str) {
        let place = self.arg("place");
        let verified = windlass(&["verify", &place]);
        assert_eq!(verified.status.code(), Some(3), "{}", text(&verified));
        assert!(text(&verified).contains("gap "), "{}", text(&verified));
        let into = self.arg("refused");
        let restored = windlass(&["restore", &place, "--into", &into, "--target-latest"]);
        let said = text(&restored);
        assert_eq!(restored.status.code(), Some(1), "{said}");
        assert!(said.contains("has a gap"), "{said}");
        self.back_up(server);
        let recovered = self.recovered("recovered", server.bin());
        assert_eq!(rows(&recovered), expected);
    }
}

#[test]
fn a_receiver_goes_on_behind_log_that_the_server_has_removed_and_names_the_gap() {
    let mut receiving = Receiving::new();
    let server = cluster();
    receiving.back_up(&server);
    receiving.start(&server, &[]);
    receiving.insert(&server, 1);
    receiving.kill();
    server.wait_until("SELECT count(*) FROM pg_replication_slots", "0");
    remove_log(&server, &segment(&server));
    server.sql("postgres", "DELETE FROM t WHERE i = 0");
    receiving.start_noted(&server, &[]);
    receiving.insert(&server, 2);
    let said = receiving.end_warned();
    for words in ["no longer has the log from", "is missing", "hint: "] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("trying again"), "{said}");
    receiving.has_gap(&server, "1 2");
}

/// At night, a slot needed more log than the server may keep for it.
fn goes_on_with_a_lost_slot(options: ClusterOptions, is_refused: bool) {
    let mut receiving = Receiving::new();
    let server = cluster_of(options);
    receiving.back_up(&server);
    let slot = ["--slot", "kept", "--create-slot"];
    receiving.start(&server, &slot);
    receiving.insert(&server, 1);
    receiving.kill();
    server.sql(
        "postgres",
        "ALTER SYSTEM SET max_slot_wal_keep_size = '2MB'",
    );
    server.sql("postgres", "SELECT pg_reload_conf()");
    let status = "SELECT wal_status FROM pg_replication_slots";
    remove_log(&server, &segment(&server));
    assert_eq!(server.sql("postgres", status), "lost");
    server.sql("postgres", "DELETE FROM t WHERE i = 0");
    if is_refused {
        // Whoever may not make it hears what to do, and does not ask without end.
        let words = ["receive", &server.conninfo(), "--slot", "kept"];
        let refused = windlass(&[&words[..], &["--to", &receiving.arg("place")]].concat());
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("--create-slot"), "{said}");
    }
    receiving.start_noted(&server, &slot);
    receiving.insert(&server, 2);
    assert_eq!(server.sql("postgres", status), "reserved");
    let said = receiving.end_warned();
    assert!(said.contains("made anew"), "{said}");
    assert!(said.contains("no longer has the log from"), "{said}");
    receiving.has_gap(&server, "1 2");
}

#[test]
fn a_lost_slot_is_made_anew_and_the_gap_is_named() {
    goes_on_with_a_lost_slot(ClusterOptions::default(), false);
}

/// From PostgreSQL 18 on, a server refuses to stream with a lost slot.
#[test]
fn a_lost_slot_that_the_server_refuses_is_made_anew() {
    let bin = of_version(other_versions(), 18);
    let options = ClusterOptions::default();
    goes_on_with_a_lost_slot(ClusterOptions { bin, ..options }, true);
}

/// A slot that was made before the first receiver began has kept the log since then.
#[test]
fn the_first_log_of_a_place_begins_with_what_the_slot_kept() {
    let mut receiving = Receiving::new();
    let server = cluster();
    let slot = "SELECT pg_create_physical_replication_slot('kept', true)";
    server.sql("postgres", slot);
    receiving.back_up(&server);
    for row in 1..=5 {
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        server.sql("postgres", "SELECT pg_switch_wal()");
        server.sql("postgres", "CHECKPOINT");
    }
    receiving.start(&server, &["--slot", "kept"]);
    receiving.insert(&server, 6);
    receiving.end();
    let verified = windlass(&["verify", &receiving.arg("place")]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
    let recovered = receiving.recovered("recovered", server.bin());
    assert_eq!(rows(&recovered), "1 2 3 4 5 6");
}

/// A server whose machine is gone closes no connection.
#[test]
fn a_receiver_leaves_a_server_that_does_not_answer() {
    let mut receiving = Receiving::new();
    let server = cluster();
    server.sql("postgres", "ALTER SYSTEM SET wal_sender_timeout = '3s'");
    server.sql("postgres", "SELECT pg_reload_conf()");
    receiving.back_up(&server);
    receiving.start_noted(&server, &[]);
    receiving.insert(&server, 1);
    // If either of both was late, they have another session, or none for a moment.
    let newest = "SELECT pid FROM pg_stat_replication ORDER BY backend_start DESC LIMIT 1";
    let mut sender = String::new();
    while sender.is_empty() {
        sender = server.sql("postgres", newest);
    }
    let kill = |signal: &str| {
        let mut kill = std::process::Command::new("kill");
        kill.args(["-s", signal, &sender]).status().unwrap();
    };
    kill("STOP");
    let others = format!("SELECT count(*) > 0 FROM pg_stat_replication WHERE pid <> {sender}");
    server.wait_until(&others, "t");
    kill("CONT");
    server.wait_until("SELECT count(*) FROM pg_stat_replication", "1");
    receiving.insert(&server, 2);
    receiving.end();
    assert!(
        receiving.said().contains("trying again"),
        "{}",
        receiving.said()
    );
    let recovered = receiving.recovered("recovered", server.bin());
    assert_eq!(rows(&recovered), "1 2");
}
