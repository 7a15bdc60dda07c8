//! The archived log, with real servers: what is archived, and what a server that recovers gets.

use std::path::Path;
use std::process::{Command, Output};

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::run::*;

/// A server that archives into a place.
pub struct Archiving {
    pub server: PrivateCluster,
    pub dir: tempfile::TempDir,
}

impl Archiving {
    pub fn start(initdb: &[&str]) -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let place = dir.path().join("place");
        std::fs::create_dir_all(place.join("log")).unwrap();
        let program = env!("CARGO_BIN_EXE_windlass");
        let push = format!(
            "archive_command = 'WINDLASS_CONFIG=/dev/null {program} archive-push %p --to {} --look-ahead 1'",
            place.display()
        );
        // Autovacuum would change pages, take numbers of transactions and write log at any time.
        let mut options = ClusterOptions::default()
            .setting("autovacuum = off")
            .setting("archive_mode = on")
            .setting(push);
        for argument in initdb {
            options = options.initdb(*argument);
        }
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i int)");
        Self { server, dir }
    }

    pub fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Inserts a row, and waits until the segment that has it is archived. Returns the segment.
    pub fn insert_and_archive(&self, row: u32) -> String {
        self.server
            .sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        let segment = self
            .server
            .sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())");
        let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
        self.server.wait_until(&question, "t");
        segment
    }

    pub fn back_up(&self) -> String {
        let place = self.arg("place");
        let output = windlass(&["backup", &self.server.conninfo(), "--to", &place]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        place
    }
}

pub fn rows(server: &PrivateCluster) -> String {
    server.sql(
        "postgres",
        "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t",
    )
}

/// Writes how a restored server recovers.
fn recover_from(data: &str, place: &str) {
    use std::io::Write;
    let program = env!("CARGO_BIN_EXE_windlass");
    let auto = Path::new(data).join("postgresql.auto.conf");
    let mut file = std::fs::OpenOptions::new().append(true).open(auto).unwrap();
    let line = format!(
        "restore_command = 'WINDLASS_CONFIG=/dev/null {program} archive-get %f %p --from {place}'"
    );
    writeln!(file, "{line}").unwrap();
    std::fs::write(Path::new(data).join("recovery.signal"), "").unwrap();
}

#[test]
fn a_server_recovers_to_the_end_of_what_was_archived() {
    let source = Archiving::start(&[]);
    let place = source.back_up();
    for row in 1..=4 {
        source.insert_and_archive(row);
    }
    let into = source.arg("into");
    let output = windlass(&["restore", &place, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    recover_from(&into, &place);
    // A place that cannot be read is not the end of the log.
    let hidden = source.arg("hidden");
    std::fs::rename(source.arg("place"), &hidden).unwrap();
    let mut server = PrivateCluster::adopt_stopped(Path::new(&into), source.server.bin());
    assert!(!server.try_run().status.success(), "{}", server.log());
    assert!(Path::new(&into).join("recovery.signal").exists());
    std::fs::rename(&hidden, source.arg("place")).unwrap();
    server.run();
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), "1 2 3 4");
}

fn get(place: &str, name: &str, into: &str) -> Output {
    windlass(&["archive-get", name, into, "--from", place])
}

#[test]
fn only_a_file_that_is_absent_for_sure_ends_a_recovery() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let segments: Vec<_> = (1..=4).map(|row| source.insert_and_archive(row)).collect();
    let (place, into) = (source.arg("place"), source.arg("fetched"));
    let code = |output: Output| output.status.code().unwrap();
    let absent = "0000000100000009000000FF";
    let output = get(&place, absent, &into);
    assert_eq!(
        text(&output),
        "",
        "a server asks to learn whether it is there"
    );
    assert_eq!(code(output), 1);
    assert_eq!(code(get(&place, "00000002.history", &into)), 1);
    assert_eq!(code(get(&place, &segments[1], &into)), 0);
    for words in [
        &["archive-get", absent, &into, "--from", "/nonexistent"][..],
        &[
            "archive-get",
            absent,
            &into,
            "--from",
            &place,
            "--system",
            "7",
        ],
        &["archive-get", absent, &into, "--from", &place, "--bogus"],
        &["archive-get", absent],
        &["archive-get", "RECOVERYXLOG", &into, "--from", &place],
        &[
            "archive-get",
            &segments[1],
            "/nonexistent/x",
            "--from",
            &place,
        ],
        &[
            "--config",
            "/nonexistent",
            "archive-get",
            absent,
            &into,
            "--from",
            &place,
        ],
    ] {
        let output = windlass(words);
        assert_eq!(
            output.status.code(),
            Some(255),
            "{words:?}: {}",
            text(&output)
        );
        assert!(!text(&output).is_empty());
    }
    // Without the segment in the middle, what is behind it does not make it absent.
    let number = u64::from_str_radix(&segments[2][16..], 16).unwrap();
    let pattern = format!("{:016X}-*", number << 20);
    let log = source.arg("place/log");
    let found = Command::new("find")
        .args([&log, "-name", &pattern])
        .output()
        .unwrap();
    let path = String::from_utf8(found.stdout).unwrap();
    std::fs::remove_file(path.trim()).unwrap();
    let output = get(&place, &segments[2], &into);
    assert!(text(&output).contains("has a gap"), "{}", text(&output));
    assert_eq!(code(output), 255);
}

/// Runs archive-push and kills it at the `number`th call of a system call. False if it ended by
/// itself.
fn killed(at: (&str, u32), segment: &str, place: &str) -> bool {
    let words = ["archive-push", segment, "--to", place, "--threads", "1"];
    killed_at(at, &words)
}

/// A push may be killed before any of its system calls. What it leaves is nothing or the whole, and
/// the next push succeeds.
#[test]
fn a_push_that_is_killed_at_any_system_call_leaves_nothing_or_everything() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let name = &*source.insert_and_archive(1);
    let (place, into) = (source.arg("place"), source.arg("fetched"));
    let segment = source.arg(name);
    assert_eq!(get(&place, name, &segment).status.code(), Some(0));
    let whole = std::fs::read(&segment).unwrap();
    let mut kills = 0;
    // Most files are opened and closed before the command begins its work.
    for (call, step) in [
        ("fsync", 1),
        ("fdatasync", 1),
        ("write", 1),
        ("mkdir", 1),
        ("mkdirat", 1),
        ("renameat2", 1),
        ("rename", 1),
        ("flock", 1),
        ("pread64", 2),
        ("close", 4),
        ("openat", 4),
        ("unlink", 1),
    ] {
        for number in (1..).step_by(step) {
            let place = source.arg(&format!("{call}-{number}"));
            std::fs::create_dir_all(format!("{place}/log")).unwrap();
            let was_killed = killed((call, number), &segment, &place);
            let output = get(&place, name, &into);
            match output.status.code() {
                Some(0) => assert!(std::fs::read(&into).unwrap() == whole, "{call} {number}"),
                Some(1 | 255) => assert!(was_killed, "{call} {number}: {}", text(&output)),
                other => panic!("{call} {number}: {other:?}: {}", text(&output)),
            }
            let output = windlass(&["archive-push", &segment, "--to", &place]);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{call} {number}: {}",
                text(&output)
            );
            assert_eq!(get(&place, name, &into).status.code(), Some(0));
            assert!(std::fs::read(&into).unwrap() == whole, "{call} {number}");
            std::fs::remove_dir_all(&place).unwrap();
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 35, "only {kills} kills");
}

#[test]
fn two_servers_with_one_archive_are_told_apart() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let into = source.arg("copy");
    // A set that is named keeps its timeline.
    let words = ["restore", &place, "--set", "latest", "--into", &into];
    let output = windlass(&[&words[..], &["--archive", "keep"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let copy = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    source.insert_and_archive(1);
    source.insert_and_archive(2);
    copy.sql("postgres", "INSERT INTO t VALUES (7)");
    copy.sql("postgres", "SELECT pg_switch_wal()");
    copy.wait_until("SELECT failed_count > 0 FROM pg_stat_archiver", "t");
    assert!(
        copy.log()
            .contains("is archived already, with other content"),
        "{}",
        copy.log()
    );
    source.insert_and_archive(3);
}

/// While a server replays, a second process fetches what it will ask for next. The server must get
/// the same log, and must not end its recovery early.
#[test]
fn a_server_recovers_from_segments_that_were_fetched_ahead() {
    let source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    let segments: Vec<_> = (1..=12).map(|row| source.insert_and_archive(row)).collect();
    let (into, spool) = (source.arg("into"), source.arg("spool"));
    let own = source.arg("own-spool");
    for spool in [&spool, &own] {
        std::fs::create_dir(spool).unwrap();
    }
    let output = windlass(&["restore", &place, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    recover_from(&into, &format!("{place} --spool {spool} --ahead 4"));
    let server = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    server.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&server), "1 2 3 4 5 6 7 8 9 10 11 12");
    // A segment that was fetched ahead is taken from there. What the server had fetched last may
    // still be at work in its own spool.
    let fetched = source.arg("fetched");
    let get = |name: &str| {
        let words = [
            "archive-get",
            name,
            &fetched,
            "--from",
            &place,
            "--spool",
            &own,
        ];
        windlass(&words).status.code()
    };
    assert_eq!(get(&segments[2]), Some(0));
    let find = || {
        let mut find = Command::new("find");
        find.args([&*own, "-name", &segments[3]]);
        !find.output().unwrap().stdout.is_empty()
    };
    while !find() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let number = u64::from_str_radix(&segments[3][16..], 16).unwrap();
    let mut find = Command::new("find");
    find.args([
        &*place,
        "-name",
        &format!("{:016X}-*", number << 20),
        "-delete",
    ]);
    assert!(find.status().unwrap().success());
    assert_eq!(get(&segments[3]), Some(0));
}

#[test]
fn a_standby_without_its_primary_loses_nothing_that_it_had_received() {
    let mut source = Archiving::start(&["--wal-segsize=1"]);
    let place = source.back_up();
    source.server.sql("postgres", "INSERT INTO t VALUES (1)");
    // The place has the beginning of the segment in which the log goes on.
    let conninfo = source.server.conninfo();
    let output = windlass(&["backup", &conninfo, "--to", &place, "--type", "log"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let into = source.arg("standby");
    let output = windlass(&["restore", &place, "--into", &into]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    recover_from(&into, &place);
    std::fs::rename(
        Path::new(&into).join("recovery.signal"),
        Path::new(&into).join("standby.signal"),
    )
    .unwrap();
    let mut standby = PrivateCluster::adopt_stopped(Path::new(&into), source.server.bin());
    standby.configure(&[format!("primary_conninfo = '{conninfo}'")]);
    standby.run();
    source.server.sql("postgres", "INSERT INTO t VALUES (2)");
    let at = source
        .server
        .sql("postgres", "SELECT pg_current_wal_flush_lsn()");
    standby.wait_until(&format!("SELECT pg_last_wal_replay_lsn() >= '{at}'"), "t");
    // Both crash, and the primary never comes back.
    standby.stop("immediate");
    source.server.stop("immediate");
    standby.run();
    standby.sql("postgres", "SELECT pg_promote()");
    assert_eq!(rows(&standby), "1 2");
}
