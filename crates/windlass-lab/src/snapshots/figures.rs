//! The article's figures, drawn again from our runs.

use super::compared::{Evaluated, Group};
use super::experiment::{SnapshotExperiment, names};
use super::findings::middle_steps;
use super::series::{Sample, SnapshotRun, SnapshotSeries, TookOf, ValueKind};
use crate::chart::{BarChart, BarLayout, Group as Bars, LineChart, Scale, Series as Line, Unit};
use crate::sweep::median;

/// The explanation of a line chart.
const LINES: &str = "Small dots are the runs, the line joins the middle ones, and the band around \
    it is the noise. A ring instead of a dot means that the runs do not tell this place from the \
    first one of the line.";
const BARS: &str = "The middle of the runs, which are the small dots. A hollow bar means that the \
    runs do not tell it from the first one of its kind.";

/// Every figure of a series, in HTML.
pub(super) fn figures(series: &SnapshotSeries) -> Vec<String> {
    let experiment = series.inputs.experiment;
    let evaluated = Evaluated::all(series);
    let charts = |one: &Evaluated<'_>| match is_number(one.what.axis) {
        true => lines(one),
        false => vec![bars(one).figure()],
    };
    let mut figures = match experiment {
        SnapshotExperiment::Steps => vec![steps(series).figure()],
        SnapshotExperiment::Timeline => courses(series),
        SnapshotExperiment::Revert => vec![by_size(series).figure()],
        _ => Vec::new(),
    };
    figures.extend(evaluated.iter().flat_map(charts));
    if experiment == SnapshotExperiment::AsOf {
        figures.push(steps(series).figure());
    }
    figures
}

fn is_number(axis: &str) -> bool {
    [
        names::CLIENTS,
        names::SNAPSHOTS,
        names::ORDINAL,
        names::CHANGED,
    ]
    .contains(&axis)
}

/// A measure along an axis of numbers. Response times have one chart for each load: five lines for
/// each are too many for one.
fn lines(one: &Evaluated<'_>) -> Vec<String> {
    let is_latency = one.series.inputs.experiment == SnapshotExperiment::Latency;
    let load = |group: &Group| {
        let setting = one.series.cases[group.cases[0]].on(names::CLIENTS);
        setting.map_or(String::new(), |setting| setting.label.clone())
    };
    if !is_latency {
        let groups: Vec<&Group> = one.groups.iter().collect();
        return vec![line_chart(one, &groups, "").figure()];
    }
    let mut loads: Vec<String> = one.groups.iter().map(load).collect();
    loads.dedup();
    loads.sort();
    loads.dedup();
    let chart = |wanted: &String| {
        let groups: Vec<&Group> = one.groups.iter().filter(|it| load(it) == *wanted).collect();
        line_chart(one, &groups, wanted).figure()
    };
    loads.iter().map(chart).collect()
}

fn line_chart(one: &Evaluated<'_>, groups: &[&Group], of: &str) -> LineChart {
    let mut places: Vec<f64> = Vec::new();
    let place = |case: usize| {
        one.series.cases[case]
            .on(one.what.axis)
            .map_or(0.0, |it| it.place)
    };
    for case in groups.iter().flat_map(|group| &group.cases) {
        if !places.contains(&place(*case)) {
            places.push(place(*case));
        }
    }
    places.sort_by(f64::total_cmp);
    let at = |case: usize| {
        let found = places.iter().position(|one| *one == place(case));
        crate::numbers::to_f64(found.unwrap_or(0) as u64)
    };
    let name = |place: &f64| match one.what.axis {
        names::CHANGED => Unit::Share.show(*place),
        _ => Unit::Count.show(*place),
    };
    let of = match of {
        "" => String::new(),
        of => format!(", {of}"),
    };
    LineChart {
        title: format!("{}{of}", capital(one.what.measure)),
        description: LINES.to_owned(),
        x: (one.what.axis.to_owned(), Unit::Count),
        x_scale: Scale::Named,
        x_names: places.iter().map(name).collect(),
        y: one.kind.unit(),
        series: groups.iter().map(|group| line(one, group, &at)).collect(),
        marked: true,
        ..LineChart::default()
    }
}

fn line(one: &Evaluated<'_>, group: &Group, at: &dyn Fn(usize) -> f64) -> Line {
    let values = |case: usize| one.series.values_of(case, one.what.measure);
    let cases = group.cases.iter().copied();
    let band = |case: usize| {
        let (factor, middle) = (one.noise.band(case), one.middle(case));
        factor
            .is_finite()
            .then(|| (at(case), middle / factor, middle * factor))
    };
    let first = group.cases[0];
    Line {
        name: match group.common.as_str() {
            "" => one.what.measure.to_owned(),
            common => common.to_owned(),
        },
        points: cases
            .clone()
            .map(|case| (at(case), one.middle(case)))
            .collect(),
        runs: cases
            .clone()
            .flat_map(|case| values(case).into_iter().map(move |value| (case, value)))
            .map(|(case, value)| (at(case), value))
            .collect(),
        band: cases.clone().filter_map(band).collect(),
        hollow: cases
            .map(|case| case != first && !one.compare(first, case).apart)
            .collect(),
    }
}

fn bars(one: &Evaluated<'_>) -> BarChart {
    let group = |group: &Group, case: usize| Bars {
        label: one.series.cases[case].words(None),
        values: vec![one.middle(case)],
        runs: one.series.values_of(case, one.what.measure),
        hollow: case != group.cases[0] && !one.compare(group.cases[0], case).apart,
    };
    let all = one.groups.iter();
    let groups = all.flat_map(|it| it.cases.iter().map(move |case| group(it, *case)));
    BarChart {
        title: format!("{} by {}", capital(one.what.measure), one.what.axis),
        description: BARS.to_owned(),
        unit: one.kind.unit(),
        series: vec![one.what.measure.to_owned()],
        groups: groups.collect(),
        layout: BarLayout::Grouped,
        reference: None,
        band: None,
    }
}

/// The steps of making and opening, end to end.
fn steps(series: &SnapshotSeries) -> BarChart {
    let mut names: Vec<(TookOf, String)> = Vec::new();
    let by_case: Vec<_> = (0..series.cases.len())
        .map(|case| middle_steps(series, case))
        .collect();
    for step in by_case.iter().flatten() {
        let name = (step.of, step.name.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|(of, _)| *of == TookOf::Opening);
    let group = |(case, steps): (usize, &Vec<super::series::StepTook>)| Bars {
        label: series.cases[case].words(None),
        values: names
            .iter()
            .map(|(of, name)| {
                let found = steps.iter().find(|one| one.of == *of && one.name == *name);
                found.map_or(0.0, |one| one.seconds)
            })
            .collect(),
        ..Bars::default()
    };
    let shown = |(of, name): &(TookOf, String)| match of {
        TookOf::Making => name.clone(),
        TookOf::Opening => format!("open: {name}"),
    };
    BarChart {
        title: "Steps".to_owned(),
        description: "The middle time of each step, end to end.".to_owned(),
        unit: Unit::Seconds,
        series: names.iter().map(shown).collect(),
        groups: by_case.iter().enumerate().map(group).collect(),
        layout: BarLayout::Stacked,
        reference: None,
        band: None,
    }
}

/// Time to go back, by size.
fn by_size(series: &SnapshotSeries) -> LineChart {
    let of = |case: usize, name| median(series.values_of(case, name));
    let cases = 0..series.cases.len();
    let mut points: Vec<_> = cases
        .map(|case| (of(case, names::SIZE), of(case, names::REVERT)))
        .collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let runs = series.runs.iter().filter_map(|run| {
        Some((
            run.value(names::SIZE)?.value,
            run.value(names::REVERT)?.value,
        ))
    });
    LineChart {
        title: "Time to go back, by size on disk".to_owned(),
        description: "Small dots are the runs, the line joins the middle ones.".to_owned(),
        x: ("size on disk".to_owned(), Unit::Bytes),
        y: Unit::Seconds,
        series: vec![Line {
            name: names::REVERT.to_owned(),
            points,
            runs: runs.collect(),
            ..Line::default()
        }],
        marked: true,
        ..LineChart::default()
    }
}

/// The course of the last run: one chart for each kind of what was seen.
fn courses(series: &SnapshotSeries) -> Vec<String> {
    let Some(run) = series.runs.iter().rev().find(|run| !run.samples.is_empty()) else {
        return Vec::new();
    };
    let mut seen: Vec<(String, ValueKind)> = Vec::new();
    for value in run.samples.iter().flat_map(|sample| &sample.values) {
        if !seen.iter().any(|(name, _)| *name == value.name) {
            seen.push((value.name.clone(), value.kind));
        }
    }
    let (bytes, things): (Vec<_>, Vec<_>) = seen
        .into_iter()
        .partition(|(_, kind)| *kind == ValueKind::BytesPerSecond);
    let mut charts: Vec<String> = things
        .iter()
        .map(|one| course(run, std::slice::from_ref(one)))
        .collect();
    if !bytes.is_empty() {
        charts.push(course(run, &bytes));
    }
    charts
}

fn course(run: &SnapshotRun, seen: &[(String, ValueKind)]) -> String {
    let value = |sample: &Sample, name: &str| {
        let found = sample.values.iter().find(|value| value.name == name)?;
        Some((sample.seconds, found.value))
    };
    let line = |(name, _): &(String, ValueKind)| Line {
        name: name.clone(),
        points: run
            .samples
            .iter()
            .filter_map(|sample| value(sample, name))
            .collect(),
        ..Line::default()
    };
    let mut lines: Vec<Line> = seen.iter().map(line).collect();
    let most = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.1);
    let most = most.fold(0.0, f64::max);
    if let Some((from, to)) = run.making {
        lines.push(Line {
            name: "a snapshot is made".to_owned(),
            points: vec![(from, most), (to, most)],
            ..Line::default()
        });
    }
    let (title, kind) = match seen {
        [(name, kind)] => (capital(name), *kind),
        _ => ("Bytes in a second".to_owned(), ValueKind::BytesPerSecond),
    };
    let chart = LineChart {
        title,
        description: "One run, from before the snapshot until after it.".to_owned(),
        x: ("seconds".to_owned(), Unit::Count),
        y: kind.unit(),
        series: lines,
        ..LineChart::default()
    };
    chart.figure()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
