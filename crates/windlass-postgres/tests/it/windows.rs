//! While a backup runs, databases are copied by files, and tablespaces come and go. The restored
//! cluster has all of them, and nothing in it leads to the source's files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use windlass_postgres::{BackupOutcome, PostgresError, WindowCause};
use windlass_testkit::gate::Gate;
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::support::{Wish, end_window_at_gate, holds_no_set, restore_and_judge, try_backup};
use crate::versions::versions;

/// A cluster with a database `app`, a template `tpl` and a directory for a tablespace.
struct Fixture {
    place: tempfile::TempDir,
    source: PrivateCluster,
}

impl Fixture {
    fn new(options: ClusterOptions) -> Self {
        become_server_user();
        let place = tempfile::tempdir().unwrap();
        // Autovacuum would write to files that have to stand still.
        let options = options.initdb("--data-checksums");
        let source = PrivateCluster::start(&options.setting("autovacuum = off"));
        for name in ["space", "later"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        let location = place.path().join("space");
        let sql = format!("CREATE TABLESPACE dts LOCATION '{}'", location.display());
        source.sql("postgres", &sql);
        for database in ["app", "tpl"] {
            source.sql("postgres", &format!("CREATE DATABASE {database}"));
            fill(&source, database, 20_000);
        }
        Self { place, source }
    }

    /// Waits until all writes are old, because a window reads recently written files again in any
    /// case.
    fn rest(&self) {
        self.source.sql("postgres", "CHECKPOINT");
        age(self.source.data());
    }

    /// Backs up, and runs SQL while files are being read: in `postgres`, or in the database named
    /// before the colon.
    fn backup_while(&self, statements: &[&str]) -> BackupOutcome {
        let set = self.place.path().join("set");
        let gate = Gate::default();
        let wish = Wish {
            gate: Some(gate.clone()),
            ..Wish::default()
        };
        std::thread::scope(|scope| {
            let backup = scope.spawn(|| try_backup(&self.source, &set, &wish));
            gate.wait_reached();
            for statement in statements {
                let (database, sql) = statement
                    .split_once(": ")
                    .unwrap_or(("postgres", statement));
                let output = self.source.try_sql(database, sql);
                if !output.status.success() {
                    gate.open();
                    panic!("{sql}: {}", String::from_utf8_lossy(&output.stderr));
                }
            }
            gate.open();
            backup.join().unwrap().unwrap()
        })
    }

    /// The restored server, with its tablespaces in other places.
    fn restored(&self, map: &[&str]) -> PrivateCluster {
        let moved = |name: &&str| {
            let was = self.place.path().join(name);
            (was, self.place.path().join(format!("moved-{name}")))
        };
        let map: Vec<(PathBuf, PathBuf)> = map.iter().map(moved).collect();
        let (set, into) = (
            self.place.path().join("set"),
            self.place.path().join("restored"),
        );
        restore_and_judge(&self.source, &set, &into, &map)
    }
}

fn fill(server: &PrivateCluster, database: &str, rows: u32) {
    let sql = format!(
        "CREATE TABLE t AS SELECT i, md5(i::text) AS text FROM generate_series(1, {rows}) i; \
         CREATE INDEX ON t (i); ANALYZE t"
    );
    server.sql(database, &sql);
}

/// Waits until all files have old times, as most files of a cluster have.
fn age(directory: &Path) {
    // Nothing can set ctime, so the test must wait; see `RACY_NANOS`.
    let newest = newest_change(directory);
    loop {
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        if i64::try_from(now).unwrap() > newest + 11 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

fn newest_change(directory: &Path) -> i64 {
    let times = stamps(&directory.join("base")).into_iter();
    let newest = times.map(|(_, _, _, changed)| changed).max();
    newest.unwrap() / 1_000_000_000
}

/// The rows and content of the fixture's table.
fn content(server: &PrivateCluster, database: &str) -> String {
    server.sql(
        database,
        "SELECT count(*), md5(string_agg(t::text, ',' ORDER BY i)) FROM t",
    )
}

fn causes(outcome: &BackupOutcome) -> Vec<&'static str> {
    let name = |cause: &WindowCause| match cause {
        WindowCause::DatabaseCopied { .. } => "copied",
        WindowCause::TablespaceCreated { .. } => "created",
        WindowCause::TablespaceDropped { .. } => "dropped",
        WindowCause::UnloggedCreated { .. } => "unlogged",
        _ => "other",
    };
    let earlier = outcome.facts.earlier_windows.iter();
    earlier.map(|window| name(&window.cause)).collect()
}

/// The files of a directory by inode, with their times. Any write changes these.
fn stamps(directory: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_path_buf()]);
    while let Some(path) = pending.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let nanos = |seconds: i64, nanos: i64| seconds * 1_000_000_000 + nanos;
        let modified = nanos(metadata.mtime(), metadata.mtime_nsec());
        let times = (modified, nanos(metadata.ctime(), metadata.ctime_nsec()));
        found.push((path.clone(), metadata.ino(), times.0, times.1));
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

pub fn options_of(bin: &Path) -> ClusterOptions {
    ClusterOptions {
        bin: bin.into(),
        ..ClusterOptions::default()
    }
}

/// The clause that makes the server copy files; before 15 it has no other way.
fn file_copy(major: u32) -> &'static str {
    if major >= 15 {
        "STRATEGY file_copy"
    } else {
        ""
    }
}

/// Debian's server, and the servers of these other versions.
fn servers(majors: &[u32]) -> Vec<(u32, ClusterOptions)> {
    let others = versions().into_iter();
    let mut servers: Vec<_> = others
        .filter(|(major, _)| majors.contains(major))
        .map(|(major, bin)| (major, options_of(&bin)))
        .collect();
    assert_eq!(servers.len(), majors.len());
    servers.push((15, ClusterOptions::default()));
    servers
}

#[test]
fn a_database_moved_to_a_tablespace_during_the_backup_is_restored() {
    for (major, options) in servers(&[14, 18]) {
        let fixture = Fixture::new(options);
        let expected = content(&fixture.source, "app");
        if major == 15 {
            fixture.rest();
        }
        let outcome = fixture.backup_while(&["ALTER DATABASE app SET TABLESPACE dts"]);
        assert_eq!(causes(&outcome), ["copied"], "{major}");
        let server = fixture.restored(&["space"]);
        assert_eq!(content(&server, "app"), expected, "{major}");
        assert_eq!(content(&server, "tpl"), expected, "{major}");
        let path = server.sql("app", "SELECT pg_relation_filepath('t')");
        assert!(path.starts_with("pg_tblspc/"), "{major}: {path}");
        // Nothing of the database is left where it was.
        let oid = server.sql("app", "SELECT oid FROM pg_database WHERE datname = 'app'");
        assert!(!server.data().join("base").join(oid).exists(), "{major}");
        server.sql("postgres", "ALTER DATABASE app SET TABLESPACE pg_default");
        assert_eq!(content(&server, "app"), expected, "{major}");
    }
}

#[test]
fn a_copy_of_a_template_that_is_dropped_during_the_backup_is_restored() {
    for (major, options) in servers(&[18]) {
        let fixture = Fixture::new(options);
        let expected = content(&fixture.source, "tpl");
        let create = format!("CREATE DATABASE cpy TEMPLATE tpl {}", file_copy(major));
        let outcome = fixture.backup_while(&[&create, "DROP DATABASE tpl"]);
        assert_eq!(causes(&outcome), ["copied"], "{major}");
        let server = fixture.restored(&["space"]);
        assert_eq!(content(&server, "cpy"), expected, "{major}");
        assert!(!server.try_sql("tpl", "SELECT 1").status.success());
    }
}

#[test]
fn a_template_that_changes_after_it_was_copied_does_not_change_its_copy() {
    for (major, options) in servers(&[14]) {
        let fixture = Fixture::new(options);
        let expected = content(&fixture.source, "tpl");
        let create = format!("CREATE DATABASE cpy TEMPLATE tpl {}", file_copy(major));
        let change = "tpl: INSERT INTO t SELECT i, 'new' FROM generate_series(20001, 21000) i";
        let outcome = fixture.backup_while(&[&create, change, "CHECKPOINT"]);
        assert_eq!(causes(&outcome), ["copied"], "{major}");
        let server = fixture.restored(&["space"]);
        assert_eq!(content(&server, "cpy"), expected, "{major}");
        assert_eq!(content(&server, "tpl"), content(&fixture.source, "tpl"));
    }
}

#[test]
fn a_copy_of_a_template_that_stands_still_needs_no_second_window() {
    let fixture = Fixture::new(ClusterOptions::default());
    fixture.rest();
    let expected = content(&fixture.source, "app");
    let create = "CREATE DATABASE cpy TEMPLATE template0 STRATEGY file_copy";
    let gone = "CREATE DATABASE gone TEMPLATE app STRATEGY file_copy";
    let outcome = fixture.backup_while(&[create, gone, "DROP DATABASE gone"]);
    assert_eq!(causes(&outcome), [""; 0]);
    let server = fixture.restored(&["space"]);
    assert_eq!(content(&server, "app"), expected);
    assert_eq!(
        server.sql("cpy", "SELECT count(*) FROM pg_class WHERE relname = 't'"),
        "0"
    );
    assert!(!server.try_sql("gone", "SELECT 1").status.success());
}

#[test]
fn a_tablespace_created_during_the_backup_is_restored_elsewhere() {
    for (major, options) in servers(&[18]) {
        let fixture = Fixture::new(options);
        let live = fixture.place.path().join("later");
        let create = format!("CREATE TABLESPACE late LOCATION '{}'", live.display());
        let outcome = fixture.backup_while(&[
            &create,
            "CREATE TABLE u TABLESPACE late AS SELECT generate_series(1, 5000) i",
        ]);
        assert_eq!(causes(&outcome), ["created"], "{major}");
        let named = outcome
            .facts
            .tablespaces
            .iter()
            .any(|space| space.name == "late");
        assert!(named, "{major}: the facts name the tablespace");
        // What the source has only in memory yet, it would write at any time.
        fixture.source.sql("postgres", "CHECKPOINT");
        let before = stamps(&live);
        let server = fixture.restored(&["space", "later"]);
        assert_eq!(server.sql("postgres", "SELECT sum(i) FROM u"), "12502500");
        server.sql("postgres", "INSERT INTO u SELECT generate_series(1, 50000)");
        server.sql("postgres", "CHECKPOINT");
        let path = server.sql("postgres", "SELECT pg_relation_filepath('u')");
        let inode = |data: &Path| std::fs::metadata(data.join(&path)).unwrap().ino();
        assert_ne!(
            inode(server.data()),
            inode(fixture.source.data()),
            "{major}"
        );
        assert_eq!(
            stamps(&live),
            before,
            "{major}: the source's directory was touched"
        );
    }
}

#[test]
fn a_tablespace_created_in_one_window_and_dropped_in_the_next_is_named() {
    let options = ClusterOptions::default().setting("max_prepared_transactions = 1");
    let fixture = Fixture::new(options);
    let source = &fixture.source;
    let (set, live) = (
        fixture.place.path().join("set"),
        fixture.place.path().join("later"),
    );
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let outcome = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(source, &set, &wish));
        gate.wait_reached();
        let create = format!("CREATE TABLESPACE late LOCATION '{}'", live.display());
        source.sql("postgres", &create);
        source.sql(
            "postgres",
            "CREATE TABLE u TABLESPACE late AS SELECT 1 AS i",
        );
        end_window_at_gate(source, &gate);
        gate.wait_reached();
        source.sql("postgres", "DROP TABLE u");
        source.sql("postgres", "DROP TABLESPACE late");
        gate.open();
        backup.join().unwrap().unwrap()
    });
    assert_eq!(causes(&outcome), ["created"]);
    let spaces = outcome.facts.tablespaces.iter();
    let names: Vec<_> = spaces
        .map(|space| (&*space.name, Path::new(&space.location)))
        .collect();
    assert!(names.contains(&("late", &live)), "{names:?}");
    let again = format!("CREATE TABLESPACE other LOCATION '{}'", live.display());
    source.sql("postgres", &again);
    let before = stamps(&live);
    fixture.restored(&["space", "later"]);
    assert_eq!(stamps(&live), before, "the source's directory was touched");
}

/// As many windows as a backup has at most.
const WINDOWS_MAX: usize = 8;

#[test]
fn a_backup_ends_when_a_database_is_moved_in_each_of_its_windows() {
    let options = ClusterOptions::default().setting("max_prepared_transactions = 1");
    let fixture = Fixture::new(options);
    let source = &fixture.source;
    let set = fixture.place.path().join("set");
    let gate = Gate::default();
    let wish = Wish {
        gate: Some(gate.clone()),
        ..Wish::default()
    };
    let error = std::thread::scope(|scope| {
        let backup = scope.spawn(|| try_backup(source, &set, &wish));
        for window in 1..=WINDOWS_MAX {
            gate.wait_reached();
            let to = ["pg_default", "dts"][window % 2];
            let sql = format!("ALTER DATABASE app SET TABLESPACE {to}");
            source.sql("postgres", &sql);
            end_window_at_gate(source, &gate);
        }
        gate.open();
        backup.join().unwrap().unwrap_err()
    });
    let text = error.to_string();
    assert!(text.contains("in each of 8 attempts"), "{text}");
    assert!(
        text.contains("copied the files of database \"app\""),
        "{text}"
    );
    assert!(text.contains("ALTER DATABASE ... SET TABLESPACE"), "{text}");
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("Back up while no database"), "{hint}");
    let PostgresError::WindowsEnded { earlier } = error else {
        panic!("{text}");
    };
    assert_eq!(earlier.len(), WINDOWS_MAX);
    assert!(holds_no_set(&set));
}

#[test]
fn a_tablespace_dropped_during_the_backup_leaves_nothing_behind() {
    let fixture = Fixture::new(ClusterOptions::default());
    let expected = content(&fixture.source, "app");
    let live = fixture.place.path().join("space");
    let outcome = fixture.backup_while(&["DROP TABLESPACE dts"]);
    let again = format!("CREATE TABLESPACE other LOCATION '{}'", live.display());
    fixture.source.sql("postgres", &again);
    let before = stamps(&live);
    // If the tablespace was dropped after it was listed, the set holds it, and replaying the log
    // drops it. If it was dropped before, another window follows, and the set does not know it.
    let map: &[&str] = if causes(&outcome).is_empty() {
        &["space"]
    } else {
        &[]
    };
    let server = fixture.restored(map);
    assert_eq!(content(&server, "app"), expected);
    let left = std::fs::read_dir(server.data().join("pg_tblspc")).unwrap();
    assert_eq!(left.count(), 0);
    assert_eq!(stamps(&live), before, "the source's directory was touched");
}

#[test]
fn an_unlogged_index_that_is_being_built_when_a_backup_begins_is_made_again_by_recovery() {
    for (_, options) in servers(&[14, 18]) {
        let fixture = Fixture::new(options);
        let source = &fixture.source;
        // The index is built row by row, and waits for a lock at its first row.
        source.sql(
            "app",
            "CREATE FUNCTION slow(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             'BEGIN PERFORM pg_advisory_lock(7); PERFORM pg_advisory_unlock(7); RETURN i; END'; \
             CREATE UNLOGGED TABLE u AS SELECT i FROM generate_series(1, 100) i",
        );
        let count = |lock: &str, wanted: &str| {
            let sql =
                format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {lock}");
            while source.sql("postgres", &sql).trim() != wanted {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| source.try_sql("app", "SELECT pg_advisory_lock(7), pg_sleep(3600)"));
            count("granted", "1");
            scope.spawn(|| source.sql("app", "CREATE INDEX waiting ON u (slow(i))"));
            count("NOT granted", "1");
            let outcome = fixture.backup_while(&[
                "SELECT pg_terminate_backend(pid) FROM pg_locks \
                 WHERE locktype = 'advisory' AND granted",
                // This waits for the end of the build.
                "app: BEGIN; LOCK TABLE u IN ACCESS EXCLUSIVE MODE; COMMIT",
            ]);
            assert_eq!(causes(&outcome), ["unlogged"]);
        });
        let restored = fixture.restored(&["space"]);
        assert_eq!(content(&restored, "app"), content(source, "app"));
        // After recovery an unlogged table is empty, and its index can be used.
        assert_eq!(restored.sql("app", "SELECT count(*) FROM u").trim(), "0");
        restored.sql("app", "INSERT INTO u VALUES (1); REINDEX INDEX waiting");
    }
}
