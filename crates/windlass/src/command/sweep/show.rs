//! What a sweep found: tables and words.

use std::path::PathBuf;

use windlass_lab::chart::{Cell, Table};
use windlass_lab::{Findings, Titled, tables};
use windlass_operations::sweeping::SweepOutcome;

use crate::cli::Global;
use crate::output;

pub(super) fn show(global: &Global, outcome: &SweepOutcome) {
    let SweepOutcome {
        series,
        findings,
        kept,
    } = outcome;
    if global.json {
        let document = serde_json::json!({ "series": series, "findings": findings, "kept": kept });
        return output::line(&document.to_string());
    }
    show_findings(&tables(series), findings, kept);
}

/// Tables, then what was found, then the files.
pub(in crate::command) fn show_findings(tables: &[Titled], findings: &Findings, kept: &[PathBuf]) {
    for titled in tables {
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
