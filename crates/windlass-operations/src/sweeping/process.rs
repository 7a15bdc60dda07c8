//! One run: a process that makes it and prints its report.
//!
//! The kernel counts the CPU time of a process from exec to exit. The process reports its memory
//! itself. Runs come one after another, so the CPU time of all children grows by that of one run.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use windlass_engine::{Cancel, EngineError, RunReport};
use windlass_lab::Case;

use super::{FailedRun, SweepError};
use crate::ending::Ending;
use crate::error::OperationError;

/// The pause between two looks at the flag to stop. The looks may make a run a few microseconds
/// longer.
const LOOK: Duration = Duration::from_millis(5);

/// A run to make.
#[derive(Clone, Copy, Debug)]
pub struct CaseRun<'a> {
    /// Its settings.
    pub case: &'a Case,
    /// What it does.
    pub work: SweptWork<'a>,
}

/// What a run does.
#[derive(Clone, Copy, Debug)]
pub enum SweptWork<'a> {
    /// A backup.
    Backup {
        /// The database.
        database: &'a str,
        /// The file of each stripe, or `nul`.
        to: &'a [PathBuf],
    },
    /// A restore.
    Restore {
        /// The stripes of the set.
        stripes: &'a [PathBuf],
        /// Where the files go.
        into: &'a Path,
    },
}

/// Makes the command of a run. Its process keeps no prediction, prints its [`RunReport`] as one
/// JSON object on standard output, and ends with the number of its [`Ending`]. SIGINT ends it.
pub type RunCommand<'a> = dyn Fn(&CaseRun<'_>) -> io::Result<Command> + 'a;

/// How runs are made.
pub(super) struct Processes<'a> {
    pub(super) command: &'a RunCommand<'a>,
    pub(super) cancel: &'a Cancel,
}

impl Processes<'_> {
    /// Makes a run. Returns the CPU seconds of its process, and its report.
    pub(super) fn run(&self, run: &CaseRun<'_>) -> Result<(f64, RunReport), OperationError> {
        self.cancel.check()?;
        let command = (self.command)(run).map_err(lost)?;
        run_command(command, self.cancel)
    }
}

/// Runs a command that prints one JSON object. Returns the CPU seconds of its process, and that
/// object.
pub(crate) fn run_command<T: DeserializeOwned>(
    mut command: Command,
    cancel: &Cancel,
) -> Result<(f64, T), OperationError> {
    cancel.check()?;
    let before = children_cpu_seconds()?;
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (status, output, errors) = wait(command.spawn().map_err(lost)?, cancel)?;
    let cpu = children_cpu_seconds()? - before;
    let words = command.get_args();
    let words: Vec<_> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match ending(status) {
        Ending::Done | Ending::Warnings => {
            let report = serde_json::from_str(&output);
            let report = report.map_err(|source| SweepError::NoReport { words, source })?;
            Ok((cpu, report))
        }
        _ if cancel.is_cancelled() => Err(EngineError::Cancelled.into()),
        ending => Err(SweepError::Failed(Box::new(FailedRun {
            words,
            ending,
            output,
            errors,
        }))
        .into()),
    }
}

/// Waits until it ends, and passes on the wish to stop.
fn wait(mut process: Child, cancel: &Cancel) -> Result<(ExitStatus, String, String), SweepError> {
    let (output, errors) = (process.stdout.take(), process.stderr.take());
    let (output, errors) = (read(output), read(errors));
    let mut told = false;
    let status = loop {
        if let Some(status) = process.try_wait().map_err(lost)? {
            break status;
        }
        if cancel.is_cancelled() && !told {
            told = true;
            // The process may have ended by itself, or the terminal may have sent it the signal.
            interrupt(&process);
        }
        std::thread::sleep(LOOK);
    };
    Ok((
        status,
        output.join().unwrap_or_default(),
        errors.join().unwrap_or_default(),
    ))
}

/// Asks a process to end, as Ctrl-C does. One that has ended is left alone.
pub(crate) fn interrupt(process: &Child) {
    let id = i32::try_from(process.id()).map(Pid::from_raw);
    id.ok()
        .map(|id| kill(id, Signal::SIGINT))
        .unwrap_or(Ok(()))
        .unwrap_or_default();
}

/// How the run ended. One that a signal ended has failed.
fn ending(status: ExitStatus) -> Ending {
    let number = status.code().and_then(|code| u8::try_from(code).ok());
    number.and_then(Ending::of_number).unwrap_or(Ending::Failed)
}

/// Reads a pipe to its end, so that the process that writes into it never waits.
fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let ended = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        // If a pipe breaks, what came before is kept.
        ended.unwrap_or(Ok(0)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// CPU time of all processes that this one started and waited for.
fn children_cpu_seconds() -> Result<f64, SweepError> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| lost(error.into()))?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    #[expect(clippy::cast_precision_loss, reason = "microseconds of at most years")]
    Ok(micros as f64 / 1e6)
}

pub(crate) fn lost(source: io::Error) -> SweepError {
    SweepError::Process { source }
}
