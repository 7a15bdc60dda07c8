//! `windlass snapshot revert` and `undo` of PostgreSQL clusters, by each method, also when they are
//! killed.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::path::Path;
use std::process::Command;

use windlass_testkit::postgres::{
    ClusterOptions, DEFAULT_BIN, PrivateCluster, give_to_servers, stay_root, succeed,
};
use windlass_testkit::volume::{Volume, VolumeKind};

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

const TIMELINE: &str = "SELECT timeline_id FROM pg_control_checkpoint()";

/// A cluster whose log is archived by a command that refuses to archive a segment twice.
struct Subject {
    cluster: PrivateCluster,
    scratch: Scratch,
    far: tempfile::TempDir,
}

impl Subject {
    /// In a directory of its own, or on a volume.
    fn new(volume: Option<&Volume>, with_hook: bool) -> Self {
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
        if with_hook {
            let library = library(&scratch).display().to_string();
            options = options.setting(format!("shared_preload_libraries = '{library}'"));
        }
        let mut cluster = PrivateCluster::start(&options);
        if let Some(volume) = volume {
            cluster.stop("fast");
            let data = volume.at().join("data");
            succeed(Command::new("cp").arg("-a").arg(cluster.data()).arg(&data));
            cluster = PrivateCluster::adopt(&data, DEFAULT_BIN.as_ref());
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
            far,
        }
    }

    fn data(&self) -> String {
        self.cluster.data().display().to_string()
    }

    fn change(&self) {
        for change in CHANGES {
            self.cluster.sql("postgres", change);
        }
    }

    /// The content of all tables.
    fn rows(&self) -> Vec<String> {
        let hash = |table: &str| {
            let sql = format!("SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM {table} t");
            self.cluster.sql("postgres", &sql)
        };
        TABLES.map(hash).to_vec()
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql("postgres", sql)
    }

    fn windlass(&self, words: &[&str]) -> String {
        run(&self.scratch, 0, words)
    }

    /// Everything that can be checked of a cluster.
    fn check(&mut self) {
        succeed(self.cluster.tool("pg_amcheck").args([
            "--all",
            "--heapallindexed",
            "--install-missing",
        ]));
        self.cluster.stop("fast");
        let data = self.data();
        succeed(self.cluster.tool("pg_checksums").args(["--check", &data]));
        self.cluster.run();
    }

    /// Waits until everything of the log so far is archived. The command never failed.
    fn archived(&self) {
        let name = self.sql("SELECT pg_walfile_name(pg_switch_wal())");
        let question = format!(
            "SELECT failed_count > 0 OR coalesce(last_archived_wal, '') >= '{name}' FROM pg_stat_archiver"
        );
        self.cluster.wait_until(&question, "t");
        assert_eq!(self.sql("SELECT failed_count FROM pg_stat_archiver"), "0");
    }
}

fn a_cluster_goes_back(method: &str, volume: Option<&Volume>) {
    let mut subject = Subject::new(volume, method == "hook");
    let conninfo = subject.cluster.conninfo();
    let before = subject.rows();
    let create = |subject: &Subject, name: &str| {
        let words = ["snapshot", "create", &conninfo, name, "--method", method];
        // A durable snapshot takes another way through the hook.
        let more: &[&str] = match (method, name) {
            ("hook", "newer") => &["--durable"],
            _ => &[],
        };
        subject.windlass(&[&words[..], more].concat())
    };
    create(&subject, "then");
    subject.change();
    create(&subject, "newer");
    subject.sql("UPDATE updated SET x = 'again' WHERE i % 7 = 0");
    let after = subject.rows();
    let word = format!("{conninfo}@then");

    // Nobody can be asked, so nothing happens.
    let asked = run(&subject.scratch, 2, &["snapshot", "revert", &word]);
    for part in [
        "server is stopped",
        "Newer snapshots stay as they are: newer",
    ] {
        assert!(asked.contains(part), "{asked}");
    }
    assert_eq!(subject.rows(), after);

    let told = subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    assert!(told.contains("windlass snapshot undo"), "{told}");
    assert_eq!(subject.rows(), before, "{told}");
    assert_eq!(subject.sql(TIMELINE), "2");
    assert_eq!(
        subject.sql("SHOW work_mem"),
        "5MB",
        "settings are not reverted"
    );
    assert_eq!(subject.sql("SELECT count(*) FROM passing"), "0");
    assert_eq!(subject.sql("SELECT gid FROM pg_prepared_xacts"), "two");
    subject.sql("ROLLBACK PREPARED 'two'");
    subject.archived();
    let history = subject.scratch.path().join("archive/00000002.history");
    assert!(history.exists());
    let sql = "SELECT md5(string_agg(t::text, ',' ORDER BY i)) FROM updated t";
    for (name, hash) in [("then", Some(&before[0])), ("newer", None)] {
        let word = format!("{conninfo}@{name}");
        let open = ["open", "--quiet", &word, "--", "psql", "-XqAt", "-c", sql];
        let found = subject.windlass(&open);
        match hash {
            Some(hash) => assert_eq!(found.trim(), hash),
            None => assert!(!before.contains(&found.trim().to_owned()), "{found}"),
        }
    }
    subject.check();

    subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
    assert_eq!(subject.rows(), after);
    assert_eq!(subject.sql(TIMELINE), "3");
    subject.archived();
    subject.check();
    subject.windlass(&["snapshot", "undo", &conninfo, "--yes"]);
    assert_eq!(subject.rows(), before);
    for name in ["then", "newer"] {
        subject.windlass(&["snapshot", "drop", &conninfo, name]);
    }
    subject.scratch.assert_clean();
    forget(&subject.cluster);
    drop(subject.far);
}

#[test]
fn a_cluster_goes_back_to_a_copy_and_forth_again() {
    a_cluster_goes_back("copy", None);
}

#[test]
fn a_cluster_goes_back_to_what_the_hook_kept_and_forth_again() {
    a_cluster_goes_back("hook", None);
}

#[test]
fn a_cluster_goes_back_to_a_clone_and_forth_again() {
    a_cluster_goes_back("clone", Some(&Volume::new(VolumeKind::Xfs, 1500)));
}

/// Calls at whose entry Windlass is killed: the call, and which one of its kind.
const KILLS: [(&str, u32); 12] = [
    // pg_control goes aside. What is kept is begun, and complete.
    ("rename", 1),
    ("mkdir", 2),
    ("rename", 4),
    // Pages and lengths; the first and a later one.
    ("pwrite64", 1),
    ("pwrite64", 40),
    ("ftruncate", 1),
    // The log goes. pg_control of the target comes.
    ("renameat", 2),
    ("rename", 9),
    // The server recovers. The settings and what was kept get their places.
    ("wait4", 1),
    ("rename", 10),
    ("syncfs", 2),
    ("rename", 11),
];

/// The list of the snapshots. A server that ends with the killed Windlass may still be ending, or
/// be about to take the directory.
fn settled(subject: &Subject) -> String {
    loop {
        let output = subject
            .scratch
            .run(None, &["snapshot", "list", &subject.data()]);
        let said = text(&output);
        match output.status.code() {
            Some(1) if said.contains("a server runs on") || said.contains("\"postmaster.pid\"") => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            code => {
                assert_eq!(code, Some(0), "{said}");
                return said;
            }
        }
    }
}

#[test]
fn a_revert_that_is_killed_is_finished_or_undone_by_the_next_command() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    let word = format!("{data}@then");
    let (mut undone, mut finished) = (0, 0);
    for (call, number) in KILLS {
        let at = format!("{call} {number}");
        subject.cluster.stop("fast");
        let inject = format!("inject={call}:signal=KILL:when={number}");
        let mut strace = subject.scratch.command_of("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", &inject]);
        strace.arg(env!("CARGO_BIN_EXE_windlass"));
        let words = ["snapshot", "revert", &word, "--yes"];
        let killed = strace.args(words).output().unwrap();
        let control = Path::new(&data).join("global/pg_control");
        if !control.exists() {
            // Whoever starts the server now learns that it cannot be.
            let refused = subject.cluster.try_run();
            assert!(!refused.status.success(), "{at}: {}", text(&killed));
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(said.contains("pg_control"), "{at}: {said}");
        }
        let listed = settled(&subject);
        undone += u32::from(listed.contains("undid a revert that was cut off"));
        finished += u32::from(listed.contains("finished a revert that was cut off"));
        subject.cluster.run();
        let rows = subject.rows();
        if rows == before {
            subject.cluster.stop("fast");
            subject.windlass(&["snapshot", "undo", &data, "--yes"]);
            subject.cluster.run();
        } else {
            assert_eq!(rows, after, "{at}: {listed}");
        }
        assert_eq!(subject.rows(), after, "{at}");
    }
    assert!(undone > 4 && finished > 2, "{undone} and {finished}");
    subject.check();
}

/// The snapshot keeps what the revert overwrites. If it is on a disk that is not mounted, nobody
/// can undo the revert, and nothing may say that it is undone.
#[test]
fn a_killed_revert_waits_for_the_disk_of_its_snapshot() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let (disk, unmounted) = (
        subject.scratch.path().join("disk"),
        subject.scratch.path().join("unmounted"),
    );
    std::fs::create_dir(&disk).unwrap();
    give_to_servers(&disk);
    let to = disk.join("snapshots").display().to_string();
    subject.windlass(&[
        "snapshot", "create", &conninfo, "then", "--method", "copy", "--to", &to,
    ]);
    subject.change();
    let after = subject.rows();
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    let mut strace = subject.scratch.command_of("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", "inject=syncfs:signal=KILL"]);
    strace.arg(env!("CARGO_BIN_EXE_windlass"));
    strace.args(["snapshot", "revert", &word, "--yes"]);
    assert!(!strace.output().unwrap().status.success());
    let control = Path::new(&data).join("global/pg_control");
    assert!(!control.exists());
    std::fs::rename(&disk, &unmounted).unwrap();
    let said = run(&subject.scratch, 1, &["snapshot", "list", &data]);
    assert!(said.contains("which is not there"), "{said}");
    assert!(!control.exists());
    std::fs::rename(&unmounted, &disk).unwrap();
    let said = settled(&subject);
    assert!(said.contains("undid a revert that was cut off"), "{said}");
    subject.cluster.run();
    assert_eq!(subject.rows(), after);
}

#[test]
fn a_standby_and_a_server_that_crashed_are_refused_and_not_changed() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    let word = format!("{data}@then");
    let revert = ["snapshot", "revert", &word, "--yes"];
    subject.cluster.stop("immediate");
    let said = run(&subject.scratch, 1, &revert);
    assert!(said.contains("was not shut down"), "{said}");
    assert!(said.contains("hint: Start the server once"), "{said}");
    subject.cluster.run();
    subject.cluster.stop("fast");
    let signal = Path::new(&data).join("standby.signal");
    std::fs::File::create(&signal).unwrap();
    let said = run(&subject.scratch, 1, &revert);
    assert!(said.contains("belongs to a standby"), "{said}");
    std::fs::remove_file(signal).unwrap();
    // A server that did not run is not started.
    let told = subject.windlass(&revert);
    assert!(told.contains("start the server: "), "{told}");
    assert!(!Path::new(&data).join("postmaster.pid").exists());
    subject.cluster.run();
    assert_eq!(subject.sql(TIMELINE), "2");
}

#[test]
fn a_cluster_whose_server_ran_without_the_hook_does_not_go_back_to_what_the_hook_kept() {
    let mut subject = Subject::new(None, true);
    let conninfo = subject.cluster.conninfo();
    let words = ["snapshot", "create", &conninfo, "then", "--method", "hook"];
    subject.windlass(&words);
    subject.cluster.stop("fast");
    subject.cluster.option("-c shared_preload_libraries=");
    subject.cluster.run();
    subject.sql("UPDATE updated SET x = 'unseen'");
    let after = subject.rows();
    let word = format!("{conninfo}@then");
    let said = run(&subject.scratch, 1, &["snapshot", "revert", &word, "--yes"]);
    assert!(said.contains("was changed without the hook"), "{said}");
    // The server runs again, and nothing was changed.
    assert_eq!(subject.rows(), after);
    assert_eq!(subject.sql(TIMELINE), "1");
    forget(&subject.cluster);
}
