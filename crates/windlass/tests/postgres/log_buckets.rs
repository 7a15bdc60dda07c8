//! Archived log in a bucket of a real S3 server: with real servers, bad networks and kills.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use windlass_testkit::bucket::{ACCESS_KEY, BUCKET, S3Server, SECRET_KEY};
use windlass_testkit::evil::{Asked, Evil, Proxy};
use windlass_testkit::postgres::{ClusterOptions, PrivateCluster, become_server_user};

use crate::log::rows;
use crate::run::*;

/// The place in the bucket.
fn place() -> String {
    format!("s3://{BUCKET}/pg/main")
}

/// A bucket, and a directory with the configuration that says how to reach it.
struct Shop {
    s3: S3Server,
    proxy: Proxy,
    dir: tempfile::TempDir,
}

impl Shop {
    fn new() -> Self {
        become_server_user();
        let s3 = S3Server::start();
        let proxy = Proxy::start(s3.port);
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let shop = Self { s3, proxy, dir };
        shop.configure("60s");
        shop
    }

    fn configure(&self, deadline: &str) {
        let (keys, place) = (self.arg("keys"), place());
        let text =
            format!("aws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        std::fs::write(&keys, text).unwrap();
        let text = format!(
            "[object]\nendpoint = {:?}\ncredentials-file = {keys:?}\ndeadline = {deadline:?}\n\
             [repository.main]\nto = [{place:?}]\n",
            self.proxy.endpoint()
        );
        std::fs::write(self.arg("windlass.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command();
        command.args(words);
        command.env("WINDLASS_CONFIG", self.path("windlass.toml"));
        command
    }

    /// Runs a command that must end with this code. Returns what it printed.
    fn ends(&self, words: &[&str], code: i32) -> String {
        let output = self.command(words).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    fn done(&self, words: &[&str]) -> String {
        self.ends(words, 0)
    }

    /// The keys of the objects of the log.
    fn log(&self) -> Vec<String> {
        let mut keys = self.s3.keys();
        keys.retain(|key| key.ends_with(".wlog"));
        keys
    }

    /// Requests since the last reset, by what they asked for.
    fn requests(&self) -> Vec<Asked> {
        let mut asked: Vec<_> = self.proxy.seen().iter().map(|one| one.asked).collect();
        asked.sort();
        asked
    }
}

/// A server that archives into the bucket.
struct Archiving {
    shop: Shop,
    server: PrivateCluster,
}

impl Archiving {
    fn start(options: &str) -> Self {
        let shop = Shop::new();
        std::fs::create_dir(shop.path("spool")).unwrap();
        let program = env!("CARGO_BIN_EXE_windlass");
        let push = format!(
            "archive_command = '{program} --config {} archive-push %p --to {} {options}'",
            shop.arg("windlass.toml"),
            place()
        );
        let options = ClusterOptions::default()
            .initdb("--wal-segsize=1")
            .setting("archive_mode = on")
            .setting(push.replace("SPOOL", &shop.arg("spool")));
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i int)");
        Self { shop, server }
    }

    /// Inserts a row, and waits until the segment that has it is archived. Returns the segment.
    fn insert(&self, row: u32) -> String {
        let insert = format!("INSERT INTO t VALUES ({row})");
        self.server.sql("postgres", &insert);
        let segment = "SELECT pg_walfile_name(pg_switch_wal())";
        let segment = self.server.sql("postgres", segment);
        let question = format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver");
        self.server.wait_until(&question, "t");
        segment
    }

    fn restored(&self, into: &str, more: &[&str]) -> String {
        let (place, into) = (place(), self.shop.arg(into));
        let words = [&["restore", place.as_str(), "--into", &into], more].concat();
        self.shop.done(&words);
        let copy = PrivateCluster::adopt(Path::new(&into), self.server.bin());
        copy.wait_until("SELECT pg_is_in_recovery()", "f");
        rows(&copy)
    }
}

/// The host is lost: what is in the bucket leads to any moment, and nothing else is needed.
#[test]
fn sets_and_log_in_a_bucket_lead_to_any_moment() {
    let source = Archiving::start("");
    let (shop, place) = (&source.shop, place());
    let conninfo = source.server.conninfo();
    shop.done(&["backup", &conninfo, "--to", &place]);
    source.insert(1);
    source.insert(2);
    let moment = source.server.sql(
        "postgres",
        "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    );
    (3..=5).for_each(|row| drop(source.insert(row)));
    let said = shop.done(&["check", &conninfo, "--repo", "main"]);
    assert!(
        said.contains("was archived, and is found in s3://"),
        "{said}"
    );
    assert_eq!(
        source.restored("moment", &["--target-time", &moment]),
        "1 2"
    );
    assert_eq!(source.restored("latest", &[]), "1 2 3 4 5");
    let query = "SELECT string_agg(i::text, ' ' ORDER BY i) FROM t";
    let psql = source.server.bin().join("psql");
    let psql = psql.to_str().unwrap();
    let open = ["open", &place, "--at", &moment, "--", psql, "-AtXqc", query];
    assert!(shop.done(&open).lines().any(|line| line == "1 2"));
    let said = shop.done(&["drill", &place, "--query", query]);
    assert!(
        said.contains("1 2 3 4 5") || said.contains("passed"),
        "{said}"
    );
    let said = shop.done(&["info", &place]);
    assert!(
        said.contains("objects") && said.contains("restorable"),
        "{said}"
    );
    shop.done(&["verify", &place]);
    shop.done(&["verify", &place, "--quick"]);
    // A missing segment is a gap, and every reader says so.
    let log = shop.log();
    std::fs::remove_file(shop.s3.objects().join(&log[log.len() - 3])).unwrap();
    let said = shop.ends(&["verify", &place], 3);
    assert!(said.contains("missing"), "{said}");
    let into = shop.arg("gap");
    let said = shop.ends(&["restore", &place, "--into", &into], 1);
    assert!(said.contains("gap"), "{said}");
    assert!(!Path::new(&into).exists());
}

/// A server that is behind: what it hands over was stored before, and costs no request.
#[test]
fn segments_are_stored_ahead_in_a_bucket() {
    let source = Archiving::start("--spool SPOOL");
    let shop = &source.shop;
    shop.done(&["backup", &source.server.conninfo(), "--to", &place()]);
    (1..=4).for_each(|row| drop(source.insert(row)));
    let fill = "INSERT INTO t SELECT 9 FROM generate_series(1, 200000)";
    source.server.sql("postgres", fill);
    source.insert(5);
    let mut objects = shop.log();
    objects.retain(|key| !key.contains("/files/"));
    let names = objects.iter().map(|key| key.rsplit('/').next().unwrap());
    let mut lengths = names.map(|name| {
        let (start, end) = name.trim_end_matches(".wlog").split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        number(end) - number(start)
    });
    assert!(
        lengths.all(|bytes| bytes == 1 << 20),
        "one segment an object"
    );
    assert!(objects.len() > 12, "{objects:?}");
    let count = source
        .server
        .sql("postgres", "SELECT count(*), sum(i) FROM t");
    let copy = shop.arg("copy");
    shop.done(&["restore", &place(), "--into", &copy, "--target-latest"]);
    let copy = PrivateCluster::adopt(Path::new(&copy), source.server.bin());
    copy.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(
        copy.sql("postgres", "SELECT count(*), sum(i) FROM t"),
        count
    );
}

/// Segments of a real server, without it.
struct Segments {
    shop: Shop,
    names: Vec<String>,
}

impl Segments {
    fn new(count: u32) -> Self {
        let shop = Shop::new();
        let options = ClusterOptions::default().initdb("--wal-segsize=1");
        let server = PrivateCluster::start(&options);
        server.sql("postgres", "CREATE TABLE t (i int)");
        let names: Vec<_> = (0..count)
            .map(|row| {
                let insert = format!("INSERT INTO t VALUES ({row})");
                server.sql("postgres", &insert);
                server.sql("postgres", "SELECT pg_walfile_name(pg_switch_wal())")
            })
            .collect();
        std::fs::create_dir_all(shop.path("wal/archive_status")).unwrap();
        std::fs::create_dir(shop.path("spool")).unwrap();
        for name in &names {
            let from = server.data().join("pg_wal").join(name);
            std::fs::copy(from, shop.path("wal").join(name)).unwrap();
            let ready = format!("wal/archive_status/{name}.ready");
            std::fs::write(shop.path(&ready), "").unwrap();
        }
        Self { shop, names }
    }

    fn push(&self, index: usize, more: &[&str]) -> Command {
        let path = self.shop.path("wal").join(&self.names[index]);
        let (path, place) = (path.to_str().unwrap().to_owned(), place());
        let words = ["archive-push", &path, "--to", &place];
        self.shop.command(&[&words, more].concat())
    }

    fn pushed(&self, index: usize, more: &[&str], code: i32) -> String {
        let output = self.push(index, more).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{index}: {said}");
        said
    }

    fn get(&self, name: &str) -> Output {
        let into = self.shop.arg("fetched");
        let place = place();
        let words = ["archive-get", name, &into, "--from", &place];
        self.shop.command(&words).output().unwrap()
    }

    fn has_whole(&self, index: usize, what: &str) {
        let name = &self.names[index];
        let output = self.get(name);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output));
        let whole = std::fs::read(self.shop.path("wal").join(name)).unwrap();
        assert!(
            std::fs::read(self.shop.path("fetched")).unwrap() == whole,
            "{what}"
        );
    }
}

#[test]
fn bad_networks_and_kills_lose_no_segment_of_a_bucket() {
    let log = Segments::new(22);
    let proxy = &log.shop.proxy;
    let mut index = 0;
    let faults = [
        Evil::Answer(500, "InternalError"),
        Evil::Answer(503, "SlowDown"),
        Evil::Answer(409, "ConditionalRequestConflict"),
        Evil::Reset,
        Evil::LostAnswer,
    ];
    for evil in faults {
        let kinds = match evil {
            Evil::Answer(409, _) => &[Asked::Log][..],
            _ => &[Asked::List, Asked::Log, Asked::Get],
        };
        for asked in kinds {
            proxy.rule(*asked, (0, 1), evil.clone());
        }
        log.pushed(index, &[], 0);
        let what = format!("{evil:?}");
        assert_eq!(proxy.reset(), 0, "{what}: every fault happened");
        for asked in kinds.iter().filter(|asked| **asked != Asked::Log) {
            proxy.rule(*asked, (0, 1), evil.clone());
        }
        log.has_whole(index, &what);
        proxy.reset();
        index += 1;
    }
    proxy.rule(Asked::Get, (0, 2), Evil::Cut(700));
    log.has_whole(0, "cut");
    proxy.reset();
    let mut kills = 0;
    for asked in [Asked::List, Asked::Log, Asked::Get] {
        for evil in [Evil::KillBefore, Evil::KillAfter] {
            let what = format!("{asked:?} {evil:?}");
            proxy.rule(asked, (0, 1), evil);
            let mut push = log.push(index, &[]);
            let mut push = push.stderr(Stdio::null()).spawn().unwrap();
            proxy.victim(push.id());
            kills += usize::from(push.wait().unwrap().code().is_none());
            proxy.reset();
            // The server tries again.
            log.pushed(index, &[], 0);
            log.has_whole(index, &what);
            index += 1;
        }
    }
    assert_eq!(kills, 6);
    assert_eq!(log.shop.log().len(), index, "one object a segment");
    log.shop.done(&["verify", &place()]);
}

#[test]
fn pushes_at_once_agree_and_other_content_is_refused() {
    let log = Segments::new(3);
    let pushes: Vec<_> = (0..6)
        .map(|_| log.push(0, &[]).stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut push in pushes {
        assert_eq!(push.wait().unwrap().code(), Some(0));
    }
    assert_eq!(log.shop.log().len(), 1);
    log.has_whole(0, "at once");
    let key = log.shop.s3.objects().join(&log.shop.log()[0]);
    let stored = std::fs::read(&key).unwrap();
    let path = log.shop.path("wal").join(&log.names[0]);
    let whole = std::fs::read(&path).unwrap();
    let mut other = whole.clone();
    other[5000..6000].fill(7);
    std::fs::write(&path, &other).unwrap();
    let said = log.pushed(0, &[], 1);
    assert!(
        said.contains("with other content") && said.contains("hint:"),
        "{said}"
    );
    assert_eq!(std::fs::read(&key).unwrap(), stored, "what is there stays");
    // A damaged object is no content: the server's own takes its place.
    let mut damaged = stored.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&key, &damaged).unwrap();
    log.shop.ends(&["verify", &place()], 4);
    assert_eq!(log.get(&log.names[0]).status.code(), Some(255));
    std::fs::write(&path, &whole).unwrap();
    log.pushed(0, &[], 0);
    log.has_whole(0, "replaced");
    log.shop.done(&["verify", &place()]);
}

#[test]
fn a_bucket_that_cannot_be_reached_is_never_the_end_of_the_log() {
    let mut log = Segments::new(3);
    log.pushed(0, &[], 0);
    let absent = "0000000100000009000000FF";
    assert_eq!(log.get(absent).status.code(), Some(1));
    // A prefix without log is a mistake, and no answer.
    let into = log.shop.arg("fetched");
    let words = ["archive-get", absent, &into, "--from", "s3://shop/other"];
    let said = log.shop.ends(&words, 255);
    assert!(said.contains("holds no log"), "{said}");
    log.shop.configure("2s");
    log.shop.s3.stop();
    let begun = std::time::Instant::now();
    let said = log.pushed(1, &[], 1);
    assert!(said.contains("s3://") && said.contains("hint:"), "{said}");
    assert_eq!(log.get(&log.names[0]).status.code(), Some(255));
    assert_eq!(log.get(absent).status.code(), Some(255));
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "a deadline ends it"
    );
    log.shop.s3.go_on();
    // What must succeed has time.
    log.shop.configure("60s");
    log.pushed(1, &[], 0);
    log.has_whole(1, "later");
}

#[test]
fn requests_follow_what_is_stored_and_read() {
    let log = Segments::new(12);
    let proxy = &log.shop.proxy;
    proxy.reset();
    log.pushed(0, &[], 0);
    assert_eq!(log.shop.requests(), [Asked::Log, Asked::Get, Asked::List]);
    proxy.reset();
    log.has_whole(0, "get");
    assert_eq!(log.shop.requests(), [Asked::Get, Asked::List, Asked::List]);
    let spool = ["--spool", &log.shop.arg("spool")];
    log.pushed(1, &[&spool[..], &["--fill"]].concat(), 0);
    assert_eq!(
        log.shop.log().len(),
        11,
        "all that are ready but the one at hand"
    );
    proxy.reset();
    (2..12).for_each(|index| drop(log.pushed(index, &spool, 0)));
    assert_eq!(log.shop.requests(), [], "they are known to be there");
    (2..12).for_each(|index| log.has_whole(index, "ahead"));
    proxy.reset();
    log.shop.done(&["info", &place()]);
    let count = log.shop.requests().len();
    assert!(count < 12, "a list costs {count} requests for 11 segments");
}

/// What was committed is in the bucket a moment later, in an object a segment and a few parts.
#[test]
fn log_that_is_received_is_in_the_bucket_before_its_segment_ends() {
    let shop = Shop::new();
    let server = PrivateCluster::start(&ClusterOptions::default().initdb("--wal-segsize=1"));
    server.sql("postgres", "CREATE TABLE t (i int)");
    let (conninfo, place) = (server.conninfo(), place());
    shop.done(&["backup", &conninfo, "--to", &place]);
    let receive = [
        "receive",
        &conninfo,
        "--to",
        &place,
        "--slot",
        "w",
        "--create-slot",
    ];
    let options = ["--interval", "0.1s"];
    let begin = || {
        let mut command = shop.command(&[&receive[..], &options].concat());
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let flushed = |receiver: &mut std::process::Child| {
        let at = server.sql("postgres", "SELECT pg_current_wal_flush_lsn()");
        let question = format!(
            "SELECT coalesce(bool_or(flush_lsn >= '{at}'), false) FROM pg_stat_replication"
        );
        server.wait_until(&question, "t");
        assert!(receiver.try_wait().unwrap().is_none(), "it goes on");
    };
    let mut receiver = begin();
    for row in 1..=4 {
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        flushed(&mut receiver);
    }
    let second = shop.ends(&receive[..4], 1);
    assert!(
        second.contains("another process receives this log"),
        "{second}"
    );
    // Killed in the middle of a segment: nothing that was confirmed is lost.
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    let restored = |into: &str| {
        let into = shop.arg(into);
        shop.done(&["restore", &place, "--into", &into, "--target-latest"]);
        let copy = PrivateCluster::adopt(Path::new(&into), server.bin());
        copy.wait_until("SELECT pg_is_in_recovery()", "f");
        copy.sql("postgres", "SELECT count(*), max(i) FROM t")
    };
    assert_eq!(restored("killed"), "4|4");
    let mut receiver = begin();
    for row in 5..=8 {
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        flushed(&mut receiver);
        server.sql("postgres", "SELECT pg_switch_wal()");
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
    }
    flushed(&mut receiver);
    let segments = shop.log().len();
    signal(&receiver, "TERM");
    assert_eq!(receiver.wait().unwrap().code(), Some(0));
    assert!(
        segments < 24,
        "parts of segments that ended are gone: {:?}",
        shop.log()
    );
    // Each segment that ended has one object, also the one in which the first receiver was killed.
    let is_part = |key: &&String| {
        let name = key.rsplit('/').next().unwrap();
        let (start, end) = name.trim_end_matches(".wlog").split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        at(end) - at(start) < 1 << 20
    };
    let log = shop.log();
    let parts: Vec<_> = log.iter().filter(is_part).collect();
    assert!(parts.len() <= 1, "{parts:?} of {log:?}");
    assert_eq!(restored("ended"), "12|8");
    shop.done(&["verify", &place]);
    // Once more by a copy: the place has all of it but the last records.
    server.sql("postgres", "INSERT INTO t VALUES (9)");
    shop.done(&["backup", &conninfo, "--type", "log", "--to", &place]);
    assert_eq!(restored("copied"), "13|9");
}

/// Its machine was suspended, and its note counted no more. It was about to store what had come.
#[test]
fn a_receiver_that_slept_stores_no_log_beside_another_one() {
    let shop = Shop::new();
    let server = PrivateCluster::start(&ClusterOptions::default().initdb("--wal-segsize=1"));
    server.sql("postgres", "CREATE TABLE t (i int)");
    let (conninfo, place) = (server.conninfo(), place());
    shop.done(&["backup", &conninfo, "--to", &place]);
    let begin = || {
        let words = ["receive", &conninfo, "--to", &place, "--interval", "0.1s"];
        let mut command = shop.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let insert = |row: u32| {
        server.sql("postgres", &format!("INSERT INTO t VALUES ({row})"));
        server.sql("postgres", "SELECT pg_current_wal_flush_lsn()")
    };
    let stored = |at: &str| {
        let question = format!(
            "SELECT coalesce(bool_or(flush_lsn >= '{at}'), false) FROM pg_stat_replication"
        );
        server.wait_until(&question, "t");
    };
    let mut sleeper = begin();
    stored(&insert(1));
    shop.proxy.rule(Asked::Head, (0, 1), Evil::Hold);
    let second = insert(2);
    assert!(shop.proxy.holds(&mut sleeper));
    signal(&sleeper, "STOP");
    let keys = shop.s3.keys();
    for note in keys.iter().filter(|key| key.contains("/readers/")) {
        let note = std::fs::File::options()
            .write(true)
            .open(shop.s3.objects().join(note));
        let then = std::time::SystemTime::now() - Duration::from_secs(8 * 60);
        note.unwrap().set_modified(then).unwrap();
    }
    let mut other = begin();
    stored(&second);
    shop.proxy.let_go();
    signal(&sleeper, "CONT");
    let output = sleeper.wait_with_output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another process receives this log"), "{said}");
    stored(&insert(3));
    signal(&other, "TERM");
    assert_eq!(other.wait().unwrap().code(), Some(0));
    let into = shop.arg("latest");
    shop.done(&["restore", &place, "--into", &into, "--target-latest"]);
    let copy = PrivateCluster::adopt(Path::new(&into), server.bin());
    copy.wait_until("SELECT pg_is_in_recovery()", "f");
    assert_eq!(rows(&copy), "1 2 3");
    shop.done(&["verify", &place]);
}

/// The log goes when the last set goes that leads into it, and not before: a set that is hidden may
/// come back.
#[test]
fn log_in_a_bucket_goes_with_the_sets_that_lead_into_it() {
    let log = Archiving::start("");
    let (conninfo, place) = (log.server.conninfo(), place());
    let back_up = || log.shop.done(&["backup", &conninfo, "--to", &place]);
    back_up();
    log.insert(1);
    log.insert(2);
    back_up();
    log.insert(3);
    let expire = ["expire", &place, "--keep-full", "1"];
    // What lies before the first set leads nowhere.
    log.shop.done(&expire);
    let before = log.shop.log();
    let said = log.shop.done(&expire);
    assert_eq!(log.shop.log(), before, "its set is only hidden: {said}");
    let now = [&expire[..], &["--grace", "0"]].concat();
    let planned = log.shop.done(&[&now[..], &["--dry-run"]].concat());
    assert_eq!(log.shop.log(), before, "{planned}");
    log.shop.done(&now);
    let after = log.shop.log();
    assert!(after.len() + 1 < before.len(), "{after:?} of {before:?}");
    assert!(before.ends_with(&after), "{after:?} of {before:?}");
    // What is gone is no gap, and the rest leads everywhere.
    log.shop.done(&["verify", &place]);
    assert_eq!(log.restored("latest", &["--target-latest"]), "1 2 3");
    log.shop.done(&now);
    assert_eq!(log.shop.log(), after);
}
