//! Metrics for Prometheus: served over HTTP (`--metrics`), or in a file for node_exporter's
//! textfile collector (`--metrics-file`).
//!
//! Invariants
//! - A run goes on if its metrics cannot be served or written. Windlass warns once.
//! - A scrape costs the run no more than reading its counters.
//! - The file is complete at any moment, because a rename replaces it. It stays after the run and
//!   says how the run ended.
//! - A run replaces only the series of its own operation and subject. So databases can share a
//!   file, and a run that fails or is killed does not remove the time of the last success.
//! - A counter never decreases, although its parts are read one after the other.

mod address;
mod foreign;
mod http;
mod kept;
mod place;
mod render;

use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windlass_engine::{EngineError, Outputs};

use crate::ended::RunEnd;
use crate::error::OperationError;
use crate::notice::{Notice, Observer};
use crate::outputs::{self, METRICS};

pub use address::MetricsAddress;
pub use foreign::{ForeignFile, unreplaceable};
use http::{Answer, Server};
pub use place::metrics_of_place;
pub use render::Exporter;

/// The largest file of an earlier run that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How often the file is written. node_exporter reads it about every 15 seconds.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a run waits for another one that is writing the file.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);

/// The file of metrics and the thread that writes it, until `stop` is dropped.
struct Textfile {
    path: PathBuf,
    stop: Sender<()>,
    thread: JoinHandle<Result<(), EngineError>>,
}

/// Serves and writes metrics until it ends.
pub struct Metrics {
    observer: Arc<dyn Observer>,
    exporter: Arc<Mutex<Exporter>>,
    server: Option<Server>,
    file: Option<Textfile>,
    has_ended: bool,
    /// Whether the user was already told that the file cannot be written.
    was_told: bool,
}

impl Metrics {
    /// Starts what the user asked for. Before that it binds the address and writes the file once.
    pub fn start(
        (address, file): (Option<&MetricsAddress>, Option<&Path>),
        outputs: &Outputs,
        exporter: Exporter,
        observer: &Arc<dyn Observer>,
    ) -> Result<Self, OperationError> {
        let mut metrics = Self {
            observer: Arc::clone(observer),
            exporter: Arc::new(Mutex::new(exporter)),
            server: None,
            file: None,
            has_ended: false,
            was_told: false,
        };
        if let Some(address) = address {
            metrics.serve(address);
        }
        if let Some(path) = file {
            metrics.keep(path, outputs)?;
        }
        Ok(metrics)
    }

    /// The address at which metrics are served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Ends the metrics of a finished run. The file then says how the run ended.
    pub fn end(mut self, end: &RunEnd, are_all_well: bool) {
        self.ended(end.ended, end.is_success() && are_all_well);
        self.stop();
    }

    fn ended(&mut self, at: jiff::Timestamp, success: bool) {
        self.has_ended = true;
        let mut exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner);
        exporter.end(at, success);
    }

    fn serve(&mut self, address: &MetricsAddress) {
        let exporter = Arc::clone(&self.exporter);
        let answer = move |path: &str| match path {
            "/metrics" => Answer::found(text(&exporter)),
            "/" => Answer::found("windlass: see /metrics\n".to_owned()),
            _ => Answer::not_found(),
        };
        match Server::start(address.as_str(), answer) {
            Ok(server) => self.server = Some(server),
            Err(error) => self.observer.notice(&Notice::MetricsUnserved {
                address,
                error: &error,
            }),
        }
    }

    fn keep(&mut self, path: &Path, outputs: &Outputs) -> Result<(), OperationError> {
        let left = outputs.remove_left(path, &METRICS);
        match left.and_then(|()| replace(path, outputs, &self.exporter)) {
            Ok(()) => {}
            // The end of the run tries it again, and decides whether the warning stays.
            Err(error) if outputs::is_of_place(&error) => {
                unwritten(&self.observer, path, &error, true);
                self.was_told = true;
            }
            Err(error) => return Err(error.into()),
        }
        let (stop, stopped) = channel();
        let (exporter, own) = (Arc::clone(&self.exporter), path.to_owned());
        let outputs = outputs.clone();
        let body = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                // It is written again in some seconds, and at the end.
                replace(&own, &outputs, &exporter).unwrap_or_default();
            }
            replace(&own, &outputs, &exporter)
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        match thread.spawn(body) {
            Ok(thread) => {
                self.file = Some(Textfile {
                    path: path.to_owned(),
                    stop,
                    thread,
                })
            }
            Err(source) => {
                let error = EngineError::OutputIo {
                    operation: "write",
                    path: path.to_owned(),
                    source,
                };
                unwritten(&self.observer, path, &error, false);
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        drop(self.server.take());
        if let Some(Textfile { path, stop, thread }) = self.file.take() {
            drop(stop);
            match thread.join() {
                Ok(Err(_)) if self.was_told => self.observer.notice(&Notice::MetricsStillUnwritten),
                Ok(Err(error)) => unwritten(&self.observer, &path, &error, false),
                _ => {}
            }
        }
    }
}

impl Drop for Metrics {
    /// A run that did not come to its end has failed.
    fn drop(&mut self) {
        if !self.has_ended {
            self.ended(jiff::Timestamp::now(), false);
        }
        self.stop();
    }
}

/// Writes the file of a run that failed before it could be watched.
pub fn failed(
    path: &Path,
    outputs: &Outputs,
    mut exporter: Exporter,
    end: &RunEnd,
) -> Result<(), EngineError> {
    exporter.end(end.ended, end.is_success());
    replace(path, outputs, &Mutex::new(exporter))
}

/// Tells of a file that cannot be written, before the run or after it.
fn unwritten(observer: &Arc<dyn Observer>, path: &Path, error: &EngineError, is_early: bool) {
    observer.notice(&Notice::MetricsUnwritten {
        path,
        error,
        foreign: unreplaceable(path),
        is_early,
    });
}

fn text(exporter: &Mutex<Exporter>) -> String {
    let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
    exporter.render()
}

/// Writes the series of this run into the file, and leaves those of other runs as they are. The
/// rename is not durable: after a power cut there is no run to report.
fn replace(path: &Path, outputs: &Outputs, exporter: &Mutex<Exporter>) -> Result<(), EngineError> {
    let _turn = turn(path);
    outputs.check_kind(path, &METRICS)?;
    let file = match windlass_engine::read_at_most(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        // To write the file anyway would remove what it says about other databases.
        Err(source) => {
            return Err(EngineError::OutputIo {
                operation: "read",
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
    let text = exporter.render_into(&String::from_utf8_lossy(&file));
    outputs.refresh(path, &METRICS, text.as_bytes())
}

/// Waits until no other run writes a file of metrics in this directory, so that no run puts back
/// an older state of another one. The wait is bounded, because a process that was stopped keeps
/// its lock.
fn turn(path: &Path) -> Option<File> {
    let directory = std::path::absolute(path).ok()?.parent().map(File::open)?;
    let directory = directory.ok()?;
    let began = Instant::now();
    while directory.try_lock().is_err() && began.elapsed() < TURN_WAIT_MAX {
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(directory)
}
