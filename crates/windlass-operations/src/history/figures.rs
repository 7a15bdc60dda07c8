//! What is calculated of one run, and which runs count as backups.

use std::path::Path;

use windlass_repository::CatalogRun;

/// Whether a run made a backup that is there.
pub(super) fn is_backup(run: &CatalogRun) -> bool {
    let is_one = matches!(run.operation.as_str(), "backup" | "log");
    is_one && run.state.is_success() && run.set_type.is_some()
}

/// Bytes of the database in each second: a restore writes them, everything else reads them.
pub(super) fn rate(run: &CatalogRun) -> Option<f64> {
    let seconds = run.seconds.filter(|seconds| *seconds > 0.0)?;
    let bytes = match run.command.as_str() {
        "restore" => run.bytes_written,
        _ => run.bytes_read,
    };
    Some(float(bytes.filter(|bytes| *bytes > 0)?) / seconds)
}

/// Bytes that were read for each byte that was written.
pub(super) fn ratio(run: &CatalogRun) -> Option<f64> {
    let written = run.bytes_written.filter(|bytes| *bytes > 0)?;
    Some(float(run.bytes_read?) / float(written))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes are shown with three digits"
)]
pub(super) fn float(value: i64) -> f64 {
    value as f64
}

/// Whether two paths are the same place.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let real = |text: &str| Path::new(text).canonicalize().ok();
    one == other || (other.contains('/') && real(one).is_some_and(|path| Some(path) == real(other)))
}
