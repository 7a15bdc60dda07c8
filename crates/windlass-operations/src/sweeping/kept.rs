//! The files of a sweep: the series and its report.

use std::path::{Path, PathBuf};

use windlass_lab::chart::PAGE;
use windlass_lab::{Direction, Series, report, state_directory};

use super::SweepError;
use crate::error::OperationError;
use crate::outputs::outputs;

/// The directory of the files: as given, or the default.
pub(super) fn directory(given: Option<PathBuf>) -> PathBuf {
    let state = || state_directory().map(|state| state.join("sweeps"));
    given.or_else(state).unwrap_or_else(|| ".".into())
}

/// The time, to the second. It is a part of the files' names.
pub(super) fn now() -> String {
    let second = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second());
    second.unwrap_or_default().to_string()
}

/// Writes the report, and the series if it is to be kept. Returns their paths.
pub(super) fn write(
    series: &Series,
    out: &Path,
    keep: bool,
) -> Result<Vec<PathBuf>, OperationError> {
    let outputs = outputs();
    outputs.check(out)?;
    std::fs::create_dir_all(out).map_err(|source| SweepError::Out {
        path: out.to_owned(),
        source,
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
