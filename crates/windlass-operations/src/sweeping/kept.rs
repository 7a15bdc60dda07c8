//! The files of a sweep: the series and its report.

use std::path::{Path, PathBuf};

use windlass_engine::Outputs;
use windlass_lab::chart::PAGE;
use windlass_lab::{Direction, LabError, Series, report, state_directory};

use super::SweepError;
use crate::error::OperationError;
use crate::outputs::outputs;

/// The directory of the files: as given, or the default.
pub(crate) fn directory(given: Option<PathBuf>) -> PathBuf {
    let state = || state_directory().map(|state| state.join("sweeps"));
    given.or_else(state).unwrap_or_else(|| ".".into())
}

/// The time, to the second. It is a part of the files' names.
pub(crate) fn now() -> String {
    let second = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    second.unwrap_or_default().to_string()
}

/// Writes the report, and the series if it is to be kept. Returns their paths.
pub(super) fn write(
    series: &Series,
    out: &Path,
    keep: bool,
) -> Result<Vec<PathBuf>, OperationError> {
    let restore = match series.inputs.direction {
        Direction::Backup => "",
        Direction::Restore => "-restore",
    };
    let stem = format!("sweep-{}{restore}", series.inputs.experiment.name());
    let save = |path: &Path, outputs: &Outputs| series.save(path, outputs);
    let save: Option<Save<'_>> = if keep { Some(&save) } else { None };
    write_as(&stem, &series.at, out, save, &report(series))
}

/// Writes a series into a file.
pub(crate) type Save<'a> = &'a dyn Fn(&Path, &Outputs) -> Result<(), LabError>;

/// Writes a report, and its series if it is to be kept, under names with the time at which the
/// series began. Returns their paths.
pub(crate) fn write_as(
    stem: &str,
    at: &str,
    out: &Path,
    save: Option<Save<'_>>,
    html: &str,
) -> Result<Vec<PathBuf>, OperationError> {
    let outputs = outputs();
    outputs.check(out)?;
    std::fs::create_dir_all(out).map_err(|source| SweepError::Out {
        path: out.to_owned(),
        source,
    })?;
    let at: jiff::Timestamp = at.parse().unwrap_or_default();
    let stem = format!("{stem}-{}", at.strftime("%Y%m%dT%H%M%SZ"));
    let mut kept = Vec::new();
    if let Some(save) = save {
        let path = out.join(format!("{stem}.json"));
        save(&path, &outputs)?;
        kept.push(path);
    }
    let path = out.join(format!("{stem}.html"));
    outputs.replace(&path, &PAGE, html.as_bytes(), 0o644)?;
    kept.push(path);
    Ok(kept)
}
