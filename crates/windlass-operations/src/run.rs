//! A run from its first step to its last: the hooks around it, its row in the history, and metrics
//! if it fails early.
//!
//!   `Run::go` --> the operation's own work (`before`, then a `Watch`) --> after, or on failure

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use windlass_engine::{Cancel, Outputs, Progress};

use crate::caller::Caller;
use crate::ended::{RunCounts, RunEnd, RunStart};
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::{HistoryRun, RunAbout};
use crate::hooks::{HookCommands, Hooks};
use crate::metrics::{self, Exporter};
use crate::notice::Notice;
use crate::outputs;
use crate::watch::{self, Watch, Watched, Watching};

/// What metrics call a backup that keeps nothing.
pub const TRIAL: &str = "trial";
/// What metrics call a backup of the log: nobody who looks for the last set may find it.
pub const LOG: &str = "log";

/// One run of an operation.
pub struct Run<'a> {
    /// Its hooks.
    pub hooks: Hooks,
    caller: &'a Caller,
    watching: &'a Watching,
    start: RefCell<RunStart>,
    /// Whether the run was watched. If so, its own metrics report its end.
    was_watched: Cell<bool>,
    /// Whether an output that was asked for was refused. Then nothing is written to any.
    was_refused: Cell<bool>,
    history: HistoryRun,
}

impl<'a> Run<'a> {
    /// `subject` is what the run works on, as the user named it; `series` is the same for metrics.
    pub fn new(
        (caller, watching, hooks): (&'a Caller, &'a Watching, &HookCommands),
        command: &'static str,
        (subject, series): (&str, &str),
        cancel: &Cancel,
    ) -> Self {
        let start = RunStart {
            command,
            operation: command,
            subject: subject.to_owned(),
            series: series.to_owned(),
            started: jiff::Timestamp::now(),
        };
        Self {
            history: HistoryRun::begin(caller, &start),
            hooks: Hooks::new(hooks, &start, &caller.observer, cancel),
            caller,
            watching,
            start: RefCell::new(start),
            was_watched: Cell::new(false),
            was_refused: Cell::new(false),
        }
    }

    /// Makes this a run that keeps nothing. Neither its metrics nor its hooks may tell anybody that
    /// there is a backup.
    pub fn become_trial(&mut self) {
        self.start.get_mut().operation = TRIAL;
        if self.hooks.give_up() {
            self.caller.tell(&Notice::NoHooks);
        }
    }

    /// What is known of the run beside its report, for the history.
    pub(crate) fn about(&self, about: RunAbout) {
        self.history.about(about);
    }

    /// Makes this a run that copies log and makes no set.
    pub fn become_log(&mut self) {
        self.start.get_mut().operation = LOG;
    }

    /// Does work that is too short to be watched: metrics tell only how it ended.
    pub fn go_unwatched<T>(
        self,
        work: impl FnOnce(&Self) -> Result<(T, Ending, RunCounts), OperationError>,
    ) -> Result<(T, Ending), OperationError> {
        self.go(|run| {
            let (outcome, ending, counts) = work(run)?;
            let end = RunEnd {
                counts: Some(counts),
                ..run.start.borrow().failed(ending, None)
            };
            run.tell_metrics(&end);
            Ok((outcome, end))
        })
    }

    /// Does the work, then runs the hook for the way it ended. Every run ends here.
    pub fn go<T>(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<(T, RunEnd), OperationError>,
    ) -> Result<(T, Ending), OperationError> {
        match work(&mut self) {
            Ok((outcome, mut end)) => {
                if self.caller.observer.is_degraded() {
                    end.ending = end.ending.degraded();
                }
                end.ending = self.history.end(self.caller, &end);
                let ending = self.hooks.after(&end);
                if ending != end.ending {
                    end.ending = ending;
                    self.history.end(self.caller, &end);
                }
                self.caller.tell(&Notice::RunEnded(&end));
                Ok((outcome, end.ending))
            }
            Err(error) => {
                self.failed(error.ending(), &error.to_string());
                Err(error)
            }
        }
    }

    /// Tells metrics and the hook that the run failed.
    pub fn failed(&self, ending: Ending, text: &str) {
        let end = self.start.borrow().failed(ending, Some(text));
        self.tell_metrics(&end);
        self.history.end(self.caller, &end);
        self.hooks.on_failure(&end);
        self.caller.tell(&Notice::RunEnded(&end));
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
        let mut start = self.start.borrow_mut();
        (start.subject, start.series) = (subject.to_owned(), series.to_owned());
        let watch = Watch::start(&Watched {
            caller: self.caller,
            watching: self.watching,
            outputs,
            run: &start,
        });
        self.was_watched.set(watch.is_ok());
        self.note_refusal(watch)
    }

    fn note_refusal<T>(&self, done: Result<T, OperationError>) -> Result<T, OperationError> {
        let error = done.as_ref().err();
        self.was_refused.set(error.is_some_and(outputs::is_refusal));
        done
    }

    /// Writes the textfile of a run that was not watched.
    fn tell_metrics(&self, end: &RunEnd) {
        let may_tell = !self.was_watched.get() && !self.was_refused.get();
        let path = self.watching.metrics_file.as_deref();
        let Some(path) = path.filter(|_| may_tell) else {
            return;
        };
        let outputs = outputs::outputs();
        let exporter = Exporter::new(&end.run, self.caller.version(), &Arc::<Progress>::default());
        if let Err(error) = metrics::failed(path, &outputs, exporter, end) {
            self.caller.tell(&Notice::MetricsOfFailure(&error));
        }
    }
}
