//! A PostgreSQL cluster that goes back and forth: what is in it, and what changes it.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::Volume;

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};
use crate::support::text;

/// Tables whose content is known, each for one way to be changed later.
const TABLES: [&str; 6] = [
    "updated",
    "emptied",
    "dropped",
    "packed",
    "cut",
    "elsewhere",
];

/// What changes them.
const CHANGES: [&str; 12] = [
    "UPDATE updated SET x = 'changed' WHERE i % 10 = 0",
    "TRUNCATE emptied",
    "DROP TABLE dropped",
    "DELETE FROM packed WHERE i % 2 = 0",
    "VACUUM FULL packed",
    "DELETE FROM cut WHERE i > 10",
    "VACUUM cut",
    "UPDATE elsewhere SET x = 'changed'",
    "CREATE TABLE dropped AS SELECT i, 'made since' AS x FROM generate_series(1, 9000) i",
    "CREATE DATABASE since",
    "ALTER SYSTEM SET work_mem = '5MB'",
    "CHECKPOINT",
];

pub const TIMELINE: &str = "SELECT timeline_id FROM pg_control_checkpoint()";

/// A cluster whose log is archived by a command that refuses to archive a segment twice.
pub struct Subject {
    pub cluster: PrivateCluster,
    pub scratch: Scratch,
    _far: tempfile::TempDir,
}

/// How the cluster is to be.
pub struct Making<'a> {
    /// Where it is; `None` means a directory of its own.
    pub volume: Option<&'a Volume>,
    pub with_hook: bool,
    pub bin: PathBuf,
    pub initdb: Vec<String>,
    pub settings: Vec<String>,
}

impl Default for Making<'_> {
    fn default() -> Self {
        Self {
            volume: None,
            with_hook: false,
            bin: DEFAULT_BIN.into(),
            initdb: Vec::new(),
            settings: Vec::new(),
        }
    }
}

impl Subject {
    /// In a directory of its own, or on a volume.
    pub fn new(volume: Option<&Volume>, with_hook: bool) -> Self {
        Self::of(&Making {
            volume,
            with_hook,
            ..Making::default()
        })
    }

    pub fn of(making: &Making<'_>) -> Self {
        stay_root();
        let (scratch, far) = (Scratch::new(), tempfile::tempdir_in("/var/tmp").unwrap());
        give_to_servers(far.path());
        let archive = scratch.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        give_to_servers(&archive);
        let at = archive.display();
        let mut options = ClusterOptions::default().initdb("--data-checksums");
        options = options.setting("archive_mode = on").setting(format!(
            "archive_command = 'test ! -f {at}/%f && cp %p {at}/%f'"
        ));
        options = options.setting("max_prepared_transactions = 4");
        options.bin.clone_from(&making.bin);
        options.initdb.extend(making.initdb.iter().cloned());
        options.settings.extend(making.settings.iter().cloned());
        if making.with_hook {
            let library = library(&scratch).display().to_string();
            options = options.setting(format!("shared_preload_libraries = '{library}'"));
        }
        let mut cluster = PrivateCluster::start(&options);
        if let Some(volume) = making.volume {
            cluster.stop("fast");
            let data = volume.at().join("data");
            succeed(Command::new("cp").arg("-a").arg(cluster.data()).arg(&data));
            cluster = PrivateCluster::adopt(&data, &making.bin);
        }
        let place = far.path().display();
        cluster.sql(
            "postgres",
            &format!("CREATE TABLESPACE far LOCATION '{place}'"),
        );
        for table in TABLES {
            let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
            cluster.sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
            cluster.sql("postgres", &format!("CREATE INDEX ON {table} (i)"));
        }
        cluster.sql("postgres", "ALTER TABLE elsewhere SET TABLESPACE far");
        cluster.sql("postgres", "CREATE UNLOGGED TABLE passing AS SELECT 1 AS i");
        cluster.sql(
            "postgres",
            "BEGIN; INSERT INTO cut VALUES (0, 'prepared'); PREPARE TRANSACTION 'two'",
        );
        Self {
            cluster,
            scratch,
            _far: far,
        }
    }

    pub fn data(&self) -> String {
        self.cluster.data().display().to_string()
    }

    pub fn change(&self) {
        for change in CHANGES {
            self.cluster.sql("postgres", change);
        }
    }

    /// The content of all tables.
    pub fn rows(&self) -> Vec<String> {
        let hash = |table: &str| {
            let sql = format!("SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t");
            self.cluster.sql("postgres", &sql)
        };
        TABLES.map(hash).to_vec()
    }

    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql("postgres", sql)
    }

    pub fn windlass(&self, words: &[&str]) -> String {
        run(&self.scratch, 0, words)
    }

    /// Everything that can be checked of a cluster.
    pub fn check(&mut self) {
        succeed(self.cluster.tool("pg_amcheck").args([
            "--all",
            "--heapallindexed",
            "--install-missing",
        ]));
        self.cluster.stop("fast");
        let data = self.data();
        // It checks clusters of its own version only, and comes with the server.
        if self.cluster.bin().join("pg_checksums").exists() {
            succeed(self.cluster.tool("pg_checksums").args(["--check", &data]));
        }
        self.cluster.run();
    }

    /// Waits until everything of the log so far is archived. The command never failed.
    pub fn archived(&self) {
        let name = self.sql("SELECT pg_walfile_name(pg_switch_wal())");
        let question = format!(
            "SELECT failed_count > 0 OR coalesce(last_archived_wal, '') >= '{name}' FROM pg_stat_archiver"
        );
        self.cluster.wait_until(&question, "t");
        assert_eq!(self.sql("SELECT failed_count FROM pg_stat_archiver"), "0");
    }

    /// Kills Windlass at the entry of a call, like `rename:when=2`. Calls are counted in its main
    /// thread, and those that write pages in each thread: a thread of their own makes them, and no
    /// server runs yet.
    pub fn kill_at(&self, call: &str, words: &[&str]) {
        let (name, when) = call.split_once(':').unwrap_or((call, "when=1"));
        let inject = format!("inject={name}:signal=KILL:{when}");
        let mut strace = self.scratch.command_of("strace");
        if name == "pwrite64" {
            strace.arg("-f");
        }
        strace.args(["-qq", "-o", "/dev/null", "-e", &inject]);
        strace.arg(env!("CARGO_BIN_EXE_windlass"));
        let output = strace.args(words).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.signal(), Some(9), "{call}: {said}");
    }

    /// The lines of strace of a command that succeeds: these calls of all its threads, with the
    /// paths of descriptors.
    pub fn calls_of(&self, calls: &str, words: &[&str]) -> Vec<String> {
        let trace = self.scratch.path().join("trace");
        let mut strace = self.scratch.command_of("strace");
        strace.args([
            "-f",
            "-qq",
            "-y",
            "-s",
            "0",
            "-e",
            &format!("trace={calls}"),
        ]);
        strace.arg("-o").arg(&trace);
        strace.arg(env!("CARGO_BIN_EXE_windlass"));
        succeed(strace.args(words));
        let text = std::fs::read_to_string(&trace).unwrap();
        std::fs::remove_file(&trace).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.cluster.data().exists() {
            forget(&self.cluster);
        }
    }
}
