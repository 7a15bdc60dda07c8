//! SQLite fixtures: a ledger whose copies show which committed state they are in, and writers that
//! are separate processes.
//!
//! Transaction n of a ledger is a function of its seed and n, so the state after n transactions
//! can be computed. A copy is right when it passes `integrity_check`, its log holds exactly
//! 1..=n for some n, and every row of every table is what the computation gives for that n. A copy
//! that mixes two states differs from all committed ones.
//!
//! Writers are `sqlite3` shells (Debian: sqlite3). They must be other processes. Within one
//! process, POSIX locks do not protect connections from each other, and closing a file drops them.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::starting::{output, start};

/// How the database protects its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// Write-ahead log.
    Wal,
    /// Rollback journal, deleted at commit.
    Delete,
    /// Rollback journal, cut to length zero at commit.
    Truncate,
    /// Rollback journal, its header zeroed at commit.
    Persist,
}

impl Journal {
    /// The name that `PRAGMA journal_mode` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::Persist => "persist",
        }
    }
}

/// The parameters of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct LedgerSpec {
    /// Page size in bytes.
    pub page_bytes: u32,
    /// The journal mode of the fixture and its writers.
    pub journal: Journal,
    /// Whether the file shrinks when rows are deleted.
    pub auto_vacuum: bool,
    /// The number of accounts: rows that transactions change.
    pub accounts: u32,
    /// Length of an account's payload, in bytes; transactions vary it up to three times that.
    pub payload_bytes: u32,
    /// Seed of all transactions.
    pub seed: u64,
}

impl Default for LedgerSpec {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            journal: Journal::Wal,
            auto_vacuum: false,
            accounts: 1000,
            payload_bytes: 700,
            seed: 1,
        }
    }
}

/// Balance of each account before the first transaction.
const BALANCE_START: i64 = 1000;
/// A transaction whose number is divisible by this adds bulk rows. Half a period later they are
/// deleted.
const BULK_PERIOD: u64 = 20;
const BULK_ROWS: i64 = 40;

/// A database with known contents in every committed state.
#[derive(Clone, Debug)]
pub struct CommitLedger {
    /// The database file.
    pub path: PathBuf,
    /// The parameters of the ledger.
    pub spec: LedgerSpec,
}

struct Transfer {
    from: u32,
    to: u32,
    amount: i64,
    payload: (char, u32),
}

impl CommitLedger {
    /// Creates the database without any transaction in its log, and closes it.
    pub fn create(path: &Path, spec: LedgerSpec) -> Self {
        let connection = Connection::open(path).expect("create the ledger");
        let vacuum = if spec.auto_vacuum { "full" } else { "none" };
        let (page_bytes, journal) = (spec.page_bytes, spec.journal.name());
        let setup = format!(
            "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={vacuum};
             PRAGMA journal_mode={journal}; PRAGMA synchronous=off;
             BEGIN;
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, payload TEXT);
             CREATE TABLE log(id INTEGER PRIMARY KEY, source INTEGER, target INTEGER,
                              amount INTEGER);
             CREATE TABLE bulk(id INTEGER PRIMARY KEY, payload TEXT);
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i+1 < {accounts})
             INSERT INTO account SELECT i, {BALANCE_START}, printf('%.*c', {payload}, '-') FROM n;
             COMMIT;",
            accounts = spec.accounts,
            payload = spec.payload_bytes,
        );
        connection.execute_batch(&setup).expect("fill the ledger");
        connection.close().expect("close the ledger");
        Self {
            path: path.to_path_buf(),
            spec,
        }
    }

    /// Opens a shell on the ledger. It uses the ledger's journal mode and waits for locks.
    pub fn shell(&self) -> Shell {
        let mut shell = Shell::open(&self.path);
        shell.run(&self.journal_setup());
        shell
    }

    /// Commits transactions `first` to `last` in a process of its own, which ends normally.
    pub fn commit(&self, first: u64, last: u64) {
        let mut shell = self.shell();
        (first..=last).for_each(|number| drop(shell.run(&self.transaction(number))));
        shell.close();
    }

    /// The file keeps WAL mode. The kind of rollback journal is each connection's own choice.
    fn journal_setup(&self) -> String {
        match self.spec.journal {
            Journal::Wal => String::new(),
            other => format!("PRAGMA journal_mode={};", other.name()),
        }
    }

    /// Transaction `number`, from 1, as SQL from BEGIN to COMMIT.
    pub fn transaction(&self, number: u64) -> String {
        format!("BEGIN IMMEDIATE; {} COMMIT;", self.changes(number))
    }

    /// Transaction `number` without BEGIN and COMMIT.
    pub fn changes(&self, number: u64) -> String {
        let Transfer {
            from,
            to,
            amount,
            payload: (letter, length),
        } = self.transfer(number);
        let bulk = match number % BULK_PERIOD {
            0 => format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < {BULK_ROWS})
                 INSERT INTO bulk SELECT i, printf('%.*c', 3000, '{letter}') FROM n;"
            ),
            half if half == BULK_PERIOD / 2 => "DELETE FROM bulk;".to_owned(),
            _ => String::new(),
        };
        format!(
            "UPDATE account SET balance = balance - {amount} WHERE id = {from};
             UPDATE account SET balance = balance + {amount},
                 payload = printf('%.*c', {length}, '{letter}') WHERE id = {to};
             {bulk}
             INSERT INTO log VALUES({number}, {from}, {to}, {amount});"
        )
    }

    fn transfer(&self, number: u64) -> Transfer {
        let mut random = Random(self.spec.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let letter = b'a' + u8::try_from(random.below(26)).unwrap_or(0);
        Transfer {
            from: random.below(self.spec.accounts),
            to: random.below(self.spec.accounts),
            amount: i64::from(random.below(100)),
            payload: (
                char::from(letter),
                self.spec.payload_bytes * (1 + random.below(3)),
            ),
        }
    }

    /// Checks a copy of the ledger, and returns the number of transactions in its state. Panics if
    /// the copy is in no committed state. The check may change the copy, because its WAL is played
    /// back.
    pub fn check(&self, copy: &Path) -> u64 {
        let connection = Connection::open(copy).expect("open the copy");
        let verdict: String = connection
            .pragma_query_value(None, "integrity_check", |row| row.get(0))
            .expect("run integrity_check");
        assert_eq!(verdict, "ok", "integrity_check of {}", copy.display());
        let (count, last): (i64, i64) = connection
            .query_row("SELECT count(*), ifnull(max(id), 0) FROM log", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("read the log");
        assert_eq!(count, last, "the log of {} is contiguous", copy.display());
        let last = u64::try_from(last).expect("log numbers start at 1");
        self.check_accounts(&connection, last);
        check_bulk(&connection, last);
        connection.close().expect("close the copy");
        last
    }

    fn check_accounts(&self, connection: &Connection, last: u64) {
        let plain = (BALANCE_START, "-".repeat(self.spec.payload_bytes as usize));
        let mut expected = vec![plain; self.spec.accounts as usize];
        for number in 1..=last {
            let transfer = self.transfer(number);
            expected[transfer.from as usize].0 -= transfer.amount;
            let target = &mut expected[transfer.to as usize];
            target.0 += transfer.amount;
            let (letter, length) = transfer.payload;
            target.1 = letter.to_string().repeat(length as usize);
        }
        let mut rows = connection
            .prepare("SELECT balance, payload FROM account ORDER BY id")
            .expect("read the accounts");
        let found: Vec<(i64, String)> = rows
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .and_then(Iterator::collect)
            .expect("read the accounts");
        assert!(
            found == expected,
            "the accounts are not those after {last} transactions"
        );
        let sum: i64 = found.iter().map(|(balance, _)| balance).sum();
        assert_eq!(
            sum,
            BALANCE_START * i64::from(self.spec.accounts),
            "money is conserved"
        );
    }
}

fn check_bulk(connection: &Connection, last: u64) {
    let count: i64 = connection
        .query_row("SELECT count(*) FROM bulk", [], |row| row.get(0))
        .expect("count the bulk rows");
    let there = last >= BULK_PERIOD && last % BULK_PERIOD < BULK_PERIOD / 2;
    assert_eq!(
        count,
        if there { BULK_ROWS } else { 0 },
        "bulk rows after {last} transactions"
    );
}

/// SplitMix64: small, seeded, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.bits() % u64::from(bound)).unwrap_or(0)
    }
}

/// A `sqlite3` shell on a database: another process that gets its commands line by line.
#[derive(Debug)]
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    marks: u64,
}

impl Shell {
    /// Starts a shell on `path` that waits for locks instead of failing.
    pub fn open(path: &Path) -> Self {
        let mut command = Command::new("sqlite3");
        let command = command.args(["-batch", "-bail"]).arg(path);
        let mut child = start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))
            .expect("start sqlite3 (Debian: apt-get install sqlite3)");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("the shell's output is a pipe"));
        let mut shell = Self {
            child,
            input,
            output,
            marks: 0,
        };
        shell.run(".timeout 120000\nPRAGMA synchronous=off;");
        shell
    }

    /// Runs SQL or dot commands to their end. Returns the lines they print; panics when one fails.
    pub fn run(&mut self, commands: &str) -> Vec<String> {
        self.send(commands);
        self.wait()
    }

    /// Sends commands without waiting for them.
    pub fn send(&mut self, commands: &str) {
        self.marks += 1;
        let mark = self.marks;
        let input = self.input.as_mut().expect("the shell is open");
        writeln!(input, "{commands}\nSELECT '--- done {mark} ---';").expect("write to the shell");
        input.flush().expect("write to the shell");
    }

    /// Waits for the commands that were sent last. Returns the lines they printed.
    pub fn wait(&mut self) -> Vec<String> {
        let mark = format!("--- done {} ---", self.marks);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self
                .output
                .read_line(&mut line)
                .expect("read from the shell");
            assert_ne!(bytes, 0, "the shell ended early; it printed {lines:?}");
            let line = line.trim_end().to_owned();
            if line == mark {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Kills the shell in the middle of its work, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the shell");
        self.child.wait().expect("wait for the shell");
    }

    /// Closes the database normally.
    pub fn close(mut self) {
        drop(self.input.take());
        let status = self.child.wait().expect("wait for the shell");
        assert!(status.success(), "the shell failed: {status}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A failed test leaves no writer behind. A writer that has ended cannot be killed.
        drop(self.input.take());
        self.child.kill().unwrap_or_default();
        self.child.wait().ok();
    }
}

/// Runs SQL in a shell that does not wait for locks. Returns its output, or why it failed.
pub fn run_once(path: &Path, sql: &str) -> Result<String, String> {
    let mut command = Command::new("sqlite3");
    let command = command.args(["-batch", "-bail"]).arg(path).arg(sql);
    let output = output(command).expect("start sqlite3 (Debian: apt-get install sqlite3)");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// A writer at full speed: commits transaction after transaction until it is stopped. It does not
/// run away from its test: so many transactions after the last one that the test waited for, it
/// waits. Otherwise a slow machine would give it more time, and so more work to its test, which
/// would take longer still.
#[derive(Debug)]
pub struct Storm {
    shared: Arc<StormState>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct StormState {
    progress: Mutex<StormProgress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct StormProgress {
    stopped: bool,
    committed: u64,
    /// The newest transaction that the test has waited for.
    wanted: u64,
}

/// The number of transactions sent to the shell at a time.
const STORM_BATCH: u64 = 8;

impl StormState {
    fn progress(&self) -> MutexGuard<'_, StormProgress> {
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and wakes whoever waits for that.
    fn change(&self, change: impl FnOnce(&mut StormProgress)) {
        change(&mut self.progress());
        self.changed.notify_all();
    }

    fn wait_while(&self, condition: impl Fn(&StormProgress) -> bool) {
        let waited = self
            .changed
            .wait_while(self.progress(), |progress| condition(progress));
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Ends all waits for a writer that has ended, also by a panic.
struct StormEnd(Arc<StormState>);

impl Drop for StormEnd {
    fn drop(&mut self) {
        self.0.change(|progress| progress.stopped = true);
    }
}

impl Storm {
    /// Starts a writer with transaction 1. Its shell runs `setup` before. It gets at most
    /// `ahead_max` transactions ahead of its test.
    pub fn start(ledger: &CommitLedger, setup: &str, ahead_max: u64) -> Self {
        let shared = Arc::<StormState>::default();
        let (ledger, setup) = (ledger.clone(), setup.to_owned());
        let end = StormEnd(Arc::clone(&shared));
        let thread = std::thread::spawn(move || {
            let shared = &end.0;
            let mut shell = ledger.shell();
            shell.run(&setup);
            let mut next = 1;
            while !shared.progress().stopped {
                let batch: Vec<_> = (next..next + STORM_BATCH)
                    .map(|n| ledger.transaction(n))
                    .collect();
                shell.run(&batch.join("\n"));
                next += STORM_BATCH;
                shared.change(|progress| progress.committed = next - 1);
                shared.wait_while(|progress| {
                    !progress.stopped && next > progress.wanted.saturating_add(ahead_max)
                });
            }
            shell.close();
        });
        Self { shared, thread }
    }

    /// Transactions known to be committed; there may be a few more.
    pub fn committed(&self) -> u64 {
        self.shared.progress().committed
    }

    /// Waits until transaction `number` is committed.
    pub fn wait_for(&self, number: u64) {
        let wanted = |progress: &mut StormProgress| progress.wanted = progress.wanted.max(number);
        self.shared.change(wanted);
        self.shared
            .wait_while(|progress| !progress.stopped && progress.committed < number);
        assert!(
            self.committed() >= number,
            "the writer ended before transaction {number}"
        );
    }

    /// Stops the writer. Returns the number of all committed transactions.
    pub fn stop(self) -> u64 {
        self.shared.change(|progress| progress.stopped = true);
        self.thread.join().expect("the writer did its work");
        self.shared.progress().committed
    }
}
