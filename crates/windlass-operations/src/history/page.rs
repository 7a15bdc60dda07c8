//! The history as a page: for each database the newest backups, what changed, and charts of rate,
//! ratio and size over time.

use jiff::Timestamp;
use windlass_engine::{show_bytes, show_rate};
use windlass_lab::chart::{Cell, LineChart, Page, Series, Table, Unit};

use super::figures::{float, is_backup};
use super::summary::{DatabaseHistory, Shown};
use crate::moments::{age, local_time};

/// The most runs in a table of a page.
const ROWS_MAX: usize = 200;
const DAY_MILLIS: f64 = 86_400_000.0;

/// The page, as one HTML file.
pub(super) fn page(databases: &[DatabaseHistory], runs: &[Shown], now: Timestamp) -> String {
    let mut page = Page::new("History of backups");
    if databases.is_empty() {
        page.finding("The history has no runs.");
    }
    for database in databases {
        let own: Vec<_> = runs
            .iter()
            .filter(|run| run.database == database.name)
            .collect();
        page.heading(&database.name);
        introduce(&mut page, database, now);
        charts(&mut page, &own);
        page.table(&table(&own[own.len().saturating_sub(ROWS_MAX)..]));
    }
    page.html()
}

fn introduce(page: &mut Page, database: &DatabaseHistory, now: Timestamp) {
    let mut figures: Vec<(&str, String)> = Vec::new();
    let ago = |time: Timestamp| age(now.duration_since(time));
    for newest in &database.newest {
        let name = match newest.set_type.as_str() {
            "full" => "Last full",
            "diff" => "Last differential",
            "incr" => "Last incremental",
            _ => "Last log",
        };
        figures.push((name, ago(newest.ended)));
    }
    let restorable = database.restorable.map(ago);
    figures.push(("Restorable up to", restorable.unwrap_or("never".to_owned())));
    let proven = database.proven.as_ref().map(|proof| ago(proof.at));
    figures.push(("Proven", proven.unwrap_or("never".to_owned())));
    page.figures(&figures);
    for found in &database.breaks {
        page.finding(&found.to_string());
        for cause in &found.causes {
            page.paragraph(&format!("At the same time: {cause}."));
        }
    }
    for gap in &database.gaps {
        page.finding(&gap.to_string());
    }
}

/// What a chart shows of a run.
type Value = fn(&Shown) -> Option<f64>;

fn charts(page: &mut Page, runs: &[&Shown]) {
    let backups: Vec<_> = runs.iter().filter(|run| is_backup(&run.run)).collect();
    let Some(first) = backups.first().map(|run| run.run.began) else {
        return;
    };
    let begin = local_time(first.saturating_mul(1_000_000));
    let all: [(&str, &str, Unit, Value); 3] = [
        (
            "Rate",
            "Bytes of the database that were read in each second.",
            Unit::BytesPerSecond,
            Shown::rate,
        ),
        (
            "Ratio",
            "Bytes of the database for each stored byte.",
            Unit::Factor,
            Shown::ratio,
        ),
        ("Stored", "Bytes of each set.", Unit::Bytes, |run| {
            run.run.bytes_written.map(float)
        }),
    ];
    for (title, description, y, value) in all {
        let series = ["full", "diff", "incr", "log"].into_iter().map(|set_type| {
            let of_type = backups
                .iter()
                .filter(|run| run.run.set_type.as_deref() == Some(set_type));
            let points = of_type
                .filter_map(|run| Some((float(run.run.began - first) / DAY_MILLIS, value(run)?)));
            Series {
                name: set_type.to_owned(),
                points: points.collect(),
                ..Series::default()
            }
        });
        let series = series.filter(|one| !one.points.is_empty()).collect();
        let chart = LineChart {
            title: title.to_owned(),
            description: description.to_owned(),
            x: (format!("days since {begin}"), Unit::Count),
            y,
            series,
            marked: true,
            ..LineChart::default()
        };
        page.chart(&chart.figure());
    }
}

fn table(runs: &[&Shown]) -> Table {
    let names = [
        "began", "run", "type", "took", "read", "stored", "rate", "result",
    ];
    let number = |value: Option<String>| Cell::Number(value.unwrap_or_default());
    let row = |run: &&Shown| {
        let one = &run.run;
        vec![
            Cell::Text(local_time(one.began.saturating_mul(1_000_000))),
            Cell::Text(one.command.clone()),
            Cell::Text(one.set_type.clone().unwrap_or_default()),
            number(one.seconds.map(|seconds| Unit::Seconds.show(seconds))),
            number(one.bytes_read.map(|bytes| show_bytes(float(bytes)))),
            number(one.bytes_written.map(|bytes| show_bytes(float(bytes)))),
            number(run.rate().map(show_rate)),
            Cell::Text(one.state.name().to_owned()),
        ]
    };
    Table {
        columns: names.map(str::to_owned).to_vec(),
        rows: runs.iter().rev().map(row).collect(),
    }
}
