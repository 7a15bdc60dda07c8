//! A differential of a SQLite database that nobody wrote to reads no page; one of a database whose
//! file nobody wrote to reads what its log names; and whatever wrote to the file makes Windlass
//! read it.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Shell, run_once};

use crate::support::*;

/// Maps a file, stores a byte at its end, and again for each line of its input. It never syncs.
const MAPPER: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
view = mmap.mmap(file.fileno(), 0)
for number, line in enumerate(sys.stdin, 1):
    view[-1] = number
    print(number, flush=True)
";

/// A program that stores into a map of a file.
struct Mapper {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn of(file: &Path) -> Self {
        let mut command = Command::new("python3");
        let command = command.args(["-c", MAPPER]).arg(file);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn store(&mut self) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
        assert_ne!(self.lines.read_line(&mut String::new()).unwrap(), 0);
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().ok();
    }
}

/// A database with a place of its own.
struct Case {
    name: &'static str,
    ledger: CommitLedger,
    sets: PathBuf,
}

impl Case {
    fn new(dir: &Path, name: &'static str) -> Self {
        let spec = LedgerSpec {
            journal: Journal::Wal,
            accounts: 1000,
            ..LedgerSpec::default()
        };
        let sets = dir.join(format!("{name}-sets"));
        std::fs::create_dir(&sets).unwrap();
        Self {
            name,
            ledger: CommitLedger::create(&dir.join(name), spec),
            sets,
        }
    }

    fn path(&self) -> &Path {
        &self.ledger.path
    }

    /// Backs up. Returns how many bytes of the database were read.
    fn back_up(&self, kind: &str) -> u64 {
        self.document(kind)["bytes_read"].as_u64().unwrap()
    }

    /// Backs up. Returns the document of that.
    fn document(&self, kind: &str) -> Value {
        let (database, sets) = (self.path().to_str().unwrap(), self.sets.to_str().unwrap());
        let words = ["backup", database, "--to", sets, "--type", kind, "--strict"];
        let (code, document): (i32, Value) = json(&words);
        assert_eq!(
            (code, &document["type"]),
            (0, &Value::from(kind)),
            "{}",
            self.name
        );
        document
    }

    /// Backs up, and says by what the set was made, and whether less than half of the database was
    /// read for it. The set has so many transactions.
    fn link(&self, kind: &str, transactions: u64) -> (String, bool) {
        let document = self.document(kind);
        assert_eq!(self.ledger.check(&self.restored()), transactions);
        let bytes = document["database"]["bytes"].as_u64().unwrap();
        let by = document["database"]["changes_from"].as_str().unwrap();
        let read = document["bytes_read"].as_u64().unwrap();
        (by.to_owned(), read * 2 < bytes)
    }

    fn restored(&self) -> PathBuf {
        let into = self.sets.join("restored.db");
        let words = [
            "restore",
            self.sets.to_str().unwrap(),
            "--into",
            into.to_str().unwrap(),
            "--force",
        ];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        into
    }

    /// The newest set holds what the file holds.
    fn assert_same(&self) {
        let same = std::fs::read(self.restored()).unwrap() == std::fs::read(self.path()).unwrap();
        assert!(same, "{}", self.name);
    }
}

/// Waits until a write to the file must show in its change time.
fn until_at_rest(path: &Path) {
    let age = || {
        let found = std::fs::metadata(path).unwrap();
        let changed = Duration::from_secs(found.ctime().try_into().unwrap());
        let changed = SystemTime::UNIX_EPOCH + changed;
        SystemTime::now()
            .duration_since(changed)
            .unwrap_or_default()
    };
    while age() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the file system says when a file was changed through a map. Elsewhere, everything is
/// always read.
fn is_known(path: &Path) -> bool {
    let output = Command::new("stat")
        .args(["-f", "-c", "%T"])
        .arg(path)
        .output();
    let name = String::from_utf8(output.unwrap().stdout).unwrap();
    ["ext2/ext3", "xfs", "btrfs"].contains(&name.trim())
}

/// Copies over the content, so that the file, its length and its time of writing stay.
fn copy_over(from: &[u8], to: &Path) {
    let written = std::fs::metadata(to).unwrap().modified().unwrap();
    let mut file = std::fs::File::options().write(true).open(to).unwrap();
    file.write_all(from).unwrap();
    file.set_modified(written).unwrap();
}

/// The content of a database with another byte at its end.
fn other_content(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 0xff;
    bytes
}

#[test]
fn nothing_is_read_if_nothing_changed_and_everything_if_anything_did() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let case = |name| Case::new(dir.path(), name);
    let (touched, mapped, mapped_again) = (case("touched"), case("mapped"), case("mapped-again"));
    let (copied, replaced) = (case("copied"), case("replaced"));
    let (committed, in_log, copied_both) = (case("committed"), case("in-log"), case("both"));
    // Its pages are dirty when the base is made.
    let mut mapper = Mapper::of(mapped_again.path());
    mapper.store();
    // Its commits are in the log, and stay there.
    let mut shell: Shell = in_log.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint = 0;");
    (1..=5).for_each(|number| drop(shell.run(&in_log.ledger.transaction(number))));
    let cases = [
        &touched,
        &mapped,
        &mapped_again,
        &copied,
        &replaced,
        &committed,
        &in_log,
        &copied_both,
    ];
    cases.iter().for_each(|case| until_at_rest(case.path()));
    let is_known = is_known(dir.path());
    for case in cases {
        assert!(case.back_up("full") > 100_000, "{}", case.name);
        for kind in ["diff", "incr"] {
            let read = case.back_up(kind);
            assert_eq!(read == 0, is_known, "{}: {read}", case.name);
        }
    }
    assert_eq!(in_log.ledger.check(&in_log.restored()), 5);

    std::fs::set_permissions(touched.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    Mapper::of(mapped.path()).store();
    mapper.store();
    copy_over(&other_content(copied.path()), copied.path());
    let beside = dir.path().join("beside");
    std::fs::write(&beside, other_content(replaced.path())).unwrap();
    std::fs::rename(&beside, replaced.path()).unwrap();
    committed.ledger.commit(1, 1);
    // The file is another one, and so is its state: it comes back from an earlier set.
    let restored = copied_both.restored();
    committed_elsewhere(&restored);
    std::fs::rename(&restored, copied_both.path()).unwrap();
    shell.run(&in_log.ledger.transaction(6));
    for case in cases {
        let bytes = std::fs::metadata(case.path()).unwrap().len();
        let read = case.back_up("diff");
        // The log says what it has.
        let is_all = read >= bytes;
        let is_by_log = is_known && case.name == "in-log";
        assert_eq!(is_all, !is_by_log, "{}: {read} of {bytes}", case.name);
        if case.name != "in-log" {
            case.assert_same();
        }
    }
    assert_eq!(in_log.ledger.check(&in_log.restored()), 6);
    assert_eq!(committed.ledger.check(&committed.restored()), 1);
}

#[test]
fn what_the_log_names_is_read_until_somebody_writes_to_the_file() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    if !is_known(dir.path()) {
        return;
    }
    let case = Case::new(dir.path(), "named");
    let mut shell: Shell = case.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint = 0;");
    until_at_rest(case.path());
    case.back_up("full");
    let mut committed = 0;
    let mut commit = |shell: &mut Shell, count: u64| {
        let numbers = committed + 1..=committed + count;
        numbers.for_each(|number| drop(shell.run(&case.ledger.transaction(number))));
        committed += count;
        committed
    };
    let by = |what: &str, is_little| (what.to_owned(), is_little);
    // The log is new, then it goes on.
    for kind in ["incr", "incr", "diff", "incr"] {
        let number = commit(&mut shell, 2);
        assert_eq!(case.link(kind, number), by("log", true), "{number}");
    }
    // Pages move, the database becomes longer and shorter: all in the log.
    shell.run("VACUUM;");
    assert_eq!(case.link("incr", 8).0, "log");
    let number = commit(&mut shell, 12);
    assert_eq!(case.link("incr", number).0, "log");
    let number = commit(&mut shell, 10);
    shell.run("VACUUM;");
    assert_eq!(case.link("incr", number).0, "log");
    // The hashes of that set are those of the pages: what the checkpoint wrote is compared with
    // them.
    shell.run("PRAGMA wal_checkpoint(PASSIVE);");
    let number = commit(&mut shell, 1);
    assert_eq!(case.link("incr", number), by("pages", false));
    shell.run("PRAGMA wal_checkpoint(PASSIVE);");
    until_at_rest(case.path());
    assert_eq!(case.link("incr", number), by("pages", false));
    // The log begins again, over a file that was the state.
    let number = commit(&mut shell, 1);
    assert_eq!(case.link("incr", number), by("log", true));
    // Nobody knows what else was done to a file that was touched.
    let number = commit(&mut shell, 1);
    std::fs::set_permissions(case.path(), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(case.link("incr", number), by("pages", false));
    let verified = windlass(&["verify", case.sets.to_str().unwrap()]);
    assert_eq!(verified.status.code(), Some(0), "{}", text(&verified));
}

/// Changes a database without changing its length.
fn committed_elsewhere(path: &Path) {
    run_once(
        path,
        "PRAGMA user_version = 7; PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .unwrap();
}
