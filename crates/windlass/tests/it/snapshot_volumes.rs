//! A tablespace on a file system of its own: snapshots by the hook keep its files there, because a
//! link cannot leave its file system.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_testkit::load::Load;
use windlass_testkit::postgres::{
    ClusterOptions, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::{Volume, VolumeKind};

use crate::opening::Scratch;
use crate::snapshot_hook::{forget, library, run};

/// Each is changed in another way. All but the last one are in the tablespace at first.
const TABLES: [&str; 5] = ["updated", "dropped", "emptied", "fetched", "brought"];
const CHANGES: [&str; 7] = [
    "UPDATE updated SET x = 'changed'",
    "DROP TABLE dropped",
    "CREATE TABLE dropped TABLESPACE far AS SELECT 1 AS i, 'made since' AS x",
    "TRUNCATE emptied",
    "ALTER TABLE fetched SET TABLESPACE pg_default",
    "ALTER TABLE brought SET TABLESPACE far",
    "CHECKPOINT",
];

struct Spaced {
    cluster: PrivateCluster,
    scratch: Scratch,
    volume: Volume,
}

impl Spaced {
    fn new() -> Self {
        stay_root();
        let volume = Volume::new(VolumeKind::Ext4, 200);
        let scratch = Scratch::new();
        let library = library(&scratch).display().to_string();
        let options = ClusterOptions::default().initdb("--data-checksums");
        let options = options.setting(format!("shared_preload_libraries = '{library}'"));
        let cluster = PrivateCluster::start(&options);
        let made = Self {
            cluster,
            scratch,
            volume,
        };
        std::fs::create_dir(made.space()).unwrap();
        give_to_servers(&made.space());
        made.sql(&format!(
            "CREATE TABLESPACE far LOCATION '{}'",
            made.space().display()
        ));
        for table in TABLES {
            let rows = "SELECT i, md5(i::text) AS x FROM generate_series(1, 4000) i";
            let space = match table {
                "brought" => "pg_default",
                _ => "far",
            };
            made.sql(&format!(
                "CREATE TABLE {table} TABLESPACE {space} AS {rows}"
            ));
        }
        made.sql("CHECKPOINT");
        made
    }

    fn space(&self) -> PathBuf {
        self.volume.at().join("far")
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql("postgres", sql)
    }

    fn windlass(&self, words: &[&str]) -> String {
        run(&self.scratch, 0, words)
    }

    fn snapshot(&self, verb: &str, more: &[&str]) {
        let conninfo = self.cluster.conninfo();
        self.windlass(&[&["snapshot", verb, &conninfo], more].concat());
    }

    fn word(&self, name: &str) -> String {
        format!("{}@{name}", self.cluster.conninfo())
    }

    /// One question about the content of all tables.
    fn question() -> String {
        let hash = |table| {
            format!("(SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t) AS {table}")
        };
        format!("SELECT {}", TABLES.map(hash).join(", "))
    }

    fn rows(&self) -> String {
        self.sql(&Self::question())
    }

    fn assert_shows(&self, name: &str, rows: &str) {
        let (word, sql) = (self.word(name), Self::question());
        let ask = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", &sql];
        assert_eq!(self.windlass(&ask).trim(), rows, "{name}");
    }

    /// How many files snapshots keep on the volume: by links, and in a graveyard. All files that
    /// are kept are on the file system where they were made.
    fn kept(&self) -> (usize, usize) {
        let places = [
            (self.space().join("windlass"), self.volume.at().to_owned()),
            (
                self.cluster.data().join("pg_subtrans/windlass"),
                self.cluster.data().to_owned(),
            ),
        ];
        let kept = places.map(|(place, of)| {
            let device = std::fs::metadata(of).unwrap().dev();
            let files = below(&place);
            let is_there = |path: &PathBuf| std::fs::metadata(path).unwrap().dev() == device;
            assert!(files.iter().all(is_there), "{files:?}");
            let is_grave = |path: &&PathBuf| path.to_str().unwrap().contains("-graves/");
            let graves = files.iter().filter(is_grave).count();
            (files.len() - graves, graves)
        });
        kept[0]
    }
}

impl Drop for Spaced {
    fn drop(&mut self) {
        forget(&self.cluster);
    }
}

/// The files in the directories in a directory.
fn below(place: &Path) -> Vec<PathBuf> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten();
    let inside = entries(place.to_owned()).map(|entry| entry.unwrap().path());
    let directories = inside.filter(|path| path.is_dir());
    let files = directories.flat_map(entries);
    files.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_tablespace_on_another_file_system_has_snapshots_and_goes_back() {
    let mut spaced = Spaced::new();
    let before = spaced.rows();
    spaced.snapshot("create", &["linked", "--method", "hook"]);
    let (links, graves) = spaced.kept();
    assert!(links >= 4 && graves == 0, "{links} {graves}");
    // A cluster has so many files that this one has no links at first.
    let paused = ["paused", "--method", "hook", "--checkpoint", "none"];
    spaced.snapshot("create", &paused);
    assert_eq!(spaced.kept(), (links, 0));
    CHANGES.iter().for_each(|sql| drop(spaced.sql(sql)));
    let after = spaced.rows();
    let (links_now, graves) = spaced.kept();
    assert!(links_now == links && graves >= 3, "{links_now} {graves}");
    for name in ["linked", "paused"] {
        spaced.assert_shows(name, &before);
    }

    let conninfo = spaced.cluster.conninfo();
    for name in ["paused", "linked"] {
        spaced.windlass(&["snapshot", "revert", &spaced.word(name), "--yes"]);
        assert_eq!(spaced.rows(), before, "{name}");
        spaced.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
        assert_eq!(spaced.rows(), after, "{name}");
    }
    spaced.cluster.stop("immediate");
    spaced.cluster.run();
    assert_eq!(spaced.rows(), after);

    // The tablespace goes, and the snapshots keep its files where it was.
    let drop_all = TABLES.map(|table| format!("DROP TABLE {table}")).join("; ");
    spaced.sql(&drop_all);
    spaced.sql("CHECKPOINT");
    spaced.sql("DROP TABLESPACE far");
    for name in ["linked", "paused"] {
        spaced.assert_shows(name, &before);
    }
    spaced.snapshot("drop", &["paused"]);
    assert_eq!(spaced.kept(), (links, 0));
    spaced.assert_shows("linked", &before);
    spaced.snapshot("drop", &["linked"]);
    assert_eq!(spaced.kept(), (0, 0));
    spaced.scratch.assert_clean();
}

/// It is in the data directory and beside a tablespace's own directory, where no backup looks.
#[test]
fn what_snapshots_keep_is_in_no_backup() {
    let spaced = Spaced::new();
    spaced.snapshot("create", &["linked", "--method", "hook"]);
    let paused = ["paused", "--method", "hook", "--checkpoint", "none"];
    spaced.snapshot("create", &paused);
    spaced.sql("DROP TABLE dropped");
    spaced.sql("CHECKPOINT");
    let (links, graves) = spaced.kept();
    assert!(links > 0 && graves > 0, "{links} {graves}");
    let sets = spaced.scratch.path().join("sets").display().to_string();
    let conninfo = spaced.cluster.conninfo();
    spaced.windlass(&["backup", &conninfo, "--to", &sets]);
    let listed = spaced.windlass(&["info", "--files", &sets]);
    let of_space = |line: &str| line.contains(" pg_tblspc/") && line.contains("/PG_15_");
    assert!(listed.lines().any(of_space), "{listed}");
    assert!(!listed.contains("/windlass/"), "{listed}");
    spaced.scratch.assert_clean();
}

/// What pgbench keeps true in every state.
const SUMS: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts)
        = (SELECT sum(bbalance) FROM pgbench_branches)
    AND (SELECT sum(tbalance) FROM pgbench_tellers)
        = (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";

#[test]
fn a_tablespace_on_another_file_system_is_of_the_moment_of_the_rest_under_load() {
    let spaced = Spaced::new();
    let init = ["-i", "-q", "-s", "1", "postgres"];
    succeed(spaced.cluster.tool("pgbench").args(init));
    // The money is on both file systems.
    for table in ["pgbench_accounts", "pgbench_tellers"] {
        spaced.sql(&format!("ALTER TABLE {table} SET TABLESPACE far"));
    }
    spaced.sql("ALTER INDEX pgbench_accounts_pkey SET TABLESPACE far");
    let load = Load::start(&spaced.cluster, 3);
    let written = |more: &str| {
        let count = "SELECT count(*) FROM pgbench_history";
        let before = spaced.sql(count);
        let question = format!("SELECT ({count}) > {before} + {more}");
        spaced.cluster.wait_until(&question, "t");
    };
    written("20");
    spaced.snapshot("create", &["linked", "--method", "hook"]);
    let paused = ["paused", "--method", "hook", "--checkpoint", "none"];
    spaced.snapshot("create", &paused);
    for sql in ["CHECKPOINT", "VACUUM FULL pgbench_tellers", "CHECKPOINT"] {
        written("20");
        spaced.sql(sql);
    }
    load.end();
    for name in ["linked", "paused"] {
        let word = spaced.word(name);
        let ask = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", SUMS];
        assert_eq!(spaced.windlass(&ask).trim(), "t", "{name}");
    }
    let said = spaced.windlass(&["verify", "--open", &spaced.word("paused")]);
    assert!(said.contains("nothing wrong was found"), "{said}");
}
