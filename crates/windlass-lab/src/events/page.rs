//! The page about a file of events: the verdict, throughput and buffers over time, and the tables.

use windlass_engine::Cause;

use super::read::{EventFile, SampleLine};
use super::spread::{float, seconds};
use super::summary::EventTable;
use crate::chart::{BarChart, BarLayout, Cell, Group, LineChart, Page, Series, Table, Unit};

/// The most rates that a chart shows.
const RATES_MAX: u64 = 100;

/// The page, as one HTML file.
pub fn event_page(file: &EventFile, table: &EventTable) -> String {
    let mut page = Page::new(&format!("{} of {}", table.command, table.subject));
    introduce(&mut page, table);
    page.heading("Over time");
    page.chart(&devices(file).figure());
    page.chart(&stages(file).figure());
    page.chart(&buffers(file).figure());
    page.heading("Waits");
    page.chart(&waits(file, table).figure());
    page.table(&wait_table(table));
    page.heading("Transfers");
    page.paragraph("From submission to completion. Several are in flight at once, so the sums say little by themselves.");
    page.table(&io_table(table));
    page.html()
}

fn introduce(page: &mut Page, table: &EventTable) {
    let sentence = table.error.as_deref().or(table.verdict.as_deref());
    page.finding(sentence.unwrap_or("The file was cut off: the run was killed, or goes on."));
    page.figures(&[
        ("Started", moment(&table.started)),
        ("Recorded", Unit::Seconds.show(table.seconds)),
        ("Outcome", table.outcome.replace('_', " ")),
        ("Events", table.events.to_string()),
    ]);
    if table.thinned > 0 {
        page.paragraph(&format!(
            "{} short events were left out to keep the file small. Those that are in it stand for \
             them, so counts and sums are estimates.",
            table.thinned
        ));
    }
    if table.lost > 0 {
        page.paragraph(&format!(
            "{} events were lost, because the file could not be written fast enough.",
            table.lost
        ));
    }
}

/// An RFC 3339 time without its fractions of a second.
fn moment(time: &str) -> String {
    let (seconds, _) = time
        .split_once('.')
        .unwrap_or((time.trim_end_matches('Z'), ""));
    format!("{} UTC", seconds.replace('T', " "))
}

/// The rate of a counter between each two samples, placed at the later sample.
fn rates(samples: &[SampleLine], value: impl Fn(&SampleLine) -> Option<u64>) -> Vec<(f64, f64)> {
    let rate = |pair: &[&SampleLine]| {
        let (before, now) = (value(pair[0])?, value(pair[1])?);
        let time = seconds(pair[1].at_nanos.saturating_sub(pair[0].at_nanos));
        let bytes = float(u128::from(now.saturating_sub(before)));
        (time > 0.0).then(|| (seconds(pair[1].at_nanos), bytes / time))
    };
    let samples = spaced(samples);
    samples.windows(2).filter_map(rate).collect()
}

/// Samples with enough time between them. A rate over less than one transfer's time is only noise.
fn spaced(samples: &[SampleLine]) -> Vec<&SampleLine> {
    let end = samples.last().map_or(0, |last| last.at_nanos);
    let mut kept: Vec<&SampleLine> = Vec::new();
    for sample in samples {
        let before = kept.last().map(|last| last.at_nanos);
        if before.is_none_or(|before| sample.at_nanos >= before + end / RATES_MAX) {
            kept.push(sample);
        }
    }
    kept
}

fn over_time(title: &str, description: &str, y: Unit, series: Vec<Series>) -> LineChart {
    LineChart {
        title: title.to_owned(),
        description: description.to_owned(),
        x: ("time since the recording began".to_owned(), Unit::Seconds),
        y,
        series,
        ..LineChart::default()
    }
}

fn devices(file: &EventFile) -> LineChart {
    let names = file.short_names();
    let roles = file.header.devices.iter().map(|device| &device.role);
    // A stripe that got nothing is shown: a reader wants to know that one device did no work.
    let stripes: Vec<_> = roles.map(|role| role == "stripe").collect();
    let series = names.into_iter().enumerate().map(|(index, name)| Series {
        name,
        points: rates(&file.samples, |sample| {
            sample.device_bytes.get(index).copied()
        }),
        ..Series::default()
    });
    let description = "Bytes read from and written to each device per second.";
    let works = |series: &Series| series.points.iter().any(|point| point.1 > 0.0);
    let series = series.zip(stripes);
    let series = series.filter(|(series, is_stripe)| *is_stripe || works(series));
    let series = series.map(|(series, _)| series);
    let (unit, series) = (Unit::BytesPerSecond, series.collect());
    over_time("Throughput by device", description, unit, series)
}

fn stages(file: &EventFile) -> LineChart {
    let series = file
        .header
        .stages
        .iter()
        .enumerate()
        .map(|(index, stage)| Series {
            name: stage.clone(),
            points: rates(&file.samples, |sample| {
                sample.stage_bytes.get(index).copied()
            }),
            ..Series::default()
        });
    let description = "Bytes each stage has worked on per second: compressed where it is stored.";
    let (unit, series) = (Unit::BytesPerSecond, series.collect());
    over_time("Throughput by stage", description, unit, series)
}

fn buffers(file: &EventFile) -> LineChart {
    let held = file.samples.iter().filter_map(|sample| {
        let at = seconds(sample.at_nanos);
        sample.buffers.map(|buffers| (at, buffers))
    });
    let held: Vec<_> = held.collect();
    let series = |name: &str, of: fn(&super::read::Buffers) -> u64| Series {
        name: name.to_owned(),
        points: held
            .iter()
            .map(|(at, buffers)| (*at, float(u128::from(of(buffers)))))
            .collect(),
        ..Series::default()
    };
    let series = vec![
        series("inputs", |buffers| buffers.inputs),
        series("outputs", |buffers| buffers.outputs),
        series("free", |buffers| buffers.free),
    ];
    let description = "Who has the buffers: few free ones mean that the pipeline is full.";
    let mut chart = over_time("Buffers", description, Unit::Count, series);
    chart.stacked = true;
    chart
}

fn waits(file: &EventFile, table: &EventTable) -> BarChart {
    let used = |cause: &Cause| table.waits.iter().any(|row| row.cause == cause.name());
    let causes: Vec<_> = Cause::ALL.into_iter().filter(used).collect();
    let group = |stage: &String| Group {
        label: stage.clone(),
        values: causes
            .iter()
            .map(|cause| {
                let mut rows = table.waits.iter();
                let row = rows.find(|row| row.stage == *stage && row.cause == cause.name());
                row.map_or(0.0, |row| row.spread.total_seconds)
            })
            .collect(),
        ..Group::default()
    };
    let name = |cause: &Cause| cause.name().replace('_', " ");
    BarChart {
        title: "Waits by stage".to_owned(),
        description: "How long each stage stood still, by cause, summed over its threads."
            .to_owned(),
        unit: Unit::Seconds,
        series: causes.iter().map(name).collect(),
        groups: file.header.stages.iter().map(group).collect(),
        layout: BarLayout::Stacked,
        reference: None,
        band: None,
    }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn times(spread: &super::spread::Spread) -> Vec<Cell> {
    let time = |seconds| Cell::Number(Unit::Seconds.show(seconds));
    vec![
        Cell::Number(spread.count.to_string()),
        time(spread.total_seconds),
        time(spread.mean_seconds),
        time(spread.p50_seconds),
        time(spread.p99_seconds),
        time(spread.max_seconds),
    ]
}

fn wait_table(table: &EventTable) -> Table {
    let row = |row: &super::summary::WaitRow| {
        let mut cells = vec![
            Cell::Text(row.cause.replace('_', " ")),
            Cell::Text(row.stage.clone()),
        ];
        cells.push(Cell::Number(Unit::Share.show(row.share)));
        cells.extend(times(&row.spread));
        cells
    };
    Table {
        columns: columns(&[
            "cause", "stage", "share", "count", "total", "mean", "p50", "p99", "max",
        ]),
        rows: table.waits.iter().map(row).collect(),
    }
}

fn io_table(table: &EventTable) -> Table {
    let row = |row: &super::summary::IoRow| {
        let mut cells = vec![
            Cell::Text(row.name.clone()),
            Cell::Text(row.operation.replace('_', " ")),
            Cell::Number(Unit::Bytes.show(float(u128::from(row.bytes)))),
            Cell::Number(Unit::Bytes.show(row.mean_bytes)),
            Cell::Number(Unit::Count.show(row.mean_depth)),
        ];
        cells.extend(times(&row.spread));
        cells
    };
    Table {
        columns: columns(&[
            "device",
            "operation",
            "bytes",
            "size",
            "depth",
            "count",
            "total",
            "mean",
            "p50",
            "p99",
            "max",
        ]),
        rows: table.ios.iter().map(row).collect(),
    }
}
