//! What a stand says, and the number of a database.

use std::path::Path;

use serde::{Deserialize, Serialize};
use windlass_media::LogRecord;
use windlass_sqlite::{LogPoint, Standing};

/// What a stand says besides its head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandAbout {
    /// The database.
    pub path: String,
    /// Where the state stands.
    pub standing: Standing,
    /// Why the timeline begins, if something before it may be lost.
    #[serde(default)]
    pub lost: Option<String>,
}

/// The commit at which a record stands.
pub(crate) fn point_of(record: &LogRecord) -> LogPoint {
    LogPoint {
        salts: record.salts,
        frame: record.frame,
        sums: record.sums,
    }
}

/// The number under which the log of the database at a path is kept. The path is absolute and has
/// no symbolic links.
pub fn database_number(path: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let hash = blake3::hash(path.as_os_str().as_bytes());
    let first: [u8; 8] = std::array::from_fn(|at| hash.as_bytes()[at]);
    u64::from_le_bytes(first)
}
