//! When hooks run, and what can go wrong with one.

use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

use crate::ending::Ending;

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// Before the run.
    Before,
    /// After a run that came to its end.
    After,
    /// After a run that failed.
    OnFailure,
}

impl HookEvent {
    /// The word for it, in the hook's environment and in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::OnFailure => "on-failure",
        }
    }
}

/// A hook did not do its work.
#[derive(Debug, Error)]
#[error("the hook {} ({}) of {command} {subject} {fault}", event.word(), words.join(" "))]
pub struct HookError {
    /// Which one.
    pub event: HookEvent,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// The operation.
    pub command: String,
    /// What the operation works on.
    pub subject: String,
    /// What went wrong.
    pub fault: HookFault,
    /// Whether the operation was interrupted.
    pub interrupted: bool,
}

impl HookError {
    /// How an operation ends that was not begun because of it.
    pub fn ending(&self) -> Ending {
        match self.interrupted {
            true => Ending::Interrupted,
            false => Ending::Failed,
        }
    }
}

/// What went wrong in a hook.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HookFault {
    /// The program cannot be run.
    #[error("cannot be run: {0}")]
    Unrunnable(std::io::Error),
    /// Nobody can wait for it.
    #[error("was lost: {0}")]
    Lost(std::io::Error),
    /// As root it would run what belongs to somebody else.
    #[error("was not run: nobody knows whose the database is")]
    NoOwner,
    /// It said itself that it failed.
    #[error("ended with exit code {0}")]
    Code(i32),
    /// Somebody ended it.
    #[error("was ended: {0}")]
    Signal(ExitStatus),
    /// The operation was interrupted.
    #[error("was interrupted")]
    Interrupted,
    /// It took longer than it may.
    #[error("took longer than {} s", .0.as_secs_f64())]
    TooLong(Duration),
}
