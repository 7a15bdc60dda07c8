//! The server's process: started directly, since pg_ctl looks only ten times a second whether a
//! server is ready, and ended with this one.
//!
//! Invariants
//! - The server never outlives the thread that started it: the kernel ends it then, whatever
//!   ended this process.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use windlass_engine::Cancel;

use crate::error::{IoContext, PostgresError};

const POLL: Duration = Duration::from_millis(3);
/// An immediate shutdown has nothing to write; the server itself kills what lingers after 5 s.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// Line of postmaster.pid that says how far the server is, counted from 0.
const STATUS_LINE: usize = 7;
/// Lines of the log that an error shows.
const LOG_LINES: usize = 6;

/// What a server is started with.
pub(super) struct Launch<'a> {
    pub(super) postgres: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) data: &'a Path,
    pub(super) log: PathBuf,
    /// User and group to run as, when this process is root's.
    pub(super) run_as: Option<(u32, u32)>,
    /// Held open as the server's standard input for as long as any process of it lives.
    pub(super) lock: Option<File>,
}

/// A server that was started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    data: PathBuf,
    log: PathBuf,
    ended: bool,
}

impl Process {
    /// Starts the server; it is not ready yet.
    pub(super) fn start(launch: Launch<'_>) -> Result<Self, PostgresError> {
        let log = File::create_new(&launch.log).doing("create", &launch.log)?;
        let output = log.try_clone().doing("open", &launch.log)?;
        let mut command = Command::new(&launch.postgres);
        command.args(&launch.arguments);
        command.current_dir(launch.log.parent().unwrap_or(Path::new("/")));
        command.stdin(launch.lock.map_or_else(Stdio::null, Stdio::from));
        command.stdout(output).stderr(log);
        // A server takes settings from variables of libpq too.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        // Ctrl-C in a terminal is for this process, which then ends the server.
        command.process_group(0);
        if let Some((uid, gid)) = launch.run_as {
            command.uid(uid).gid(gid);
        }
        end_with_this_thread(&mut command);
        let child = command.spawn().doing("start", &launch.postgres)?;
        Ok(Self {
            child,
            data: launch.data.to_owned(),
            log: launch.log,
            ended: false,
        })
    }

    /// Waits until the server takes connections.
    pub(super) fn wait_ready(&mut self, cancel: &Cancel) -> Result<(), PostgresError> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Err(self.failure(status));
            }
            if self.is_ready() {
                return Ok(());
            }
            cancel.check()?;
            std::thread::sleep(POLL);
        }
    }

    /// The server says so in a file, and asking it again and again would cost it a process each.
    fn is_ready(&self) -> bool {
        let text = std::fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        let status = text.lines().nth(STATUS_LINE).unwrap_or_default();
        status.trim() == "ready"
    }

    /// How the server ended; `None` while it runs.
    pub(super) fn try_wait(&mut self) -> Result<Option<ExitStatus>, PostgresError> {
        let status = self.child.try_wait().doing("wait for", &self.log)?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// An error with what the log says at its end.
    pub(super) fn failure(&self, status: ExitStatus) -> PostgresError {
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => format!("with code {code}"),
            (None, Some(signal)) => format!("by signal {signal}"),
            (None, None) => "in an unknown way".to_owned(),
        };
        PostgresError::ServerEnded {
            status,
            log: self.last_words(),
        }
    }

    /// The reasons in the log, or its last lines when none is given.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let word = |line: &&str| {
            let words = [
                "FATAL:",
                "PANIC:",
                "ERROR:",
                "HINT:",
                "DETAIL:",
                "could not",
                // What is wrong in a configuration is said before the end that it leads to.
                "configuration parameter",
                "invalid value",
            ];
            words.iter().any(|word| line.contains(word))
        };
        let mut lines: Vec<&str> = text.lines().filter(word).map(without_prefix).collect();
        if lines.is_empty() {
            lines = text.lines().map(without_prefix).collect();
        }
        lines[lines.len().saturating_sub(LOG_LINES)..].join("; ")
    }

    /// Ends the server at once; nothing of it has to last.
    pub(super) fn stop(&mut self) -> Result<(), PostgresError> {
        let begun = Instant::now();
        self.signal(Signal::SIGQUIT);
        while self.try_wait()?.is_none() {
            if begun.elapsed() > STOP_PATIENCE {
                self.signal(Signal::SIGKILL);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if self.ended {
            return;
        }
        if let Ok(process) = i32::try_from(self.child.id()) {
            // It may have ended by itself just now.
            kill(Pid::from_raw(process), signal).unwrap_or_default();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to be told; what cannot be waited for ends with this process.
        self.stop().unwrap_or_default();
    }
}

/// `2026-11-21 11:00:00.000 UTC [77] FATAL:  ...` without time and process.
fn without_prefix(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, rest)| rest)
}

/// Has the kernel end the server when the thread that starts it ends. A mount that this process
/// serves is gone by then, so there is nothing to shut down in order.
#[allow(
    unsafe_code,
    reason = "the request must be made by the child itself, before it is a server"
)]
fn end_with_this_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    let request = move || {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::QUIT))?;
        // Between fork and the request the parent may have ended.
        if getppid() != Some(parent) {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes
    // two system calls, and allocates, locks and drops nothing.
    unsafe {
        command.pre_exec(request);
    }
}
