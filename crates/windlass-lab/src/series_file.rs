//! The file of a kept series of runs, whatever was measured: JSON, read with a bound and checked,
//! and written only where an output may be.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use windlass_engine::{OutputKind, Outputs, read_at_most};

use crate::error::LabError;

/// The largest file that is read. A series of thousands of runs has a few MiB.
const BYTES_MAX: u64 = 256 << 20;

/// A series that is kept in a file.
pub(crate) trait SeriesFile: Serialize + DeserializeOwned {
    /// The version of the files' format. Files of other versions are not read.
    const VERSION: u32;
    /// The kind of output that the file is.
    const KIND: OutputKind;

    /// The version that the file says.
    fn version(&self) -> u32;

    /// Whether each run is of a case that is there.
    fn has_all_cases(&self) -> bool;
}

/// Reads a kept series.
pub(crate) fn load<T: SeriesFile>(path: &Path) -> Result<T, LabError> {
    let bytes = read_at_most(path, BYTES_MAX).map_err(LabError::io("read", path))?;
    let fault = |what: String| LabError::Series {
        path: path.to_owned(),
        what,
    };
    let series: T = serde_json::from_slice(&bytes).map_err(|error| fault(error.to_string()))?;
    if series.version() != T::VERSION {
        return Err(fault(format!("its version is {}", series.version())));
    }
    if !series.has_all_cases() {
        return Err(fault("a run is of a case that is not there".to_owned()));
    }
    Ok(series)
}

/// Writes a series to a file, if `outputs` allows it.
pub(crate) fn save<T: SeriesFile>(
    series: &T,
    path: &Path,
    outputs: &Outputs,
) -> Result<(), LabError> {
    let bytes =
        serde_json::to_vec(series).map_err(|error| LabError::io("write", path)(error.into()))?;
    Ok(outputs.replace(path, &T::KIND, &bytes, 0o644)?)
}
