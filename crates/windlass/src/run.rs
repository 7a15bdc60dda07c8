//! A run from its first step to its last: the hooks around it, and metrics if it fails early.
//!
//!   `Run::go` --> the command's own work (`before`, then a `Watch`) --> after, or on failure

use std::sync::Arc;

use windlass_engine::{Cancel, Progress, RunReport};

use crate::cli::{self, Global, Watching};
use crate::exit::{Code, Failure};
use crate::hooks::Hooks;
use crate::metrics::{self, Exporter};
use crate::watch::{self, Watched};
use crate::{log, output, outputs};

/// What metrics call a backup that keeps nothing.
pub const TRIAL: &str = "trial";

/// What a finished run tells its hook.
pub struct RunEnd {
    pub code: Code,
    pub told: Vec<(&'static str, String)>,
}

impl RunEnd {
    /// The end of a backup or restore.
    pub fn new(code: Code, report: &RunReport) -> Self {
        let stripes: Vec<_> = report.devices.iter().map(|one| one.name.as_str()).collect();
        log::info(&format!("verdict: {}", report.verdict));
        Self {
            code: output::degraded(code),
            told: vec![
                ("SET_ID", report.set_id.clone()),
                ("STRIPES", stripes.join("\n")),
                ("BYTES_READ", report.bytes_read.to_string()),
                ("BYTES_WRITTEN", report.bytes_written.to_string()),
                ("SECONDS", format!("{:.3}", report.seconds)),
                ("VERDICT", report.verdict.clone()),
            ],
        }
    }
}

/// One run of a command.
pub struct Run<'a> {
    pub hooks: Hooks,
    global: &'a Global,
    watching: &'a Watching,
    command: &'static str,
    operation: &'static str,
    subject: String,
    series: String,
}

impl<'a> Run<'a> {
    /// `subject` is what the run works on, as the command line names it; `series` is the same for
    /// metrics.
    pub fn new(
        (global, watching, hooks): (&'a Global, &'a Watching, &cli::Hooks),
        command: &'static str,
        (subject, series): (&str, &str),
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        Ok(Self {
            hooks: Hooks::new(hooks, command, subject, cancel)?,
            global,
            watching,
            command,
            operation: command,
            subject: subject.to_owned(),
            series: series.to_owned(),
        })
    }

    /// Makes this a run that keeps nothing. Neither its metrics nor its hooks may tell anybody that
    /// there is a backup.
    pub fn become_trial(&mut self, global: &Global) {
        self.operation = TRIAL;
        if self.hooks.give_up() && !global.is_silent() {
            output::note("note: no hook runs, because nul keeps nothing: this is no backup");
        }
    }

    /// Does the work, then runs the hook for the way it ended.
    pub fn go(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<RunEnd, Failure>,
    ) -> Result<Code, Failure> {
        match work(&mut self) {
            Ok(finished) => Ok(self.hooks.after(finished.code, &finished.told)),
            Err(failure) => {
                self.failed_early();
                self.hooks.on_failure(&failure);
                Err(failure)
            }
        }
    }

    /// Writes the textfile of a run that failed before it could be watched.
    fn failed_early(&self) {
        let Some(path) = self
            .watching
            .metrics_file
            .as_deref()
            .filter(|_| watch::may_tell() && !metrics::was_refused())
        else {
            return;
        };
        let outputs = outputs::outputs();
        let run = Watched {
            global: self.global,
            watching: self.watching,
            outputs: &outputs,
            command: self.command,
            operation: self.operation,
            subject: self.subject.clone(),
            series: self.series.clone(),
            percent: 100,
        };
        let exporter = Exporter::new(&run, jiff::Timestamp::now(), &Arc::<Progress>::default());
        if let Err(error) = metrics::failed(path, &outputs, exporter) {
            output::note(&format!("warning: no metrics of this run: {error}"));
        }
    }
}
