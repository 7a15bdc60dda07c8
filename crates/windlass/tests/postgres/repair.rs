//! Damaged pages of a stopped cluster, replaced out of its chain and its log.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::log::Archiving;
use crate::run::*;

const PAGE: usize = 8192;
const CONTENT: &str = "SELECT (SELECT count(*) || ' ' || sum(i) || ' ' || sum(length(s)) FROM r), \
     (SELECT sum(i) FROM t), (SELECT sum(hashtext(u::text)) FROM r u)";

/// A stopped cluster: a full set, an incremental one, archived log, and log that only it has.
struct Stopped {
    source: Archiving,
    content: String,
    /// The files of a table and of its index.
    table: String,
    index: String,
}

impl Stopped {
    fn new(initdb: &[&str]) -> Self {
        let source = Archiving::start(initdb);
        let sql = |sql: &str| source.server.sql("postgres", sql);
        sql("CREATE TABLE r (i int PRIMARY KEY, s text)");
        sql("INSERT INTO r SELECT g, repeat('x', g % 300) FROM generate_series(1, 20000) g");
        sql("CREATE UNLOGGED TABLE unlogged AS SELECT generate_series(1, 1000) i");
        let place = source.back_up();
        sql("UPDATE r SET s = s || 'y' WHERE i % 7 = 0");
        let words = ["backup", &source.server.conninfo(), "--to", &place];
        // Without checksums, pages of PostgreSQL 15 do not say that they changed.
        let kind = match initdb.contains(&"--data-checksums") {
            true => &["--type", "incr", "--strict"][..],
            false => &[],
        };
        let output = windlass(&[&words[..], kind].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        sql("UPDATE r SET s = s || 'z' WHERE i % 11 = 0");
        source.insert_and_archive(7);
        sql("DELETE FROM r WHERE i % 13 = 0");
        sql("VACUUM r");
        sql("UPDATE r SET s = 'last' WHERE i = 5");
        let content = sql(CONTENT);
        let path = |of: &str| sql(&format!("SELECT pg_relation_filepath('{of}')"));
        let (table, index) = (path("r"), path("r_pkey"));
        let mut stopped = Self {
            source,
            content,
            table,
            index,
        };
        stopped.source.server.stop("fast");
        stopped
    }

    fn data(&self) -> &Path {
        self.source.server.data()
    }

    fn file(&self, relation: &str) -> PathBuf {
        self.data().join(relation)
    }

    fn page(&self, relation: &str, block: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE];
        let file = File::open(self.file(relation)).unwrap();
        file.read_exact_at(&mut page, block * PAGE as u64).unwrap();
        page
    }

    /// Overwrites bytes of a page. Returns the page as it was.
    fn damage(&self, relation: &str, (block, at): (u64, u64), bytes: &[u8]) -> Vec<u8> {
        let was = self.page(relation, block);
        let file = File::options()
            .write(true)
            .open(self.file(relation))
            .unwrap();
        file.write_all_at(bytes, block * PAGE as u64 + at).unwrap();
        was
    }

    fn command(&self, more: &[&str]) -> Output {
        let bin = self.source.server.bin().to_str().unwrap();
        let (data, place) = (self.data().to_str().unwrap(), self.source.arg("place"));
        let words = ["repair", data, "--from", &place, "--bindir", bin];
        windlass(&[&words[..], more].concat())
    }

    fn repair(&self, more: &[&str]) -> Output {
        let keep = self.source.arg("kept");
        self.command(&[&["--keep", &keep], more].concat())
    }

    fn kept(&self, relation: &str, block: u64) -> Vec<u8> {
        let name = format!("{}.block-{block}.page", relation.replace('/', "_"));
        std::fs::read(Path::new(&self.source.arg("kept")).join(name)).unwrap()
    }

    /// Starts the server, and checks everything.
    fn check(mut self) {
        self.source.server.run();
        let sql = |sql: &str| self.source.server.sql("postgres", sql);
        assert_eq!(sql(CONTENT), self.content);
        sql("SET enable_seqscan = off; SELECT count(*) FROM r WHERE i > 0");
        let mut amcheck = self.source.server.tool("pg_amcheck");
        amcheck.args(["--install-missing", "--heapallindexed", "postgres"]);
        let output = amcheck.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// The bytes that differ may be hint bits, whose values are free, and the checksum over them.
fn lsn(page: &[u8]) -> &[u8] {
    &page[..8]
}

#[test]
fn damaged_pages_come_back_out_of_the_chain_and_the_log() {
    let stopped = Stopped::new(&["--data-checksums", "--wal-segsize=1"]);
    let (table, index) = (stopped.table.clone(), stopped.index.clone());
    // A page of the full set, one that the log changed last, zeros, noise in a header, an index.
    let damaged = [
        (&table, 3, 5000, vec![0xA5; 20]),
        (&table, 0, 0, vec![0; PAGE]),
        (&table, 9, 0, vec![0xFF; 24]),
        (&index, 2, 100, vec![7; 4000]),
    ];
    let was: Vec<_> = damaged
        .iter()
        .map(|(of, block, at, bytes)| stopped.damage(of, (*block, *at), bytes))
        .collect();
    // Zeros are no damage that a checksum shows, so that page is named.
    let output = stopped.command(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let shown = text(&output);
    for page in [
        format!("{table}:3"),
        format!("{table}:9"),
        format!("{index}:2"),
    ] {
        assert!(shown.contains(&page), "{shown}");
    }
    assert!(!Path::new(&stopped.source.arg("kept")).exists());
    let output = stopped.repair(&["--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{document} {}",
        text(&output)
    );
    assert_eq!(document["repaired"].as_array().unwrap().len(), 3);
    assert!(!stopped.data().join("postmaster.pid").exists());
    for ((of, block, at, bytes), was) in damaged.iter().zip(&was).filter(|(one, _)| one.1 != 0) {
        assert_eq!(lsn(&stopped.page(of, *block)), lsn(was), "{of}:{block}");
        let mut expected = was.clone();
        let at = usize::try_from(*at).unwrap();
        expected[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(stopped.kept(of, *block), expected);
    }
    // The whole page of zeros: its checksum is right, as far as anybody can tell.
    let name = format!("{table}:0");
    let output = stopped.repair(&["--page", &name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(lsn(&stopped.page(&table, 0)), lsn(&was[1]));
    let output = stopped.repair(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("0 damaged pages"),
        "{}",
        text(&output)
    );
    stopped.check();
}

#[test]
fn a_cluster_without_checksums_gets_the_pages_that_are_named() {
    let stopped = Stopped::new(&["--wal-segsize=1"]);
    let table = stopped.table.clone();
    let output = stopped.repair(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no checksums"), "{}", text(&output));
    let was = stopped.damage(&table, (4, 24), &[0xEE; 3000]);
    let output = stopped.repair(&["--page", &format!("{table}:4")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(lsn(&stopped.page(&table, 4)), lsn(&was));
    stopped.check();
}

/// Whatever is not safe is left as it is, and said.
#[test]
fn what_cannot_be_proven_is_not_written() {
    let mut stopped = Stopped::new(&["--data-checksums", "--wal-segsize=1"]);
    let table = stopped.table.clone();
    let refused = |stopped: &Stopped, page: &str, why: &str| {
        let output = stopped.repair(&["--page", page]);
        assert_eq!(output.status.code(), Some(4), "{page}: {}", text(&output));
        assert!(text(&output).contains(why), "{page}: {}", text(&output));
    };
    refused(&stopped, &format!("{table}:1"), "its checksum is right");
    refused(&stopped, "base/5/999999:0", "the chain does not have it");
    stopped.source.server.run();
    let sql = |sql: &str| stopped.source.server.sql("postgres", sql);
    let unlogged = sql("SELECT pg_relation_filepath('unlogged')");
    let output = stopped.repair(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("running server"),
        "{}",
        text(&output)
    );
    assert!(stopped.data().join("postmaster.pid").exists());
    stopped.source.server.stop("immediate");
    let output = stopped.repair(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("not shut down in order"),
        "{}",
        text(&output)
    );
    stopped.source.server.run();
    // After a crash it is empty.
    let fill = "INSERT INTO unlogged SELECT generate_series(1, 1000)";
    stopped.source.server.sql("postgres", fill);
    stopped.source.server.stop("fast");
    stopped.damage(&unlogged, (1, 500), &[9; 50]);
    refused(&stopped, &format!("{unlogged}:1"), "unlogged");
    // A change that is not in the log: a page that was lost and came back older.
    let newer = stopped.page(&table, 2);
    let mut older = newer.clone();
    older[4] ^= 8;
    stopped.damage(&table, (2, 0), &older);
    let bin = stopped.source.server.bin().join("pg_checksums");
    let fix = |mode: &str| {
        let output = std::process::Command::new(&bin)
            .args([mode, "-D", stopped.data().to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
    };
    // Its checksum is made right, so that it looks like a page that the server wrote.
    fix("--disable");
    stopped.damage(&unlogged, (1, 500), &[0; 50]);
    fix("--enable");
    let was = stopped.damage(&table, (3, 5000), &[0xA5; 20]);
    refused(&stopped, &format!("{table}:3"), "1 other page");
    assert_eq!(stopped.page(&table, 3)[..5000], was[..5000]);
    assert_eq!(stopped.page(&table, 3)[5000..5020], [0xA5; 20]);
    // No place, no log, a directory inside.
    let inside = stopped.data().join("kept");
    let words = ["--keep", inside.to_str().unwrap()];
    let output = stopped.command(&words);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("lies in the data directory"),
        "{}",
        text(&output)
    );
}

/// While pages are written, no server starts.
#[test]
fn no_server_starts_while_a_cluster_is_held() {
    let stopped = Stopped::new(&["--data-checksums", "--wal-segsize=1"]);
    let held = windlass_postgres::StoppedCluster::hold(stopped.data()).unwrap();
    // A server takes the number of its own parent for that of an earlier start of the machine.
    let output = std::process::Command::new("timeout")
        .arg("120")
        .arg(stopped.source.server.bin().join("postgres"))
        .arg("-D")
        .arg(stopped.data())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = text(&output);
    assert!(
        said.contains("lock file \"postmaster.pid\" already exists"),
        "{said}"
    );
    // A second repair is refused, too.
    let again = windlass_postgres::StoppedCluster::hold(stopped.data());
    assert!(again.is_err());
    drop(held);
    stopped.check();
}
