//! What is done with snapshots, as processes of their own, and what these report.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;
use windlass_engine::Cancel;
use windlass_snapshot::Method;
use windlass_snapshot::hook::HookStart;

use super::error::ExperimentError;
use crate::error::OperationError;
use crate::sweeping::{interrupt, lost, run_command};

/// Something to do.
#[derive(Clone, Copy, Debug)]
pub enum SnapshotWork<'a> {
    /// Make a snapshot.
    Create {
        /// The server.
        database: &'a str,
        /// The name of the snapshot.
        name: &'a str,
        /// The method.
        method: Method,
        /// How it begins.
        start: HookStart,
        /// The directory for it.
        to: Option<&'a Path>,
    },
    /// List them all.
    List {
        /// The server.
        database: &'a str,
    },
    /// Drop one.
    Drop {
        /// The server.
        database: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// Go back to one, without a question.
    Revert {
        /// The server.
        database: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// Open one, until SIGINT comes.
    Open {
        /// The server.
        database: &'a str,
        /// Its name.
        name: &'a str,
        /// The directory of the server's programs.
        programs: &'a Path,
    },
}

/// Makes the command of a piece of work. Its process prints one JSON object on standard output, and
/// ends with the number of its [`Ending`](crate::Ending). SIGINT ends it.
pub type SnapshotCommand<'a> = dyn Fn(&SnapshotWork<'_>) -> io::Result<Command> + 'a;

/// How work is done.
#[derive(Clone, Copy)]
pub(super) struct Works<'a> {
    pub(super) command: &'a SnapshotCommand<'a>,
    pub(super) cancel: &'a Cancel,
}

/// A snapshot that was made.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct CreatedReport {
    /// RFC 3339 time at which it was begun.
    pub(super) created: String,
    /// RFC 3339 time as of which its data are.
    pub(super) as_of: String,
    pub(super) seconds: f64,
    pub(super) writers_stopped_seconds: f64,
    pub(super) steps: Vec<StepReport>,
}

/// A step.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct StepReport {
    pub(super) name: String,
    pub(super) seconds: f64,
}

/// All snapshots.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListReport {
    pub(super) snapshots: Vec<ListedReport>,
}

/// A snapshot in the list.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListedReport {
    pub(super) name: String,
    #[serde(default)]
    pub(super) disk_bytes: Option<u64>,
    #[serde(default)]
    pub(super) grown_bytes: Option<u64>,
}

/// A revert.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RevertReport {
    pub(super) seconds: f64,
    pub(super) writers_stopped_seconds: f64,
}

/// A snapshot that is open.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OpenReport {
    pub(super) steps: Vec<StepReport>,
    pub(super) conninfo: String,
}

impl Works<'_> {
    fn command(&self, work: &SnapshotWork<'_>) -> Result<Command, OperationError> {
        Ok((self.command)(work).map_err(lost)?)
    }

    pub(super) fn create(&self, work: &SnapshotWork<'_>) -> Result<CreatedReport, OperationError> {
        Ok(run_command(self.command(work)?, self.cancel)?.1)
    }

    pub(super) fn list(&self, database: &str) -> Result<ListReport, OperationError> {
        let work = SnapshotWork::List { database };
        Ok(run_command(self.command(&work)?, self.cancel)?.1)
    }

    pub(super) fn drop(&self, database: &str, name: &str) -> Result<(), OperationError> {
        let work = SnapshotWork::Drop { database, name };
        run_command::<serde_json::Value>(self.command(&work)?, self.cancel)?;
        Ok(())
    }

    pub(super) fn revert(
        &self,
        database: &str,
        name: &str,
    ) -> Result<RevertReport, OperationError> {
        let work = SnapshotWork::Revert { database, name };
        Ok(run_command(self.command(&work)?, self.cancel)?.1)
    }

    /// Opens a snapshot while `look` runs.
    pub(super) fn while_open<T>(
        &self,
        work: &SnapshotWork<'_>,
        look: impl FnOnce(&OpenReport) -> Result<T, OperationError>,
    ) -> Result<T, OperationError> {
        self.cancel.check()?;
        let mut command = self.command(work)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        // It must not outlive this process, whose end removes what it serves.
        windlass_postgres::end_with_this_thread(&mut command);
        let mut process = command.spawn().map_err(lost)?;
        let mut line = String::new();
        let output = process.stdout.take();
        let read = output.map(|output| BufReader::new(output).read_line(&mut line));
        read.unwrap_or(Ok(0)).map_err(lost)?;
        let looked = match serde_json::from_str::<OpenReport>(&line) {
            Ok(report) => look(&report),
            Err(_) => {
                let mut errors = String::new();
                if let Some(mut pipe) = process.stderr.take() {
                    io::Read::read_to_string(&mut pipe, &mut errors).map_err(lost)?;
                }
                let said = format!("{} {}", line.trim(), errors.trim())
                    .trim()
                    .to_owned();
                Err(ExperimentError::NotOpened { said }.into())
            }
        };
        interrupt(&process);
        process.wait().map_err(lost)?;
        looked
    }
}
