//! Everything that shows a run while it works: bar or lines, `windlass status`, metrics, events.
//!
//!   command --> Watch::start --> [progress] --> the engine's threads
//!                                    ^
//!                     bar, status, metrics, events look at it
//!
//! Invariant: a run goes on if it cannot be shown, and ends with a warning: a backup must not fail
//! for its metrics, its events or its log. The exception is an output that is refused, because it
//! is the database or a file of another kind. Then the operation ends before it does anything.

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::{
    EngineError, EventFormat, EventHeader, EventLog, EventOptions, Live, Meter, OutputKind,
    Outputs, Progress, RunReport, to_json,
};

use crate::caller::Caller;
use crate::ended::{RunEnd, RunStart};
use crate::ending::Ending;
use crate::error::OperationError;
use crate::metrics::{Exporter, Metrics, MetricsAddress};
use crate::notice::{Notice, Observer};
use crate::outputs::{self, METRICS};
use crate::status::Operation;

/// How a run is recorded, beside what its observer shows.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// Records every wait and transfer.
    pub events: Option<Events>,
    /// The address at which metrics for Prometheus are served.
    pub metrics: Option<MetricsAddress>,
    /// The file of metrics for node_exporter's textfile collector.
    pub metrics_file: Option<PathBuf>,
}

/// A file of events.
#[derive(Clone, Debug)]
pub struct Events {
    /// The file.
    pub path: PathBuf,
    /// How it is written.
    pub format: EventFormat,
    /// Its largest size. To stay below it, only a sample of the short events is kept.
    pub limit_bytes: u64,
}

/// Refuses files of events and metrics, and a log, where no output may be, and two of them that are
/// one file. An operation calls this before it writes anything.
pub fn check(
    caller: &Caller,
    watching: &Watching,
    outputs: &Outputs,
) -> Result<(), OperationError> {
    let mut outputs = outputs.clone();
    if let Some(path) = &caller.log {
        check_log(caller, &outputs)?;
        allowed(outputs.protect_output(path, "the log of this run goes there"))?;
    }
    if let Some(events) = &watching.events {
        allowed(outputs.check_kind(&events.path, &OutputKind::EVENTS))?;
        allowed(outputs.protect_output(&events.path, "the events of this run go there"))?;
    }
    match &watching.metrics_file {
        Some(path) => Ok(allowed(outputs.check_kind(path, &METRICS))?),
        None => Ok(()),
    }
}

/// Refuses a log where no output may be, and tells so: the caller removes it if it created it. A
/// log is opened first of all, and what it writes to may turn out to be a file that a restore
/// creates.
pub fn check_log(caller: &Caller, outputs: &Outputs) -> Result<(), OperationError> {
    let Some(path) = &caller.log else {
        return Ok(());
    };
    // The guards looked when the log was opened. Root may have opened it where the database's owner
    // sees nothing.
    let checked = allowed(outputs.clone().unguarded().check(path));
    Ok(checked.inspect_err(|_| caller.tell(&Notice::LogRefused))?)
}

/// An output that cannot be written at all is no mistake. The run warns when it comes to write it.
fn allowed(checked: Result<(), EngineError>) -> Result<(), EngineError> {
    checked.or_else(|error| match outputs::is_of_place(&error) {
        true => Ok(()),
        false => Err(error),
    })
}

/// A run, with what those need who watch it.
pub struct Watched<'a> {
    /// Who called.
    pub caller: &'a Caller,
    /// How it is recorded.
    pub watching: &'a Watching,
    /// What may not be written to.
    pub outputs: &'a Outputs,
    /// What runs.
    pub run: &'a RunStart,
}

/// Everything that shows a run, until it is ended.
pub struct Watch {
    run: RunStart,
    observer: Arc<dyn Observer>,
    progress: Arc<Progress>,
    shown: Option<Box<dyn Any>>,
    operation: Option<Operation>,
    metrics: Option<Metrics>,
    events: Option<EventLog>,
    phases: Arc<PhaseLog>,
}

/// Remembers which of a run's phases were told.
struct PhaseLog {
    observer: Arc<dyn Observer>,
    progress: Arc<Progress>,
    told: Mutex<usize>,
}

impl PhaseLog {
    fn new(observer: &Arc<dyn Observer>, progress: &Arc<Progress>) -> Self {
        Self {
            observer: Arc::clone(observer),
            progress: Arc::clone(progress),
            told: Mutex::new(0),
        }
    }

    /// Tells the phases that are new.
    fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let phases = self.progress.phases();
        for phase in phases.iter().skip(*told) {
            self.observer.notice(&Notice::Phase(phase));
        }
        *told = phases.len();
    }
}

/// The end of a run that was not cut short.
pub struct Ended<'a> {
    /// What the run did.
    pub report: &'a RunReport,
    /// How it ended.
    pub ending: Ending,
    /// Whether neither it nor an earlier run of the same operation found damage. This is what
    /// metrics say, because they describe these runs together.
    pub are_all_well: bool,
}

impl<'a> Ended<'a> {
    /// An end without damage.
    pub fn well(report: &'a RunReport) -> Self {
        Self {
            report,
            ending: Ending::Done,
            are_all_well: true,
        }
    }
}

impl Watch {
    /// Starts everything that was asked for.
    pub fn start(run: &Watched<'_>) -> Result<Self, OperationError> {
        let (caller, watching) = (run.caller, run.watching);
        check(caller, watching, run.outputs)?;
        let progress = Arc::<Progress>::default();
        let started = jiff::Timestamp::now();
        let events = events(run, started, &progress)?;
        let exporter = Exporter::new(run.run, caller.version(), &progress);
        let asked = (watching.metrics.as_ref(), watching.metrics_file.as_deref());
        let metrics = Metrics::start(asked, run.outputs, exporter, &caller.observer)?;
        if let Some(address) = metrics.address() {
            caller.tell(&Notice::Metrics(address));
        }
        let meter = Mutex::new(Meter::new(&progress));
        let phases = Arc::new(PhaseLog::new(&caller.observer, &progress));
        let told = Arc::clone(&phases);
        let look = move || {
            let live = meter.lock().unwrap_or_else(PoisonError::into_inner).look();
            told.tell();
            let mut numbers = to_json(&live);
            numbers["estimated_completion"] = completion(&live).into();
            (live.phase.to_owned(), numbers)
        };
        Ok(Self {
            run: run.run.clone(),
            shown: caller.observer.watch(&progress),
            observer: Arc::clone(&caller.observer),
            operation: Some(Operation::begin(run.run.command, &run.run.subject, look)),
            metrics: Some(metrics),
            events,
            progress,
            phases,
        })
    }

    /// The place where the engine reports its progress.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends the run's display. Metrics and events record how the run ended.
    pub fn end<T, E: Into<OperationError>>(
        mut self,
        result: Result<T, E>,
        ended: impl for<'a> Fn(&'a T) -> Ended<'a>,
    ) -> Result<(T, RunEnd), OperationError> {
        let result = result.map_err(Into::into);
        (self.shown, self.operation) = (None, None);
        self.phases.tell();
        let end = match &result {
            Ok(done) => self.run.done(ended(done).ending, ended(done).report),
            Err(error) => self.run.failed(error.ending(), Some(&error.to_string())),
        };
        if let Some(metrics) = self.metrics.take() {
            let are_all_well = result.as_ref().is_ok_and(|done| ended(done).are_all_well);
            metrics.end(&end, are_all_well);
        }
        if let Some(events) = self.events.take() {
            let report = result.as_ref().ok().map(|done| ended(done).report);
            let outcome = report.ok_or(end.error.as_deref().unwrap_or_default());
            self.end_events(events, outcome);
        }
        Ok((result?, end))
    }

    fn end_events(&self, events: EventLog, outcome: Result<&RunReport, &str>) {
        match events.finish(outcome) {
            // The run itself has succeeded, and a missing record must not change that.
            Err(error) => self.observer.notice(&Notice::EventsFailed(&error)),
            // The file says this too, and so does its evaluation.
            Ok(summary) if summary.lost > 0 => {
                self.observer.notice(&Notice::LostEvents(summary.lost));
            }
            Ok(_) => {}
        }
    }
}

fn events(
    run: &Watched<'_>,
    started: jiff::Timestamp,
    progress: &Arc<Progress>,
) -> Result<Option<EventLog>, OperationError> {
    let Some(events) = &run.watching.events else {
        return Ok(None);
    };
    let options = EventOptions {
        path: events.path.clone(),
        format: events.format,
        limit_bytes: events.limit_bytes,
        header: EventHeader {
            tool: run.caller.tool.clone(),
            command: run.run.command.to_owned(),
            subject: run.run.subject.clone(),
            started: started.to_string(),
        },
    };
    match EventLog::create(options, run.outputs, progress) {
        Err(error) if outputs::is_of_place(&error) => {
            let path = &events.path;
            let error = &error;
            run.caller.tell(&Notice::EventsUnwritten { path, error });
            Ok(None)
        }
        created => Ok(Some(created?)),
    }
}

/// When everything will be done at the present speed; RFC 3339.
fn completion(live: &Live) -> Option<String> {
    let left = std::time::Duration::try_from_secs_f64(live.remaining_seconds?).ok()?;
    let end = jiff::Timestamp::now().checked_add(left).ok()?;
    // The estimate is not exact to the nanosecond.
    let end = end.round(jiff::Unit::Second).ok()?;
    Some(end.to_string())
}
