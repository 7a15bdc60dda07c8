//! `windlass mount` and `windlass extract`: a set's files are the source's, byte by byte.

#![allow(clippy::disallowed_methods, reason = "fixtures need no durability")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use windlass_testkit::sqlite::{Random, run_once};

use crate::opening::{Scratch, User, open_to_all, users};
use crate::support::text;

/// Reads at random places.
const PROBES: u32 = 40;

/// Of SQLite.
const PAGE_BYTES: u64 = 4096;

/// A mounted set, in the foreground of a process of its own.
struct Mounted {
    child: Child,
    at: PathBuf,
    user: User,
}

impl Mounted {
    /// Mounts on a directory of the user's, and returns when the files are there.
    fn start(scratch: &Scratch, user: User, at: &str, words: &[&str]) -> Self {
        let at = scratch.path().join(at);
        let words = [&["mount", "--foreground"], words, &[at.to_str().unwrap()]].concat();
        let mut child = scratch
            .command(user, &words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted  "), "{words:?}: {line:?}");
        Self { child, at, user }
    }

    /// Runs a program in the mount, as the user whose it is.
    fn run(&self, program: &str, words: &[&str]) -> Output {
        let mut command = Command::new(program);
        as_user(&mut command, self.user);
        command.current_dir(&self.at).args(words).output().unwrap()
    }

    /// Unmounts as its user would; the exit code of `mount`.
    fn unmount(mut self) -> Option<i32> {
        let mut helper = Command::new("fusermount3");
        as_user(&mut helper, self.user);
        let output = helper.arg("-u").arg(&self.at).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        self.child.wait().unwrap().code()
    }
}

/// A test that fails leaves no mount behind.
impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            windlass_mount::detach(&self.at).map_or_else(drop, drop);
        }
    }
}

fn as_user(command: &mut Command, user: User) {
    use std::os::unix::process::CommandExt;
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
}

/// An empty directory of a user's.
fn directory(scratch: &Scratch, user: User, name: &str) {
    let mut mkdir = Command::new("mkdir");
    as_user(&mut mkdir, user);
    assert!(
        mkdir
            .arg(scratch.path().join(name))
            .status()
            .unwrap()
            .success()
    );
}

/// A database of which zstd makes half, and lz4 nothing less.
fn noisy_database(at: &Path) {
    let digits = (1..=90).map(|factor| {
        format!(
            "(i * {} + {factor}) * 2654435761 % 4294967291",
            factor * 7919
        )
    });
    let digits: Vec<_> = digits.collect();
    let words = "%08x".repeat(digits.len());
    let sql = format!(
        "CREATE TABLE noise AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < 24000) SELECT i, printf('{words}', {}) AS x FROM n",
        digits.join(", ")
    );
    run_once(at, &sql).unwrap();
}

#[test]
fn a_set_of_mixed_codecs_is_mounted_and_extracted_as_its_source_was() {
    let scratch = Scratch::new();
    let source = scratch.path().join("noise.db");
    noisy_database(&source);
    let source = source.to_str().unwrap();
    let set = scratch.path().join("set");
    let to = set.to_str().unwrap();
    // So slow a device, at first, that compressing harder pays.
    let slow = [
        "--emulate",
        "target=rate:4MB/s",
        "--compress",
        "auto",
        "--transfer-size",
        "128KiB",
    ];
    let words = [
        &["backup", source, "--quiet", "--json", "--to", to],
        &slow[..],
    ]
    .concat();
    let output = scratch.run(None, &words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    open_to_all(&set, 0o644);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let used = report["compression"]["used"].as_array().unwrap();
    assert!(used.len() > 1, "{report}");
    let pages = std::fs::metadata(source).unwrap().len() / PAGE_BYTES;
    let pages = u32::try_from(pages).unwrap();
    for (index, user) in users().into_iter().enumerate() {
        let at = format!("at-{index}");
        directory(&scratch, user, &at);
        let mounted = Mounted::start(&scratch, user, &at, &[to]);
        let mut random = Random(7);
        for _ in 0..PROBES {
            let offset = (u64::from(random.below(pages)) * PAGE_BYTES).to_string();
            let same = mounted.run("cmp", &["-i", &offset, "-n", "8192", "noise.db", source]);
            assert!(same.status.success(), "{}", text(&same));
        }
        let same = mounted.run("cmp", &["noise.db", source]);
        assert!(same.status.success(), "{}", text(&same));
        assert_eq!(mounted.unmount(), Some(0));
        let into = scratch.path().join(format!("out-{index}"));
        let words = ["extract", to, "*.db", "--into", into.to_str().unwrap()];
        let output = scratch.run(user, &words);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let extracted = std::fs::read(into.join("noise.db")).unwrap();
        assert!(extracted == std::fs::read(source).unwrap());
    }
    scratch.assert_clean();
}
