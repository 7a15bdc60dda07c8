//! The server's process. Windlass starts it directly, because pg_ctl checks only ten times a second
//! whether a server is ready. The server ends with this process.
//!
//! Invariants
//! - The server never outlives the thread that started it: the kernel then ends the server,
//!   whatever ended this process.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use windlass_engine::Cancel;

use super::{Apart, returned};
use crate::error::{IoContext, PostgresError};

const POLL: Duration = Duration::from_millis(3);
/// An immediate shutdown writes nothing. After 5 s the server itself kills processes that remain.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// The line of postmaster.pid with the server's status, counted from 0.
const STATUS_LINE: usize = 7;
/// Lines of the server log that an error shows.
const LOG_LINES: usize = 6;

/// With such a line a process of the server ends.
const ENDS: [&str; 2] = ["FATAL:", "PANIC:"];
/// What a line that gives a reason contains.
const COMPLAINTS: [&str; 9] = [
    ENDS[0],
    ENDS[1],
    "ERROR:",
    "HINT:",
    "DETAIL:",
    "could not",
    // The server logs an error in its configuration before it logs that it ends. Only these lines
    // name the setting.
    "parameter \"",
    "invalid value",
    "syntax error in file",
];

/// Everything needed to start a server.
pub(super) struct Launch<'a> {
    pub(super) postgres: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) data: &'a Path,
    pub(super) log: PathBuf,
    /// User and group to run as, if this process runs as root.
    pub(super) run_as: Option<(u32, u32)>,
    /// A locked file that becomes the server's standard input. So it stays open as long as any
    /// process of the server lives.
    pub(super) lock: Option<File>,
}

/// A started server.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    data: PathBuf,
    log: PathBuf,
    ended: bool,
}

impl Process {
    /// Starts the server. It is not ready yet when this returns.
    pub(super) fn start(launch: Launch<'_>) -> Result<Self, PostgresError> {
        let log = File::create_new(&launch.log).doing("create", &launch.log)?;
        let output = log.try_clone().doing("open", &launch.log)?;
        let mut command = Command::new(&launch.postgres);
        command.args(&launch.arguments);
        command.current_dir(launch.log.parent().unwrap_or(Path::new("/")));
        command.stdin(launch.lock.map_or_else(Stdio::null, Stdio::from));
        command.stdout(output).stderr(log);
        // The server also takes settings from libpq's variables.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        // Ctrl-C in a terminal must reach only this process, which then ends the server.
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

    /// Waits until the server takes connections. Looks into the data directory through `apart`.
    pub(super) fn wait_ready(
        &mut self,
        cancel: &Cancel,
        apart: Apart<'_>,
    ) -> Result<(), PostgresError> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Err(self.failure(status));
            }
            let data = &self.data;
            if returned(apart, || Ok(is_ready(data)))? {
                return Ok(());
            }
            cancel.check()?;
            std::thread::sleep(POLL);
        }
    }

    /// How the server ended; `None` while it runs.
    pub(super) fn try_wait(&mut self) -> Result<Option<ExitStatus>, PostgresError> {
        let status = self.child.try_wait().doing("wait for", &self.log)?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// An error with the end of the server log.
    pub(super) fn failure(&self, status: ExitStatus) -> PostgresError {
        PostgresError::ServerEnded {
            status: ending(status),
            log: self.last_words(),
        }
    }

    /// The reasons in the server log, or its last lines if it gives no reason.
    pub(super) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        reasons(&String::from_utf8_lossy(&text))
    }

    /// Lets the server write what it has in memory, and end.
    pub(super) fn shut_down(&mut self, cancel: &Cancel) -> Result<(), PostgresError> {
        self.signal(Signal::SIGINT);
        loop {
            match self.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.failure(status)),
                None => cancel.check()?,
            }
            std::thread::sleep(POLL);
        }
    }

    /// Ends the server at once. Nothing of it has to last.
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
            // The kill may fail because the server has just ended on its own.
            kill(Pid::from_raw(process), signal).unwrap_or_default();
        }
    }
}

/// How a process ended, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "in an unknown way".to_owned(),
    }
}

/// The server writes its status to a file. To ask the server itself again and again would cost it
/// one process each time.
fn is_ready(data: &Path) -> bool {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let status = text.lines().nth(STATUS_LINE).unwrap_or_default();
    status.trim() == "ready"
}

impl Drop for Process {
    fn drop(&mut self) {
        // There is nobody to report an error to. The kernel ends the server with this process.
        self.stop().unwrap_or_default();
    }
}

/// The lines of a server log that say why the server ended. The line that ended it comes first,
/// with what follows it. Then come earlier complaints. If its configuration has a fault, the server
/// server says first what it is, and then that it ends.
pub(crate) fn reasons(log: &str) -> String {
    let has = |line: &str, words: &[&str]| words.iter().any(|word| line.contains(word));
    let complaints = log.lines().filter(|line| has(line, &COMPLAINTS));
    let mut lines: Vec<&str> = complaints.map(without_prefix).collect();
    if lines.is_empty() {
        lines = log.lines().map(without_prefix).collect();
        return lines[lines.len().saturating_sub(LOG_LINES)..].join("; ");
    }
    let end = lines.iter().position(|line| has(line, &ENDS));
    lines.rotate_left(end.unwrap_or(0));
    lines.truncate(LOG_LINES);
    lines.join("; ")
}

/// Removes time and process from `2026-11-21 11:00:00.000 UTC [77] FATAL:  ...`.
fn without_prefix(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, rest)| rest)
}

/// Asks the kernel to end the server when the thread that starts it ends. If this process serves
/// the mount, the mount is gone by then, so an orderly shutdown is not possible.
#[allow(
    unsafe_code,
    reason = "the request must be made by the child itself, before it is a server"
)]
pub fn end_with_this_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    let request = move || {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::QUIT))?;
        // The parent may have ended between the fork and this request.
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

#[cfg(test)]
mod tests {
    use super::reasons;

    #[test]
    fn the_line_that_ended_the_server_comes_first() {
        let log = "2026-11-21 11:00:00.000 UTC [77] LOG:  starting PostgreSQL\n\
            2026-11-21 11:00:00.000 UTC [77] LOG:  could not bind a port\n\
            2026-11-21 11:00:00.000 UTC [78] FATAL:  could not access status of transaction 730\n\
            2026-11-21 11:00:00.000 UTC [78] DETAIL:  Could not open file \"pg_xact/0000\".\n\
            2026-11-21 11:00:00.000 UTC [77] LOG:  aborting startup\n";
        let expected = "FATAL:  could not access status of transaction 730; \
            DETAIL:  Could not open file \"pg_xact/0000\".; LOG:  could not bind a port";
        assert_eq!(reasons(log), expected);
        for fault in [
            "LOG:  0 is outside the valid range for parameter \"port\" (1 .. 65535)",
            "LOG:  parameter \"fsync\" requires a Boolean value",
            "LOG:  unrecognized configuration parameter \"nonsense\" in file \"postgresql.conf\"",
            "LOG:  syntax error in file \"postgresql.conf\" line 1, near token \"'\"",
        ] {
            let end = "FATAL:  configuration file \"postgresql.conf\" contains errors";
            let log = format!("[1] LOG:  skipping a file\n[1] {fault}\n[1] {end}\n");
            assert_eq!(reasons(&log), format!("{end}; {fault}"));
        }
        assert_eq!(
            reasons("[1] LOG:  one\n[1] LOG:  two"),
            "LOG:  one; LOG:  two"
        );
    }
}
