//! What a sweep shows: tables and words here, the series and its report as files.

use std::path::{Path, PathBuf};

use windlass_lab::chart::{Cell, PAGE, Table};
use windlass_lab::{Direction, Series, findings, report, state_directory, tables};

use crate::cli::Global;
use crate::exit::{Code, Failure};
use crate::output;
use crate::outputs::outputs;

/// The directory of the files: as given, or the default.
pub fn out_directory(given: Option<PathBuf>) -> PathBuf {
    let state = || state_directory().map(|state| state.join("sweeps"));
    given.or_else(state).unwrap_or_else(|| ".".into())
}

/// The time, to the second. It is a part of the files' names.
pub fn now() -> String {
    let second = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    second.unwrap_or_default().to_string()
}

/// Shows a series. With `keep`, it writes the series itself and not only its report. Without a
/// directory it writes nothing.
pub fn show(
    global: &Global,
    series: &Series,
    out: Option<&Path>,
    keep: bool,
) -> Result<Code, Failure> {
    let findings = findings(series);
    let mut kept = Vec::new();
    if let Some(out) = out {
        kept = files(series, out, keep)?;
    }
    if global.json {
        let document = serde_json::json!({ "series": series, "findings": findings, "kept": kept });
        output::line(&document.to_string());
        return Ok(Code::Done);
    }
    for titled in tables(series) {
        output::line(&titled.title);
        print(&titled.table);
        output::line("");
    }
    let lists = [
        ("found", &findings.found),
        ("not told apart", &findings.unclear),
        ("how", &findings.method),
    ];
    for (name, sentences) in lists {
        for sentence in sentences {
            output::line(&format!("{name:<16}{sentence}"));
        }
    }
    for path in kept {
        output::line(&format!("{:<16}{}", "kept", path.display()));
    }
    Ok(Code::Done)
}

/// Writes the report, and the series if it is to be kept. Returns their paths.
fn files(series: &Series, out: &Path, keep: bool) -> Result<Vec<PathBuf>, Failure> {
    let outputs = outputs();
    outputs.check(out)?;
    let made = std::fs::create_dir_all(out);
    made.map_err(|error| {
        let message = format!("cannot make {}: {error}", out.display());
        Failure::new(Code::Failed, message, "Name another directory: --out.")
    })?;
    let restore = match series.inputs.direction {
        Direction::Backup => "",
        Direction::Restore => "-restore",
    };
    let at: jiff::Timestamp = series.at.parse().unwrap_or_default();
    let at = at.strftime("%Y%m%dT%H%M%SZ");
    let stem = format!("sweep-{}{restore}-{at}", series.inputs.experiment.name());
    let mut kept = Vec::new();
    if keep {
        let path = out.join(format!("{stem}.json"));
        series.save(&path, &outputs)?;
        kept.push(path);
    }
    let path = out.join(format!("{stem}.html"));
    outputs.replace(&path, &PAGE, report(series).as_bytes(), 0o644)?;
    kept.push(path);
    Ok(kept)
}

/// A table as text. Columns are as wide as needed; numbers are aligned to the right.
fn print(table: &Table) {
    let text = |cell: &Cell| match cell {
        Cell::Text(text) | Cell::Number(text) => text.clone(),
    };
    let is_number = |column: usize| {
        let first = table.rows.first().and_then(|row| row.get(column));
        matches!(first, Some(Cell::Number(_)))
    };
    let width = |column: usize| {
        let cells = table
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(text);
        let names = table.columns.get(column).cloned();
        cells
            .chain(names)
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..table.columns.len()).map(width).collect();
    let line = |cells: Vec<String>| {
        let cells = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| match is_number(column) {
                true => format!("{cell:>width$}", width = widths[column]),
                false => format!("{cell:<width$}", width = widths[column]),
            });
        output::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    };
    line(table.columns.clone());
    for row in &table.rows {
        line(row.iter().map(text).collect());
    }
}
