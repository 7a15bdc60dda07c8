//! `windlass expire` in a bucket while a reader stands still at one of its requests. Either the set
//! stays and the reader reads it to its end, or the set goes and the reader fails. No reader ever
//! has wrong bytes, and nothing that is left looks damaged.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::fs::remove_file;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass_testkit::evil::{Asked, Evil};

use crate::buckets::{Shop, place};
use crate::buckets_expire::{back_up, expire, listed, words};
use crate::run::around;

/// This only ends a hang.
const HANG: Duration = Duration::from_secs(120);

/// How a set is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Restore,
    Open,
    Mount,
}

/// Begins to copy the database out of a set.
fn start(shop: &Shop, way: Way, night: &str, id: &str) -> Child {
    let copy = shop.word("copy.db");
    let cat = format!("cat {{}} >'{copy}'");
    let mut command = match way {
        Way::Restore => shop.command(&["restore", night, "--set", id, "--into", &copy]),
        Way::Open => shop.command(&["open", night, "--set", id, "--", "sh", "-c", &cat]),
        Way::Mount => {
            let at = shop.word("mounted");
            std::fs::create_dir_all(&at).unwrap();
            let script = "\"$0\" mount \"$1\" --set \"$2\" \"$3\" || exit 1; \
                          cat \"$3\"/*.db >\"$4\"; code=$?; fusermount3 -u \"$3\"; exit $code";
            let mut shell = around("sh");
            shell.args(["-c", script, env!("CARGO_BIN_EXE_windlass")]);
            shell.args([night, id, &at, &copy]);
            shell.env("WINDLASS_CONFIG", shop.path("windlass.toml"));
            shell
        }
    };
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// What a database has, in words.
fn told(database: &Path) -> String {
    let sql = "pragma integrity_check; select count(*), sum(length(name)) from item";
    let mut command = Command::new("sqlite3");
    let output = command.arg(database).arg(sql).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Removes the set that nobody reads any more. What serves a mount ends by itself, but not at once.
fn removes(shop: &Shop, night: &str) {
    let begin = Instant::now();
    loop {
        let (code, done) = expire(shop, night, &["--grace", "0"]);
        if code == 0 {
            return;
        }
        assert!(begin.elapsed() < HANG, "{code}: {done}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Holds a reader at one request of this kind after the other, and removes meanwhile what it reads,
/// until the set stayed twice or the reader has no more of them. Returns how often the set stayed
/// and how often it went.
fn race(way: Way, asked: Asked) -> (usize, usize) {
    let shop = Shop::new();
    let (database, night) = (shop.database(50), place("night"));
    let to = ["--to", night.as_str()];
    let copy = shop.path("copy.db");
    let (mut stayed, mut went) = (0, 0);
    let mut old = back_up(&shop, &database, &to);
    for number in 0.. {
        let expected = told(Path::new(&database));
        let kept = back_up(&shop, &database, &to);
        shop.proxy.reset();
        shop.proxy.rule(asked, (number, 1), Evil::Hold);
        let mut reader = start(&shop, way, &night, &old);
        let case = format!("{way:?}, {asked:?} {number}");
        if !shop.proxy.holds(&mut reader) {
            shop.proxy.reset();
            assert!(reader.wait().unwrap().success(), "{case}");
            break;
        }
        let (_, done) = expire(&shop, &night, &["--grace", "0"]);
        shop.proxy.let_go();
        let is_read = reader.wait().unwrap().success();
        match words(&done["in_use"]).is_empty() {
            true => went += 1,
            false => {
                stayed += 1;
                assert!(is_read, "{case}: the set stayed: {done}");
            }
        }
        match is_read {
            true => assert_eq!(told(&copy), expected, "{case}"),
            false => assert!(way != Way::Restore || !copy.exists(), "{case}"),
        }
        remove_file(&copy).unwrap_or_default();
        shop.proxy.reset();
        removes(&shop, &night);
        let left = listed(&shop, &[&night]);
        assert_eq!(left, std::slice::from_ref(&kept), "{case}");
        if stayed == 2 {
            break;
        }
        old = kept;
    }
    (stayed, went)
}

#[test]
fn a_restore_from_a_bucket_keeps_its_set_or_fails_without_a_database() {
    // Before its note is there, a restore keeps nothing.
    let (_, went) = race(Way::Restore, Asked::Note);
    assert!(went > 0, "the set stayed for a restore without a note");
    let (stayed, _) = race(Way::Restore, Asked::Get);
    assert!(stayed > 0, "it was never held behind its note");
}

#[test]
fn a_database_that_is_opened_from_a_bucket_keeps_its_set_or_does_not_open() {
    let (stayed, _) = race(Way::Open, Asked::Get);
    assert!(stayed > 0, "it was never held behind its note");
}

#[test]
fn a_mount_of_a_bucket_keeps_its_set_or_fails() {
    let (stayed, _) = race(Way::Mount, Asked::Get);
    assert!(stayed > 0, "it was never held behind its note");
}
