//! The published minutes that the experiment `matrix` is compared with. It compares ratios, since
//! neither the database nor the machine is the same.

use super::axes::{Axis, Case};
use super::measure::{Measure, median};
use super::series::Series;
use crate::chart::{Cell, Table};
use crate::plan::Direction;

/// Native backup and restore of a 1 TB SQL Server database on Amazon RDS. The first lines of the
/// file name the source.
const MINUTES: &str = include_str!("../../testdata/rds_native_backup_1tb.csv");

/// A setting that was both published and measured here.
pub(super) struct Pair {
    case: usize,
    minutes: f64,
    /// The speed relative to the first pair: as published, and as measured here.
    pub(super) published: f64,
    pub(super) here: f64,
}

/// Published minutes of a setting. They are for one database, so if there are several, they are
/// compared with the first one.
fn minutes(case: &Case, direction: Direction) -> Option<f64> {
    if case.source.as_ref().is_some_and(|source| source.index > 0) {
        return None;
    }
    let (storage, instance) = case.set_up.as_ref()?.name.split_once(", ")?;
    let compressed = if case.codec == "none" { "no" } else { "yes" };
    let column = match (direction, instance) {
        (Direction::Backup, "r5.8xlarge") => 3,
        (Direction::Backup, "r5.24xlarge") => 4,
        (Direction::Restore, "r5.8xlarge") => 5,
        (Direction::Restore, "r5.24xlarge") => 6,
        _ => return None,
    };
    let rows = MINUTES
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let devices = case.devices.to_string();
    let mut rows =
        rows.filter(|row| row.len() == 7 && row[..3] == [storage, compressed, devices.as_str()]);
    rows.next()?.get(column)?.parse().ok()
}

/// The settings of a series that have published minutes, compared with the first of them.
pub(super) fn pairs(series: &Series) -> Vec<Pair> {
    let direction = series.inputs.direction;
    let seconds = |case: usize| median(series.runs_of(case).map(|run| Measure::Seconds.of(run)));
    let known = series
        .cases
        .iter()
        .enumerate()
        .filter_map(|(index, case)| Some((index, minutes(case, direction)?, seconds(index))));
    let known: Vec<_> = known.filter(|(.., seconds)| *seconds > 0.0).collect();
    let Some((_, minutes_first, seconds_first)) = known.first().copied() else {
        return Vec::new();
    };
    let pair = |(case, minutes, seconds): (usize, f64, f64)| Pair {
        case,
        minutes,
        published: minutes_first / minutes,
        here: seconds_first / seconds,
    };
    known.into_iter().map(pair).collect()
}

/// The published and the measured numbers side by side; `None` when there is nothing to compare.
pub(super) fn table(series: &Series) -> Option<Table> {
    let pairs = pairs(series);
    if pairs.len() < 2 {
        return None;
    }
    let columns = [
        "setting",
        "published",
        "times as fast",
        "here",
        "times as fast",
        "here / published",
    ];
    let axes = [Axis::Storage, Axis::Codec, Axis::Devices];
    let row = |pair: &Pair| {
        let seconds = median(
            series
                .runs_of(pair.case)
                .map(|run| Measure::Seconds.of(run)),
        );
        let number = |text: String| Cell::Number(text);
        vec![
            Cell::Text(series.cases[pair.case].words(&axes)),
            number(format!("{:.0} min", pair.minutes)),
            number(format!("{:.2}", pair.published)),
            number(format!("{seconds:.2} s")),
            number(format!("{:.2}", pair.here)),
            number(format!("{:.2}", pair.here / pair.published)),
        ]
    };
    Some(Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: pairs.iter().map(row).collect(),
    })
}

/// How much the published and the measured ratios differ, in a sentence.
pub(super) fn finding(series: &Series) -> Option<String> {
    let pairs = pairs(series);
    let errors = pairs
        .iter()
        .skip(1)
        .map(|pair| (pair.here / pair.published - 1.0).abs());
    let errors: Vec<f64> = errors.collect();
    let worst = errors.iter().copied().reduce(f64::max)?;
    let first = series.cases[pairs[0].case].words(&[Axis::Storage, Axis::Codec, Axis::Devices]);
    Some(format!(
        "against published minutes, speed-ups over {first} differ by {:.0} % in the median and \
         {:.0} % at most, over {} settings",
        median(errors.iter().copied()) * 100.0,
        worst * 100.0,
        errors.len()
    ))
}
