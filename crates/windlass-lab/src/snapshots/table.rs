//! The tables of an experiment, as the text and the report show them.

use super::compared::Evaluated;
use super::findings::middle_steps;
use super::series::{SnapshotSeries, TookOf};
use crate::chart::{Cell, Table};
use crate::sweep::{Titled, median};

/// Every table of a series.
pub fn tables(series: &SnapshotSeries) -> Vec<Titled> {
    let titled = |title: &str, table: Table| Titled {
        title: title.to_owned(),
        table,
    };
    let mut tables = vec![titled("Measured", measured(series))];
    if series.runs.iter().any(|run| !run.steps.is_empty()) {
        tables.push(titled("Steps", steps(series)));
    }
    tables
}

fn words(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

fn number(text: impl Into<String>) -> Cell {
    Cell::Number(text.into())
}

/// One row for each case: the middle of each measure, how far its runs differ, and the first
/// comparison's ratio.
fn measured(series: &SnapshotSeries) -> Table {
    let axes = series.axes();
    let measures = series.measures();
    let evaluated = Evaluated::all(series);
    let mut columns = axes.clone();
    columns.extend(measures.iter().map(|(name, _)| name.clone()));
    columns.extend(evaluated.iter().take(1).flat_map(|one| {
        let ratio = format!("{} against the first", one.what.measure);
        ["spread".to_owned(), ratio]
    }));
    let row = |case: usize| {
        let setting = |axis: &String| series.cases[case].on(axis);
        let label = |axis| setting(axis).map_or("-", |setting| &setting.label);
        let mut cells: Vec<Cell> = axes.iter().map(|axis| words(label(axis))).collect();
        cells.extend(measures.iter().map(|(name, kind)| {
            let values = series.values_of(case, name);
            match values.is_empty() {
                true => number("-"),
                false => number(kind.show(median(values))),
            }
        }));
        if let Some(one) = evaluated.first() {
            cells.push(number(spread(&series.values_of(case, one.what.measure))));
            cells.push(number(against_first(one, case)));
        }
        cells
    };
    Table {
        columns,
        rows: (0..series.cases.len()).map(row).collect(),
    }
}

/// How far the runs differ, as a share of the middle one.
fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    match values.len() {
        0 | 1 => "-".to_owned(),
        _ => {
            let middle = median(values.iter().copied());
            format!("{:.1} %", (high - low) / middle.max(1e-9) * 100.0)
        }
    }
}

fn against_first(one: &Evaluated<'_>, case: usize) -> String {
    let group = one.groups.iter().find(|group| group.cases.contains(&case));
    let Some(group) = group else {
        return "-".to_owned();
    };
    if group.cases[0] == case {
        return "first".to_owned();
    }
    let difference = one.compare(group.cases[0], case);
    match difference.apart {
        true => format!("{:.2}", difference.ratio),
        false => format!("{:.2} (noise)", difference.ratio),
    }
}

/// One row for each step, one column for each case.
fn steps(series: &SnapshotSeries) -> Table {
    let of = |case| middle_steps(series, case);
    let cases: Vec<usize> = (0..series.cases.len())
        .filter(|case| !of(*case).is_empty())
        .collect();
    let columns = cases.iter().map(|case| series.cases[*case].words(None));
    let columns = std::iter::once("step".to_owned()).chain(columns);
    let by_case: Vec<_> = cases.iter().map(|case| of(*case)).collect();
    let mut names: Vec<(TookOf, String)> = Vec::new();
    for step in by_case.iter().flatten() {
        let name = (step.of, step.name.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|(of, _)| *of == TookOf::Opening);
    let row = |(of, name): &(TookOf, String)| {
        let cell = |steps: &Vec<super::series::StepTook>| {
            let found = steps.iter().find(|one| one.of == *of && one.name == *name);
            number(found.map_or("-".to_owned(), |one| format!("{:.3} s", one.seconds)))
        };
        let of = match of {
            TookOf::Making => "",
            TookOf::Opening => "open: ",
        };
        let mut cells = vec![words(format!("{of}{name}"))];
        cells.extend(by_case.iter().map(cell));
        cells
    };
    Table {
        columns: columns.collect(),
        rows: names.iter().map(row).collect(),
    }
}
