//! Recovery without sessions: the server recovers and ends.

use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{ClusterServer, POLL, SIGNAL, major_of};
use crate::control::Control;
use crate::error::{IoContext, PostgresError};
use crate::open::{end_with_this_thread, ending, reasons};
use crate::restore::{lives, running_server};

/// Since this version, a process that runs alone loads shared_preload_libraries. Without the write
/// hook, what recovery writes would be unseen, and all snapshots by the hook would be lost.
const LOADS_LIBRARIES_ALONE_SINCE: u32 = 15;
/// The line of postmaster.pid that says what the server does.
const STATE_LINE: usize = 7;
/// The caller has synced the file systems. A server that syncs each file of its own before it
/// recovers waits for the disk once for each, although none has anything to write.
const SYNC_AT_ONCE: &str = "recovery_init_sync_method=syncfs";
/// Nobody asks it anything.
const UNASKED: &str = "hot_standby=off";
/// A server that recovers and whose caller was killed is told to end, and does so at its next look
/// for that. This ends a hang.
const ORPHAN_ENDS_WITHIN: Duration = Duration::from_secs(120);

impl ClusterServer {
    /// Lets the server recover, without sessions, and end. It ends with this process.
    pub fn recover(&self, log: &Path) -> Result<(), PostgresError> {
        self.check()?;
        let output = File::create(log).doing("create", log)?;
        let mut command = Command::new(&self.started.program);
        command.current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(output);
        command.process_group(0);
        end_with_this_thread(&mut command);
        let status = match major_of(&self.data)? >= LOADS_LIBRARIES_ALONE_SINCE {
            true => self.run_alone(&mut command),
            false => self.run_unreachable(&mut command),
        }?;
        let is_done = !self.data.join(SIGNAL).exists();
        match is_done && Control::read(&self.data)?.is_shut_down() {
            true => Ok(()),
            false => Err(PostgresError::ServerEnded {
                status: ending(status),
                log: reasons(&std::fs::read_to_string(log).doing("read", log)?),
            }),
        }
    }

    /// Waits for the end of a recovery whose caller was killed: its server ends with that, but not
    /// in the same moment. Nobody else may let the cluster recover meanwhile. Returns the process
    /// if it does not end.
    pub fn wait_for_recovery(&self) -> Option<i32> {
        // One that has just begun has no postmaster.pid yet, and would take the directory then.
        let runs = running_server(&self.data);
        let directory = self.started.directory.as_os_str().as_bytes();
        let is_ours = |process: i32| runs == Some(process) || has_words(process, &[directory]);
        let mut found = processes();
        found.retain(|process| recovers(*process) && is_ours(*process));
        let mut found = found.into_iter();
        found.find(|process| !ends_within(*process, ORPHAN_ENDS_WITHIN))
    }

    /// One process, which does nothing else.
    fn run_alone(&self, command: &mut Command) -> Result<ExitStatus, PostgresError> {
        command.arg("--single").args(&self.started.arguments);
        command.arg("-D").arg(&self.started.directory);
        // Nobody may ask it anything, so its limits need not be those of the server before.
        command.args(["-c", UNASKED, "-c", SYNC_AT_ONCE, "template1"]);
        command.status().doing("start", &self.started.program)
    }

    /// A whole server, with a socket that nobody else reaches. It is told to end when it has
    /// recovered.
    fn run_unreachable(&self, command: &mut Command) -> Result<ExitStatus, PostgresError> {
        let name = format!("windlass-recovery-{}", std::process::id());
        let sockets = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&sockets);
        made.doing("make the directory", &sockets)?;
        command.args(&self.started.arguments);
        command.arg("-D").arg(&self.started.directory);
        let directory = format!("unix_socket_directories={}", sockets.display());
        for setting in [
            "listen_addresses=",
            &directory,
            UNASKED,
            "autovacuum=off",
            SYNC_AT_ONCE,
        ] {
            command.args(["-c", setting]);
        }
        let ended = self.wait_until_recovered(command);
        std::fs::remove_dir_all(&sockets).doing("remove", &sockets)?;
        ended
    }

    fn wait_until_recovered(&self, command: &mut Command) -> Result<ExitStatus, PostgresError> {
        let program = &self.started.program;
        let mut child = command.spawn().doing("start", program)?;
        let process = i32::try_from(child.id()).map_err(std::io::Error::other);
        let process = Pid::from_raw(process.doing("start", program)?);
        let lock = self.data.join("postmaster.pid");
        let mut is_told = false;
        loop {
            if let Some(status) = child.try_wait().doing("wait for", program)? {
                return Ok(status);
            }
            if !is_told && is_ready(&lock) {
                let sent = kill(process, Signal::SIGINT).map_err(std::io::Error::from);
                sent.doing("stop the server on", &self.data)?;
                is_told = true;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Whether a process is a server that recovers without sessions, by its words.
pub(super) fn recovers(process: i32) -> bool {
    has_words(process, &[UNASKED.as_bytes(), SYNC_AT_ONCE.as_bytes()])
}

/// Whether a process was started with all of these words.
fn has_words(process: i32, wanted: &[&[u8]]) -> bool {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    wanted.iter().all(|word| words.contains(word))
}

/// All processes that can be seen.
fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

/// Waits for the end of a process that is no child, or is one for which nobody has waited.
fn ends_within(process: i32, limit: Duration) -> bool {
    let began = Instant::now();
    while lives(process) {
        if began.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Whether a server takes connections: it has recovered.
fn is_ready(lock: &Path) -> bool {
    let state = |text: String| text.lines().nth(STATE_LINE).map(|it| it.trim() == "ready");
    // It is not there yet, or not any more.
    std::fs::read_to_string(lock).is_ok_and(|text| state(text) == Some(true))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Child;

    use super::*;

    /// A process with these words, which ends when its input does. It runs when this returns.
    fn process(words: &[&str]) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read line", "postgres"]);
        command.args(words).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0];
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut line).unwrap();
        child
    }

    #[test]
    fn a_recovery_is_known_by_its_words_and_its_end_is_waited_for() {
        let words = ["--single", "-c", UNASKED, "-c", SYNC_AT_ONCE, "template1"];
        for (words, is_recovery) in [
            (&words[..], true),
            (&["-c", UNASKED], false),
            (&["-c", SYNC_AT_ONCE], false),
        ] {
            let mut child = process(words);
            let id = i32::try_from(child.id()).unwrap();
            assert_eq!(recovers(id), is_recovery, "{words:?}");
            assert!(processes().contains(&id));
            assert!(!ends_within(id, Duration::ZERO));
            drop(child.stdin.take());
            assert!(ends_within(id, ORPHAN_ENDS_WITHIN));
            child.wait().unwrap();
            assert!(ends_within(id, Duration::ZERO));
        }
    }
}
