//! One run: a process of this program, with `--json`.
//!
//! The kernel counts the child's CPU time from exec to exit. The child reports its memory itself.
//! Runs come one after another, so the CPU time of all children grows by that of one run.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::Pid;
use windlass_engine::RunReport;
use windlass_engine::{Cancel, EngineError};
use windlass_lab::Case;

use crate::exit::{Code, Failure};

/// The pause between two looks at the flag to stop. The looks may make a run a few microseconds
/// longer.
const LOOK: Duration = Duration::from_millis(5);

/// How runs are made.
pub struct Child<'a> {
    /// Further options of each run.
    pub arguments: &'a [String],
    /// The flag to stop.
    pub cancel: Cancel,
}

impl Child<'_> {
    /// Makes a backup. Returns the CPU seconds of the process, and its report.
    pub fn back_up(
        &self,
        database: &str,
        case: &Case,
        to: &[PathBuf],
    ) -> Result<(f64, RunReport), Failure> {
        let mut words = vec!["backup".to_owned(), database.to_owned()];
        for path in to {
            words.extend(["--to".to_owned(), path.to_string_lossy().into_owned()]);
        }
        words.extend([
            format!("--compress={}", case.codec),
            format!("--block-size={}", case.block_bytes),
        ]);
        self.run(case, words)
    }

    /// Makes a restore. Returns the CPU seconds of the process, and its report.
    pub fn restore(
        &self,
        case: &Case,
        stripes: &[PathBuf],
        into: &Path,
    ) -> Result<(f64, RunReport), Failure> {
        let mut words = vec!["restore".to_owned()];
        let stripes = stripes
            .iter()
            .map(|path| path.to_string_lossy().into_owned());
        words.extend(stripes);
        words.extend(["--into".to_owned(), into.to_string_lossy().into_owned()]);
        self.run(case, words)
    }

    fn run(&self, case: &Case, mut words: Vec<String>) -> Result<(f64, RunReport), Failure> {
        words.push(format!("--transfer-size={}", case.transfer_bytes));
        words.extend(case.buffers.map(|buffers| format!("--buffers={buffers}")));
        let emulate = case.set_up.iter().flat_map(|set_up| &set_up.emulate);
        words.extend(emulate.map(|item| format!("--emulate={item}")));
        words.extend(["--json".to_owned(), "--config=/dev/null".to_owned()]);
        // Experiments do not show how well plans predict the user's own runs.
        words.push("--no-prediction".to_owned());
        words.extend_from_slice(self.arguments);
        self.cancel.check()?;
        let before = children_cpu_seconds()?;
        let (status, out, err) = self.wait(command(&words)?)?;
        let cpu = children_cpu_seconds()? - before;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        if !matches!(code, Some(0 | 3)) {
            return Err(self.failure(&words, code, &out, &err));
        }
        let record =
            serde_json::from_str(&out).map_err(|error| broken(&words, &error.to_string()))?;
        Ok((cpu, record))
    }

    /// Waits until it ends, and passes on the wish to stop.
    fn wait(&self, mut process: Process) -> Result<(ExitStatus, String, String), Failure> {
        let (out, err) = (process.stdout.take(), process.stderr.take());
        let (out, err) = (read(out), read(err));
        let mut told = false;
        let status = loop {
            if let Some(status) = process.try_wait().map_err(|error| lost(&error))? {
                break status;
            }
            if self.cancel.is_cancelled() && !told {
                told = true;
                let id = i32::try_from(process.id()).map(Pid::from_raw);
                // The process may have ended by itself, or the terminal may have sent it the
                // signal.
                id.ok()
                    .map(|id| kill(id, Signal::SIGINT))
                    .unwrap_or(Ok(()))
                    .unwrap_or_default();
            }
            std::thread::sleep(LOOK);
        };
        Ok((
            status,
            out.join().unwrap_or_default(),
            err.join().unwrap_or_default(),
        ))
    }

    fn failure(&self, words: &[String], code: Option<u8>, out: &str, err: &str) -> Failure {
        if self.cancel.is_cancelled() {
            return EngineError::Cancelled.into();
        }
        let document: serde_json::Value = serde_json::from_str(out).unwrap_or_default();
        let code = code.and_then(Code::of_number).unwrap_or(Code::Failed);
        match document["error"].as_str() {
            Some(error) => {
                let hint = document["hint"].as_str().map(str::to_owned);
                Failure::hinted(code, error.to_owned(), hint)
            }
            None => broken(words, err.trim()),
        }
    }
}

fn command(words: &[String]) -> Result<Process, Failure> {
    let program = std::env::current_exe().map_err(|error| lost(&error))?;
    let mut command = Command::new(program);
    // Variables in the environment are meant for the user's own backups.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| lost(&error))
}

/// Reads a pipe to its end, so that the process that writes into it never waits.
fn read(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let ended = pipe.map(|mut pipe| pipe.read_to_end(&mut text));
        // If a pipe breaks, what came before is kept.
        ended.unwrap_or(Ok(0)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// CPU time of all processes that this one started and waited for.
fn children_cpu_seconds() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| lost(&error.into()))?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    #[expect(clippy::cast_precision_loss, reason = "microseconds of at most years")]
    Ok(micros as f64 / 1e6)
}

fn lost(error: &std::io::Error) -> Failure {
    let message = format!("cannot run a backup or restore: {error}");
    Failure::new(Code::Failed, message, "Try again.")
}

fn broken(words: &[String], what: &str) -> Failure {
    let message = format!("windlass {}: {what}", words.join(" "));
    Failure::new(Code::Failed, message, "Run it by itself to see more.")
}
