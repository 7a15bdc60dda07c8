//! Sets whose pages are taken apart, beside plain ones of the same content: whoever mounts, opens,
//! extracts, restores or compares them sees no difference.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};
use windlass_testkit::sqlite::run_once;

use crate::run::*;

const CLUSTER: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY, customer int, price numeric(12, 2), state text);
    INSERT INTO orders SELECT n, n * 7919 % 900, n / 7.0, 'state ' || n % 5
        FROM generate_series(1, 100000) n;
    CREATE TABLE gone AS SELECT * FROM orders;
    ALTER TABLE gone DROP COLUMN price, ADD COLUMN late text DEFAULT 'late';
    UPDATE gone SET late = NULL WHERE id % 3 = 0;
    CREATE INDEX ON gone (state, id);
    CHECKPOINT";
const HASH: &str = "SELECT md5(string_agg(o::text, '|' ORDER BY id)) FROM orders o";

const DATABASE: &str = "
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INT, price REAL, day TEXT, state TEXT);
    CREATE INDEX by_customer ON orders (customer, day);
    INSERT INTO orders WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n LIMIT 30000)
        SELECT n, n * 7919 % 900, (n * 7919 % 100000) / 100.0,
            date('2020-01-01', '+' || (n * 31 % 1000) || ' days'), 'open' FROM n";
const SUM: &str = "SELECT count(*) || ' ' || sum(customer) FROM orders";

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let (code, said) = (output.status.code(), text(&output));
    assert_eq!(code, Some(0), "{command:?}: {said}");
    output
}

/// How the files below two directories differ; nothing if they are the same.
fn differences(one: &Path, other: &Path) -> String {
    let mut compare = Command::new("diff");
    compare.args(["-r", "--no-dereference"]).args([one, other]);
    let output = compare.output().unwrap();
    match output.status.success() {
        true => String::new(),
        false => format!("differ: {}", text(&output)),
    }
}

/// A set that is mounted until this goes.
struct Mount {
    child: Child,
    /// What it prints. It would fail if nobody read that.
    _lines: BufReader<ChildStdout>,
}

impl Mount {
    fn of(set: &str, at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let mut command = command();
        command.args(["mount", "--foreground", set]).arg(at);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("mounted "), "{line}");
        Self {
            child,
            _lines: lines,
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        signal(&self.child, "INT");
        self.child.wait().unwrap();
    }
}

/// A place with two sets: `apart` and `plain`.
struct Pair(tempfile::TempDir);

impl Pair {
    fn new() -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["apart", "plain"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Backs a database up into the place of `name`, and says how many bytes were taken apart.
    fn back_up(&self, database: &str, name: &str, pages: &str) -> u64 {
        let to = self.arg(name);
        let (code, report) = json(&["backup", database, "--to", &to, "--pages", pages]);
        assert_eq!(code, 0, "{report}");
        report["pages"]["apart_bytes"].as_u64().unwrap_or_default()
    }

    /// Uses both sets in every way. `question` is what `open` runs, and `answer` what that prints.
    fn assert_alike(&self, question: &[&str], answer: &str) {
        let (apart, plain) = (self.arg("apart"), self.arg("plain"));
        let sets = [apart.as_str(), plain.as_str()];
        for more in [None, Some("--every-byte")] {
            done(command().arg("diff").args(sets).args(more));
        }
        for set in sets {
            let mut open = command();
            open.env("TMPDIR", self.0.path()).args(["open", set]);
            let said = done(open.args(question)).stdout;
            assert_eq!(String::from_utf8(said).unwrap().trim(), answer, "{set}");
        }
        let out = ["out-apart", "out-plain"].map(|name| self.path(name));
        for (set, into) in sets.into_iter().zip(&out) {
            let mut extract = command();
            extract.args(["extract", set, "**", "--into"]);
            done(extract.arg(into));
        }
        assert_eq!(differences(&out[0], &out[1]), "");
        let at = ["at-apart", "at-plain"].map(|name| self.path(name));
        let mounts = [Mount::of(sets[0], &at[0]), Mount::of(sets[1], &at[1])];
        let differ = differences(&at[0], &at[1]);
        drop(mounts);
        assert_eq!(differ, "");
    }
}

#[test]
fn a_set_of_a_cluster_with_its_pages_apart_is_used_like_a_plain_one() {
    let pair = Pair::new();
    let server = PrivateCluster::start(&ClusterOptions::default().initdb("--data-checksums"));
    server.sql("postgres", CLUSTER);
    let hash = server.sql("postgres", HASH);
    let apart = pair.back_up(&server.conninfo(), "apart", "auto");
    assert!(apart > 4 << 20, "{apart}");
    let mut merge = command();
    merge.args(["merge", &pair.arg("apart"), "--to", &pair.arg("plain")]);
    done(merge.args(["--pages", "off"]));
    let (bin, psql) = (server.bin(), server.bin().join("psql"));
    let (bin, psql) = (bin.to_str().unwrap(), psql.to_str().unwrap());
    pair.assert_alike(&["--bindir", bin, "--", psql, "-XAtc", HASH], &hash);
    // What is restored of one is what was extracted of the other.
    let into = pair.path("restored");
    let mut restore = command();
    restore.args(["restore", &pair.arg("apart"), "--into"]);
    done(restore.arg(&into));
    let plain = pair.path("out-plain");
    assert_eq!(differences(&into.join("base"), &plain.join("base")), "");
}

#[test]
fn a_set_of_a_sqlite_database_with_its_pages_apart_is_used_like_a_plain_one() {
    let pair = Pair::new();
    let database = pair.path("orders.db");
    run_once(&database, DATABASE).unwrap();
    let answer = run_once(&database, SUM).unwrap();
    let apart = pair.back_up(database.to_str().unwrap(), "apart", "auto");
    assert!(apart > 1 << 20, "{apart}");
    assert_eq!(pair.back_up(database.to_str().unwrap(), "plain", "off"), 0);
    pair.assert_alike(&["--", "sqlite3", "{}", SUM], &answer);
    let source = std::fs::read(&database).unwrap();
    assert!(std::fs::read(pair.path("out-apart/orders.db")).unwrap() == source);
}
