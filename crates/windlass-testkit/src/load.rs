//! Loads: programs that keep a cluster busy while it is backed up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvError, channel};

use crate::postgres::{PrivateCluster, give_to_servers};

/// The variable with the directory of PostgreSQL's built regression tests.
const SUITE: &str = "WINDLASS_TEST_PG_REGRESS";
/// So much of pgbench's messages is shown.
const MESSAGES_BYTES_MAX: usize = 4096;
/// So many sessions write beside the statements below.
const SESSIONS: usize = 3;

/// Statements that create, move and remove files, and change columns, while files are copied. They
/// run one after the other.
const DDL: [&str; 15] = [
    "CREATE TABLE churn AS SELECT i, md5(i::text) AS x FROM generate_series(1, 5000) i",
    "CREATE INDEX churn_i ON churn (i)",
    "CREATE UNLOGGED TABLE churn_unlogged AS SELECT * FROM churn",
    "UPDATE churn SET x = x || i WHERE i % 3 = 0",
    "ALTER TABLE churn ADD COLUMN more bigint DEFAULT 7, DROP COLUMN x",
    "UPDATE churn SET more = i WHERE i % 2 = 0",
    "ALTER TABLE churn ALTER COLUMN i TYPE bigint",
    "VACUUM FULL churn",
    "ALTER TABLE churn_unlogged SET LOGGED",
    "TRUNCATE churn",
    "CREATE DATABASE churn_db",
    "INSERT INTO kept SELECT count(*) FROM kept",
    "DROP TABLE churn_unlogged",
    "DROP DATABASE churn_db",
    "DROP TABLE churn",
];

/// A pgbench that works until it is ended. None of its statements may fail, unless the test itself
/// ends the server.
pub struct Load {
    pgbench: Child,
    /// What it says of statements that failed.
    messages: File,
}

impl Load {
    /// Starts one with so many sessions. The cluster must have pgbench's tables.
    pub fn start(cluster: &PrivateCluster, sessions: usize) -> Self {
        let messages = tempfile::tempfile().expect("make a file for messages");
        let mut pgbench = cluster.tool("pgbench");
        pgbench.args(["-n", "-c", &sessions.to_string(), "-T", "100000"]);
        pgbench.arg("postgres").stdout(Stdio::null());
        pgbench.stderr(messages.try_clone().expect("share the file"));
        let pgbench = pgbench.spawn().expect("run pgbench");
        Self { pgbench, messages }
    }

    /// Fails if a statement has failed, or if it has ended.
    pub fn check(&mut self) {
        // Its sessions end one by one, each with a message.
        let mut said = vec![0; MESSAGES_BYTES_MAX];
        let read = self.messages.read_at(&mut said, 0);
        let said = String::from_utf8_lossy(&said[..read.expect("read the messages")]);
        assert!(said.is_empty(), "a statement of pgbench failed: {said}");
        let ended = self.pgbench.try_wait().expect("look after pgbench");
        assert!(ended.is_none(), "pgbench ended by itself: {ended:?}");
    }

    /// Ends it. Fails if a statement has failed.
    pub fn end(mut self) {
        self.check();
    }
}

/// Ends it, whatever came of its statements: the server may have been ended under it.
impl Drop for Load {
    fn drop(&mut self) {
        self.pgbench.kill().expect("end pgbench");
        self.pgbench.wait().expect("wait for pgbench");
    }
}

/// Says that something has ended when it goes.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `body` while pgbench works, and while statements create and remove tables and databases.
/// The cluster must have pgbench's tables, and a table `kept (n bigint)`. Fails if one of the
/// statements fails.
pub fn under_load<T>(cluster: &PrivateCluster, body: impl FnOnce() -> T) -> T {
    under_load_of(cluster, &[], body)
}

/// The same with further statements in each round.
pub fn under_load_of<T>(cluster: &PrivateCluster, more: &[&str], body: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = Load::start(cluster, SESSIONS);
        let (begins, begun) = channel::<()>();
        let rounds = scope.spawn(|| {
            cluster.sql("postgres", DDL[0]);
            drop(begins);
            let run = |statement: &&str| drop(cluster.sql("postgres", statement));
            DDL[1..].iter().chain(more).for_each(run);
            while !done.load(Ordering::Acquire) {
                DDL.iter().chain(more).for_each(run);
            }
        });
        // Also if the body fails, or nobody would ever see why.
        let ended = Ended(&done);
        // Nothing is sent: the wait ends when the first statement has, also if it failed.
        assert_eq!(begun.recv(), Err(RecvError));
        let result = body();
        drop(ended);
        rounds.join().expect("the workload runs");
        load.end();
        result
    })
}

/// Starts PostgreSQL's own regression tests on a cluster, because they have the richest schema
/// there is. Their messages go to `output`, which is created.
///
/// WINDLASS_TEST_PG_REGRESS is the directory of the built suite; `scripts/test` makes it.
pub fn start_regression(source: &PrivateCluster, output: &Path) -> Child {
    let suite = std::env::var(SUITE);
    let suite = suite.unwrap_or_else(|_| panic!("{SUITE} is not set: run scripts/test"));
    let suite = PathBuf::from(suite);
    std::fs::create_dir(output).expect("make the directory of the tests' output");
    give_to_servers(output);
    let mut run = Command::new(suite.join("pg_regress"));
    source.lead(&mut run);
    run.env_remove("PGDATABASE").env_remove("LC_ALL");
    run.current_dir(&suite);
    run.arg(format!("--bindir={}", source.bin().display()));
    run.args(["--inputdir=.", "--dlpath=."]);
    run.arg(format!("--outputdir={}", output.display()));
    run.arg(format!("--host={}", source.place().display()));
    run.args(["--port=5432", "--user=postgres", "--max-connections=8"]);
    run.arg("--schedule=parallel_schedule");
    run.stdout(Stdio::null()).stderr(Stdio::null());
    run.spawn().expect("run pg_regress")
}

/// The lines of a dump, without what differs from one dump to the next.
pub fn dump_lines(dump: &str) -> Vec<String> {
    // Newer minor releases of pg_dump write a random key of their own.
    let random = |line: &&str| line.starts_with("\\restrict") || line.starts_with("\\unrestrict");
    let lines = dump.lines().filter(|line| !random(line));
    lines.map(without_sequence_value).collect()
}

/// Removes a sequence's value. The log of a sequence is 32 values ahead of it, so the value after a
/// recovery depends on where the replay began.
fn without_sequence_value(line: &str) -> String {
    match line.split_once(',') {
        Some((name, _)) if name.starts_with("SELECT pg_catalog.setval(") => name.to_owned(),
        _ => line.to_owned(),
    }
}

/// Fails at the first line in which two dumps differ.
pub fn assert_same_dump(one: &str, other: &str) {
    let (one, other) = (dump_lines(one), dump_lines(other));
    let differing = one.iter().zip(&other).find(|(one, other)| one != other);
    assert_eq!(differing, None);
    assert_eq!(one.len(), other.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{ClusterOptions, stay_root, succeed};

    #[test]
    #[should_panic(expected = "a statement of pgbench failed")]
    fn a_statement_that_fails_under_load_is_seen() {
        stay_root();
        let cluster = PrivateCluster::start(&ClusterOptions::default());
        let init = ["-i", "-q", "-s", "1", "postgres"];
        succeed(cluster.tool("pgbench").args(init));
        let load = Load::start(&cluster, 2);
        let busy = "SELECT count(*) > 0 FROM pgbench_history";
        cluster.wait_until(busy, "t");
        cluster.sql("postgres", "DROP TABLE pgbench_history");
        let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'";
        cluster.wait_until(left, "0");
        load.end();
    }
}
