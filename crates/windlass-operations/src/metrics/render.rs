//! The names of the metrics, and their text in Prometheus's format 0.0.4.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use windlass_engine::{Live, Meter, Progress, Resource, StageReport};

use super::kept::Kept;
use crate::ended::RunStart;
use crate::stored::absolute;

/// Reads the state of one run and writes it as metrics.
pub struct Exporter {
    meter: Meter,
    /// Labels of every series.
    common: String,
    version: String,
    started: f64,
    /// The end of the run: the time, and whether it succeeded.
    ended: Option<(f64, bool)>,
    /// When this operation and subject last succeeded.
    last_success: Option<f64>,
    /// The series of other runs, while a file is written.
    kept: Kept,
    /// The last printed values of the counters. A sum of parts may be a little lower when it is
    /// read again.
    said: HashMap<String, f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

/// One value: its own labels without the common ones, and the number.
type Sample = (String, f64);

impl Exporter {
    /// Metrics of a run, by this version of the program.
    pub fn new(run: &RunStart, version: &str, progress: &Arc<Progress>) -> Self {
        let labels = [("operation", run.operation), ("subject", &*run.series)];
        Self {
            meter: Meter::new(progress),
            common: labels.map(|(name, value)| label(name, value)).join(","),
            version: version.to_owned(),
            started: unix_seconds(run.started),
            ended: None,
            last_success: None,
            kept: Kept::default(),
            said: HashMap::new(),
        }
    }

    /// Records the end of the run.
    pub fn end(&mut self, at: jiff::Timestamp, success: bool) {
        let at = unix_seconds(at);
        self.ended = Some((at, success));
        if success {
            self.last_success = Some(at);
        }
    }

    /// The text of a file that has these contents now: the metrics of this run, and those of all
    /// other operations and subjects as the file has them.
    pub fn render_into(&mut self, file: &str) -> String {
        let now = unix_seconds(jiff::Timestamp::now());
        self.kept = Kept::read(file, &self.common, now);
        self.last_success = self.last_success.or(self.kept.own_success);
        let mut out = self.render();
        std::mem::take(&mut self.kept).append_rest(&mut out);
        out
    }

    /// All metrics of this run with their present values.
    pub fn render(&mut self) -> String {
        let live = self.meter.look();
        let mut out = String::new();
        self.run(&mut out, &live);
        let help = "When a run of this operation and subject last succeeded, in Unix time.";
        self.one(
            &mut out,
            "last_success_time_seconds",
            help,
            self.last_success,
        );
        self.progress(&mut out, &live);
        self.stages(&mut out, &live.stages);
        self.devices(&mut out, &live);
        out
    }

    fn run(&mut self, out: &mut String, live: &Live) {
        let version = label("version", &self.version);
        self.gauge(out, "run_info", "What runs.", &[(version, 1.0)]);
        let phase = label("phase", &live.phase);
        self.gauge(
            out,
            "run_phase_info",
            "What the run is doing.",
            &[(phase, 1.0)],
        );
        let help = "When the run began, in Unix time.";
        self.one(out, "run_start_time_seconds", help, Some(self.started));
        let running = flag(self.ended.is_none());
        self.one(
            out,
            "run_running",
            "1 while the run goes on.",
            Some(running),
        );
        let (ended, success) = self.ended.unzip();
        let help = "When the run ended, in Unix time.";
        self.one(out, "run_end_time_seconds", help, ended);
        let help = "1 when the run has succeeded, 0 when it has failed.";
        self.one(out, "run_success", help, success.map(flag));
    }

    fn progress(&mut self, out: &mut String, live: &Live) {
        let help = "Bytes of the database done.";
        self.counter(
            out,
            "processed_bytes_total",
            help,
            &[(String::new(), float(live.done_bytes))],
        );
        let help = "Bytes of the database there are to do.";
        let total = (live.total_bytes > 0).then(|| float(live.total_bytes));
        self.one(out, "expected_bytes", help, total);
        self.one(
            out,
            "processed_ratio",
            "The part that is done.",
            live.done_share,
        );
        let help = "Seconds until all is done, at the mean rate so far.";
        let left = live.remaining_seconds.filter(|_| self.ended.is_none());
        self.one(out, "remaining_seconds", help, left);
        let help = "Bytes of the database per second, in the last seconds.";
        let rate = self.ended.is_none().then_some(live.rate);
        self.one(out, "throughput_bytes_per_second", help, rate);
        let bound = live.limit.as_ref().map(|limit| limit.stage);
        let states =
            Resource::OF_RUNS.map(|one| (label("resource", one.name()), flag(Some(one) == bound)));
        let help = "1 for what holds the run back right now.";
        self.gauge(out, "bottleneck", help, &states);
    }

    fn stages(&mut self, out: &mut String, stages: &[StageReport]) {
        let each = |value: fn(&StageReport) -> f64| -> Vec<Sample> {
            let sample = |stage: &StageReport| (label("stage", stage.name.name()), value(stage));
            stages.iter().map(sample).collect()
        };
        let help = "Threads that the stage has had.";
        self.gauge(
            out,
            "stage_threads",
            help,
            &each(|stage| float(stage.threads)),
        );
        let bytes = each(|stage| float(stage.bytes));
        self.counter(
            out,
            "stage_processed_bytes_total",
            "Bytes worked on.",
            &bytes,
        );
        let operations = each(|stage| float(stage.operations));
        let help = "Transfers, frames or files worked on.";
        self.counter(out, "stage_operations_total", help, &operations);
        let busy = each(|stage| stage.busy_seconds);
        let help = "Seconds not waiting, summed over threads.";
        self.counter(out, "stage_busy_seconds_total", help, &busy);
        let waits = stages.iter().flat_map(|stage| {
            stage.waits.iter().map(|wait| {
                let labels = [
                    label("stage", stage.name.name()),
                    label("cause", wait.cause.name()),
                ];
                (labels.join(","), wait.seconds, float(wait.count))
            })
        });
        let waits: Vec<_> = waits.collect();
        let seconds: Vec<_> = waits.iter().map(|wait| (wait.0.clone(), wait.1)).collect();
        let help = "Seconds waited, summed over threads.";
        self.counter(out, "wait_seconds_total", help, &seconds);
        let counts: Vec<_> = waits.into_iter().map(|wait| (wait.0, wait.2)).collect();
        self.counter(out, "waits_total", "Waits that have ended.", &counts);
    }

    fn devices(&mut self, out: &mut String, live: &Live) {
        // Two devices may have the same place: the number tells them apart.
        let labels = |index: usize, name: &str| {
            [
                label("device", &place(name)),
                label("index", &index.to_string()),
            ]
            .join(",")
        };
        let devices = || live.devices.iter().enumerate();
        let bytes = devices().map(|(at, one)| (labels(at, &one.name), float(one.bytes)));
        let help = "Bytes written to the device or read from it.";
        let bytes: Vec<_> = bytes.collect();
        self.counter(out, "device_transferred_bytes_total", help, &bytes);
        let transfers = devices().map(|(at, one)| (labels(at, &one.name), float(one.operations)));
        let transfers: Vec<_> = transfers.collect();
        self.counter(out, "device_transfers_total", "Transfers.", &transfers);
        let Some(buffers) = live.buffers else { return };
        let states = [
            ("free", buffers.free),
            ("input", buffers.inputs),
            ("output", buffers.outputs),
        ];
        let states = states.map(|(state, count)| (label("state", state), float(count as u64)));
        self.gauge(out, "buffers", "Buffers, by who has them.", &states);
    }

    fn one(&mut self, out: &mut String, name: &str, help: &str, value: Option<f64>) {
        let samples: Vec<_> = value
            .map(|value| (String::new(), value))
            .into_iter()
            .collect();
        self.gauge(out, name, help, &samples);
    }

    fn gauge(&mut self, out: &mut String, name: &str, help: &str, samples: &[Sample]) {
        self.family(out, (name, Kind::Gauge), help, samples);
    }

    fn counter(&mut self, out: &mut String, name: &str, help: &str, samples: &[Sample]) {
        self.family(out, (name, Kind::Counter), help, samples);
    }

    fn family(
        &mut self,
        out: &mut String,
        (name, kind): (&str, Kind),
        help: &str,
        samples: &[Sample],
    ) {
        if samples.is_empty() {
            return;
        }
        let counts = kind == Kind::Counter;
        let word = if counts { "counter" } else { "gauge" };
        append(
            out,
            format_args!("# HELP windlass_{name} {help}\n# TYPE windlass_{name} {word}\n"),
        );
        for (labels, value) in samples {
            let comma = if labels.is_empty() { "" } else { "," };
            let series = format!("windlass_{name}{{{}{comma}{labels}}}", self.common);
            let mut value = *value;
            if counts {
                let said = self.said.entry(series.clone()).or_insert(value);
                value = value.max(*said);
                *said = value;
            }
            append(out, format_args!("{series} {value}\n"));
        }
        self.kept.append(&format!("windlass_{name}"), out);
    }
}

/// The directory of a stripe. The stripe's own name would be a new label every night, and each one
/// would be a new series for Prometheus.
fn place(device: &str) -> String {
    let path = Path::new(device);
    let parent = path.parent().filter(|_| device.contains('/'));
    let place = absolute(parent.unwrap_or(path));
    match (parent, place) {
        (Some(_), Ok(place)) => place.display().to_string(),
        _ => device.to_owned(),
    }
}

pub(super) fn label(name: &str, value: &str) -> String {
    let value = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

pub(super) fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into memory does not fail.
    out.write_fmt(text).unwrap_or_default();
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are floating-point numbers"
)]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "a time needs no nanosecond")]
pub(super) fn unix_seconds(time: jiff::Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}
