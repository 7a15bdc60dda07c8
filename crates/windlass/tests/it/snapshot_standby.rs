//! Snapshots by the hook of a standby, while it replays what its primary does.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use windlass_testkit::installed::{all_versions, of_version};
use windlass_testkit::postgres::{
    ClusterOptions, PrivateCluster, give_to_servers, stay_root, succeed,
};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};

/// Tables whose content is known, each for one way to be changed later.
const TABLES: [&str; 4] = ["updated", "emptied", "dropped", "packed"];
const CHANGES: [&str; 7] = [
    "UPDATE updated SET x = 'changed'",
    "TRUNCATE emptied",
    "DROP TABLE dropped",
    "CREATE TABLE dropped AS SELECT 1 AS i",
    "DELETE FROM packed WHERE i % 2 = 0",
    "VACUUM FULL packed",
    "CHECKPOINT",
];
/// What pgbench keeps true in every state.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";
/// A server that was opened follows nobody.
const ALONE: &str =
    "SELECT NOT pg_is_in_recovery() AND pg_stat_file('standby.signal', true) IS NULL
    AND current_setting('primary_conninfo') = ''";

/// A primary, and a standby that follows it and has loaded the hook.
struct Pair {
    primary: PrivateCluster,
    standby: PrivateCluster,
    scratch: Scratch,
    bin: std::path::PathBuf,
}

/// pgbench on the primary, until it is dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Pair {
    fn new(major: u32) -> Self {
        stay_root();
        let (scratch, bin) = (Scratch::new(), of_version(all_versions(), major));
        let options = ClusterOptions {
            bin: bin.clone(),
            ..ClusterOptions::default()
        };
        // Or a checkpoint removes what the standby has not got yet, and it stays behind for ever.
        let options = options.setting("wal_keep_size = 1GB");
        let mut primary = PrivateCluster::start(&options.initdb("--data-checksums"));
        succeed(
            primary
                .tool("pgbench")
                .args(["-i", "-q", "-s", "1", "postgres"]),
        );
        for table in TABLES {
            let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 2000) i";
            primary.sql("postgres", &format!("CREATE TABLE {table} AS {rows}"));
        }
        primary.sql("postgres", "CREATE TABLE mark (i int)");
        primary.stop("fast");
        let copy = scratch.path().join("standby");
        succeed(Command::new("cp").arg("-a").arg(primary.data()).arg(&copy));
        primary.run();
        let signal = copy.join("standby.signal");
        std::fs::write(&signal, "").unwrap();
        give_to_servers(&signal);
        let mut standby = PrivateCluster::adopt_stopped(&copy, &bin);
        let library = library(&scratch).display().to_string();
        standby.configure(&[
            format!("shared_preload_libraries = '{library}'"),
            format!("primary_conninfo = '{}'", primary.conninfo()),
        ]);
        standby.run();
        Self {
            primary,
            standby,
            scratch,
            bin,
        }
    }

    fn load(&self) -> Load {
        let mut pgbench = self.primary.tool("pgbench");
        pgbench.args(["-n", "-c", "2", "-T", "100000", "postgres"]);
        pgbench.stdout(Stdio::null()).stderr(Stdio::null());
        Load(pgbench.spawn().unwrap())
    }

    /// Waits until the standby has replayed all that the primary has done.
    fn replayed(&self) {
        let sent = self.primary.sql("postgres", "SELECT pg_current_wal_lsn()");
        let question = format!("SELECT pg_last_wal_replay_lsn() >= '{sent}'");
        self.standby.wait_until(&question, "t");
    }

    fn change(&self) {
        self.primary.sql("postgres", "INSERT INTO mark VALUES (2)");
        for change in CHANGES {
            self.primary.sql("postgres", change);
        }
        self.replayed();
        // The standby writes its pages, too.
        self.standby.sql("postgres", "CHECKPOINT");
    }

    /// What a server with the content of the snapshot answers.
    fn questions() -> Vec<String> {
        let hash = |table: &str| {
            format!("SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t")
        };
        let mut sql = vec![SUMS.to_owned(), "SELECT sum(i) FROM mark".to_owned()];
        sql.extend(TABLES.map(hash));
        sql
    }

    fn answers(of: &PrivateCluster) -> Vec<String> {
        let questions = Self::questions().into_iter();
        questions.map(|sql| of.sql("postgres", &sql)).collect()
    }

    fn revert_is_refused(&self, of: &str) {
        let begun = "SELECT pg_postmaster_start_time()";
        let before = self.standby.sql("postgres", begun);
        let word = format!("{of}@then");
        let said = run(&self.scratch, 1, &["snapshot", "revert", &word, "--yes"]);
        for part in ["belongs to a standby", "hint: Go back on the primary"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(self.standby.sql("postgres", begun), before);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        forget(&self.standby);
    }
}

fn a_standby_has_snapshots(major: u32) {
    let pair = Pair::new(major);
    let (conninfo, scratch) = (pair.standby.conninfo(), &pair.scratch);
    pair.primary.sql("postgres", "INSERT INTO mark VALUES (1)");
    // A backup of a standby begins with a checkpoint that it has replayed.
    pair.primary.sql("postgres", "CHECKPOINT");
    pair.replayed();
    let create = ["snapshot", "create", &conninfo, "then", "--method", "hook"];
    let paused = run(
        scratch,
        1,
        &[&create[..], &["--checkpoint", "none"]].concat(),
    );
    assert!(paused.contains("a standby cannot be paused"), "{paused}");
    let expected = Pair::answers(&pair.primary);
    let load = pair.load();
    pair.primary
        .wait_until("SELECT count(*) > 20 FROM pgbench_history", "t");
    let made = run(scratch, 0, &create);
    pair.change();
    drop(load);
    assert!(made.contains("by method hook"), "{made}");

    let word = format!("{conninfo}@then");
    let (bin, sql) = (pair.bin.to_str().unwrap(), Pair::questions().join("; "));
    let open = [
        "open", "--quiet", "--bindir", bin, &word, "--", "psql", "-XqAt", "-F,",
    ];
    let sql = format!("{ALONE}; {sql}");
    let found = run(scratch, 0, &[&open[..], &["-c", &sql]].concat());
    let found: Vec<_> = found.lines().collect();
    assert_eq!(found[0], "t", "it follows nobody: {found:?}");
    let expected: Vec<_> = expected.iter().map(|row| row.replace('|', ",")).collect();
    assert_eq!(found[1..], expected);
    let said = run(scratch, 0, &["verify", "--open", "--bindir", bin, &word]);
    assert!(said.contains("nothing wrong was found"), "{said}");

    pair.revert_is_refused(&conninfo);
    pair.revert_is_refused(pair.standby.data().to_str().unwrap());
    goes_back_after_its_promotion(&pair, &expected);
}

/// A standby that became a primary goes back to what it was.
fn goes_back_after_its_promotion(pair: &Pair, expected: &[String]) {
    let conninfo = pair.standby.conninfo();
    let promoted = pair.standby.sql("postgres", "SELECT pg_promote(true, 600)");
    assert_eq!(promoted, "t");
    pair.standby.sql("postgres", "INSERT INTO mark VALUES (3)");
    let after = Pair::answers(&pair.standby);
    let timeline = "SELECT timeline_id FROM pg_control_checkpoint()";
    let of = |answers: Vec<String>| -> Vec<String> {
        answers.iter().map(|row| row.replace('|', ",")).collect()
    };
    let word = format!("{conninfo}@then");
    run(&pair.scratch, 0, &["snapshot", "revert", &word, "--yes"]);
    assert_eq!(of(Pair::answers(&pair.standby)), expected);
    assert_eq!(pair.standby.sql("postgres", timeline), "3");
    run(&pair.scratch, 0, &["snapshot", "undo", &conninfo, "--yes"]);
    assert_eq!(Pair::answers(&pair.standby), after);
    assert!(
        !Path::new(pair.standby.data())
            .join("standby.signal")
            .exists()
    );
    run(&pair.scratch, 0, &["snapshot", "drop", &conninfo, "then"]);
    pair.scratch.assert_clean();
}

#[test]
fn a_standby_of_15_has_snapshots_and_cannot_go_back() {
    a_standby_has_snapshots(15);
}

#[test]
fn a_standby_of_18_has_snapshots_and_cannot_go_back() {
    a_standby_has_snapshots(18);
}
