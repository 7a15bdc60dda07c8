//! Events: every wait and every I/O of a run, recorded in a file while it goes.
//!
//!   stages --> a buffer for each thread --> [batches] --> one thread --> FILE
//!                                                            ^
//!                                    samples of buffers and bytes, taken by that thread
//!
//! The stages time their waits anyway (`waits`), and tell the recorder about each. This
//! costs a thread of the pipeline one reading of the clock and a copy of about fifty bytes.
//!
//! Invariants
//! - Nobody waits for the recorder. If its queue is full, events are lost, and the file says how
//!   many.
//! - The file stays below its limit. In its second half only a sample of the short events is kept;
//!   the weight of each says how many it stands for. All long events are kept (`events/thin.rs`).
//! - The file is complete however the run ends, unless the process is killed.
//!
//! `docs/events.md` describes the file, field by field.

mod format;
mod recorder;
mod sink;
mod thin;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::error::EngineError;
use crate::json::to_json;
use crate::outputs::{OutputKind, Outputs};
use crate::progress::Progress;
use crate::report::RunReport;
use crate::setting::{Setting, SettingFault};
use crate::waits::Recording;

pub use format::{EventFormat, EventHeader};
use recorder::{End, Listener, Message, Recorder, flush_thread};
pub use sink::EventSummary;
use sink::Sink;

/// A lower limit would leave no room for the report at the end.
pub const EVENT_BYTES_MIN: u64 = 1024 * 1024;
/// How large the file may become, unless the user sets a limit.
pub const EVENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

/// What to record, and where.
#[derive(Clone, Debug)]
pub struct EventOptions {
    /// The file. It is created, or replaced if it is a file of events already.
    pub path: PathBuf,
    /// JSON lines, or Chrome's trace format.
    pub format: EventFormat,
    /// How large the file may become, in bytes: at least [`EVENT_BYTES_MIN`].
    pub limit_bytes: u64,
    /// Data about the run for the file's first line.
    pub header: EventHeader,
}

/// A file of events that is being written.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    recorder: Arc<Recorder>,
    progress: Arc<Progress>,
    writer: Option<JoinHandle<io::Result<EventSummary>>>,
}

impl EventLog {
    /// Opens the file, if `outputs` allows that. From now on it records everything that is reported
    /// to `progress`.
    pub fn create(
        options: EventOptions,
        outputs: &Outputs,
        progress: &Arc<Progress>,
    ) -> Result<Self, EngineError> {
        let path = options.path;
        if options.limit_bytes < EVENT_BYTES_MIN {
            return Err(Setting::EventsLimit.refused(SettingFault::TooSmall {
                asked_bytes: options.limit_bytes,
                least_bytes: EVENT_BYTES_MIN,
            }));
        }
        let file = outputs.create(&path, &OutputKind::EVENTS)?;
        let (recorder, messages) = Recorder::new();
        let sink = Sink::new(file, options.format, options.limit_bytes, options.header);
        let (own, watched) = (Arc::clone(&recorder), Arc::downgrade(progress));
        let body = move || sink.run(&messages, &own, &watched);
        let thread = std::thread::Builder::new().name("events".to_owned());
        let writer = thread.spawn(body);
        let writer = writer.map_err(|source| failed("start a thread for", &path, source))?;
        let listener: Arc<dyn Recording> = Arc::new(Listener(Arc::clone(&recorder)));
        progress.record(&listener);
        Ok(Self {
            path,
            recorder,
            progress: Arc::clone(progress),
            writer: Some(writer),
        })
    }

    /// Ends the file with the report of the run, or with the error that ended the run.
    pub fn finish(
        mut self,
        outcome: Result<&RunReport, &str>,
    ) -> Result<EventSummary, EngineError> {
        self.end(outcome)
    }

    fn end(&mut self, outcome: Result<&RunReport, &str>) -> Result<EventSummary, EngineError> {
        let path = self.path.clone();
        let Some(writer) = self.writer.take() else {
            let gone = io::Error::other("it has ended already");
            return Err(failed("end", &path, gone));
        };
        flush_thread();
        self.recorder.send(Message::End(Box::new(End {
            report: outcome.ok().map(to_json),
            error: outcome.err().map(str::to_owned),
            stages: self.progress.reports().to_vec(),
        })));
        let panicked = || Err(io::Error::other("its thread panicked"));
        let written = writer.join().unwrap_or_else(|_| panicked());
        written.map_err(|source| failed("write", &path, source))
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        if self.writer.is_some() {
            // The run has failed without reporting it, and the file says so.
            drop(self.end(Err("the run ended without a report")));
        }
    }
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> EngineError {
    let path = path.to_owned();
    EngineError::EventFile {
        operation,
        path,
        source,
    }
}
