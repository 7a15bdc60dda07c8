//! Hooks: commands that run before a backup or restore, after it, or when it fails.
//!
//! A hook is a program with its arguments, exactly as written. No shell reads it, unless the hook
//! names one (`sh -c '...'`). It runs as the database's owner, with `WINDLASS_HOOK_*` in its
//! environment, and its output goes to standard error.
//!
//! Invariants
//! - Nothing of a hook runs longer than its time allows: Windlass ends its whole process group.
//! - A hook never runs as root just because the owner of the database is unknown: the programs that
//!   it runs may belong to somebody else.
//! - A run that a hook starts runs no hooks. A backup that keeps nothing runs none either: a hook
//!   that tells a monitor of a backup would tell of one that does not exist.

mod error;
mod program;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, Uid, User};
use windlass_engine::Cancel;

pub use error::{HookError, HookEvent, HookFault};
pub use program::{ProgramFault, find_program};

use crate::ended::{RunEnd, RunStart};
use crate::ending::Ending;
use crate::hidden::hidden;
use crate::notice::{Notice, Observer};

const TIMEOUT: Duration = Duration::from_secs(600);
/// The time between asking a hook to end and killing it.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// Hooks get this variable. So a run that finds it knows that a hook started it.
const EVENT: &str = "WINDLASS_HOOK_EVENT";
/// The variables of the environment that a run inside a hook may need.
const KEPT: [&str; 3] = [
    "WINDLASS_CONFIG",
    "WINDLASS_STATE_DIR",
    "WINDLASS_NO_HISTORY",
];

/// The commands of the user's hooks: each a program with its arguments.
#[derive(Clone, Debug, Default)]
pub struct HookCommands {
    /// Runs before the run.
    pub before: Option<Vec<String>>,
    /// Runs after a run that came to its end.
    pub after: Option<Vec<String>>,
    /// Runs after a run that failed.
    pub on_failure: Option<Vec<String>>,
    /// How long each may take; without it, ten minutes.
    pub timeout: Option<Duration>,
}

impl HookCommands {
    /// The programs of all hooks, each with its event.
    pub fn programs(&self) -> Vec<(HookEvent, &str)> {
        let all = [
            (HookEvent::Before, &self.before),
            (HookEvent::After, &self.after),
            (HookEvent::OnFailure, &self.on_failure),
        ];
        all.into_iter()
            .filter_map(|(event, words)| Some((event, words.as_ref()?.first()?.as_str())))
            .collect()
    }
}

/// What a hook learns of the end of its run.
fn told(end: &RunEnd) -> Vec<(&'static str, String)> {
    let mut told = vec![("EXIT_CODE", end.ending.number().to_string())];
    if let Some(error) = &end.error {
        told.push(("ERROR", error.clone()));
    }
    if let Some(counts) = &end.counts {
        told.extend([
            ("SET_ID", counts.set_id.clone().unwrap_or_default()),
            ("TYPE", counts.set_type.clone().unwrap_or_default()),
            ("STRIPES", counts.stripes.join("\n")),
            ("BYTES_READ", counts.bytes_read.to_string()),
            ("BYTES_WRITTEN", counts.bytes_written.to_string()),
            ("SECONDS", format!("{:.3}", counts.seconds)),
            ("VERDICT", counts.verdict.clone()),
        ]);
    }
    told
}

/// The hooks of one run.
pub struct Hooks {
    commands: HookCommands,
    observer: Arc<dyn Observer>,
    cancel: Cancel,
    /// What is already known about the run.
    told: Vec<(&'static str, String)>,
    /// The user for hooks that start while this process is still root.
    owner: Option<(u32, u32)>,
}

impl Hooks {
    /// The hooks of a run. There are none in a run that a hook started.
    pub fn new(
        commands: &HookCommands,
        run: &RunStart,
        observer: &Arc<dyn Observer>,
        cancel: &Cancel,
    ) -> Self {
        let nested = std::env::var_os(EVENT).is_some();
        let commands = match nested {
            true => HookCommands::default(),
            false => commands.clone(),
        };
        Self {
            commands,
            observer: Arc::clone(observer),
            cancel: cancel.clone(),
            told: vec![
                ("COMMAND", run.command.to_owned()),
                ("SUBJECT", hidden(&run.subject)),
                ("STARTED", run.started.to_string()),
            ],
            owner: None,
        }
    }

    /// Sets the user for hooks that start while this process is still root.
    pub fn set_owner(&mut self, owner: Option<(u32, u32)>) {
        self.owner = owner;
    }

    /// Runs none of the hooks. Returns whether there are any.
    pub fn give_up(&mut self) -> bool {
        let given_up = !self.commands.programs().is_empty();
        self.commands = HookCommands::default();
        given_up
    }

    /// Runs the hook before the run. If it fails, the run ends.
    pub fn before(&self) -> Result<(), HookError> {
        match &self.commands.before {
            Some(words) => self.run(HookEvent::Before, words, &[]),
            None => Ok(()),
        }
    }

    /// Runs the hook after a run that came to its end. Returns the run's ending, or warnings.
    pub fn after(&self, end: &RunEnd) -> Ending {
        let Some(words) = &self.commands.after else {
            return end.ending;
        };
        match self.run(HookEvent::After, words, &told(end)) {
            Ok(()) => end.ending,
            Err(error) => {
                self.observer.notice(&Notice::HookFailed(&error));
                end.ending.degraded()
            }
        }
    }

    /// Runs the hook of a failed run.
    pub fn on_failure(&self, end: &RunEnd) {
        let Some(words) = &self.commands.on_failure else {
            return;
        };
        if let Err(error) = self.run(HookEvent::OnFailure, words, &told(end)) {
            self.observer.notice(&Notice::HookFailed(&error));
        }
    }

    fn run(
        &self,
        event: HookEvent,
        words: &[String],
        told: &[(&'static str, String)],
    ) -> Result<(), HookError> {
        self.observer.notice(&Notice::Hook {
            event: event.word(),
            words,
        });
        self.run_program(event, words, told).map_err(|fault| {
            let told = |wanted: &str| {
                let found = self.told.iter().find(|(name, _)| *name == wanted);
                found.map_or(String::new(), |(_, value)| value.clone())
            };
            HookError {
                event,
                words: words.to_owned(),
                command: told("COMMAND"),
                subject: told("SUBJECT"),
                fault,
                interrupted: self.cancel.is_cancelled(),
            }
        })
    }

    fn run_program(
        &self,
        event: HookEvent,
        words: &[String],
        told: &[(&'static str, String)],
    ) -> Result<(), HookFault> {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdin(Stdio::null())
            .process_group(0);
        // Standard output is reserved for the run's own result.
        let errors = rustix::io::dup(std::io::stderr());
        command.stdout(errors.map_or_else(|_| Stdio::null(), Stdio::from));
        self.become_owner(&mut command)?;
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("WINDLASS_") && !KEPT.contains(&text.as_ref()) {
                command.env_remove(&name);
            }
        }
        command.env(EVENT, event.word());
        for (name, value) in self.told.iter().chain(told) {
            // A variable cannot contain a zero byte.
            command.env(format!("WINDLASS_HOOK_{name}"), value.replace('\0', ""));
        }
        let child = command.spawn().map_err(HookFault::Unrunnable)?;
        let status = self.wait(child, event == HookEvent::OnFailure)?;
        match (status.success(), status.code()) {
            (true, _) => Ok(()),
            (false, Some(code)) => Err(HookFault::Code(code)),
            (false, None) => Err(HookFault::Signal(status)),
        }
    }

    /// Sets the user that hooks run as, and that user's home.
    fn become_owner(&self, command: &mut Command) -> Result<(), HookFault> {
        let mut uid = Uid::effective();
        if uid.is_root() {
            let Some((owner, group)) = self.owner else {
                return Err(HookFault::NoOwner);
            };
            if owner != 0 {
                command.uid(owner).gid(group);
            }
            uid = Uid::from_raw(owner);
        }
        if let Ok(Some(user)) = User::from_uid(uid) {
            command
                .env("HOME", user.dir)
                .env("USER", &user.name)
                .env("LOGNAME", &user.name);
        }
        Ok(())
    }

    /// Waits for the end of a hook until its time is over. The hook that runs last, after a
    /// failure, gets its full time even if the run was interrupted.
    fn wait(&self, mut child: Child, is_last: bool) -> Result<ExitStatus, HookFault> {
        let group = Pid::from_raw(child.id().cast_signed());
        let timeout = self.commands.timeout.unwrap_or(TIMEOUT);
        let end = Instant::now() + timeout;
        loop {
            if let Some(status) = child.try_wait().map_err(HookFault::Lost)? {
                return Ok(status);
            }
            let interrupted = self.cancel.is_cancelled() && !is_last;
            if interrupted || Instant::now() >= end {
                stop(&mut child, group);
                return Err(match interrupted {
                    true => HookFault::Interrupted,
                    false => HookFault::TooLong(timeout),
                });
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Asks the process group to end, then kills it.
fn stop(child: &mut Child, group: Pid) {
    // A process that has already ended cannot be asked.
    killpg(group, Signal::SIGTERM).unwrap_or_default();
    let end = Instant::now() + GRACE;
    while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(POLL);
    }
    killpg(group, Signal::SIGKILL).unwrap_or_default();
    child.wait().map(drop).unwrap_or_default();
}
