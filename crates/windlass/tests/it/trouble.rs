//! Runs that do not end normally: killed, interrupted, out of space.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use windlass_testkit::sqlite::Random;

use crate::support::*;

/// A backup that takes some time because its source is throttled.
pub fn slow_backup(place: &Place) -> Child {
    throttled_backup(place, "3MiB")
}

/// A backup whose source is throttled to so many bytes a second.
fn throttled_backup(place: &Place, rate: &str) -> Child {
    let mut command = command();
    command.args(["backup", &place.arg("shop.db"), "--to", &place.arg("sets")]);
    command.args([
        "--to",
        &place.arg("sets"),
        "--max-rate",
        rate,
        "--compress",
        "none",
    ]);
    command.args(["--transfer-size", "64KiB"]);
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The bytes of a directory's files, by name.
fn contents(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_killed_backup_leaves_older_sets_alone_and_the_next_run_cleans_up() {
    let place = Place::new();
    grow(&place);
    let older = place.back_up();
    let before = contents(&place.path("sets"));
    let mut random = Random(0x5eed);
    for _ in 0..12 {
        let mut child = slow_backup(&place);
        // The moment is random: what is asserted must hold at any moment.
        std::thread::sleep(Duration::from_millis(u64::from(random.below(700))));
        child.kill().unwrap();
        child.wait().unwrap();
        for (name, bytes) in &before {
            assert!(
                &std::fs::read(place.path("sets").join(name)).unwrap() == bytes,
                "{name}"
            );
        }
        assert_eq!(place.restored(&older), 20);
    }
    let newer = place.back_up_cleaning();
    assert_eq!(place.restored(&newer), 20);
    let partial = place
        .sets()
        .into_iter()
        .find(|name| name.ends_with(".partial"));
    assert_eq!(partial, None);
}

#[test]
fn an_interrupted_backup_says_so_and_leaves_nothing() {
    let place = Place::new();
    grow(&place);
    for name in ["INT", "TERM"] {
        let mut child = throttled_backup(&place, "64KiB");
        // Wait until it writes, so that the signal meets a run and not only a start.
        while place.sets().is_empty() {
            assert!(
                child.try_wait().unwrap().is_none(),
                "the backup ended by itself"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(130), "SIG{name}");
        assert_eq!(place.sets(), Vec::<String>::new(), "SIG{name}");
    }
}

#[test]
fn an_interrupted_restore_leaves_the_database_that_was_there() {
    let place = Place::new();
    grow(&place);
    let set = place.back_up();
    std::fs::create_dir(place.path("new")).unwrap();
    let into = place.path("new/shop.db");
    std::fs::copy(place.path("shop.db"), &into).unwrap();
    let before = contents(&place.path("new"));
    let mut command = command();
    command.args(["restore", set.to_str().unwrap(), "--force", "--into"]);
    command.arg(&into).args(["--max-rate", "64KiB"]);
    command.args(["--transfer-size", "64KiB"]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    // Wait until it has created the place for the new one.
    while place.path("new").read_dir().unwrap().count() == before.len() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    }
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(contents(&place.path("new")), before);
}

/// Runs the command while `sets` is a file system of its own, which nobody else sees. It has room
/// for one small file, and that file is there. Then it lists what is there.
fn on_a_full_disk(place: &Place, words: &[&str]) -> Output {
    on_a_disk_of("256k", place, words)
}

fn on_a_disk_of(size: &str, place: &Place, words: &[&str]) -> Output {
    let mount = format!("mount -t tmpfs -o size={size} none \"$1\"");
    let script = "cd \"$1\" && echo precious > older && \
                  shift && \"$@\" >&2; code=$?; ls; cat older; exit $code";
    let script = format!("{mount} && {script}");
    let mut unshare = around("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "sh", "-c", &script, "sh", &place.arg("sets")]);
    unshare.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    unshare.output().unwrap()
}

#[test]
fn a_full_disk_fails_the_restore_and_keeps_what_was_there() {
    let place = Place::new();
    grow(&place);
    let (set, into) = (place.arg("one.stripe"), place.arg("sets/new.db"));
    let words = ["backup", &place.arg("shop.db"), "--to", &set];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let output = on_a_full_disk(&place, &["restore", &set, "--into", &into]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("No space left on device"), "{printed}");
    assert!(printed.contains("hint: Free space there"), "{printed}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "older\nprecious\n");
}

#[test]
fn a_full_disk_fails_the_backup_and_keeps_what_was_there() {
    let place = Place::new();
    grow(&place);
    let (db, sets) = (place.arg("shop.db"), place.arg("sets"));
    let output = on_a_full_disk(&place, &["backup", &db, "--to", &sets]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("No space left on device"), "{printed}");
    assert!(
        printed.contains("hint: Free space on the device"),
        "{printed}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "older\nprecious\n");
}

/// Runs the command while one system call always fails.
fn without(call: &str, error: &str, words: &[&str]) -> Output {
    let mut strace = around("strace");
    let inject = format!("inject={call}:error={error}");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
    strace.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    strace.output().unwrap()
}

#[test]
fn what_the_kernel_does_not_have_is_done_without() {
    let place = Place::new();
    grow(&place);
    for (call, error) in [
        // Forbidden, as in many containers. Then uncached reads and preallocation are missing.
        ("io_uring_setup", "EPERM"),
        ("preadv2", "EOPNOTSUPP"),
        ("fallocate", "EOPNOTSUPP"),
    ] {
        let (db, set, into) = (
            place.arg("shop.db"),
            place.arg("one.stripe"),
            place.arg("new.db"),
        );
        for words in [
            &["backup", &db, "--to", &set][..],
            &["verify", &set],
            &["restore", &set, "--into", &into],
        ] {
            let output = without(call, error, words);
            assert_eq!(output.status.code(), Some(0), "{call}: {}", text(&output));
        }
        assert_eq!(place.ledger.check(&place.path("new.db")), 20, "{call}");
        for made in [&set, &into] {
            std::fs::remove_file(made).unwrap();
        }
    }
}

/// The system calls of a run that make something durable or give it its name, in order.
fn durable_calls(place: &Place, words: &[&str]) -> Vec<String> {
    let trace = place.path("trace");
    let mut strace = around("strace");
    strace.args(["-f", "-qq", "-y", "-o"]).arg(&trace);
    strace.args([
        "-e",
        "trace=fsync,fdatasync,syncfs,rename,renameat,renameat2",
    ]);
    strace.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    let output = strace.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let lines = std::fs::read_to_string(trace).unwrap();
    lines.lines().map(str::to_owned).collect()
}

#[test]
fn a_name_comes_after_everything_is_durable_and_is_made_durable_itself() {
    let place = Place::new();
    let (db, set, into) = (
        place.arg("shop.db"),
        place.arg("one.stripe"),
        place.arg("new.db"),
    );
    for (words, named, syncs) in [
        (&["backup", &db, "--to", &set][..], &set, "fsync("),
        (&["restore", &set, "--into", &into], &into, "syncfs("),
    ] {
        let calls = durable_calls(&place, words);
        let is_rename = |call: &String| call.contains("rename") && call.contains(named.as_str());
        let renamed = calls.iter().rposition(is_rename).expect(named);
        let is_sync = |call: &String| call.contains(syncs) || call.contains("fdatasync(");
        assert!(calls[..renamed].iter().any(is_sync), "{calls:#?}");
        let home = format!("<{}>", place.dir.path().display());
        let home = |call: &String| call.contains("fsync(") && call.contains(&home);
        assert!(calls[renamed..].iter().any(home), "{calls:#?}");
    }
}

/// Makes the database a few megabytes large.
pub fn grow(place: &Place) {
    let mut shell = place.ledger.shell();
    shell.run(
        "CREATE TABLE ballast AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n \
         WHERE x < 4000) SELECT x, hex(randomblob(256)) AS filler FROM n;\n\
         PRAGMA wal_checkpoint(TRUNCATE);",
    );
    shell.close();
}

impl Place {
    /// Like `back_up`, but left-over stripes may be removed in the meantime.
    fn back_up_cleaning(&self) -> std::path::PathBuf {
        let before = self.sets();
        let output = windlass(&["backup", &self.arg("shop.db"), "--to", &self.arg("sets")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let new = self
            .sets()
            .into_iter()
            .find(|name| !before.contains(name))
            .unwrap();
        self.path("sets").join(new)
    }
}

/// Runs the command, and lets the last of these calls of its thread fail. A run before, with the
/// same words, showed which one that is.
fn failing_last(
    place: &Place,
    words: &[&str],
    (call, error): (&str, &str),
    is_meant: impl Fn(&String) -> bool,
) -> Output {
    let calls = durable_calls(place, words);
    let begins = format!(" {call}(");
    let calls: Vec<_> = calls.iter().filter(|line| line.contains(&begins)).collect();
    let last = calls.iter().rposition(|line| is_meant(line)).expect(call);
    let thread = |line: &String| line.split(' ').next().unwrap().to_owned();
    let own = calls[..=last]
        .iter()
        .filter(|line| thread(line) == thread(calls[last]));
    let inject = format!("inject={call}:error={error}:when={}", own.count());
    let mut strace = around("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &inject]);
    strace.arg(env!("CARGO_BIN_EXE_windlass")).args(words);
    strace.output().unwrap()
}

/// A place with a set, and the words that restore it over the database that is there.
fn forced() -> (Place, [String; 5]) {
    let place = Place::new();
    let set = place.back_up().to_str().unwrap().to_owned();
    let into = place.arg("new.db");
    let words = ["restore", &set, "--into", &into, "--force"].map(str::to_owned);
    let output = windlass(&words.each_ref().map(String::as_str));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    (place, words)
}

#[test]
fn a_restore_whose_last_sync_fails_says_that_the_database_is_in_its_place() {
    let (place, words) = forced();
    let home = format!("<{}>", place.dir.path().display());
    let words = words.each_ref().map(String::as_str);
    let is_home = |line: &String| line.contains(&home);
    let output = failing_last(&place, &words, ("fsync", "EIO"), is_home);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("Input/output error"), "{printed}");
    assert!(printed.contains("complete and in its place"), "{printed}");
    assert!(printed.contains("hint: Look at the disk"), "{printed}");
    assert_eq!(place.ledger.check(&place.path("new.db")), 20);
    assert!(!place.path("new.db.windlass-restore").exists());
}

#[test]
fn a_restored_database_that_cannot_be_put_in_its_place_is_kept_and_named() {
    let (place, words) = forced();
    let staged = place.path("new.db.windlass-restore/shop.db");
    let into = format!("\"{}\"", place.arg("new.db"));
    let words = words.each_ref().map(String::as_str);
    let is_final = |line: &String| line.contains(&into);
    let output = failing_last(&place, &words, ("rename", "EIO"), is_final);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let says = format!("The restored database is complete in {}", staged.display());
    assert!(printed.contains(&says), "{printed}");
    assert!(
        printed.contains("hint: Windlass changed nothing at the target"),
        "{printed}"
    );
    assert_eq!(place.ledger.check(&staged), 20);
    // The next restore tells of it, and removes it when its own is in its place.
    let output = windlass(&words);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    let says = format!("note: an earlier restore left {}", staged.display());
    assert!(printed.contains(&says), "{printed}");
    assert_eq!(place.ledger.check(&place.path("new.db")), 20);
    assert!(!place.path("new.db.windlass-restore").exists());
}

#[test]
fn a_stripe_that_does_not_get_its_name_is_sealed_and_the_run_says_so() {
    let place = Place::new();
    let (db, set) = (place.arg("shop.db"), place.arg("sets/one.stripe"));
    let output = without("renameat2", "EIO", &["backup", &db, "--to", &set]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("hint: All stripes are sealed"),
        "{printed}"
    );
    assert_eq!(place.restored(&place.path("sets")), 20);
    place.back_up_cleaning();
    assert!(place.sets().contains(&"one.stripe".to_owned()));
}

#[test]
fn a_full_disk_has_a_hint_wherever_it_is_met() {
    let place = Place::new();
    grow(&place);
    let (set, events) = (place.arg("one.stripe"), place.arg("run.jsonl"));
    let words = [
        "backup",
        &place.arg("shop.db"),
        "--to",
        &set,
        "--events",
        &events,
    ];
    assert_eq!(windlass(&words).status.code(), Some(0));
    let (files, page) = (place.arg("sets/files"), place.arg("sets/page.html"));
    for words in [
        &["extract", &set, "**", "--into", &files][..],
        &["events", &events, "--html", &page],
    ] {
        let output = on_a_disk_of("8k", &place, words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(printed.contains("No space left on device"), "{printed}");
        assert!(printed.contains("hint: Free space there"), "{printed}");
    }
}

#[test]
fn a_pipe_that_is_given_as_a_set_is_refused_at_once_with_a_hint() {
    let place = Place::new();
    let pipe = place.arg("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let into = place.arg("new.db");
    for words in [
        &["verify", &pipe][..],
        &["info", &pipe],
        &["restore", &pipe, "--into", &into],
    ] {
        let output = windlass(words);
        let printed = text(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {printed}");
        assert!(
            printed.contains("not a regular file"),
            "{words:?}: {printed}"
        );
        assert!(
            printed.contains("hint: A set is read from"),
            "{words:?}: {printed}"
        );
    }
}
