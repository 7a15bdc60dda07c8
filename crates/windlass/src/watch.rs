//! Everything that shows a run while it works: bar or lines, `windlass status`, metrics, events.
//!
//!   command --> Watch::start --> [progress] --> the engine's threads
//!                                    ^
//!                     bar, status, metrics, events look at it
//!
//! Invariant: a run goes on if it cannot be shown, and ends with a warning: a backup must not fail
//! for its metrics, its events or its log. The exception is an output that is refused, because it
//! is the database or a file of another kind. Then the command ends before it does anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use windlass_engine::{
    EngineError, EventFormat, EventHeader, EventLog, EventOptions, Live, Meter, OutputKind,
    Outputs, Progress, RunReport, to_json,
};

use crate::cli::{Global, TraceFormat, Watching};
use crate::exit::Failure;
use crate::metrics::{self, Exporter, Metrics};
use crate::outputs::METRICS;
use crate::progress::{Show, Shown};
use crate::status::Operation;
use crate::{log, output, outputs};

/// Whether any run of this process was shown. If so, its own metrics report its end.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether the files that the user named were refused. Then nothing is written to them.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether a run that failed early may write its metrics.
pub fn may_tell() -> bool {
    !BEGUN.load(Ordering::Relaxed) && !REFUSED.load(Ordering::Relaxed)
}

/// Refuses files of events and metrics, and a log, where no output may be, and two of them that are
/// one file. A command calls this before it writes anything.
pub fn check(global: &Global, watching: &Watching, outputs: &Outputs) -> Result<(), Failure> {
    if let Some(address) = &watching.metrics {
        metrics::check_address(address)?;
    }
    let checked = check_files(global, watching, outputs.clone());
    if checked.is_err() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    Ok(checked?)
}

fn check_files(
    global: &Global,
    watching: &Watching,
    mut outputs: Outputs,
) -> Result<(), EngineError> {
    if let Some(path) = log::file(global) {
        check_log(global, &outputs)?;
        allowed(outputs.protect_output(path, "the log of this run goes there"))?;
    }
    if let Some(path) = &watching.events {
        allowed(outputs.check_kind(path, &OutputKind::EVENTS))?;
        allowed(outputs.protect_output(path, "the events of this run go there"))?;
    }
    match &watching.metrics_file {
        Some(path) => allowed(outputs.check_kind(path, &METRICS)),
        None => Ok(()),
    }
}

/// Refuses a log where no output may be, and removes it if this process created it. The log is
/// opened first of all, and what it writes to may turn out to be a file that a restore creates.
pub fn check_log(global: &Global, outputs: &Outputs) -> Result<(), EngineError> {
    let Some(path) = log::file(global) else {
        return Ok(());
    };
    // The guards looked when the log was opened. Root may have opened it where the database's owner
    // sees nothing.
    let checked = allowed(outputs.clone().unguarded().check(path));
    checked.inspect_err(|_| log::withdraw())
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
    pub global: &'a Global,
    pub watching: &'a Watching,
    /// What may not be written to.
    pub outputs: &'a Outputs,
    /// `backup`, `restore`, `verify`.
    pub command: &'static str,
    /// The same for metrics, but a backup that keeps nothing is a `trial`: nobody who looks for the
    /// last backup may find it.
    pub operation: &'static str,
    /// What it works on.
    pub subject: String,
    /// The same for metrics. It is another one for each database, and the same one every night.
    pub series: String,
    /// Without a terminal, a line is printed each time that this many more percent are done.
    pub percent: u8,
}

/// Everything that shows a run, until it is ended.
pub struct Watch {
    progress: Arc<Progress>,
    shown: Option<Shown>,
    operation: Option<Operation>,
    metrics: Option<Metrics>,
    events: Option<EventLog>,
    phases: Arc<PhaseLog>,
}

/// Remembers which of a run's phases are already in the log.
struct PhaseLog {
    progress: Arc<Progress>,
    told: Mutex<usize>,
}

impl PhaseLog {
    fn new(progress: &Arc<Progress>) -> Self {
        Self {
            progress: Arc::clone(progress),
            told: Mutex::new(0),
        }
    }

    /// Logs the phases that are new.
    fn tell(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let phases = self.progress.phases();
        for phase in phases.iter().skip(*told) {
            log::info(&format!("phase: {phase}"));
        }
        *told = phases.len();
    }
}

/// The end of a run that was not cut short.
pub struct Ended<'a> {
    pub report: &'a RunReport,
    /// False when it found damage.
    pub well: bool,
}

impl<'a> Ended<'a> {
    /// An end without damage.
    pub fn well(report: &'a RunReport) -> Self {
        Self { report, well: true }
    }
}

impl Watch {
    /// Starts everything that the user asked for.
    pub fn start(run: &Watched<'_>) -> Result<Self, Failure> {
        check(run.global, run.watching, run.outputs)?;
        let silent = run.global.json || run.global.quiet;
        let progress = Arc::<Progress>::default();
        let started = jiff::Timestamp::now();
        let events = events(run, started, &progress)?;
        let exporter = Exporter::new(run, started, &progress);
        let metrics = Metrics::start(run.watching, run.outputs, exporter)?;
        BEGUN.store(true, Ordering::Relaxed);
        if let Some(address) = metrics.address().filter(|_| !silent) {
            output::note(&format!("metrics     http://{address}/metrics"));
        }
        let meter = Mutex::new(Meter::new(&progress));
        let phases = Arc::new(PhaseLog::new(&progress));
        let told = Arc::clone(&phases);
        let look = move || {
            let live = meter.lock().unwrap_or_else(PoisonError::into_inner).look();
            told.tell();
            let mut numbers = to_json(&live);
            numbers["estimated_completion"] = completion(&live).into();
            (live.phase.to_owned(), numbers)
        };
        Ok(Self {
            shown: Some(Shown::start(&progress, Show::choose(silent, run.percent))),
            operation: Some(Operation::begin(run.command, &run.subject, look)),
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
    pub fn end<T, E: Into<Failure>>(
        mut self,
        result: Result<T, E>,
        ended: impl for<'a> Fn(&'a T) -> Ended<'a>,
    ) -> Result<T, Failure> {
        let result = result.map_err(Into::into);
        (self.shown, self.operation) = (None, None);
        self.phases.tell();
        if let Some(metrics) = self.metrics.take() {
            metrics.end(result.as_ref().is_ok_and(|done| ended(done).well));
        }
        let Some(events) = self.events.take() else {
            return result;
        };
        let outcome = match &result {
            Ok(done) => Ok(ended(done).report),
            Err(failure) => Err(failure.message()),
        };
        match events.finish(outcome) {
            // The run itself has succeeded, and a missing record must not change that.
            Err(error) => output::degrade(&error.to_string()),
            // The file says this too, and so does `windlass events`.
            Ok(summary) if summary.lost > 0 => output::note(&format!(
                "warning: {} events were lost: the file could not be written fast enough",
                summary.lost
            )),
            Ok(_) => {}
        }
        result
    }
}

fn events(
    run: &Watched<'_>,
    started: jiff::Timestamp,
    progress: &Arc<Progress>,
) -> Result<Option<EventLog>, Failure> {
    let Some(path) = run.watching.events.clone() else {
        return Ok(None);
    };
    let options = EventOptions {
        path,
        format: match run.watching.events_format {
            TraceFormat::Jsonl => EventFormat::JsonLines,
            TraceFormat::Trace => EventFormat::Chrome,
        },
        limit_bytes: run.watching.events_limit,
        header: EventHeader {
            tool: format!("windlass {}", env!("CARGO_PKG_VERSION")),
            command: run.command.to_owned(),
            subject: run.subject.clone(),
            started: started.to_string(),
        },
    };
    let path = options.path.display().to_string();
    match EventLog::create(options, run.outputs, progress) {
        Err(error) if outputs::is_of_place(&error) => {
            let text = format!("the events of this run are not in {path}: {error}");
            output::degrade(&hinted(&text, &error));
            Ok(None)
        }
        created => Ok(Some(created?)),
    }
}

/// A warning that also says what to do.
fn hinted(text: &str, error: &EngineError) -> String {
    match error.hint() {
        Some(hint) => format!("{text}. {}", hint.trim_end_matches('.')),
        None => text.to_owned(),
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
