//! A chain at a moment as an image: `--at` of open, mount, extract and diff. A restore to the same
//! moment is the judge.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use windlass_testkit::postgres::PrivateCluster;
use windlass_testkit::sqlite::{CommitLedger, LedgerSpec};

use crate::log::Archiving;
use crate::moments::{TIME, recovered};
use crate::run::*;

/// Everything that the writers of these tests change.
const CONTENT: &str = "SELECT (SELECT string_agg(i::text, ' ' ORDER BY i) FROM t), \
     (SELECT count(*) || ' ' || sum(abalance) FROM pgbench_accounts), \
     (SELECT count(*) || ' ' || coalesce(sum(delta), 0) FROM pgbench_history), \
     (SELECT count(*) || ' ' || sum(i) FROM far)";

/// A full set and an incremental one, and log with numbered commits behind them.
struct Chain {
    source: Archiving,
    /// A moment between the commits 20 and 21, while others write.
    time: String,
    /// The same, as a position.
    lsn: String,
}

impl Chain {
    fn make() -> Self {
        let source = Archiving::start(&["--data-checksums"]);
        let sql = |sql: &str| source.server.sql("postgres", sql);
        for name in ["space", "scratch"] {
            std::fs::create_dir(source.arg(name)).unwrap();
        }
        let space = source.arg("space");
        sql(&format!("CREATE TABLESPACE space LOCATION '{space}'"));
        sql("CREATE TABLE far TABLESPACE space AS SELECT generate_series(1, 1000) i");
        sql("CREATE TABLE quiet AS SELECT generate_series(1, 1000) i");
        let mut pgbench = source.server.tool("pgbench");
        let made = pgbench.args(["-i", "-q", "postgres"]).output().unwrap();
        assert!(made.status.success(), "{}", text(&made));
        let place = source.back_up();
        sql("INSERT INTO t VALUES (1)");
        let words = ["backup", &source.server.conninfo(), "--to", &place];
        let output = windlass(&[&words[..], &["--type", "incr", "--strict"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let mut writers = source.server.tool("pgbench");
        writers.args(["-n", "-c", "3", "-t", "100", "postgres"]);
        writers.stdout(Stdio::null()).stderr(Stdio::null());
        let mut writers = writers.spawn().unwrap();
        let insert = |row: u32| sql(&format!("INSERT INTO t VALUES ({row})"));
        (2..=20).for_each(|row| drop(insert(row)));
        sql("UPDATE far SET i = i + 1");
        let (lsn, time) = (sql("SELECT pg_current_wal_insert_lsn()"), sql(TIME));
        (21..=40).for_each(|row| drop(insert(row)));
        sql("DELETE FROM far WHERE i > 500");
        assert!(writers.wait().unwrap().success());
        source.insert_and_archive(41);
        Self { source, time, lsn }
    }

    /// Runs a command on the place, at a moment.
    fn run(&self, words: &[&str], at: &[&str]) -> Output {
        self.command(words, at).output().unwrap()
    }

    fn command(&self, words: &[&str], at: &[&str]) -> std::process::Command {
        let bin = self.source.server.bin().to_str().unwrap();
        let mut command = command();
        command.args(&words[..1]).arg(self.source.arg("place"));
        command.args(at).args(["--bindir", bin]);
        command.args(["--scratch", &self.source.arg("scratch")]);
        command.args(&words[1..]);
        command
    }

    /// What a query in the opened chain says.
    fn ask(&self, at: &str, sql: &str) -> String {
        let psql = self.source.server.bin().join("psql");
        let words = ["open", "--", psql.to_str().unwrap(), "-XAtc", sql];
        let output = self.run(&words, &["--at", at]);
        assert_eq!(output.status.code(), Some(0), "{at}: {}", text(&output));
        self.assert_clean();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Nothing is left of what was recovered.
    fn assert_clean(&self) {
        let left = std::fs::read_dir(self.source.arg("scratch")).unwrap();
        assert_eq!(left.count(), 0);
    }

    /// The chain at a moment, copied from a mount.
    fn copied(&self, at: &str, into: &str) {
        let point = self.source.arg("mounted");
        std::fs::create_dir(&point).unwrap();
        let words = ["mount", &point, "--foreground"];
        let mut command = self.command(&words, &["--at", at]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("mounted "), "{line}");
        let copied = std::process::Command::new("cp")
            .args(["-a", &point, into])
            .output()
            .unwrap();
        signal(&child, "INT");
        child.wait().unwrap();
        assert!(copied.status.success(), "{}", text(&copied));
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(into, mode).unwrap();
        self.assert_clean();
    }
}

#[test]
fn a_chain_at_a_moment_is_what_a_restore_to_that_moment_is() {
    let chain = Chain::make();
    let (source, time) = (&chain.source, chain.time.as_str());
    let space = source.arg("space");
    let moved = format!("{space}={}", source.arg("moved"));
    let words = ["--target-time", time, "--tablespace-map", &moved];
    let judge = recovered(source, "judge", &words);
    let expected = judge.sql("postgres", CONTENT);
    assert!(expected.starts_with("1 2 3 4"), "{expected}");
    assert!(expected.contains(" 19 20|"), "{expected}");
    // Opened: by time, and by position.
    assert_eq!(chain.ask(time, CONTENT), expected);
    let rows = "SELECT max(i) FROM t";
    assert_eq!(chain.ask(&chain.lsn, rows), "20");
    assert_eq!(chain.ask("latest", rows), "41");
    // Mounted: a server that was shut down, which starts anywhere.
    let copy = source.arg("copy");
    chain.copied(time, &copy);
    let mut server = PrivateCluster::adopt_stopped(Path::new(&copy), source.server.bin());
    server.configure(&["archive_mode = off"]);
    server.run();
    assert_eq!(server.sql("postgres", CONTENT), expected);
    server.stop("fast");
    // Extracted: the same file, also in a tablespace.
    for table in ["t", "far"] {
        let query = format!("SELECT pg_relation_filepath('{table}')");
        let path = source.server.sql("postgres", &query);
        let (into, relation) = (
            source.arg(&format!("out-{table}")),
            format!("public.{table}"),
        );
        let words = ["extract", "--relation", &relation, "--into", &into];
        let output = chain.run(&words, &["--at", &chain.lsn]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let bytes = std::fs::read(Path::new(&into).join(&path)).unwrap();
        assert!(!bytes.is_empty(), "{path}");
        chain.assert_clean();
    }
}

#[test]
fn what_changed_between_two_moments_is_said_by_relation() {
    let chain = Chain::make();
    let compared = |at: [&str; 2]| {
        let output = chain.run(&["diff"], &["--at", at[0], "--at", at[1]]);
        chain.assert_clean();
        (output.status.code(), text(&output))
    };
    let (code, said) = compared([&chain.time, "latest"]);
    assert_eq!(code, Some(3), "{said}");
    for changed in ["public.t", "public.far"] {
        assert!(said.contains(changed), "{changed}: {said}");
    }
    assert!(!said.contains("public.quiet"), "{said}");
    // The two servers leave a pg_control with the second in which each of them ended.
    let (code, said) = compared([&chain.lsn, &chain.lsn]);
    assert!(matches!(code, Some(0 | 3)), "{said}");
    assert!(!said.contains("public."), "{said}");
    let output = chain.run(&["diff"], &["--at", "latest"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}

#[test]
fn a_moment_that_cannot_be_reached_is_refused_with_what_can() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.insert_and_archive(1);
    let before = source.server.sql("postgres", TIME);
    source.insert_and_archive(2);
    let scratch = source.arg("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let open = |place: &str, at: &str| {
        let words = [
            "open",
            place,
            "--at",
            at,
            "--scratch",
            &scratch,
            "--",
            "true",
        ];
        let output = windlass(&words);
        assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
        (output.status.code(), text(&output))
    };
    for (at, says) in [
        ("2020-01-01T00:00:00Z", "lies before the end of the backup"),
        ("2100-01-01T00:00:00Z", "is not in the log"),
        ("7/0", "is not in the log"),
    ] {
        let (code, said) = open(&place, at);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(says), "{said}");
        assert!(said.contains("; what can be restored: "), "{said}");
        assert!(said.contains(" on timeline 1"), "{said}");
    }
    assert_eq!(open(&place, "yesterday").0, Some(2));
    // Replay of a new tablespace would work on the directory of the live one.
    let space = source.arg("space");
    std::fs::create_dir(&space).unwrap();
    source.server.sql(
        "postgres",
        &format!("CREATE TABLESPACE late LOCATION '{space}'"),
    );
    source.insert_and_archive(3);
    let (code, said) = open(&place, "latest");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("only into its own directory"), "{said}");
    let (code, said) = open(&place, &before);
    assert_eq!(code, Some(0), "{said}");
    let output = windlass(&["verify", &place, "--at", &before]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the sets and the log lead there"), "{said}");
    // Nobody has received the log of this database.
    let shop = source.arg("shop.db");
    CommitLedger::create(Path::new(&shop), LedgerSpec::default());
    let sets = source.arg("sets");
    std::fs::create_dir(&sets).unwrap();
    let output = windlass(&["backup", &shop, "--to", &sets]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let (code, said) = open(&sets, "latest");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("holds no log"), "{said}");
}
