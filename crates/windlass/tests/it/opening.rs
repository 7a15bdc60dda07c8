//! Runs `windlass open` as root and as an ordinary user, and checks that nothing is left behind.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use windlass_testkit::postgres::{DEFAULT_BIN, server_ids, stay_root};

use crate::support::command;

const POLL: Duration = Duration::from_millis(10);

/// User and group; `None` for this process's own.
pub type User = Option<(u32, u32)>;

/// The user of this process and, if that is root, an ordinary user.
pub fn users() -> Vec<User> {
    stay_root();
    let mut users = vec![None];
    users.extend(server_ids().map(Some));
    users
}

/// A directory for temporary files that everybody may use.
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        open_to_all(dir.path(), 0o1777);
        Self(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// `windlass` with these words, run as a user whose temporary files are here.
    pub fn command(&self, user: User, words: &[&str]) -> Command {
        let mut command = command();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{DEFAULT_BIN}:{path}"));
        command.env("TMPDIR", self.path()).args(words);
        command.current_dir(self.path());
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Another program, with the same environment as [`Scratch::command`].
    pub fn command_of(&self, program: &str) -> Command {
        let like = self.command(None, &[]);
        let mut command = Command::new(program);
        for (name, value) in like.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.path());
        command
    }

    pub fn run(&self, user: User, words: &[&str]) -> Output {
        self.command(user, words).output().unwrap()
    }

    /// The scratch directories of opened sets.
    pub fn left(&self) -> Vec<PathBuf> {
        let mut left = self.all();
        left.retain(|path| path.is_dir());
        left
    }

    /// These, and what `windlass status` asks running operations through.
    fn all(&self) -> Vec<PathBuf> {
        let below = |path: PathBuf| {
            let entries = std::fs::read_dir(path).into_iter().flatten();
            entries
                .map(|entry| entry.unwrap().path())
                .collect::<Vec<_>>()
        };
        let bases = below(self.path().to_owned()).into_iter();
        let bases = bases.filter(|path| path.to_string_lossy().contains("/windlass-"));
        bases.flat_map(below).collect()
    }

    /// Asserts that nothing is left, mounted or not.
    pub fn assert_clean(&self) {
        assert_eq!(self.all(), Vec::<PathBuf>::new());
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = self.path().to_str().unwrap();
        assert!(!mounts.contains(ours), "{mounts}");
    }
}

/// Lets every user into a path.
pub fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A set that stays open until a signal ends it.
pub struct Opened {
    pub child: Child,
    /// The document that it printed.
    pub document: Value,
    user: User,
}

impl Opened {
    /// Starts `windlass open --json` and waits until it is open.
    pub fn start(scratch: &Scratch, user: User, words: &[&str]) -> Self {
        let mut words = words.to_vec();
        words.insert(0, "open");
        words.push("--json");
        let mut command = scratch.command(user, &words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let document = serde_json::from_str(&line);
        let document = document.unwrap_or_else(|error| panic!("{words:?}: {line:?}: {error}"));
        Self {
            child,
            document,
            user,
        }
    }

    pub fn says(&self, field: &str) -> String {
        self.document[field].as_str().unwrap().to_owned()
    }

    /// Runs SQL through psql.
    pub fn sql(&self, sql: &str) -> Output {
        let mut psql = Command::new(Path::new(DEFAULT_BIN).join("psql"));
        psql.args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        psql.args(["-d", &self.says("conninfo")]);
        psql.output().unwrap()
    }

    /// The output of a program that runs as the user of the mount: nobody else can look at it.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/");
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        crate::support::text(&command.output().unwrap())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends it with a signal. Returns its exit code.
    pub fn end(mut self, signal: &str) -> Option<i32> {
        self.signal(signal);
        self.child.wait().unwrap().code()
    }

    /// The process of the server that this process started.
    pub fn server(&self) -> String {
        let parent = self.child.id().to_string();
        let mut pgrep = Command::new("pgrep");
        let found = pgrep.args(["-P", &parent, "-f", "config_file"]).output();
        let found = found.unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found.lines().count(), 1, "{found:?}");
        found.trim().to_owned()
    }
}

/// A failed test leaves no server behind: that would hold the test's output open.
impl Drop for Opened {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// Waits until something holds.
pub fn wait_until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::sleep(POLL);
    }
}
