//! What to say when the file of metrics cannot be written.

use std::path::Path;

use windlass_engine::EngineError;
use windlass_operations::metrics::ForeignFile;

/// What to do about a file of another user.
pub const REMOVE: &str = "Remove the file as its owner, or name another one for --metrics-file.";

/// A warning that also says what to do. It must fit before the run and after it.
pub fn unwritten(path: &Path, error: &EngineError, foreign: Option<&ForeignFile>) -> String {
    let path = path.display();
    match foreign {
        Some(why) => format!("the metrics of this run are not in {path}: {error}. {why}. {REMOVE}"),
        None => format!(
            "the metrics of this run are not in {path}: {error}. Name a file for --metrics-file in \
             a directory that exists and that the database's owner can write to"
        ),
    }
}
