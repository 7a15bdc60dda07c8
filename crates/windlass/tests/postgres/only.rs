//! `restore --only-database` and `--only-tablespace`: a part of a cluster, at any moment.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::run::*;

struct Place {
    server: PrivateCluster,
    dir: tempfile::TempDir,
}

const ROWS: &str = "SELECT i, md5(i::text) AS x FROM generate_series(1, 20000) i";

impl Place {
    /// A cluster with three databases and two tablespaces, a set of it, and later log.
    fn new(initdb: &[&str]) -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        let mut options = ClusterOptions::default().setting("autovacuum = off");
        for argument in initdb {
            options = options.initdb(*argument);
        }
        let server = PrivateCluster::start(&options);
        let place = Self { server, dir };
        for name in ["fast", "slow"] {
            let path = place.path(name);
            std::fs::create_dir(&path).unwrap();
            place.sql(
                "postgres",
                &format!("CREATE TABLESPACE {name} LOCATION '{path}'"),
            );
        }
        for name in ["shop", "crm", "\"odd \"\"name\""] {
            place.sql("postgres", &format!("CREATE DATABASE {name}"));
        }
        for name in ["shop", "crm"] {
            place.sql(name, &format!("CREATE TABLE t AS {ROWS}"));
            place.sql(name, &format!("CREATE TABLE f TABLESPACE fast AS {ROWS}"));
            place.sql(name, &format!("CREATE TABLE s TABLESPACE slow AS {ROWS}"));
        }
        place.run(
            &[
                "backup",
                &place.server.conninfo(),
                "--to",
                &place.path("sets"),
            ],
            0,
        );
        for name in ["shop", "crm"] {
            place.sql(name, "UPDATE t SET x = 'later' WHERE i % 1000 = 1");
            place.sql(name, "DELETE FROM f WHERE i % 3 = 1");
            place.sql(name, "VACUUM f");
            // Without checksums, nobody logs the pages that it finds visible.
            place.sql(name, "VACUUM t");
            place.sql(
                name,
                "INSERT INTO s SELECT i, 'new' FROM generate_series(1, 3000) i",
            );
        }
        let (conninfo, sets) = (place.server.conninfo(), place.path("sets"));
        let words = ["backup", &conninfo, "--to", &sets, "--type"];
        // Without checksums, pages of PostgreSQL 15 do not say that they changed.
        if initdb.contains(&"--data-checksums") {
            place.run(&[&words[..], &["incr", "--strict"]].concat(), 0);
            for name in ["shop", "crm"] {
                place.sql(name, "UPDATE t SET x = 'last' WHERE i % 1000 = 2");
            }
        }
        place.run(&[&words[..], &["log"]].concat(), 0);
        place
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn sql(&self, database: &str, sql: &str) -> String {
        self.server.sql(database, sql)
    }

    /// Runs a command that must end with this code. The place has a history.
    fn run(&self, words: &[&str], code: i32) -> String {
        let mut command = command();
        command.args(words).env_remove("WINDLASS_NO_HISTORY");
        command.env("WINDLASS_STATE_DIR", self.path("state"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    }

    /// A restore of a part. Returns its server, and what was said.
    fn restored(&self, name: &str, only: &[&str]) -> (PrivateCluster, String) {
        let (into, sets) = (self.path(name), self.path("sets"));
        let maps = ["fast", "slow"].map(|space| {
            let moved = self.path(&format!("{name}-{space}"));
            format!("{}={moved}", self.path(space))
        });
        let mut words = vec!["restore", &sets, "--into", &into];
        for map in &maps {
            words.extend(["--tablespace-map", map]);
        }
        let said = self.run(&[&words[..], only].concat(), 0);
        let verified = Command::new(self.server.bin().join("pg_verifybackup"))
            .args(["--no-parse-wal", &into])
            .output()
            .unwrap();
        assert!(verified.status.success(), "{}", text(&verified));
        let server = PrivateCluster::adopt(Path::new(&into), self.server.bin());
        server.wait_until("SELECT pg_is_in_recovery()", "f");
        (server, said)
    }

    fn sum(&self, server: &PrivateCluster, database: &str, table: &str) -> String {
        let sql =
            format!("SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM {table} t");
        server.sql(database, &sql)
    }
}

/// How much room the files of a directory take.
fn room(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().flatten();
    entries
        .map(|entry| match entry.metadata().unwrap() {
            found if found.is_dir() => room(&entry.path()),
            found => found.blocks() * 512,
        })
        .sum()
}

#[test]
fn one_database_comes_back_with_its_log_and_the_others_take_no_room() {
    let place = Place::new(&[]);
    let oid = place.sql(
        "postgres",
        "SELECT oid FROM pg_database WHERE datname = 'crm'",
    );
    let (server, said) = place.restored("one", &["--only-database", "shop"]);
    assert!(said.contains("DROP DATABASE \"crm\";"), "{said}");
    assert!(said.contains("DROP DATABASE \"odd \"\"name\";"), "{said}");
    assert!(!said.contains("DROP DATABASE \"postgres\""), "{said}");
    for table in ["t", "f", "s"] {
        assert_eq!(
            place.sum(&server, "shop", table),
            place.sum(&place.server, "shop", table),
            "{table}"
        );
    }
    let left = room(&server.data().join("base").join(&oid));
    let whole = room(&place.server.data().join("base").join(&oid));
    // What the log changed, maps of free space, small files.
    assert!(left * 3 < whole, "{left} of {whole}");
    // The rest of the set was not read.
    let kept = place.run(&["history"], 0);
    let is_kept = |line: &str| line.contains(" restore ") && line.ends_with("done");
    assert!(kept.lines().any(is_kept), "{kept}");
    assert!(!kept.contains("restore of set"), "{kept}");
    assert!(kept.contains("never: no restore of all of it"), "{kept}");
    server.sql("postgres", "DROP DATABASE crm");
    server.sql("postgres", "DROP DATABASE \"odd \"\"name\"");
    server.sql("postgres", "CREATE DATABASE crm");
    assert_eq!(server.sql("crm", "SELECT 1"), "1");
}

/// What is left out is not read, so a restore of a part is not foretold to take as long.
#[test]
fn a_part_is_foretold_to_take_less_time_than_the_whole() {
    let place = Place::new(&[]);
    let (sets, into) = (place.path("sets"), place.path("into"));
    let slow = ["source=rate:200MB/s", "target=rate:1MB/s"];
    let maps = ["fast", "slow"].map(|space| {
        let moved = place.path(&format!("moved-{space}"));
        format!("{}={moved}", place.path(space))
    });
    let predicted = |only: &[&str]| {
        let mut words = vec!["restore", &sets, "--into", &into, "--dry-run"];
        slow.iter().for_each(|end| words.extend(["--emulate", end]));
        for map in &maps {
            words.extend(["--tablespace-map", map]);
        }
        words.extend(only);
        let (code, document) = json(&words);
        assert_eq!(code, 0, "{document}");
        let seconds = document["prediction"]["seconds"].as_f64();
        seconds.unwrap_or_else(|| panic!("{document}"))
    };
    let (whole, part) = (predicted(&[]), predicted(&["--only-database", "shop"]));
    assert!(part < 0.9 * whole, "{part} of {whole}");
    assert!(!Path::new(&into).exists());
}

#[test]
fn one_tablespace_comes_back_and_bad_words_are_refused() {
    let place = Place::new(&["--data-checksums"]);
    let (server, said) = place.restored("one", &["--only-tablespace", "fast"]);
    assert!(said.contains("indexes in tablespace \"slow\""), "{said}");
    for table in ["t", "f"] {
        assert_eq!(
            place.sum(&server, "shop", table),
            place.sum(&place.server, "shop", table),
            "{table}"
        );
    }
    server.sql("shop", "DROP TABLE s");
    server.sql("shop", &format!("CREATE TABLE s TABLESPACE slow AS {ROWS}"));
    drop(server);
    let (sets, into) = (place.path("sets"), place.path("two"));
    let words = ["restore", &sets, "--into", &into];
    // A database that was renamed since is found under the name that the set has.
    place.sql("postgres", "ALTER DATABASE crm RENAME TO sales");
    let oid = place.sql(
        "postgres",
        "SELECT oid FROM pg_database WHERE datname = 'sales'",
    );
    let earlier = format!("no database \"sales\"; it has crm (oid {oid}), ");
    for (more, code, expected) in [
        (&["--only-database", "sales"][..], 1, &*earlier),
        (
            &["--only-database", "sales"],
            1,
            "hint: If it was renamed since",
        ),
        (
            &["--only-tablespace", "pg_default"],
            1,
            "no tablespace \"pg_default\"",
        ),
        (&["--only-database", "shop", "--delta"], 2, "--delta"),
    ] {
        let said = place.run(&[&words[..], more].concat(), code);
        assert!(said.contains(expected), "{said}");
        assert!(!Path::new(&into).exists());
    }
}
