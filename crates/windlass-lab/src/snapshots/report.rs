//! The report of an experiment with snapshots: words, the article's figure drawn again, tables.

use windlass_engine::show_size;

use super::figures::figures;
use super::findings::findings;
use super::series::SnapshotSeries;
use super::table::tables;
use crate::chart::Page;
use crate::sweep::write_findings;

/// The page as HTML.
pub fn report(series: &SnapshotSeries) -> String {
    let inputs = &series.inputs;
    let experiment = inputs.experiment;
    let mut page = Page::new(experiment.question());
    page.figures(&[
        ("experiment", experiment.name().to_owned()),
        ("server", format!("PostgreSQL {}", inputs.server)),
        ("cluster", show_size(inputs.cluster_bytes)),
        ("method", inputs.method.clone()),
        ("runs", series.runs.len().to_string()),
        ("rounds", inputs.repeat.to_string()),
    ]);
    page.paragraph(&format!("{}; {}", series.at, series.environment.words()));
    let settings = inputs.settings.iter();
    let settings: Vec<_> = settings
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    page.paragraph(&format!(
        "A cluster of its own in {}; load for {:.1} s; {}",
        inputs.into,
        inputs.seconds,
        settings.join(", ")
    ));
    write_findings(&mut page, &findings(series));
    page.heading(experiment.figure());
    for figure in figures(series) {
        page.chart(&figure);
    }
    for titled in tables(series) {
        page.heading(&titled.title);
        page.table(&titled.table);
    }
    page.html()
}
