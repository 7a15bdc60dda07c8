//! Runs the command, and provides a small database for it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use windlass_testkit::sqlite::{CommitLedger, Journal, LedgerSpec};

pub use crate::run::*;

/// A directory with a database and a place for sets.
pub struct Place {
    pub dir: tempfile::TempDir,
    pub ledger: CommitLedger,
}

impl Place {
    pub fn new() -> Self {
        Self::with_accounts(LedgerSpec::default().accounts)
    }

    /// A place whose database has this many rows of about 700 bytes each.
    pub fn with_accounts(accounts: u32) -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(dir.path().join("sets")).unwrap();
        let spec = LedgerSpec {
            journal: Journal::Wal,
            accounts,
            ..LedgerSpec::default()
        };
        let ledger = CommitLedger::create(&dir.path().join("shop.db"), spec);
        ledger.commit(1, 20);
        Self { dir, ledger }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn arg(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The key of a database here: its machine and its path.
    pub fn key(&self, name: &str) -> String {
        format!("{}:{}", windlass_engine::hostname(), self.arg(name))
    }

    /// The database and the directory of sets, as a command line names them.
    pub fn ends(&self) -> (String, String) {
        (self.arg("shop.db"), self.arg("sets"))
    }

    /// The names in the directory of sets.
    pub fn sets(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("sets")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Backs up to the directory of sets. Returns the stripe's path.
    pub fn back_up(&self) -> PathBuf {
        let before = self.sets();
        let output = windlass(&["backup", &self.arg("shop.db"), "--to", &self.arg("sets")]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let new: Vec<_> = self
            .sets()
            .into_iter()
            .filter(|name| !before.contains(name))
            .collect();
        assert_eq!(new.len(), 1, "one set more, and nothing else");
        self.path("sets").join(&new[0])
    }

    /// Restores a set to a new file. Returns the number of its transactions.
    pub fn restored(&self, set: &Path) -> u64 {
        let into = self.path("restored.db");
        let words = [
            "restore",
            set.to_str().unwrap(),
            "--into",
            into.to_str().unwrap(),
        ];
        let output = windlass(&words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let count = self.ledger.check(&into);
        std::fs::remove_file(&into).unwrap();
        count
    }
}

/// Interrupts a run as Ctrl-C does, and waits. The exit code must be that of an interrupted run.
pub fn interrupt(child: &mut Child) {
    signal(child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Starts a command and interrupts it after its first line. That line appears when the signals are
/// handled. Returns the line.
pub fn interrupted_at_its_first_line(command: &mut Command) -> String {
    let (output, complaints) = (Stdio::null(), Stdio::piped());
    let mut child = command.stdout(output).stderr(complaints).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    lines.read_line(&mut line).unwrap();
    // Reads on: otherwise the command would wait for a reader.
    let rest = std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    interrupt(&mut child);
    rest.join().unwrap().unwrap();
    line
}

/// Damages the frames of a small set, and not its index: some are hashes of pages, in any order.
#[allow(clippy::disallowed_methods, reason = "a fixture needs no durability")]
pub fn damage_frames(stripe: &Path) {
    const BLOCK: usize = 4096;
    let mut bytes = std::fs::read(stripe).unwrap();
    let mut blocks = bytes.chunks_exact_mut(BLOCK).skip(1);
    let frames = blocks
        .by_ref()
        .take_while(|block| !block.starts_with(b"WNDLINDX"));
    frames.for_each(|block| block[0] ^= 1);
    std::fs::write(stripe, bytes).unwrap();
}
