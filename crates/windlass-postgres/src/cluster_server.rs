//! The server of a data directory: how it was started, and how it is stopped and started again.
//!
//!   find --> stop --> (others change the directory) --> recover alone --> start
//!
//! Invariants
//! - It is started as it was, with its environment and its limits: the same program with the same
//!   words, which the server itself keeps in postmaster.opts. These may be the words of another
//!   server, if somebody has copied the directory. So nothing is started before PostgreSQL has said
//!   that they lead to this directory.
//! - The server has stopped when postmaster.pid is gone. It removes that file as the last thing.
//! - What a service manager started is not started by us: the manager would not know it.

mod alone;
mod environment;
mod limits;
mod started;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use windlass_engine::Cancel;

use crate::error::{IoContext, PostgresError};
use crate::open::{Programs, ending};
use crate::restore::{Recovery, RecoveryPoint, RecoveryTimeline, running_server};
use environment::Environment;
pub use limits::Lack;
use limits::Limits;
use started::Started;

/// With this file, a server does an archive recovery, and begins a new timeline at its end.
const SIGNAL: &str = "recovery.signal";
/// The file of ALTER SYSTEM. A server takes its settings after all others.
const SETTINGS: &str = "postgresql.auto.conf";
const OPTIONS: &str = "postmaster.opts";
const NOWHERE: &str = "/dev/null";
const PRIVATE_MODE: u32 = 0o600;
const POLL: Duration = Duration::from_millis(20);
/// How long pg_ctl waits until the server takes connections, in seconds.
const START_SECONDS: &str = "600";

/// The server of a data directory, running or not.
#[derive(Clone, Debug)]
pub struct ClusterServer {
    data: PathBuf,
    process: Option<i32>,
    started: Started,
    environment: Option<Environment>,
    limits: Option<Limits>,
    /// Where its output goes.
    log: PathBuf,
    /// The unit of a service manager that it runs in.
    unit: Option<String>,
}

impl ClusterServer {
    /// The server of this data directory.
    pub fn find(data: &Path) -> Result<Self, PostgresError> {
        let data = data.canonicalize().doing("find", data)?;
        // What a killed process left that let the cluster recover is not the server of anybody.
        let process = running_server(&data).filter(|process| !alone::recovers(*process));
        let mut started = match Started::read(&data.join(OPTIONS)) {
            Some(found) => found,
            None => Started::new(Programs::find(major_of(&data)?, None)?.postgres()),
        };
        started.find_directory(&data, process);
        Ok(Self {
            log: process.and_then(output_of).unwrap_or(NOWHERE.into()),
            unit: process.and_then(unit_of),
            environment: process.and_then(Environment::of),
            limits: process.map(Limits::of),
            data,
            process,
            started,
        })
    }

    /// Refuses a server that would not start on this directory as it was started before.
    pub fn check(&self) -> Result<(), PostgresError> {
        match self.started.leads_to(&self.data) {
            Ok(found) if found => Ok(()),
            Ok(_) => Err(self.not_startable("it would start on another directory")),
            Err(said) => Err(self.not_startable(&said)),
        }
    }

    fn not_startable(&self, said: &str) -> PostgresError {
        PostgresError::NotStartable {
            path: self.data.clone(),
            said: said.to_owned(),
        }
    }

    /// Whether it ran when it was looked for.
    pub fn was_running(&self) -> bool {
        self.process.is_some()
    }

    /// Whether the system ends with it: then it is the first process of a container.
    pub fn is_first_process(&self) -> bool {
        self.process == Some(1)
    }

    /// The process that runs on the directory now.
    pub fn running(&self) -> Option<i32> {
        running_server(&self.data)
    }

    /// Whether a service manager has to start it.
    pub fn is_managed(&self) -> bool {
        self.unit.is_some()
    }

    /// The command that starts it.
    pub fn start_command(&self) -> String {
        match &self.unit {
            Some(unit) => format!("systemctl start {unit}"),
            None => {
                let mut words = self.start_words();
                // Whoever types it wants to see what the server says.
                if let Some(at) = words.iter().position(|word| word == NOWHERE) {
                    words.drain(at - 1..=at);
                }
                let words = words.iter().map(|word| quoted(word));
                words.collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Stops it: sessions end, and everything is written to disk. If it is cancelled meanwhile,
    /// this fails when the server has stopped.
    pub fn stop(&self, cancel: &Cancel) -> Result<(), PostgresError> {
        let Some(process) = self.process else {
            return Ok(());
        };
        match kill(Pid::from_raw(process), Signal::SIGINT) {
            Err(Errno::ESRCH) => {}
            sent => sent
                .map_err(std::io::Error::from)
                .doing("stop the server on", &self.data)?,
        }
        // It ends now in any case. A caller who goes away earlier would leave it stopped.
        while self.running() == Some(process) {
            std::thread::sleep(POLL);
        }
        Ok(cancel.check()?)
    }

    /// Writes how the server recovers: with the log in its directory and no other, and to a new
    /// timeline. Whoever starts the server, it recovers so, because these settings come last.
    pub fn prepare_recovery(&self) -> Result<(), PostgresError> {
        let path = self.data.join(SETTINGS);
        let mut text = settings(&path)?;
        text.extend(recovery().block().into_bytes());
        let written = windlass_engine::durable::write(&path, &text, PRIVATE_MODE);
        written.doing("write", &path)?;
        let signal = self.data.join(SIGNAL);
        let written = windlass_engine::durable::write(&signal, b"", PRIVATE_MODE);
        written.doing("write", &signal)
    }

    /// Takes back what [`Self::prepare_recovery`] wrote.
    pub fn end_recovery(&self) -> Result<(), PostgresError> {
        let path = self.data.join(SETTINGS);
        let text = settings(&path)?;
        let rest = without(&text, recovery().block().as_bytes());
        if rest != text {
            let written = windlass_engine::durable::write(&path, &rest, PRIVATE_MODE);
            written.doing("write", &path)?;
        }
        let signal = self.data.join(SIGNAL);
        let removed = windlass_engine::durable::if_there(std::fs::remove_file(&signal));
        removed.map(|_| ()).doing("remove", &signal)
    }

    /// What the server that runs now has less of than this one had: the process that started it may
    /// not give more.
    pub fn lacks(&self) -> Vec<Lack> {
        match (&self.limits, self.running()) {
            (Some(before), Some(process)) => before.lacks_of(&Limits::of(process)),
            _ => Vec::new(),
        }
    }

    /// Starts it as it was started, and waits until it takes connections.
    pub fn start(&self) -> Result<(), PostgresError> {
        let words = self.start_words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/");
        if let Some(environment) = &self.environment {
            environment.give_to(&mut command);
        }
        if let Some(limits) = &self.limits {
            limits.give_to(&mut command);
        }
        // The server inherits what pg_ctl has open.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status();
        let status = status.doing("start", &words[0])?;
        match status.success() {
            true => Ok(()),
            false => Err(PostgresError::ServerEnded {
                status: ending(status),
                log: format!("see {}", self.log.display()),
            }),
        }
    }

    fn start_words(&self) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        let started = &self.started;
        let options: Vec<_> = started.arguments.iter().map(|word| quoted(word)).collect();
        let mut words = vec![shown(&started.program.with_file_name("pg_ctl"))];
        words.extend(["start", "-w", "-s", "-t", START_SECONDS].map(str::to_owned));
        words.extend(["-D".to_owned(), shown(&started.directory)]);
        words.extend(["-l".to_owned(), shown(&self.log)]);
        if !options.is_empty() {
            words.extend(["-o".to_owned(), options.join(" ")]);
        }
        words
    }
}

/// To the end of the log in the directory, and then a new timeline.
fn recovery() -> Recovery {
    Recovery {
        timeline: RecoveryTimeline::Current,
        ..Recovery::to(RecoveryPoint::Latest)
    }
}

fn settings(path: &Path) -> Result<Vec<u8>, PostgresError> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.doing("read", path),
    }
}

/// A text without a block of lines. If somebody has added a setting with ALTER SYSTEM, the server
/// has written the whole text anew: all settings in their order, without comments and empty lines.
fn without(text: &[u8], block: &[u8]) -> Vec<u8> {
    let mut windows = text.windows(block.len());
    if let Some(at) = windows.rposition(|window| window == block) {
        return [&text[..at], &text[at + block.len()..]].concat();
    }
    let mut lines: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for setting in block.split_inclusive(|byte| *byte == b'\n') {
        let found = lines.iter().rposition(|line| *line == setting);
        if let Some(at) = found.filter(|_| setting.contains(&b'=')) {
            lines.remove(at);
        }
    }
    lines.concat()
}

fn major_of(data: &Path) -> Result<u32, PostgresError> {
    let path = data.join("PG_VERSION");
    let text = std::fs::read_to_string(&path).doing("read", &path)?;
    let major = text.trim().parse().map_err(std::io::Error::other);
    major.doing("read", &path)
}

/// The file that a process writes its messages to, if it is one.
fn output_of(process: i32) -> Option<PathBuf> {
    let path = std::fs::read_link(format!("/proc/{process}/fd/2")).ok()?;
    path.is_file().then_some(path)
}

/// The unit of a service manager that a process runs in, unless this process runs in it, too.
fn unit_of(process: i32) -> Option<String> {
    let groups = |process: &str| std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok();
    let found = groups(&process.to_string())?;
    if Some(&found) == groups("self").as_ref() {
        return None;
    }
    let mut names = found.lines().filter_map(|line| line.rsplit('/').next());
    let unit = names.find(|name| name.ends_with(".service"));
    unit.map(str::to_owned)
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/-_.=:,".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_taken_out_and_lines_that_were_there_before_stay() {
        let block = b"\n# Ours.\na = '1'\nb = ''\n";
        let text = |lines: &str| lines.as_bytes().to_vec();
        for (with, rest) in [
            (
                "b = ''\n\n# Ours.\na = '1'\nb = ''\nc = ''\n",
                "b = ''\nc = ''\n",
            ),
            ("b = ''\na = '1'\nb = ''\nc = ''\n", "b = ''\nc = ''\n"),
            ("a = '2'\nc = ''\n", "a = '2'\nc = ''\n"),
            ("", ""),
        ] {
            assert_eq!(without(&text(with), block), text(rest));
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("-c"), "-c");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
        assert_eq!(quoted(""), "''");
    }
}
