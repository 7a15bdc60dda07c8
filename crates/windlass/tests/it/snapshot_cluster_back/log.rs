//! Reverts and the log: of another level, on a disk of its own, with summaries, and what a power
//! cut may take of it.

use std::path::{Path, PathBuf};

use windlass_testkit::installed::{of_version, other_versions};
use windlass_testkit::postgres::give_to_servers;

use super::subject::{Making, Subject, TIMELINE};

const MINIMAL: [&str; 3] = [
    "wal_level = minimal",
    "max_wal_senders = 0",
    "archive_mode = off",
];

/// Segments that wait for the archive have the names of those that the reverted server would write
/// if it stayed on its timeline.
#[test]
fn a_cluster_with_a_minimal_log_goes_back_to_when_it_had_more() {
    let settings = ["archive_command = 'false'", "wal_keep_size = 1GB"];
    let mut subject = Subject::of(&Making {
        settings: settings.map(str::to_owned).to_vec(),
        ..Making::default()
    });
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    for _ in 0..3 {
        subject.sql("UPDATE updated SET x = 'changed'");
        subject.sql("SELECT pg_switch_wal()");
    }
    subject.cluster.stop("fast");
    subject.cluster.configure(&MINIMAL);
    subject.cluster.run();
    let after = subject.rows();
    subject.windlass(&["snapshot", "revert", &format!("{data}@then"), "--yes"]);
    assert_eq!(subject.rows(), before);
    assert_eq!(subject.sql(TIMELINE), "2");
    subject.check();
    // A minimal log does not recover to a new timeline, and nobody archives it.
    subject.windlass(&["snapshot", "undo", &data, "--yes"]);
    assert_eq!(subject.rows(), after);
    assert_eq!(subject.sql(TIMELINE), "1");
    subject.check();
}

/// Where the log is, on another file system than the cluster.
fn elsewhere() -> (tempfile::TempDir, Making<'static>) {
    let disk = tempfile::tempdir_in("/dev/shm").unwrap();
    let log = disk.path().join("log");
    std::fs::create_dir(&log).unwrap();
    give_to_servers(disk.path());
    give_to_servers(&log);
    let making = Making {
        initdb: vec!["--waldir".into(), log.display().to_string()],
        ..Making::default()
    };
    (disk, making)
}

#[test]
fn a_cluster_whose_log_is_on_another_disk_goes_back_and_forth_also_if_it_is_killed() {
    let (_disk, making) = elsewhere();
    let mut subject = Subject::of(&making);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    let before = subject.rows();
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let after = subject.rows();
    let word = format!("{data}@then");
    // While segments are copied to the snapshot, after that, and while they come back.
    for call in ["unlink:when=1", "unlink:when=3", "syncfs:when=1"] {
        subject.cluster.stop("fast");
        subject.kill_at(call, &["snapshot", "revert", &word, "--yes"]);
        let listed = super::killed::settled(&subject);
        assert!(listed.contains("undid a revert"), "{call}: {listed}");
        subject.cluster.run();
        assert_eq!(subject.rows(), after, "{call}");
    }
    subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    assert_eq!(subject.rows(), before);
    subject.archived();
    subject.windlass(&["snapshot", "undo", &data, "--yes"]);
    assert_eq!(subject.rows(), after);
    subject.archived();
    subject.check();
}

/// The number of the first line from `from` on with all of these parts.
fn line(lines: &[String], from: usize, parts: &[&str]) -> usize {
    let has = |line: &&String| parts.iter().all(|part| line.contains(part));
    let found = lines.iter().skip(from).position(|line| has(&line));
    from + found.unwrap_or_else(|| panic!("no {parts:?}"))
}

/// What a power cut may take: a directory whose entry nobody has synced.
#[test]
fn what_is_kept_is_durable_with_its_directories_before_anything_is_overwritten() {
    let (_disk, making) = elsewhere();
    let mut subject = Subject::of(&making);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    subject.cluster.stop("fast");
    let calls = "mkdir,mkdirat,fsync,fdatasync,pwrite64,ftruncate,unlink,unlinkat";
    let word = format!("{data}@then");
    let lines = subject.calls_of(calls, &["snapshot", "revert", &word, "--yes"]);
    let made = line(&lines, 0, &["mkdir", "/then/before.pending\""]);
    let synced = line(&lines, made, &["fsync(", "/then>)"]);
    let written = line(&lines, made, &["pwrite64(", &format!("{data}/base/")]);
    assert!(synced < written, "{synced} and {written}");
    let made = line(&lines, written, &["mkdir", "/wal.moving\""]);
    let below = line(&lines, made, &["mkdir", "/wal.moving/archive_status\""]);
    let synced = [
        line(&lines, made, &["fsync(", "/before.pending>)"]),
        line(&lines, below, &["fsync(", "/wal.moving>)"]),
    ];
    let removed = line(&lines, made, &["unlink", "/pg_wal/"]);
    assert!(
        synced.iter().all(|at| *at < removed),
        "{synced:?} and {removed}"
    );
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[test]
fn summaries_of_the_log_are_back_if_a_revert_is_undone_and_gone_if_it_is_finished() {
    let mut subject = Subject::of(&Making {
        bin: of_version(other_versions(), 17),
        settings: vec!["summarize_wal = on".into()],
        ..Making::default()
    });
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.change();
    let summarized = "SELECT count(*) > 0 FROM pg_available_wal_summaries()";
    subject.cluster.wait_until(summarized, "t");
    subject.cluster.stop("fast");
    let summaries = Path::new(&data).join("pg_wal/summaries");
    let there = names(&summaries);
    assert!(!there.is_empty());
    let word = format!("{data}@then");
    subject.kill_at("syncfs", &["snapshot", "revert", &word, "--yes"]);
    assert_eq!(names(&summaries), [] as [PathBuf; 0]);
    super::killed::settled(&subject);
    assert_eq!(names(&summaries), there);
    subject.windlass(&["snapshot", "revert", &word, "--yes"]);
    for path in there {
        assert!(!path.exists(), "{}", path.display());
    }
    subject.cluster.run();
    subject.cluster.wait_until(summarized, "t");
}

/// A user who starts the server before the revert is finished, and changes a setting: the server
/// writes the file of settings anew.
#[test]
fn settings_of_a_recovery_go_even_if_the_server_has_written_them_anew() {
    let mut subject = Subject::new(None, false);
    let (conninfo, data) = (subject.cluster.conninfo(), subject.data());
    subject.windlass(&["snapshot", "create", &conninfo, "then", "--method", "copy"]);
    subject.sql("ALTER SYSTEM SET recovery_target_action = 'shutdown'");
    subject.sql("ALTER SYSTEM SET recovery_target_timeline = 'current'");
    let settings = Path::new(&data).join("postgresql.auto.conf");
    let read = || std::fs::read_to_string(&settings).unwrap();
    let before = read();
    subject.cluster.stop("fast");
    let word = format!("{data}@then");
    // The server recovers: PostgreSQL was asked for its directory three times before.
    subject.kill_at("wait4:when=4", &["snapshot", "revert", &word, "--yes"]);
    subject.cluster.kill();
    std::fs::remove_file(Path::new(&data).join("postmaster.pid")).unwrap_or_default();
    assert!(read().contains("restore_command"));
    subject.cluster.run();
    subject
        .cluster
        .wait_until("SELECT pg_is_in_recovery()", "f");
    subject.sql("ALTER SYSTEM SET work_mem = '7MB'");
    let listed = subject.windlass(&["snapshot", "list", &data]);
    assert!(listed.contains("finished a revert"), "{listed}");
    assert_eq!(read(), format!("{before}work_mem = '7MB'\n"));
    subject.cluster.stop("fast");
    subject.cluster.run();
}
