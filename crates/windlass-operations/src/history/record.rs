//! One run, from its first row in the catalog to its last.

use std::cell::{Cell, RefCell};

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_engine::media::{SetDescription, saturated};
use windlass_repository::{CatalogError, CatalogRun, RunState};

use super::keeper::History;
use crate::caller::Caller;
use crate::ended::{RunEnd, RunStart};
use crate::ending::Ending;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::Identity;
use crate::status;

/// What is known of a run beside its report.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunAbout {
    /// What a set says about the database.
    pub(crate) database: Value,
    /// How the set is stored.
    pub(crate) options: Value,
    /// The names of the warnings.
    pub(crate) warnings: Vec<String>,
    /// The set on which the new one builds.
    pub(crate) base: Option<String>,
}

impl RunAbout {
    /// What is known of a run that reads a set.
    pub(crate) fn of_set(set: &SetDescription) -> Self {
        Self {
            database: set.facts.database.clone(),
            options: json!({ "compress": set.facts.options["compress"] }),
            ..Self::default()
        }
    }
}

/// A run in the history.
#[derive(Debug)]
pub(crate) struct HistoryRun {
    history: History,
    row: Cell<Option<i64>>,
    about: RefCell<RunAbout>,
    /// Why the beginning could not be written. The end tries again, and tells of it.
    fault: RefCell<Option<CatalogError>>,
}

impl HistoryRun {
    /// Writes that a run began.
    pub(crate) fn begin(caller: &Caller, start: &RunStart) -> Self {
        let history = caller.history.clone();
        let begun = history.with(
            |catalog| catalog.begin(&row_of(caller, start)),
            damaged(caller),
        );
        let (row, fault) = match begun {
            Some(Ok(row)) => (Some(row), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Self {
            history,
            row: Cell::new(row),
            about: RefCell::default(),
            fault: RefCell::new(fault),
        }
    }

    /// Keeps what is known of the run.
    pub(crate) fn about(&self, about: RunAbout) {
        *self.about.borrow_mut() = about;
    }

    /// Writes how the run ended. Returns the ending, which is another one if that failed
    /// although there is a place for it.
    pub(crate) fn end(&self, caller: &Caller, end: &RunEnd) -> Ending {
        let row = self.row_of_end(caller, end);
        let number = self.row.get();
        let written = self
            .history
            .with(|catalog| catalog.end(number, &row), damaged(caller));
        match written {
            // Why it failed first says more: by now the process may be another user.
            Some(Err(error)) => {
                let error = self.fault.take().unwrap_or(error);
                if error.is_without_place() {
                    caller.tell(&Notice::NoHistory(&error));
                    return end.ending;
                }
                caller.tell(&Notice::HistoryUnwritten(&error));
                end.ending.degraded()
            }
            _ => end.ending,
        }
    }

    fn row_of_end(&self, caller: &Caller, end: &RunEnd) -> CatalogRun {
        let about = self.about.borrow();
        let identity = about.database.is_object();
        let identity = identity.then(|| Identity::of_facts(&about.database));
        let mut row = row_of(caller, &end.run);
        row.key = identity.as_ref().map(|of| of.key().to_owned());
        row.database = identity.as_ref().map(|of| of.name().to_owned());
        row.ended = Some(end.ended.as_millisecond());
        row.state = state_of(end.ending);
        row.error.clone_from(&end.error);
        row.base.clone_from(&about.base);
        row.warnings = Value::from(about.warnings.clone()).to_string();
        if let Some(counts) = &end.counts {
            row.set_id.clone_from(&counts.set_id);
            row.set_type.clone_from(&counts.set_type);
            row.bytes_read = i64::try_from(counts.bytes_read).ok();
            row.bytes_written = i64::try_from(counts.bytes_written).ok();
            row.seconds = Some(counts.seconds);
            row.verdict = Some(counts.verdict.clone()).filter(|text| !text.is_empty());
        }
        row.limit = limit_of(&end.report);
        row.settings = settings(&about.options, &end.report).to_string();
        row.report = end.report.is_object().then(|| end.report.to_string());
        row
    }
}

/// Does work that is no `Run`, and keeps it in the history.
pub(crate) fn recorded<T>(
    caller: &Caller,
    command: &'static str,
    (subject, series): (String, String),
    work: impl FnOnce() -> Result<(T, Ending), OperationError>,
) -> Result<T, OperationError> {
    let start = RunStart {
        command,
        operation: command,
        subject,
        series,
        started: Timestamp::now(),
    };
    let run = HistoryRun::begin(caller, &start);
    let done = work();
    let end = match &done {
        Ok((_, ending)) => start.failed(*ending, None),
        Err(error) => start.failed(error.ending(), Some(&error.to_string())),
    };
    run.end(caller, &end);
    done.map(|(done, _)| done)
}

/// What limited the run: a stage, and the device if it is one.
fn limit_of(report: &Value) -> Option<String> {
    let limit = &report["limit"];
    let stage = limit["stage"].as_str()?;
    match limit["device"].as_str() {
        Some(device) => Some(format!("{stage} {}", place_of(device))),
        None => Some(stage.to_owned()),
    }
}

/// The directory of a stripe, whose own name is another one every night.
fn place_of(device: &str) -> String {
    let path = std::path::Path::new(device);
    let parent = path.parent().filter(|_| device.contains('/'));
    parent.unwrap_or(path).display().to_string()
}

/// What later runs are compared with: settings, devices, and how busy the stages were.
fn settings(options: &Value, report: &Value) -> Value {
    let devices = report["devices"].as_array();
    let devices = devices.into_iter().flatten().map(|device| {
        json!({
            "place": device["name"].as_str().map(place_of),
            "bytes": device["bytes"],
            "operations": device["operations"],
            "busy_seconds": device["busy_seconds"],
            "latency_micros_p50": device["latency_micros_p50"],
        })
    });
    json!({
        "options": options,
        "buffers": report["buffers"],
        "transfer_bytes": report["transfer_bytes"],
        "cpu_seconds": report["cpu_seconds"],
        "devices": devices.collect::<Vec<_>>(),
    })
}

fn state_of(ending: Ending) -> RunState {
    match ending {
        Ending::Done => RunState::Done,
        Ending::Failed => RunState::Failed,
        Ending::Usage => RunState::Usage,
        Ending::Warnings => RunState::Warnings,
        Ending::Damage => RunState::Damage,
        Ending::Interrupted => RunState::Interrupted,
    }
}

/// Tells that the catalog was damaged.
pub(super) fn damaged(caller: &Caller) -> impl FnOnce(&std::path::Path) {
    |aside| caller.tell(&Notice::HistoryDamaged { aside })
}

/// The row of a run that has begun.
fn row_of(caller: &Caller, start: &RunStart) -> CatalogRun {
    let names = (&*start.subject, &*start.series);
    let began = start.started.as_millisecond();
    let pid = std::process::id();
    let process_start = status::process_start(pid).unwrap_or_default();
    CatalogRun {
        pid: i64::from(pid),
        process_start: saturated(process_start),
        boot: boot(),
        tool: caller.tool.clone(),
        ..CatalogRun::new(start.command, start.operation, names, began)
    }
}

/// What the kernel calls the time since the machine was started.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// Whether the process of a run that has not ended is still there.
pub(super) fn is_running(run: &CatalogRun) -> bool {
    let start = u32::try_from(run.pid).ok();
    let start = start.and_then(status::process_start);
    let start = start.and_then(|start| i64::try_from(start).ok());
    start == Some(run.process_start) && run.boot == boot()
}
