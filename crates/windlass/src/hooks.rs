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

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, Uid, User};
use windlass_engine::Cancel;

use crate::cli;
use crate::exit::{Code, Failure};
use crate::{log, output};

const TIMEOUT: Duration = Duration::from_secs(600);
/// The time between asking a hook to end and killing it.
const GRACE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);
/// Hooks get this variable. So a run that finds it knows that a hook started it.
const EVENT: &str = "WINDLASS_HOOK_EVENT";
/// The variables of the environment that a run inside a hook may need.
const KEPT: [&str; 2] = ["WINDLASS_CONFIG", "WINDLASS_STATE_DIR"];

/// The hooks of one run.
pub struct Hooks {
    before: Option<Vec<String>>,
    after: Option<Vec<String>>,
    on_failure: Option<Vec<String>>,
    timeout: Duration,
    cancel: Cancel,
    /// What is already known about the run.
    told: Vec<(&'static str, String)>,
    /// The user for hooks that start while this process is still root.
    owner: Option<(u32, u32)>,
}

impl Hooks {
    /// Parses the commands. A command that cannot be parsed is a mistake in the options.
    pub fn new(
        options: &cli::Hooks,
        command: &str,
        subject: &str,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let nested = std::env::var_os(EVENT).is_some();
        let words = |option: &str, text: &Option<String>| -> Result<_, Failure> {
            let Some(text) = text.as_deref().filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let words = shlex::split(text).filter(|words| !words.is_empty());
            let words = words.ok_or_else(|| {
                Failure::usage(
                    format!("--{option}: {text:?} has a quote without its end"),
                    "Write a program and its arguments, as for a shell but without its other signs.",
                )
            })?;
            Ok(Some(words).filter(|_| !nested))
        };
        let timeout = options.hook_timeout.map(Duration::from_secs_f64);
        Ok(Self {
            before: words("before", &options.before)?,
            after: words("after", &options.after)?,
            on_failure: words("on-failure", &options.on_failure)?,
            timeout: timeout.unwrap_or(TIMEOUT),
            cancel: cancel.clone(),
            told: vec![
                ("COMMAND", command.to_owned()),
                ("SUBJECT", log::hidden(subject)),
                ("STARTED", jiff::Timestamp::now().to_string()),
            ],
            owner: None,
        })
    }

    /// Sets the user for hooks that start while this process is still root.
    pub fn set_owner(&mut self, owner: Option<(u32, u32)>) {
        self.owner = owner;
    }

    /// Runs none of the hooks. Returns whether there are any.
    pub fn give_up(&mut self) -> bool {
        let hooks = [&mut self.before, &mut self.after, &mut self.on_failure];
        let given_up = hooks.into_iter().filter_map(Option::take).count();
        given_up > 0
    }

    /// The programs of all hooks, with their options.
    pub fn programs(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("--before", &self.before),
            ("--after", &self.after),
            ("--on-failure", &self.on_failure),
        ];
        all.into_iter()
            .filter_map(|(option, words)| Some((option, words.as_ref()?.first()?.as_str())))
            .collect()
    }

    /// Runs the hook before the run. If it fails, the run ends.
    pub fn before(&self) -> Result<(), Failure> {
        let Some(words) = &self.before else {
            return Ok(());
        };
        self.run("before", words, &[]).map_err(|what| {
            let message = format!("{} {what}", self.called("before", words));
            match self.cancel.is_cancelled() {
                true => Failure::new(Code::Interrupted, message, "Nothing was begun."),
                false => Failure::new(
                    Code::Failed,
                    message,
                    "Nothing was begun. Run the command by hand, as the database's owner.",
                ),
            }
        })
    }

    /// Runs the hook after a run that came to its end. Returns the run's code, or warnings.
    pub fn after(&self, code: Code, told: &[(&'static str, String)]) -> Code {
        let Some(words) = &self.after else {
            return code;
        };
        let told = [told, &[("EXIT_CODE", code.number().to_string())]].concat();
        match self.run("after", words, &told) {
            Ok(()) => code,
            Err(what) => {
                output::note(&format!("warning: {} {what}", self.called("after", words)));
                if code == Code::Done {
                    Code::Warnings
                } else {
                    code
                }
            }
        }
    }

    /// Runs the hook of a failed run.
    pub fn on_failure(&self, failure: &Failure) {
        let Some(words) = &self.on_failure else {
            return;
        };
        let told = [
            ("ERROR", failure.message().to_owned()),
            ("EXIT_CODE", failure.code().number().to_string()),
        ];
        if let Err(what) = self.run("on-failure", words, &told) {
            output::note(&format!(
                "warning: {} {what}",
                self.called("on-failure", words)
            ));
        }
    }

    /// The hook in messages, with the run that it belongs to.
    fn called(&self, event: &str, words: &[String]) -> String {
        let told = |wanted: &str| {
            let found = self.told.iter().find(|(name, _)| *name == wanted);
            found.map_or("", |(_, value)| value.as_str())
        };
        let (command, subject) = (told("COMMAND"), told("SUBJECT"));
        format!(
            "the hook --{event} ({}) of {command} {subject}",
            words.join(" ")
        )
    }

    fn run(
        &self,
        event: &str,
        words: &[String],
        told: &[(&'static str, String)],
    ) -> Result<(), String> {
        log::info(&format!("hook {event}: {}", words.join(" ")));
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
        command.env(EVENT, event);
        for (name, value) in self.told.iter().chain(told) {
            // A variable cannot contain a zero byte.
            command.env(format!("WINDLASS_HOOK_{name}"), value.replace('\0', ""));
        }
        let child = command
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let status = self.wait(child, event == "on-failure")?;
        match (status.success(), status.code()) {
            (true, _) => Ok(()),
            (false, Some(code)) => Err(format!("ended with exit code {code}")),
            (false, None) => Err(format!("was ended: {status}")),
        }
    }

    /// Sets the user that hooks run as, and that user's home.
    fn become_owner(&self, command: &mut Command) -> Result<(), String> {
        let mut uid = Uid::effective();
        if uid.is_root() {
            let Some((owner, group)) = self.owner else {
                return Err("was not run: nobody knows whose the database is".to_owned());
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
    fn wait(&self, mut child: Child, is_last: bool) -> Result<ExitStatus, String> {
        let group = Pid::from_raw(child.id().cast_signed());
        let end = Instant::now() + self.timeout;
        loop {
            let status = child
                .try_wait()
                .map_err(|error| format!("was lost: {error}"))?;
            if let Some(status) = status {
                return Ok(status);
            }
            let interrupted = self.cancel.is_cancelled() && !is_last;
            if interrupted || Instant::now() >= end {
                stop(&mut child, group);
                let seconds = self.timeout.as_secs_f64();
                return Err(match interrupted {
                    true => "was interrupted".to_owned(),
                    false => format!("took longer than {seconds} s (--hook-timeout)"),
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
