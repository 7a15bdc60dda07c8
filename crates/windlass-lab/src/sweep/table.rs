//! The tables of a sweep, as the text and the report show them.

use windlass_engine::{Cause, StageName, show_bytes, show_rate, show_size};

use super::measure::{Measure, median};
use super::series::{Series, SweptRun};
use super::{Axis, Difference, Noise, published};
use crate::chart::{Cell, Table};
use crate::numbers::to_f64;
use crate::points::{Operation, Pattern};

/// Smaller blocks say nothing about a backup's I/O.
const BLOCK_BYTES_MIN: u64 = 128 << 10;

/// The columns that are shown for each setting.
const MEASURED: [&str; 12] = [
    "duration",
    "spread",
    "CPU",
    "rate",
    "read",
    "written",
    "pool",
    "peak memory",
    "I/O size",
    "in flight",
    "bound by",
    "speed-up",
];

/// A table with a heading.
#[derive(Clone, Debug)]
pub struct Titled {
    /// What it is about.
    pub title: String,
    /// The table.
    pub table: Table,
}

/// Every table of a series.
pub fn tables(series: &Series) -> Vec<Titled> {
    let titled = |title: &str, table: Table| Titled {
        title: title.to_owned(),
        table,
    };
    if !series.probes.is_empty() {
        return vec![titled("What the path gives", devices(series))];
    }
    let mut tables = vec![
        titled("Settings", settings(series)),
        titled("Waits", waits(series)),
    ];
    tables.extend(published::table(series).map(|table| titled("Beside published minutes", table)));
    tables
}

fn words(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

fn number(text: impl Into<String>) -> Cell {
    Cell::Number(text.into())
}

/// One row for each setting: the medians of its runs, and how far the runs differ.
fn settings(series: &Series) -> Table {
    let axes = series.axes();
    let baseline = series.baseline();
    let noise = Noise::of(series, Measure::Seconds, 2 * series.cases.len());
    let mut columns: Vec<String> = axes.iter().map(|axis| axis.name().to_owned()).collect();
    columns.extend(MEASURED.map(str::to_owned));
    let row = |index: usize| {
        let case = &series.cases[index];
        let runs: Vec<&SweptRun> = series.runs_of(index).collect();
        let of = |measure: Measure| median(runs.iter().map(|run| measure.of(run)));
        let mut cells: Vec<Cell> = axes
            .iter()
            .map(|axis| label(case.label(*axis), *axis))
            .collect();
        let first = runs.first().map(|run| &run.report);
        cells.extend([
            number(format!("{:.2} s", of(Measure::Seconds))),
            number(spread(&runs)),
            number(format!("{:.2} s", of(Measure::CpuSeconds))),
            number(show_rate(of(Measure::Rate))),
            number(show_bytes(median(
                runs.iter().map(|run| to_f64(run.report.bytes_read)),
            ))),
            number(show_bytes(of(Measure::BytesWritten))),
            words(first.map_or(String::new(), |it| {
                format!("{} x {}", it.buffers, show_size(it.transfer_bytes as u64))
            })),
            number(show_bytes(of(Measure::PeakMemory))),
            number(median_of(&runs, io_bytes).map_or(String::new(), show_bytes)),
            number(
                median_of(&runs, in_flight).map_or(String::new(), |depth| format!("{depth:.1}")),
            ),
            words(bound(&runs)),
            words(match index == baseline {
                true => "baseline".to_owned(),
                false => speed_up(&noise.compare(baseline, index)),
            }),
        ]);
        cells
    };
    Table {
        columns,
        rows: (0..series.cases.len()).map(row).collect(),
    }
}

fn label(text: String, axis: Axis) -> Cell {
    if axis.is_number() {
        number(text)
    } else {
        words(text)
    }
}

/// How far the runs differ, as a share of the median.
fn spread(runs: &[&SweptRun]) -> String {
    let seconds = || runs.iter().map(|run| Measure::Seconds.of(run));
    let (low, high) = (
        seconds().fold(f64::INFINITY, f64::min),
        seconds().fold(0.0, f64::max),
    );
    match runs.len() {
        0 | 1 => "-".to_owned(),
        _ => format!(
            "{:.1} %",
            (high - low) / median(seconds()).max(1e-9) * 100.0
        ),
    }
}

fn speed_up(difference: &Difference) -> String {
    let times = 1.0 / difference.ratio;
    match difference.apart {
        true => format!("{times:.2}"),
        false => format!("{times:.2} (noise)"),
    }
}

/// What bound most of the runs.
fn bound(runs: &[&SweptRun]) -> String {
    let stages = runs.iter().map(|run| run.report.limit.stage);
    let most = stages
        .clone()
        .max_by_key(|one| stages.clone().filter(|other| other == one).count());
    most.map_or_else(String::new, |most| most.to_string())
}

fn median_of(runs: &[&SweptRun], of: fn(&SweptRun) -> Option<f64>) -> Option<f64> {
    let found: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
    (!found.is_empty()).then(|| median(found))
}

/// Bytes of a transfer with a device, on average.
fn io_bytes(run: &SweptRun) -> Option<f64> {
    let devices = || run.report.devices.iter();
    let operations: u64 = devices().map(|device| device.operations).sum();
    let bytes: u64 = devices().map(|device| device.bytes).sum();
    (operations > 0 && bytes > 0).then(|| to_f64(bytes) / to_f64(operations))
}

/// The mean number of transfers in flight on all devices together. By Little's law it is the
/// arrivals in a second times the time that one takes. The median latency is used in place of the
/// mean.
fn in_flight(run: &SweptRun) -> Option<f64> {
    let devices = run.report.devices.iter();
    let sum: f64 = devices
        .map(|device| to_f64(device.operations) * to_f64(device.latency_micros_p50) / 1e6)
        .sum();
    (sum > 0.0).then(|| sum / run.report.data_seconds.max(1e-9))
}

/// The waits of each setting. For each stage and cause, it gives the seconds over all threads and
/// the number of waits.
fn waits(series: &Series) -> Table {
    let causes = causes(series);
    let mut columns = vec!["setting".to_owned()];
    columns.extend(
        causes
            .iter()
            .map(|(stage, cause)| cause_words(*stage, *cause)),
    );
    let axes = series.axes();
    let row = |index: usize| {
        let title = match axes.is_empty() {
            true => "all at their defaults".to_owned(),
            false => series.cases[index].words(&axes),
        };
        let mut cells = vec![words(title)];
        cells.extend(causes.iter().map(|(stage, cause)| {
            let (seconds, count) = waited(series, index, *stage, *cause);
            number(format!("{seconds:.2} s / {count:.0}"))
        }));
        cells
    };
    Table {
        columns,
        rows: (0..series.cases.len()).map(row).collect(),
    }
}

/// Stage and cause of every wait that took at least a hundredth of the wall time in some run.
pub(super) fn causes(series: &Series) -> Vec<(StageName, Cause)> {
    let mut causes: Vec<(StageName, Cause)> = Vec::new();
    for run in &series.runs {
        for stage in &run.report.stages {
            for wait in &stage.waits {
                let pair = (stage.name, wait.cause);
                if wait.seconds > 0.01 * run.report.seconds && !causes.contains(&pair) {
                    causes.push(pair);
                }
            }
        }
    }
    causes.sort_by_key(|(stage, cause)| (*stage, cause.name()));
    causes
}

/// `reader: free buffer`.
pub(super) fn cause_words(stage: StageName, cause: Cause) -> String {
    format!("{stage}: {}", cause.name().replace('_', " "))
}

/// Medians of a wait's seconds and count over a case's runs.
pub(super) fn waited(series: &Series, case: usize, stage: StageName, cause: Cause) -> (f64, f64) {
    let waits: Vec<_> = series
        .runs_of(case)
        .map(|run| run.report.waited(stage, cause))
        .collect();
    (
        median(waits.iter().map(|(seconds, _)| *seconds)),
        median(waits.iter().map(|(_, count)| to_f64(*count))),
    )
}

/// A combination of the probe, and what it gave in each round.
pub(super) struct Path {
    pub(super) name: String,
    pub(super) block_bytes: u64,
    pub(super) depth: usize,
    pub(super) rates: Vec<f64>,
}

/// What was probed past the page cache with block sizes that a backup might use.
pub(super) fn paths(series: &Series) -> Vec<Path> {
    let Some(first) = series.probes.first() else {
        return Vec::new();
    };
    let direct = first.points.iter().any(|point| point.direct);
    let points = first.points.iter().enumerate();
    let large =
        points.filter(|(_, point)| point.block_bytes >= BLOCK_BYTES_MIN && point.direct == direct);
    large
        .map(|(index, point)| {
            let pattern = match point.pattern {
                Pattern::Sequential => "sequential",
                Pattern::Random => "random",
            };
            let operation = match point.operation {
                Operation::Read => "read",
                Operation::Write => "write",
            };
            let rates = series
                .probes
                .iter()
                .filter_map(|probe| probe.points.get(index));
            Path {
                name: format!("{pattern} {operation}"),
                block_bytes: point.block_bytes,
                depth: point.depth,
                rates: rates.map(|point| point.bytes_per_second).collect(),
            }
        })
        .collect()
}

fn devices(series: &Series) -> Table {
    let columns = ["path", "block", "in flight", "rate", "lowest", "highest"];
    let row = |path: &Path| {
        let rate = show_rate;
        vec![
            words(&path.name),
            number(show_size(path.block_bytes)),
            number(path.depth.to_string()),
            number(rate(median(path.rates.iter().copied()))),
            number(rate(
                path.rates.iter().copied().fold(f64::INFINITY, f64::min),
            )),
            number(rate(path.rates.iter().copied().fold(0.0, f64::max))),
        ]
    };
    Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: paths(series).iter().map(row).collect(),
    }
}
