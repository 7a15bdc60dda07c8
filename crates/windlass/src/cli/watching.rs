//! Options for watching and recording a run.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use windlass_engine::{EVENT_BYTES_MIN, parse_amount, show_size};

/// How a run can be watched and recorded.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watching and recording")]
pub struct Watching {
    /// Also show where the time went: a table of the stages, their waits, and the devices
    #[arg(long, short = 'v', env = "WINDLASS_DETAILS")]
    pub details: bool,
    /// Record every wait and transfer in this file, for `windlass events`
    #[arg(long, value_name = "FILE", env = "WINDLASS_EVENTS")]
    pub events: Option<PathBuf>,
    /// Format of that file: JSON lines, or a trace for ui.perfetto.dev and chrome://tracing
    #[arg(
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "jsonl",
        env = "WINDLASS_EVENTS_FORMAT"
    )]
    pub events_format: TraceFormat,
    /// Largest size of that file. To stay below it, only a sample of the short events is kept
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = events_limit,
        default_value = "64MiB",
        env = "WINDLASS_EVENTS_LIMIT"
    )]
    pub events_limit: u64,
    /// Serve metrics for Prometheus on this address, for example 127.0.0.1:9187
    #[arg(long, value_name = "ADDRESS", env = "WINDLASS_METRICS")]
    pub metrics: Option<String>,
    /// Write metrics to this file, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", env = "WINDLASS_METRICS_FILE")]
    pub metrics_file: Option<PathBuf>,
}

/// A size in which the ends of a file of events fit.
fn events_limit(text: &str) -> Result<u64, String> {
    let bytes = parse_amount(text).map_err(|error| error.to_string())?;
    match bytes >= EVENT_BYTES_MIN {
        true => Ok(bytes),
        false => Err(format!("write at least {}", show_size(EVENT_BYTES_MIN))),
    }
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// One JSON object in each line
    Jsonl,
    /// The trace format of Chrome and Perfetto
    Trace,
}
