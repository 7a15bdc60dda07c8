//! The capture of a database's log beside real writers and checkpoints: what it gives out, put over
//! the database as it was at the beginning, is the database as it is.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_engine::Cancel;
use windlass_sqlite::{LogCapture, SqliteError, Standing, Watch};
use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec, Random, Shell, Storm, run_once};
use windlass_testkit::starting;

use crate::support::Room;

/// A database, a copy of it as it was, and the capture that keeps the copy up to date.
struct Copying {
    room: Room,
    ledger: CommitLedger,
    capture: LogCapture,
    commits: u64,
    /// How many looks writers waited for.
    waited: u64,
    /// The salts of the logs that were seen.
    generations: BTreeSet<[u8; 8]>,
}

fn ledger(room: &Room) -> CommitLedger {
    let spec = LedgerSpec {
        journal: Journal::Wal,
        accounts: 200,
        ..LedgerSpec::default()
    };
    CommitLedger::create(&room.path("a.db"), spec)
}

impl Copying {
    fn new() -> Self {
        let room = Room::new();
        let ledger = ledger(&room);
        std::fs::copy(&ledger.path, room.path("copy.db")).unwrap();
        let capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
        Self {
            room,
            ledger,
            capture,
            commits: 0,
            waited: 0,
            generations: BTreeSet::new(),
        }
    }

    fn copy(&self) -> PathBuf {
        self.room.path("copy.db")
    }

    fn look(&mut self) -> Result<(), SqliteError> {
        let copy = File::options().write(true).open(self.copy()).unwrap();
        let (commits, generations) = (&mut self.commits, &mut self.generations);
        let waited = &mut self.waited;
        self.capture.look(&Cancel::new(), |capture, look| {
            generations.insert(look.point.salts);
            *waited += u64::from(look.writers_wait);
            for commit in &look.commits {
                let bytes = u64::from(commit.page_bytes);
                capture.pages(commit, |page, content| {
                    copy.write_all_at(content, u64::from(page - 1) * bytes)
                        .unwrap();
                    Ok::<_, SqliteError>(())
                })?;
                copy.set_len(u64::from(commit.page_count) * bytes).unwrap();
                *commits += 1;
            }
            Ok(())
        })
    }

    /// Looks, and checks that the copy has exactly so many transactions.
    fn assert_has(&mut self, number: u64) {
        self.look().unwrap();
        let checked = self.room.path("checked.db");
        std::fs::copy(self.copy(), &checked).unwrap();
        assert_eq!(self.ledger.check(&checked), number);
        for side in ["checked.db", "checked.db-wal", "checked.db-shm"] {
            std::fs::remove_file(self.room.path(side)).ok();
        }
    }

    fn transaction(&self, shell: &mut Shell, number: u64) {
        shell.run(&self.ledger.transaction(number));
    }
}

#[test]
fn every_transaction_is_captured_once_whatever_checkpoints_and_closes_in_between() {
    let mut copying = Copying::new();
    let mut random = Random(7);
    let mut shell = copying.ledger.shell();
    let mut number = 0;
    for round in 0..60 {
        for _ in 0..random.below(4) {
            number += 1;
            copying.transaction(&mut shell, number);
        }
        match random.below(9) {
            0 => {
                // Everything is in the file then, and the log begins again with the next commit.
                copying.look().unwrap();
                shell.run("PRAGMA wal_checkpoint(PASSIVE);");
                copying.look().unwrap();
            }
            // They wait for nobody: the shell would wait for the pin, which this test holds.
            1 => drop(shell.run(".timeout 0\nPRAGMA wal_checkpoint(FULL);")),
            2 => drop(shell.run(".timeout 0\nPRAGMA wal_checkpoint(RESTART);")),
            3 => drop(shell.run(".timeout 0\nPRAGMA wal_checkpoint(TRUNCATE);")),
            4 => drop(shell.run("VACUUM;")),
            5 => {
                shell.close();
                shell = copying.ledger.shell();
            }
            // It writes into the log before it commits, and does not commit.
            6 => drop(shell.run(
                "PRAGMA cache_size=2; BEGIN; UPDATE account SET payload = payload || 'x'; ROLLBACK;",
            )),
            _ => {}
        }
        shell.run(".timeout 120000");
        if random.below(2) == 0 || round == 59 {
            copying.assert_has(number);
        }
    }
    assert!(copying.commits >= number, "{} of {number}", copying.commits);
    shell.close();
    assert!(copying.generations.len() > 2, "the log began again");
    copying.capture.end().unwrap();
}

#[test]
fn the_log_does_not_grow_without_end_beside_a_writer_that_never_pauses() {
    let mut copying = Copying::new();
    let storm = Storm::start(&copying.ledger, "", 200);
    for round in 1..=40 {
        storm.wait_for(round * 100);
        copying.look().unwrap();
    }
    let committed = storm.stop();
    copying.assert_has(committed);
    assert_eq!(copying.commits, committed);
    let log = std::fs::metadata(copying.room.path("a.db-wal"))
        .unwrap()
        .len();
    assert!(log < 20_000 * 4096, "{log}");
    assert!(copying.generations.len() > 1, "the log began again");
    copying.capture.end().unwrap();
}

/// A transaction of more frames than those from which on writers have to wait.
fn big_transaction(shell: &mut Shell) {
    shell.run(
        "DROP TABLE IF EXISTS big; CREATE TABLE big(a); INSERT INTO big
         SELECT randomblob(3500) FROM (WITH RECURSIVE n(i) AS
             (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) SELECT i FROM n);",
    );
}

/// It reads an old state all the time, so not all of the log can be copied.
#[test]
fn writers_do_not_wait_at_every_look_beside_a_long_reader() {
    let mut copying = Copying::new();
    let mut shell = copying.ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0;");
    let mut reader = copying.ledger.shell();
    copying.transaction(&mut shell, 1);
    copying.look().unwrap();
    reader.run("BEGIN; SELECT count(*) FROM log;");
    big_transaction(&mut shell);
    for number in 2..=11 {
        copying.transaction(&mut shell, number);
        copying.look().unwrap();
        assert_eq!(copying.capture.held().times, 1, "transaction {number}");
        assert_eq!(copying.waited, 1, "transaction {number}");
    }
    // Once more when the log has grown as much again, and then when nobody is in the way.
    big_transaction(&mut shell);
    copying.look().unwrap();
    copying.transaction(&mut shell, 12);
    copying.look().unwrap();
    assert_eq!((copying.capture.held().times, copying.waited), (2, 2));
    reader.run("COMMIT;");
    copying.look().unwrap();
    assert_eq!(copying.capture.held().times, 2);
    copying.transaction(&mut shell, 13);
    copying.look().unwrap();
    let log = std::fs::metadata(copying.room.path("a.db-wal")).unwrap();
    shell.run("PRAGMA journal_size_limit=0;");
    copying.transaction(&mut shell, 14);
    copying.assert_has(14);
    assert!(
        copying.generations.len() > 1,
        "the log of {} bytes began again",
        log.len()
    );
    copying.capture.end().unwrap();
}

/// Holds the lock of a process that stopped in the middle of a checkpoint, until it is dropped.
struct Copier(std::process::Child);

impl Copier {
    fn start(index: &std::path::Path) -> Self {
        let program = "import fcntl, sys
file = open(sys.argv[1], 'r+b')
fcntl.lockf(file, fcntl.LOCK_EX, 1, 121)
print('locked', flush=True)
sys.stdin.read()";
        let mut command = std::process::Command::new("python3");
        let command = command.args(["-c", program]).arg(index);
        let piped = std::process::Stdio::piped;
        let mut child = starting::start(command.stdin(piped()).stdout(piped())).unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line).unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A process inside a checkpoint may copy what it saw before the log began again. SQLite up to
/// 3.51.2 would lose transactions of the application then. The pin on mark 0 keeps it from that.
#[test]
fn a_pin_stays_while_another_process_is_inside_a_checkpoint() {
    let mut copying = Copying::new();
    copying
        .capture
        .set_lock_wait(std::time::Duration::from_millis(50));
    let mut shell = copying.ledger.shell();
    copying.transaction(&mut shell, 1);
    copying.look().unwrap();
    // Everything is in the file, and the next transaction begins the log again.
    shell.run("PRAGMA wal_checkpoint(PASSIVE);");
    copying.look().unwrap();
    copying.transaction(&mut shell, 2);
    let copier = Copier::start(&copying.room.path("a.db-shm"));
    for _ in 0..2 {
        let error = copying.look().unwrap_err();
        assert!(matches!(error, SqliteError::Busy { .. }), "{error}");
    }
    drop(copier);
    copying.assert_has(2);
    copying.transaction(&mut shell, 3);
    copying.assert_has(3);
    shell.close();
    copying.capture.end().unwrap();
}

/// SQLite itself would wait for the pin to move.
#[test]
fn a_checkpoint_that_waits_for_the_pin_is_seen() {
    let mut copying = Copying::new();
    let mut shell = copying.ledger.shell();
    copying.transaction(&mut shell, 1);
    copying.look().unwrap();
    copying.transaction(&mut shell, 2);
    assert!(!copying.capture.is_waited_for().unwrap());
    shell.send("PRAGMA wal_checkpoint(TRUNCATE);");
    while !copying.capture.is_waited_for().unwrap() {
        std::thread::yield_now();
    }
    // A pin that moves shows everything to the checkpoint, and the next one lets it restart.
    while copying.capture.is_waited_for().unwrap() {
        copying.look().unwrap();
    }
    copying.assert_has(2);
    assert_eq!(shell.wait(), ["0|0|0"]);
    copying.transaction(&mut shell, 3);
    copying.assert_has(3);
    shell.close();
}

/// What the end of a capture says, for the next one.
fn ended(copying: Copying) -> (Room, CommitLedger, Standing) {
    let standing = copying.capture.standing().unwrap();
    let Copying {
        room,
        ledger,
        capture,
        ..
    } = copying;
    capture.end().unwrap();
    (room, ledger, standing)
}

#[test]
fn a_capture_goes_on_only_if_nothing_can_be_lost() {
    let goes_on = |meanwhile: &dyn Fn(&CommitLedger, &mut Shell)| {
        let mut copying = Copying::new();
        let mut shell = copying.ledger.shell();
        shell.run("PRAGMA wal_autocheckpoint=0;");
        copying.transaction(&mut shell, 1);
        copying.look().unwrap();
        let (_room, ledger, standing) = ended(copying);
        meanwhile(&ledger, &mut shell);
        let mut capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
        let goes_on = capture.go_on_from(&standing).unwrap();
        let mut commits = 0;
        let looked = capture.look(&Cancel::new(), |_, look| {
            commits += look.commits.len();
            Ok::<_, SqliteError>(())
        });
        looked.unwrap();
        capture.end().unwrap();
        (goes_on, commits)
    };
    assert_eq!(goes_on(&|_, _| {}), (true, 0));
    let commit = |ledger: &CommitLedger, shell: &mut Shell, number| {
        shell.run(&ledger.transaction(number));
    };
    assert_eq!(
        goes_on(&|ledger, shell| commit(ledger, shell, 2)),
        (true, 1)
    );
    let copied = |ledger: &CommitLedger, shell: &mut Shell| {
        commit(ledger, shell, 2);
        shell.run("PRAGMA wal_checkpoint(PASSIVE);");
    };
    assert_eq!(goes_on(&copied), (true, 1));
    // The log began again, with or without further transactions.
    let restarted = |_: &CommitLedger, shell: &mut Shell| {
        shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
    };
    assert_eq!(goes_on(&restarted), (false, 0));
    let restarted_and_committed = |ledger: &CommitLedger, shell: &mut Shell| {
        shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
        commit(ledger, shell, 2);
        commit(ledger, shell, 3);
    };
    assert_eq!(goes_on(&restarted_and_committed), (false, 0));
    // Another file has the name.
    let replaced = |ledger: &CommitLedger, shell: &mut Shell| {
        shell.run("PRAGMA wal_checkpoint(TRUNCATE);");
        let other = ledger.path.with_extension("other");
        std::fs::copy(&ledger.path, &other).unwrap();
        std::fs::rename(&other, &ledger.path).unwrap();
    };
    assert_eq!(goes_on(&replaced), (false, 0));
    let rewritten = |ledger: &CommitLedger, shell: &mut Shell| {
        std::mem::replace(shell, Shell::open(&ledger.path.with_extension("none"))).close();
        run_once(
            &ledger.path,
            "PRAGMA journal_mode=delete; PRAGMA journal_mode=wal",
        )
        .unwrap();
    };
    assert_eq!(goes_on(&rewritten), (false, 0));
}

#[test]
fn files_that_are_replaced_or_removed_end_a_capture() {
    for lost in ["a.db", "a.db-wal", "a.db-shm"] {
        let mut copying = Copying::new();
        copying.look().unwrap();
        std::fs::remove_file(copying.room.path(lost)).unwrap();
        let error = copying.look().unwrap_err();
        assert!(error.is_break(), "{lost}: {error}");
        std::fs::write(copying.room.path(lost), b"").unwrap();
        let error = copying.look().unwrap_err();
        assert!(error.is_break(), "{lost}: {error}");
    }
}

/// A power cut can take back what was in the log, and others commit then.
#[test]
fn other_transactions_in_the_place_of_captured_ones_end_a_capture() {
    let room = Room::new();
    let ledger = ledger(&room);
    let mut shell = ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0;");
    shell.run(&ledger.transaction(1));
    let before: Vec<_> = ["a.db", "a.db-wal"]
        .map(|name| (name, std::fs::read(room.path(name)).unwrap()))
        .into();
    shell.run(&ledger.transaction(2));
    let mut capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
    capture
        .look(&Cancel::new(), |_, _| Ok::<_, SqliteError>(()))
        .unwrap();
    let standing = capture.standing().unwrap();
    capture.end().unwrap();
    shell.kill();
    std::fs::remove_file(room.path("a.db-shm")).unwrap();
    for (name, content) in before {
        let file = File::options()
            .write(true)
            .truncate(true)
            .open(room.path(name))
            .unwrap();
        file.write_all_at(&content, 0).unwrap();
    }
    let mut shell = ledger.shell();
    shell.run("PRAGMA wal_autocheckpoint=0; PRAGMA user_version=1; PRAGMA user_version=2;");
    shell.run("PRAGMA user_version=3; CREATE TABLE other(a);");
    let mut capture = LogCapture::begin(&ledger.path, &Cancel::new()).unwrap();
    assert!(!capture.go_on_from(&standing).unwrap());
    capture.end().unwrap();
}

/// Changes the time of a file, as every write does. It is another process: this one would lose its
/// locks if it closed the file.
fn touch(path: &Path) {
    let changed = || {
        let found = std::fs::metadata(path).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed();
    while changed() == before {
        assert!(Command::new("touch").arg(path).status().unwrap().success());
    }
}

#[test]
fn a_watch_outlasts_what_sqlite_writes_and_ends_with_what_somebody_else_does() {
    let mut copying = Copying::new();
    let mut shell = copying.ledger.shell();
    let mut watch = Watch::default();
    let mut stand = |copying: &Copying| {
        let point = copying.capture.point();
        watch.standing_at(&copying.capture, point).unwrap().1
    };
    let first = stand(&copying);
    assert!(first.is_some());
    let checkpoint = "PRAGMA wal_checkpoint(PASSIVE);";
    for (number, sql) in (1..).zip([checkpoint, "VACUUM;", checkpoint, ""]) {
        copying.transaction(&mut shell, number);
        copying.look().unwrap();
        shell.run(sql);
        assert_eq!(stand(&copying), first, "{sql}");
        copying.look().unwrap();
    }
    copying.assert_has(4);
    assert_eq!(stand(&copying), first);
    touch(&copying.ledger.path);
    let second = stand(&copying);
    assert!(second.is_some() && second != first);
    copying.transaction(&mut shell, 5);
    copying.look().unwrap();
    assert_eq!(stand(&copying), second);
    shell.close();
}

/// The pin holds mark 0, so nothing is copied. The salts are other ones all the same.
#[test]
fn a_log_that_begins_again_under_a_pin_explains_no_write_to_the_file() {
    let mut copying = Copying::new();
    let mut shell = copying.ledger.shell();
    let mut watch = Watch::default();
    let point = copying.capture.point();
    let number = watch.standing_at(&copying.capture, point).unwrap().1;
    assert!(number.is_some());
    copying.transaction(&mut shell, 1);
    watch.look_under_pin(&copying.capture).unwrap();
    assert_eq!(watch.number(), number);
    copying.assert_has(1);
    copying.look().unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(PASSIVE);";
    shell.run(checkpoint);
    watch.look(&copying.capture).unwrap();
    copying.look().unwrap();
    watch.look(&copying.capture).unwrap();
    assert_eq!(watch.number(), number);
    touch(&copying.ledger.path);
    copying.transaction(&mut shell, 2);
    watch.look_under_pin(&copying.capture).unwrap();
    assert_eq!(watch.number(), None);
    shell.close();
}

#[test]
fn a_database_in_rollback_mode_has_no_log() {
    let room = Room::new();
    let spec = LedgerSpec {
        journal: Journal::Delete,
        ..LedgerSpec::default()
    };
    let ledger = CommitLedger::create(&room.path("a.db"), spec);
    let error = LogCapture::begin(&ledger.path, &Cancel::new())
        .err()
        .unwrap();
    assert!(matches!(error, SqliteError::NoLog { .. }), "{error}");
}
