//! `windlass open` on sets of busy clusters must show exactly what was in the cluster.
//!
//! The reference is a copy that PostgreSQL itself made and recovered, up to the last log record
//! that the opened server replayed. Both are dumped and compared.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_testkit::load::{assert_same_dump, start_regression, under_load};
use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, succeed,
};

use crate::clusters::{back_up, bindir, bytes, directory, newest_clients, place};
use crate::opening::{Scratch, User, open_to_all, users};
use crate::support::text;

/// So slow that the load changes much of the data while they are copied.
const RATE: &str = "24MiB";
/// A smaller dump proves little.
const DUMP_BYTES_MIN: usize = 1_000_000;

/// The programs of one version.
struct Programs {
    server: PathBuf,
    /// The server's own version or a newer one: older clients refuse its servers.
    clients: PathBuf,
}

impl Programs {
    fn debian() -> Self {
        Self {
            server: DEFAULT_BIN.into(),
            clients: DEFAULT_BIN.into(),
        }
    }

    fn of(major: u32) -> Self {
        Self {
            server: bindir(major),
            clients: newest_clients(),
        }
    }
}

/// A cluster, a copy of it from the beginning, and its log since then. Together they lead to any
/// moment.
struct Archiving<'a> {
    source: PrivateCluster,
    place: &'a Path,
    programs: &'a Programs,
}

impl<'a> Archiving<'a> {
    fn start(place: &'a Path, programs: &'a Programs) -> Self {
        let archive = directory(place, "archive");
        let command = format!("archive_command = 'cp %p {}/%f'", archive.display());
        let options = ClusterOptions {
            bin: programs.server.clone(),
            ..ClusterOptions::default()
        };
        let options = options
            .initdb("--data-checksums")
            .setting("archive_mode = on")
            .setting(command)
            .setting("max_wal_size = 64MB");
        let cluster = Self {
            source: PrivateCluster::start(&options),
            place,
            programs,
        };
        let mut tool = cluster.client(&cluster.source, "pg_basebackup");
        tool.args(["--checkpoint=fast", "--no-sync", "-X", "none", "-D"]);
        succeed(tool.arg(place.join("reference")));
        cluster
    }

    /// A client program for servers of this version, connected to one of them.
    fn client(&self, server: &PrivateCluster, name: &str) -> Command {
        let mut command = Command::new(self.programs.clients.join(name));
        server.lead(&mut command);
        command
    }

    /// Fills pgbench's tables, and creates the table that the load needs.
    fn fill(&self, scale: &str) {
        let mut pgbench = self.source.tool("pgbench");
        succeed(pgbench.args(["-i", "-q", "-s", scale, "postgres"]));
        self.source.sql("postgres", "CREATE TABLE kept (n bigint)");
    }

    /// Recovers the copy to the last record that the opened server replayed, and dumps it.
    fn reference_dump(&self, log: &str) -> String {
        let lsn = log.split("redo done at ").nth(1).unwrap();
        let lsn = lsn.split_whitespace().next().unwrap();
        self.source.sql("postgres", "SELECT pg_switch_wal()");
        let pending = "SELECT pg_walfile_name(pg_current_wal_lsn()) > last_archived_wal \
            AND last_archived_wal >= pg_walfile_name('LSN'::pg_lsn) FROM pg_stat_archiver";
        self.source.wait_until(&pending.replace("LSN", lsn), "t");
        let reference = self.place.join("reference");
        let mut server = PrivateCluster::adopt_stopped(&reference, &self.programs.server);
        let archive = self.place.join("archive");
        server.configure(&[
            &format!("restore_command = 'cp {}/%f %p'", archive.display()),
            &format!("recovery_target_lsn = '{lsn}'"),
            "recovery_target_action = promote",
            "archive_mode = off",
        ]);
        std::fs::write(reference.join("recovery.signal"), "").unwrap();
        give_to_servers(&reference.join("recovery.signal"));
        server.run();
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        // Unlogged tables are empty after a recovery, if they are there at all.
        let mut dump = self.client(&server, "pg_dumpall");
        succeed(dump.args(["--no-sync", "--no-unlogged-table-data"]))
    }

    /// Opens the set and dumps it. Returns the dump, and the log of the opened server.
    fn opened_dump(&self, scratch: &Scratch, user: User, open: &[&str]) -> (String, String) {
        let out = tempfile::tempdir_in(scratch.path()).unwrap();
        open_to_all(out.path(), 0o777);
        let [dump, log] = ["dump", "log"].map(|name| out.path().join(name));
        let script = format!(
            "{}/pg_dumpall --no-sync --no-unlogged-table-data -f {} && cp $PGHOST/server.log {}",
            self.programs.clients.display(),
            dump.display(),
            log.display()
        );
        let bindir = self.programs.server.to_str().unwrap();
        let begin = ["open", "--bindir", bindir];
        let words = [&begin[..], open, &["--", "sh", "-c", &script]].concat();
        let output = scratch.run(user, &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        scratch.assert_clean();
        let read = |path| std::fs::read_to_string(path).unwrap();
        (read(dump), read(log))
    }

    /// Opens the set in all these ways. Every dump must equal the reference.
    fn assert_opens_as_it_was(&self, set: &str, ways: &[(User, &[&str])]) {
        let scratch = Scratch::new();
        let before = bytes(set);
        let mut reference = None;
        for &(user, options) in ways {
            let open = [options, &[set]].concat();
            let (dump, log) = self.opened_dump(&scratch, user, &open);
            let reference = reference.get_or_insert_with(|| self.reference_dump(&log));
            assert!(
                dump.len() > DUMP_BYTES_MIN,
                "{} bytes prove little",
                dump.len()
            );
            assert_same_dump(&dump, reference);
        }
        assert!(before == bytes(set), "the set has changed");
    }

    /// Backs up so slowly that the load changes much in the meantime.
    fn back_up_slowly(&self) -> String {
        back_up(&self.source, self.place, &["--max-rate", RATE])
    }
}

/// Fills a cluster, backs it up under load, and opens the set in all these ways.
fn assert_a_busy_cluster_opens(programs: &Programs, scale: &str, ways: &[(User, &[&str])]) {
    let place = place();
    let cluster = Archiving::start(place.path(), programs);
    cluster.fill(scale);
    let set = under_load(&cluster.source, || cluster.back_up_slowly());
    cluster.assert_opens_as_it_was(&set, ways);
}

#[test]
fn a_busy_cluster_opens_as_it_was_at_the_end_of_its_log() {
    let ways: Vec<(User, &[&str])> = users().into_iter().map(|user| (user, &[][..])).collect();
    assert_a_busy_cluster_opens(&Programs::debian(), "4", &ways);
}

#[test]
fn a_busy_cluster_of_17_opens_as_it_was() {
    assert_a_busy_cluster_opens(&Programs::of(17), "1", &[(users()[0], &[])]);
}

#[test]
fn a_busy_cluster_of_18_opens_as_it_was_with_io_workers_and_without() {
    let users = users();
    let (root, ordinary) = (users[0], users[users.len() - 1]);
    let ways: [(User, &[&str]); 2] = [
        (root, &["-c", "io_method=worker"]),
        (ordinary, &["-c", "io_method=sync"]),
    ];
    assert_a_busy_cluster_opens(&Programs::of(18), "1", &ways);
}

#[test]
fn the_regression_database_opens_as_it_was_in_the_making() {
    let place = place();
    let programs = Programs::debian();
    let cluster = Archiving::start(place.path(), &programs);
    let mut suite = start_regression(&cluster.source, &place.path().join("output"));
    let begun = "SELECT count(*) FROM pg_stat_database WHERE datname = 'regression' \
        AND tup_inserted > 400000";
    cluster.source.wait_until(begun, "1");
    let set = cluster.back_up_slowly();
    suite.kill().unwrap();
    suite.wait().unwrap();
    cluster.assert_opens_as_it_was(&set, &[(users()[0], &[])]);
}
