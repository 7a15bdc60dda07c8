//! A sweep's report: words, charts and tables on one page.

use windlass_engine::show_size;

use super::findings::{Findings, findings};
use super::measure::{Measure, median};
use super::series::Series;
use super::table::{Path, cause_words, causes, paths, tables, waited};
use super::{Axis, Case, Experiment, Noise};
use crate::chart::{BarChart, BarLayout, Group, LineChart, Page, Scale, Series as Line, Unit};
use crate::numbers::to_f64;
use crate::plan::Direction;

/// The explanation of a line chart.
const LINES: &str = "Small dots are the runs, the line joins the medians, and the band around \
    it is the noise. A ring instead of a dot means that the runs do not tell this setting from the \
    baseline; on a line without the baseline, from the line's first setting.";

/// The most bars of a chart. With more, nobody finds the one to look at.
const BARS_MAX: usize = 32;

/// The axes on which the size of a set depends.
const OF_SIZE: [Axis; 2] = [Axis::Codec, Axis::Pages];

/// The page as HTML.
pub fn report(series: &Series) -> String {
    let inputs = &series.inputs;
    let mut page = Page::new(inputs.experiment.question());
    summary(&mut page, series);
    write_findings(&mut page, &findings(series));
    match inputs.experiment {
        Experiment::Device => devices(&mut page, series),
        _ => charts(&mut page, series),
    }
    for titled in tables(series) {
        page.heading(&titled.title);
        page.table(&titled.table);
    }
    page.html()
}

/// What was run, and on what machine.
fn summary(page: &mut Page, series: &Series) {
    let inputs = &series.inputs;
    let what = match (inputs.experiment, inputs.direction) {
        (Experiment::Device, _) => "Probes",
        (_, Direction::Backup) => "Backups",
        (_, Direction::Restore) => "Restores",
    };
    let to = match inputs.direction {
        _ if inputs.experiment == Experiment::Device => "path",
        Direction::Backup => "to",
        Direction::Restore => "from",
    };
    let bytes = inputs.database_bytes;
    let mut figures = vec![
        ("experiment", inputs.experiment.name().to_owned()),
        (
            "runs",
            format!("{what}: {}", series.runs.len().max(series.probes.len())),
        ),
        (to, inputs.to.join(", ")),
        ("rounds", inputs.repeat.to_string()),
    ];
    if bytes > 0 {
        figures.insert(
            1,
            ("database", format!("{}, {}", inputs.kind, show_size(bytes))),
        );
    }
    page.figures(&figures);
    page.paragraph(&format!("{}; {}", series.at, series.environment.words()));
}

/// Writes what was found, what could not be told from noise, and how that was decided.
pub(crate) fn write_findings(page: &mut Page, findings: &Findings) {
    page.heading("What was found");
    for sentence in &findings.found {
        page.finding(&sentence_of(sentence));
    }
    if !findings.unclear.is_empty() {
        page.heading("What noise hides");
        for sentence in &findings.unclear {
            page.paragraph(&sentence_of(sentence));
        }
    }
    page.heading("How this was told");
    for sentence in &findings.method {
        page.paragraph(&sentence_of(sentence));
    }
}

/// A finding as a sentence: it begins with a capital letter and ends with a full stop.
fn sentence_of(finding: &str) -> String {
    let mut letters = finding.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    let rest: String = letters.collect();
    format!("{}{rest}.", first.map_or(String::new(), String::from))
}

/// Duration and CPU time over each number axis; speed-ups; waits; sizes.
fn charts(page: &mut Page, series: &Series) {
    let axes = series.axes();
    for axis in axes.iter().copied().filter(|axis| axis.is_number()) {
        let lines = lines(series, axis);
        if lines.is_empty() {
            continue;
        }
        page.heading(&format!("By {}", axis.name()));
        for (measure, unit) in [
            (Measure::Seconds, Unit::Seconds),
            (Measure::CpuSeconds, Unit::Seconds),
            (Measure::PeakMemory, Unit::Bytes),
        ] {
            let is_memory = measure == Measure::PeakMemory;
            if is_memory && axis != Axis::Buffers {
                continue;
            }
            page.chart(&over(series, axis, &lines, (measure, unit)).figure());
        }
    }
    if series.cases.len() > 1 {
        page.heading("Setting by setting");
        page.chart(&speed_ups(series).figure());
    }
    page.chart(&waits(series).figure());
    let of_size: Vec<_> = OF_SIZE
        .into_iter()
        .filter(|one| axes.contains(one))
        .collect();
    if !of_size.is_empty() {
        page.chart(&sizes(series, &of_size).figure());
    }
}

/// Lines of cases that differ on this axis only: the name and the cases of each.
fn lines(series: &Series, axis: Axis) -> Vec<(String, Vec<usize>)> {
    let others: Vec<Axis> = series
        .axes()
        .into_iter()
        .filter(|one| *one != axis)
        .collect();
    let mut lines: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, case) in series.cases.iter().enumerate() {
        // A default number of buffers follows from the devices. So such a case has no place on the
        // axis of buffers, and the default makes no difference on any other axis.
        if axis == Axis::Buffers && case.buffers.is_none() {
            continue;
        }
        let name = match others.is_empty() {
            true => series.inputs.experiment.name().to_owned(),
            false => line_name(series, case, &others),
        };
        match lines.iter_mut().find(|(one, _)| *one == name) {
            Some((_, cases)) => cases.push(index),
            None => lines.push((name, vec![index])),
        }
    }
    // Lines that another grid adds, with two points of seven, would only hide the others.
    let most = lines
        .iter()
        .map(|(_, cases)| cases.len())
        .max()
        .unwrap_or(0);
    lines.retain(|(_, cases)| cases.len() > 1 && cases.len() * 2 >= most);
    lines
}

/// The name of a line: its values on the axes on which the cases differ.
fn line_name(series: &Series, case: &Case, others: &[Axis]) -> String {
    let differs = |axis: &Axis| series.values(*axis).len() > 1;
    let is_given = |axis: &Axis| *axis != Axis::Buffers || case.buffers.is_some();
    let shown: Vec<Axis> = others
        .iter()
        .copied()
        .filter(differs)
        .filter(is_given)
        .collect();
    case.words(&shown)
}

/// A measure over an axis, as lines.
fn over(
    series: &Series,
    axis: Axis,
    lines: &[(String, Vec<usize>)],
    (measure, y): (Measure, Unit),
) -> LineChart {
    let values = series.values(axis);
    let place = |case: &Case| values.iter().position(|value| *value == case.label(axis));
    let x = |case: &Case| match axis {
        Axis::Database | Axis::TransferSize | Axis::BlockSize => case.place(axis),
        // At equal distances: there is nothing between one device and two, or left of one.
        Axis::Devices => place(case).unwrap_or(0) as u64,
        _ => case.buffers.map_or(0, |buffers| buffers as u64),
    };
    let noise = Noise::of(
        series,
        measure,
        lines.iter().map(|(_, cases)| cases.len()).sum(),
    );
    let at = |case: &usize| to_f64(x(&series.cases[*case]));
    let line = |(name, cases): &(String, Vec<usize>)| {
        let mut cases = cases.clone();
        cases.sort_by(|one, other| at(one).total_cmp(&at(other)));
        line_of(series, (measure, &noise), name, (&cases, &at))
    };
    let is_size = matches!(axis, Axis::Database | Axis::TransferSize | Axis::BlockSize);
    LineChart {
        title: format!("{} by {}", capital(measure.name()), axis.name()),
        description: LINES.to_owned(),
        x: (
            axis.name().to_owned(),
            if is_size { Unit::Bytes } else { Unit::Count },
        ),
        x_scale: match axis {
            Axis::Devices => Scale::Named,
            _ => Scale::Log2,
        },
        x_names: match axis {
            Axis::Devices => values.clone(),
            _ => Vec::new(),
        },
        y,
        series: lines.iter().map(line).collect(),
        marked: true,
        ..LineChart::default()
    }
}

/// The position of a case on the bottom axis.
type Place<'a> = &'a dyn Fn(&usize) -> f64;

/// A line of cases, with their runs and the noise of each.
fn line_of(
    series: &Series,
    (measure, noise): (Measure, &Noise),
    name: &str,
    (cases, at): (&[usize], Place<'_>),
) -> Line {
    let values = |case: &usize| series.runs_of(*case).map(|run| measure.of(run));
    let middle = |case: &usize| median(values(case));
    let baseline = series.baseline();
    let first = cases.first().copied().unwrap_or(baseline);
    let reference = if cases.contains(&baseline) {
        baseline
    } else {
        first
    };
    let band = |case: &usize| {
        let (factor, middle) = (noise.band(*case), middle(case));
        factor
            .is_finite()
            .then(|| (at(case), middle / factor, middle * factor))
    };
    let is_hidden = |case: &usize| *case != reference && !noise.compare(reference, *case).apart;
    Line {
        name: name.to_owned(),
        points: cases.iter().map(|case| (at(case), middle(case))).collect(),
        runs: cases
            .iter()
            .flat_map(|case| values(case).map(|value| (at(case), value)))
            .collect(),
        band: cases.iter().filter_map(band).collect(),
        hollow: cases.iter().map(is_hidden).collect(),
    }
}

/// The settings that a bar chart shows: all of them, or the fastest ones and the baseline.
fn shown(series: &Series) -> Vec<usize> {
    let noise = Noise::of(series, Measure::Seconds, 1);
    let baseline = series.baseline();
    let mut cases: Vec<usize> = (0..series.cases.len()).collect();
    if cases.len() > BARS_MAX {
        cases.sort_by(|one, other| noise.mean(*one).total_cmp(&noise.mean(*other)));
        cases.retain(|case| *case != baseline);
        cases.truncate(BARS_MAX - 1);
        cases.push(baseline);
        cases.sort_unstable();
    }
    cases
}

fn limited(series: &Series, text: &str) -> String {
    match series.cases.len() {
        all if all > BARS_MAX => format!(
            "{text} The baseline, and the {} fastest of {all}.",
            BARS_MAX - 1
        ),
        _ => text.to_owned(),
    }
}

fn bar_label(series: &Series, case: usize) -> String {
    match series.axes() {
        axes if axes.is_empty() => "all at their defaults".to_owned(),
        axes => series.cases[case].words(&axes),
    }
}

fn speed_ups(series: &Series) -> BarChart {
    let noise = Noise::of(series, Measure::Seconds, 2 * series.cases.len());
    let baseline = series.baseline();
    let group = |case: usize| {
        let difference = noise.compare(baseline, case);
        let hidden = if case != baseline && !difference.apart {
            " (noise)"
        } else {
            ""
        };
        let runs = series.runs_of(case).map(|run| Measure::Seconds.of(run));
        Group {
            label: format!("{}{hidden}", bar_label(series, case)),
            values: vec![1.0 / difference.ratio],
            runs: runs
                .map(|seconds| noise.mean(baseline) / seconds.max(1e-9))
                .collect(),
            hollow: !hidden.is_empty(),
        }
    };
    let needed = noise.compare(baseline, baseline).needed;
    BarChart {
        title: "Speed-up against the baseline".to_owned(),
        description: limited(
            series,
            &format!(
                "The baseline is {}. Small dots are the runs. The band is the noise: the runs do \
                 not tell a setting within it from the baseline, and its bar is hollow.",
                bar_label(series, baseline)
            ),
        ),
        unit: Unit::Factor,
        series: vec!["times as fast".to_owned()],
        groups: shown(series).into_iter().map(group).collect(),
        layout: BarLayout::Grouped,
        reference: Some(1.0),
        band: needed.is_finite().then(|| (1.0 / needed, needed)),
    }
}

fn waits(series: &Series) -> BarChart {
    let causes = causes(series);
    let group = |case: usize| Group {
        label: bar_label(series, case),
        values: causes
            .iter()
            .map(|(stage, cause)| waited(series, case, *stage, *cause).0)
            .collect(),
        ..Group::default()
    };
    BarChart {
        title: "Where it waits".to_owned(),
        description: limited(
            series,
            "Seconds over all threads of a stage, the median of the runs.",
        ),
        unit: Unit::Seconds,
        series: causes
            .iter()
            .map(|(stage, cause)| cause_words(*stage, *cause))
            .collect(),
        groups: shown(series).into_iter().map(group).collect(),
        layout: BarLayout::Stacked,
        reference: None,
        band: None,
    }
}

/// Bytes written by each codec, over all settings.
pub(super) fn sizes(series: &Series, axes: &[Axis]) -> BarChart {
    let label = |case: &Case| {
        let one = |axis: &Axis| match axis {
            Axis::Codec => case.label(Axis::Codec),
            axis => case.words(&[*axis]),
        };
        axes.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let mut labels: Vec<String> = Vec::new();
    for one in series.cases.iter().map(label) {
        if !labels.contains(&one) {
            labels.push(one);
        }
    }
    let group = |name: String| {
        let of = |case: &usize| label(&series.cases[*case]) == name;
        let cases = (0..series.cases.len()).filter(of);
        let runs = cases.flat_map(|case| series.runs_of(case));
        // A backup writes what it stores; a restore reads it.
        let bytes = runs.map(|run| match series.inputs.direction {
            Direction::Backup => to_f64(run.report.bytes_written),
            Direction::Restore => to_f64(run.report.bytes_read),
        });
        let values = vec![median(bytes)];
        Group {
            label: name,
            values,
            ..Group::default()
        }
    };
    let by = axes.iter().map(|axis| match axis {
        Axis::Codec => "codec",
        axis => axis.name(),
    });
    let by = by.collect::<Vec<_>>().join(" and ");
    BarChart {
        title: format!("Size of a set by {by}"),
        description: "Bytes of all stripes.".to_owned(),
        unit: Unit::Bytes,
        series: vec!["stripes".to_owned()],
        groups: labels.into_iter().map(group).collect(),
        layout: BarLayout::Grouped,
        reference: None,
        band: None,
    }
}

/// Rates of an I/O path, by block size and by what is in flight.
fn devices(page: &mut Page, series: &Series) {
    let paths = paths(series);
    let line = |name: &str, keep: &dyn Fn(&&Path) -> bool, x: &dyn Fn(&Path) -> u64| {
        let these = paths
            .iter()
            .filter(|path| path.name == name)
            .filter(|path| keep(path));
        Line {
            name: name.to_owned(),
            points: these
                .clone()
                .map(|path| (to_f64(x(path)), median(path.rates.iter().copied())))
                .collect(),
            runs: these
                .flat_map(|path| path.rates.iter().map(|rate| (to_f64(x(path)), *rate)))
                .collect(),
            ..Line::default()
        }
    };
    let mut names: Vec<&str> = paths.iter().map(|path| path.name.as_str()).collect();
    names.dedup();
    let chart = |title: &str, x: (&str, Unit), series: Vec<Line>| LineChart {
        title: title.to_owned(),
        description: "Small dots are the rounds, and the line joins their medians.".to_owned(),
        x: (x.0.to_owned(), x.1),
        x_scale: Scale::Log2,
        y: Unit::BytesPerSecond,
        series,
        marked: true,
        ..LineChart::default()
    };
    page.heading("Rates");
    for depth in [1, 8] {
        let keep = |path: &&Path| path.depth == depth;
        let lines = names
            .iter()
            .map(|name| line(name, &keep, &|path| path.block_bytes));
        let title = format!("By block size, {depth} in flight");
        page.chart(&chart(&title, ("block", Unit::Bytes), lines.collect()).figure());
    }
    let keep = |path: &&Path| path.block_bytes == 1 << 20;
    let lines = names
        .iter()
        .map(|name| line(name, &keep, &|path| path.depth as u64));
    let title = format!("By blocks of {} in flight", show_size(1 << 20));
    page.chart(&chart(&title, ("in flight", Unit::Count), lines.collect()).figure());
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
