//! Segments that are stored before the server hands them over: with a real server, and with kills
//! at every system call.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Output;

use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::run::*;

/// A server that archives with a spool once the file `go` is there.
struct Waiting {
    server: PrivateCluster,
    dir: tempfile::TempDir,
}

impl Waiting {
    fn start() -> Self {
        become_server_user();
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for name in ["place/log", "spool"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_windlass");
        let root = dir.path().display();
        let push = format!(
            "archive_command = 'test -e {root}/go && WINDLASS_CONFIG=/dev/null {program} \
             archive-push %p --to {root}/place --spool {root}/spool --look-ahead 4'"
        );
        let options = ClusterOptions::default()
            .initdb("--wal-segsize=1")
            .setting("archive_mode = on")
            .setting(push);
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i int)");
        Self { server, dir }
    }

    fn arg(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Fills segments that nobody archives yet. Returns their names.
    fn fill(&self, count: u32) -> Vec<String> {
        let fill = |row| {
            let insert = format!("INSERT INTO t VALUES ({row})");
            self.server.sql("postgres", &insert);
            let switch = "SELECT pg_walfile_name(pg_switch_wal())";
            self.server.sql("postgres", switch)
        };
        (0..count).map(fill).collect()
    }

    /// The first segment that waits to be archived.
    fn first_ready(&self) -> PathBuf {
        let data = self.server.data().canonicalize().unwrap();
        let wal = data.join("pg_wal");
        let marks = std::fs::read_dir(wal.join("archive_status")).unwrap();
        let marks = marks.map(|mark| mark.unwrap().file_name().into_string().unwrap());
        // The mark of a segment; a backup has one with a longer name.
        let names = marks.filter_map(|mark| mark.strip_suffix(".ready").map(str::to_owned));
        let first = names.filter(|name| name.len() == 24).min();
        wal.join(first.unwrap())
    }
}

/// A server that is behind: all of its log gets into the place, once and in order, and a server
/// that recovers from there has every row.
#[test]
fn a_server_that_is_behind_archives_what_was_stored_ahead() {
    let source = Waiting::start();
    let place = source.arg("place");
    let conninfo = source.server.conninfo();
    let output = windlass(&["backup", &conninfo, "--to", &place]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let segments = source.fill(30);
    // All are stored before the server hands the first one over, whichever would be faster.
    let (first, spool) = (source.first_ready(), source.arg("spool"));
    let push = ["archive-push", first.to_str().unwrap(), "--to", &place];
    let ahead = ["--spool", &spool, "--look-ahead", "4", "--fill"];
    let output = windlass(&[&push[..], &ahead].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    std::fs::write(source.arg("go"), "").unwrap();
    let last = segments.last().unwrap();
    let question = format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver");
    source.server.wait_until(&question, "t");
    let failed = "SELECT last_failed_wal < last_archived_wal FROM pg_stat_archiver";
    assert_ne!(source.server.sql("postgres", failed), "f");
    assert!(
        !source.server.log().contains("warning"),
        "{}",
        source.server.log()
    );
    // Far fewer objects than segments: they were stored ahead, in groups.
    let objects = std::process::Command::new("find")
        .args([&*source.arg("place/log"), "-name", "*-*.wlog"])
        .output()
        .unwrap();
    let objects = String::from_utf8(objects.stdout).unwrap().lines().count();
    assert!(
        objects < 20,
        "{objects} objects for {} segments",
        segments.len()
    );
    let into = source.arg("into");
    let output = windlass(&["restore", &place, "--into", &into, "--target-latest"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let restored = PrivateCluster::adopt(Path::new(&into), source.server.bin());
    restored.wait_until("SELECT pg_is_in_recovery()", "f");
    let count = restored.sql("postgres", "SELECT count(*), sum(i) FROM t");
    assert_eq!(count, "30|435");
}

/// What lies in a data directory goes into every backup and every copy of it.
#[test]
fn a_spool_inside_the_data_directory_is_refused() {
    let source = Waiting::start();
    let segment = source.fill(1).remove(0);
    let data = source.server.data();
    let segment = data.join("pg_wal").join(segment);
    let place = source.arg("place");
    let push = [
        "archive-push",
        segment.to_str().unwrap(),
        "--to",
        &place,
        "--spool",
    ];
    for inside in ["", "pg_wal", "pg_wal/archive_status", "base"] {
        let spool = data.join(inside);
        let output = windlass(&[&push[..], &[spool.to_str().unwrap()]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(
            text(&output).contains("lies in the data directory"),
            "{}",
            text(&output)
        );
    }
    let link = source.arg("link");
    std::os::unix::fs::symlink(data.join("base"), &link).unwrap();
    let output = windlass(&[&push[..], &[&link]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let output = windlass(&[&push[..], &[&source.arg("spool")]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

/// Segments as a server has them: with the mark that they are ready.
struct Ready {
    root: PathBuf,
    names: Vec<String>,
    whole: Vec<Vec<u8>>,
    /// Processes of an earlier round may still store ahead, so each has directories of its own.
    round: Cell<u32>,
}

impl Ready {
    fn of(source: &Waiting) -> Self {
        let names = source.fill(6);
        let wal = source.server.data().join("pg_wal");
        let read = |name: &String| std::fs::read(wal.join(name)).unwrap();
        let root = source.dir.path().join("ready");
        std::fs::create_dir_all(root.join("wal/archive_status")).unwrap();
        let whole: Vec<_> = names.iter().map(read).collect();
        for (name, bytes) in names.iter().zip(&whole) {
            std::fs::write(root.join("wal").join(name), bytes).unwrap();
            let status = format!("wal/archive_status/{name}.ready");
            std::fs::write(root.join(status), "").unwrap();
        }
        let round = Cell::new(0);
        Self {
            root,
            names,
            whole,
            round,
        }
    }

    /// An empty place and an empty spool.
    fn begin(&self) {
        self.round.set(self.round.get() + 1);
        std::fs::create_dir_all(self.own("place").join("log")).unwrap();
        std::fs::create_dir(self.own("spool")).unwrap();
    }

    fn own(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}-{}", self.round.get()))
    }

    fn words(&self, index: usize) -> Vec<String> {
        let segment = self.root.join("wal").join(&self.names[index]);
        let segment = segment.to_str().unwrap().to_owned();
        let path = |name| self.own(name).to_str().unwrap().to_owned();
        let (place, spool) = (path("place"), path("spool"));
        let words = ["archive-push", &segment, "--to", &place];
        let spool = ["--spool", &spool, "--look-ahead", "2", "--threads", "1"];
        let all = words.iter().chain(&spool);
        all.map(|word| (*word).to_owned()).collect()
    }

    fn push(&self, index: usize, more: &[&str]) -> Output {
        let words = self.words(index);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        windlass(&[&words[..], more].concat())
    }

    fn killed(&self, index: usize, more: &[&str], at: (&str, u32)) -> bool {
        let words = self.words(index);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        killed_at(at, &[&words[..], more].concat())
    }

    fn has_whole(&self, index: usize, what: &str) {
        let into = self.root.join("fetched");
        let place = self.own("place");
        let words = ["archive-get", &self.names[index], into.to_str().unwrap()];
        let from = ["--from", place.to_str().unwrap()];
        let output = windlass(&[&words[..], &from].concat());
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output));
        assert!(std::fs::read(&into).unwrap() == self.whole[index], "{what}");
    }
}

const CALLS: [(&str, usize); 9] = [
    ("write", 2),
    ("renameat2", 1),
    ("rename", 1),
    ("flock", 1),
    ("fsync", 1),
    ("fdatasync", 1),
    ("mkdir", 2),
    ("openat", 19),
    ("unlink", 1),
];

/// Whoever is killed, and wherever: a call that ends with 0 has its segment whole in the place.
#[test]
fn a_kill_while_segments_are_stored_ahead_loses_nothing() {
    let source = Waiting::start();
    let ready = Ready::of(&source);
    let mut kills = 0;
    for (call, step) in CALLS {
        for number in (1..).step_by(step) {
            let what = format!("{call} {number}");
            ready.begin();
            let was_killed = ready.killed(0, &["--fill"], (call, number));
            for index in [1, 2, 3] {
                let output = ready.push(index, &[]);
                assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output));
                ready.has_whole(index, &what);
            }
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 12, "only {kills} kills");
}

/// The call that answers from what was stored ahead.
#[test]
fn a_call_that_is_killed_has_not_answered() {
    let source = Waiting::start();
    let ready = Ready::of(&source);
    ready.begin();
    assert_eq!(ready.push(0, &["--fill"]).status.code(), Some(0));
    for (call, step) in CALLS {
        for number in (1..).step_by(step) {
            if !ready.killed(1, &[], (call, number)) {
                break;
            }
        }
        ready.has_whole(1, call);
        assert_eq!(ready.push(1, &[]).status.code(), Some(0));
    }
    // The place goes away between two calls.
    let (place, away) = (ready.own("place"), ready.own("away"));
    std::fs::rename(&place, &away).unwrap();
    let output = ready.push(2, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    std::fs::rename(&away, &place).unwrap();
    assert_eq!(ready.push(2, &[]).status.code(), Some(0));
    // A spool that cannot be used is told, and the segment is stored.
    std::fs::remove_dir_all(ready.own("spool")).unwrap();
    let output = ready.push(3, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        text(&output).contains("no segments are stored ahead"),
        "{}",
        text(&output)
    );
}

/// Pushes a segment into a place that is a file system of its own, which nobody else sees.
fn push_into(ready: &Ready, room: &str, index: usize) -> Output {
    ready.begin();
    let script = r#"mount -t tmpfs -o size="$1" none "$2" && mkdir "$2/log" || exit 9
        place=$2; shift 2
        "$@"; code=$?
        find "$place" -name '*.wlog*'; exit $code"#;
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount"]);
    unshare.args(["sh", "-c", script, "sh", room]);
    unshare.arg(ready.own("place"));
    unshare.arg(env!("CARGO_BIN_EXE_windlass"));
    let segment = ready.root.join("wal").join(&ready.names[index]);
    unshare.arg("archive-push").arg(segment).arg("--to");
    unshare.arg(ready.own("place")).args(["--look-ahead", "4"]);
    unshare
        .env("WINDLASS_CONFIG", "/dev/null")
        .output()
        .unwrap()
}

/// The server needs an answer for the segment that it hands over. If the place has room for that
/// one, it is stored, although those that are ready with it have none.
#[test]
fn a_segment_is_stored_where_those_that_are_ready_with_it_have_no_room() {
    let source = Waiting::start();
    let ready = Ready::of(&source);
    let mut state = 1u64;
    for (name, bytes) in ready.names.iter().zip(&ready.whole) {
        // No codec makes this smaller.
        let mut bytes = bytes.clone();
        for byte in &mut bytes[8192..] {
            state = state.wrapping_mul(6_364_136_223_846_793_005) + 1;
            *byte = (state >> 56) as u8;
        }
        std::fs::write(ready.root.join("wal").join(name), bytes).unwrap();
    }
    for (room, objects, code) in [("9m", 1, 0), ("2m", 1, 0), ("512k", 0, 1)] {
        let output = push_into(&ready, room, 0);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{room}: {said}");
        let there = String::from_utf8_lossy(&output.stdout);
        assert_eq!(there.lines().count(), objects, "{room}: {said}");
    }
}
