//! A run from its first step to its last: the hooks around it, and metrics if it fails early.
//!
//!   `Run::go` --> the operation's own work (`before`, then a `Watch`) --> after, or on failure

use std::cell::Cell;
use std::sync::Arc;

use windlass_engine::{Cancel, Outputs, Progress, RunReport};

use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::hooks::{HookCommands, Hooks};
use crate::metrics::{self, Exporter};
use crate::notice::Notice;
use crate::outputs;
use crate::watch::{self, Watch, Watched, Watching};

/// What metrics call a backup that keeps nothing.
pub const TRIAL: &str = "trial";

/// What a finished run tells its hook.
pub struct RunEnd {
    ending: Ending,
    told: Vec<(&'static str, String)>,
}

impl RunEnd {
    /// The end of a backup or restore.
    pub fn new(caller: &Caller, ending: Ending, report: &RunReport) -> Self {
        let stripes: Vec<_> = report.devices.iter().map(|one| one.name.as_str()).collect();
        caller.tell(&Notice::Verdict(&report.verdict));
        Self {
            ending: match caller.observer.is_degraded() {
                true => ending.degraded(),
                false => ending,
            },
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

/// One run of an operation.
pub struct Run<'a> {
    /// Its hooks.
    pub hooks: Hooks,
    caller: &'a Caller,
    watching: &'a Watching,
    command: &'static str,
    operation: &'static str,
    series: String,
    /// Whether the run was watched. If so, its own metrics report its end.
    was_watched: Cell<bool>,
    /// Whether an output that was asked for was refused. Then nothing is written to any.
    was_refused: Cell<bool>,
}

impl<'a> Run<'a> {
    /// `subject` is what the run works on, as the user named it; `series` is the same for metrics.
    pub fn new(
        (caller, watching, hooks): (&'a Caller, &'a Watching, &HookCommands),
        command: &'static str,
        (subject, series): (&str, &str),
        cancel: &Cancel,
    ) -> Self {
        Self {
            hooks: Hooks::new(hooks, (command, subject), &caller.observer, cancel),
            caller,
            watching,
            command,
            operation: command,
            series: series.to_owned(),
            was_watched: Cell::new(false),
            was_refused: Cell::new(false),
        }
    }

    /// Makes this a run that keeps nothing. Neither its metrics nor its hooks may tell anybody that
    /// there is a backup.
    pub fn become_trial(&mut self) {
        self.operation = TRIAL;
        if self.hooks.give_up() {
            self.caller.tell(&Notice::NoHooks);
        }
    }

    /// Does the work, then runs the hook for the way it ended.
    pub fn go<T>(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<(T, RunEnd), OperationError>,
    ) -> Result<(T, Ending), OperationError> {
        match work(&mut self) {
            Ok((outcome, end)) => Ok((outcome, self.hooks.after(end.ending, &end.told))),
            Err(error) => {
                self.failed(error.ending(), &error.to_string());
                Err(error)
            }
        }
    }

    /// Tells metrics and the hook that the run failed.
    pub fn failed(&self, ending: Ending, text: &str) {
        self.failed_early();
        self.hooks.on_failure(ending, text.to_owned());
    }

    /// Refuses outputs where none may be, before anything is written.
    pub fn check(&self, outputs: &Outputs) -> Result<(), OperationError> {
        self.note_refusal(watch::check(self.caller, self.watching, outputs))
    }

    /// Starts to watch the run, under a name that may be better known by now.
    pub fn watch(
        &self,
        outputs: &Outputs,
        (subject, series): (&str, &str),
    ) -> Result<Watch, OperationError> {
        let watch = Watch::start(&Watched {
            caller: self.caller,
            watching: self.watching,
            outputs,
            command: self.command,
            operation: self.operation,
            subject: subject.to_owned(),
            series: series.to_owned(),
        });
        self.was_watched.set(watch.is_ok());
        self.note_refusal(watch)
    }

    fn note_refusal<T>(&self, done: Result<T, OperationError>) -> Result<T, OperationError> {
        let error = done.as_ref().err();
        self.was_refused.set(error.is_some_and(outputs::is_refusal));
        done
    }

    /// Writes the textfile of a run that failed before it could be watched.
    fn failed_early(&self) {
        let may_tell = !self.was_watched.get() && !self.was_refused.get();
        let path = self.watching.metrics_file.as_deref();
        let Some(path) = path.filter(|_| may_tell) else {
            return;
        };
        let outputs = outputs::outputs();
        let labels = (self.operation, self.series.as_str(), self.caller.version());
        let now = jiff::Timestamp::now();
        let exporter = Exporter::new(labels, now, &Arc::<Progress>::default());
        if let Err(error) = metrics::failed(path, &outputs, exporter) {
            self.caller.tell(&Notice::MetricsOfFailure(&error));
        }
    }
}
