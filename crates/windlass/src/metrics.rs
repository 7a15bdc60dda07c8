//! Metrics for Prometheus: served over HTTP (`--metrics`), or in a file for node_exporter's
//! textfile collector (`--metrics-file`).
//!
//! Invariants
//! - A scrape costs the run no more than reading its counters.
//! - The file is complete at any moment, because a rename replaces it. It stays after the run and
//!   says how the run ended.
//! - The time of each database's last success is copied from each file to the next. So a run that
//!   fails or is killed does not remove it.
//! - A counter never decreases, although its parts are read one after the other.

mod http;
mod render;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use windlass_engine::{EngineError, Outputs};

use crate::cli::Watching;
use crate::exit::{Code, Failure};
use crate::outputs::METRICS;

use http::{Answer, Server};
pub use render::Exporter;

/// The largest file of an earlier run that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often the file is written. node_exporter reads it about every 15 seconds.
const PERIOD: Duration = Duration::from_secs(5);

/// Whether a run failed because its file cannot be written. Nobody then tries it again.
static FILE_FAILED: AtomicBool = AtomicBool::new(false);

/// Whether the run failed because its file of metrics cannot be written.
pub fn has_failed() -> bool {
    FILE_FAILED.load(Ordering::Relaxed)
}

/// Serves and writes metrics until it ends.
pub struct Metrics {
    exporter: Arc<Mutex<Exporter>>,
    server: Option<Server>,
    file: Option<(Sender<()>, JoinHandle<()>)>,
    has_ended: bool,
}

impl Metrics {
    /// Starts what the user asked for. Before that it binds the address and writes the file once.
    pub fn start(
        watching: &Watching,
        outputs: &Outputs,
        exporter: Exporter,
    ) -> Result<Self, Failure> {
        let mut metrics = Self {
            exporter: Arc::new(Mutex::new(exporter)),
            server: None,
            file: None,
            has_ended: false,
        };
        if let Some(address) = &watching.metrics {
            metrics.serve(address)?;
        }
        if let Some(path) = &watching.metrics_file {
            metrics.keep(path, outputs)?;
        }
        Ok(metrics)
    }

    /// The address at which metrics are served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(Server::address)
    }

    /// Ends the metrics of a finished run. The file then says how the run ended.
    pub fn end(mut self, success: bool) {
        self.ended(success);
        self.stop();
    }

    fn ended(&mut self, success: bool) {
        self.has_ended = true;
        let mut exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner);
        exporter.end(success);
    }

    fn serve(&mut self, address: &str) -> Result<(), Failure> {
        let exporter = Arc::clone(&self.exporter);
        let answer = move |path: &str| match path {
            "/metrics" => Answer::found(text(&exporter)),
            "/" => Answer::found("windlass: see /metrics\n".to_owned()),
            _ => Answer::not_found(),
        };
        let server = Server::start(address, answer).map_err(|error| {
            let message = format!("cannot serve metrics on {address}: {error}");
            let hint = "Use an address of this machine with a free port for --metrics.";
            Failure::new(Code::Failed, message, hint)
        })?;
        self.server = Some(server);
        Ok(())
    }

    fn keep(&mut self, path: &Path, outputs: &Outputs) -> Result<(), Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            let message = format!("cannot write metrics to {}: {error}", path.display());
            let hint = "Name a file for --metrics-file in a directory that exists and that the \
                        database's owner can write to.";
            Failure::new(Code::Failed, message, hint)
        };
        carry(
            path,
            &mut self.exporter.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let replaced = replace(path, outputs, &text(&self.exporter));
        FILE_FAILED.store(replaced.is_err(), Ordering::Relaxed);
        match replaced {
            Err(EngineError::OutputIo { source, .. }) => return Err(failed(&source)),
            other => other?,
        }
        let (stop, stopped) = channel();
        let (exporter, own) = (Arc::clone(&self.exporter), path.to_owned());
        let outputs = outputs.clone();
        let body = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                // It is written again in some seconds, and at the end.
                replace(&own, &outputs, &text(&exporter)).unwrap_or_default();
            }
            replace(&own, &outputs, &text(&exporter)).unwrap_or_default();
        };
        let thread = std::thread::Builder::new().name("metrics".to_owned());
        let thread = thread.spawn(body).map_err(|error| failed(&error))?;
        self.file = Some((stop, thread));
        Ok(())
    }

    fn stop(&mut self) {
        drop(self.server.take());
        if let Some((stop, thread)) = self.file.take() {
            drop(stop);
            thread.join().unwrap_or_default();
        }
    }
}

impl Drop for Metrics {
    /// A run that did not come to its end has failed.
    fn drop(&mut self) {
        if !self.has_ended {
            self.ended(false);
        }
        self.stop();
    }
}

/// Writes the file of a run that failed before it could be watched.
pub fn failed(path: &Path, outputs: &Outputs, mut exporter: Exporter) -> Result<(), EngineError> {
    carry(path, &mut exporter);
    exporter.end(false);
    replace(path, outputs, &exporter.render())
}

/// Copies the successes in the old file into the new one. If the old file does not exist or cannot
/// be read, it adds nothing.
fn carry(path: &Path, exporter: &mut Exporter) {
    let text = windlass_engine::read_at_most(path, FILE_BYTES_MAX).unwrap_or_default();
    exporter.carry(&String::from_utf8_lossy(&text));
}

fn text(exporter: &Mutex<Exporter>) -> String {
    let mut exporter = exporter.lock().unwrap_or_else(PoisonError::into_inner);
    exporter.render()
}

/// The rename is not durable: after a power cut there is no run to report.
fn replace(path: &Path, outputs: &Outputs, text: &str) -> Result<(), EngineError> {
    outputs.refresh(path, &METRICS, text.as_bytes())
}
