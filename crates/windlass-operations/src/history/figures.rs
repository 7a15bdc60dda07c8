//! What is calculated of one run, and which runs count as backups, or as proofs of them.

use std::path::Path;

use serde_json::Value;
use windlass_repository::CatalogRun;

/// Whether a run made a backup that is there.
pub(super) fn is_backup(run: &CatalogRun) -> bool {
    let is_one = matches!(run.operation.as_str(), "backup" | "log");
    is_one && run.state.is_success() && run.set_type.is_some()
}

/// Whether a run showed that its set can be restored. A restore of a part has not read the rest.
pub(super) fn is_proof(run: &CatalogRun) -> bool {
    let settings: Value = serde_json::from_str(&run.settings).unwrap_or_default();
    let is_part = !settings["options"]["only"].is_null();
    let is_use = matches!(run.command.as_str(), "drill" | "restore");
    is_use && run.state.is_success() && !is_part
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

#[cfg(test)]
mod tests {
    use windlass_repository::RunState;

    use super::*;

    #[test]
    fn a_restore_of_a_part_is_no_proof() {
        let mut run = CatalogRun::new("restore", "restore", ("/srv/new", "/srv/new"), 0);
        run.state = RunState::Done;
        run.settings = r#"{"options": {"compress": "zstd:1"}}"#.to_owned();
        assert!(is_proof(&run));
        run.settings = r#"{"options": {"compress": "zstd:1", "only": ["shop"]}}"#.to_owned();
        assert!(!is_proof(&run));
    }
}
