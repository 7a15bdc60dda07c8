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

mod http;
mod kept;
mod render;

use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use windlass_engine::{EngineError, Outputs};
use windlass_postgres::user_shown;

use crate::cli::Watching;
use crate::exit::Failure;
use crate::outputs::METRICS;
use crate::{output, outputs};

use http::{Answer, Server};
pub use render::Exporter;

/// The largest file of an earlier run that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How often the file is written. node_exporter reads it about every 15 seconds.
const PERIOD: Duration = Duration::from_secs(5);
/// How long a run waits for another one that is writing the file.
const TURN_WAIT_MAX: Duration = Duration::from_secs(1);

/// Whether a run failed because its file was refused. Nobody then tries it again.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether the run failed because its file of metrics was refused.
pub fn was_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// The file of metrics and the thread that writes it, until `stop` is dropped.
struct Textfile {
    path: PathBuf,
    stop: Sender<()>,
    thread: JoinHandle<Result<(), EngineError>>,
}

/// Serves and writes metrics until it ends.
pub struct Metrics {
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
        watching: &Watching,
        outputs: &Outputs,
        exporter: Exporter,
    ) -> Result<Self, Failure> {
        let mut metrics = Self {
            exporter: Arc::new(Mutex::new(exporter)),
            server: None,
            file: None,
            has_ended: false,
            was_told: false,
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
        check_address(address)?;
        let exporter = Arc::clone(&self.exporter);
        let answer = move |path: &str| match path {
            "/metrics" => Answer::found(text(&exporter)),
            "/" => Answer::found("windlass: see /metrics\n".to_owned()),
            _ => Answer::not_found(),
        };
        match Server::start(address, answer) {
            Ok(server) => self.server = Some(server),
            Err(error) => {
                output::degrade(&format!("this run serves no metrics on {address}: {error}"))
            }
        }
        Ok(())
    }

    fn keep(&mut self, path: &Path, outputs: &Outputs) -> Result<(), Failure> {
        match replace(path, outputs, &self.exporter) {
            Ok(()) => {}
            // The end of the run tries it again, and decides whether the warning stays.
            Err(error) if outputs::is_of_place(&error) => {
                output::note(&format!("warning: {}", unwritten(path, &error)));
                self.was_told = true;
            }
            Err(error) => {
                REFUSED.store(true, Ordering::Relaxed);
                return Err(error.into());
            }
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
            Err(error) => output::degrade(&unwritten(path, &error)),
        }
        Ok(())
    }

    fn stop(&mut self) {
        drop(self.server.take());
        if let Some(Textfile { path, stop, thread }) = self.file.take() {
            drop(stop);
            match thread.join() {
                Ok(Err(_)) if self.was_told => output::degrade_silently(),
                Ok(Err(error)) => output::degrade(&unwritten(&path, &error)),
                _ => {}
            }
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

/// Refuses a value of `--metrics` that is an address on no machine.
pub fn check_address(address: &str) -> Result<(), Failure> {
    let parts = address.rsplit_once(':');
    let is_one = parts.is_some_and(|(host, port)| {
        let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
        is_host && port.parse::<u16>().is_ok()
    });
    match is_one {
        true => Ok(()),
        false => Err(Failure::usage(
            format!("--metrics: {address:?} is no address"),
            "Write ADDRESS:PORT for --metrics, as in 127.0.0.1:9187.",
        )),
    }
}

/// Writes the file of a run that failed before it could be watched.
pub fn failed(path: &Path, outputs: &Outputs, mut exporter: Exporter) -> Result<(), EngineError> {
    exporter.end(false);
    replace(path, outputs, &Mutex::new(exporter))
}

/// A warning that also says what to do. It must fit before the run and after it.
fn unwritten(path: &Path, error: &dyn std::fmt::Display) -> String {
    let (path_words, error) = (path.display(), error.to_string());
    match unreplaceable(path) {
        Some(why) => {
            format!("the metrics of this run are not in {path_words}: {error}. {why}. {REMOVE}")
        }
        None => format!(
            "the metrics of this run are not in {path_words}: {error}. Name a file for \
             --metrics-file in a directory that exists and that the database's owner can write to"
        ),
    }
}

/// What to do about a file of another user.
pub const REMOVE: &str = "Remove the file as its owner, or name another one for --metrics-file.";

/// Why this user may not put a new file in the place of an old one, although the directory can be
/// written to: in a directory like /tmp only the owner of a file may do that.
pub fn unreplaceable(path: &Path) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let path = path.canonicalize().ok()?;
    let (file, directory) = (path.metadata().ok()?, path.parent()?.metadata().ok()?);
    let us = rustix::process::geteuid().as_raw();
    let is_sticky = directory.mode() & STICKY != 0;
    let may = us == 0 || us == file.uid() || us == directory.uid();
    (is_sticky && !may).then(|| {
        let owner = user_shown(file.uid());
        format!("It belongs to {owner}, and only its owner may replace a file in that directory")
    })
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
