//! What a stand says, and the number of a database.

use serde::{Deserialize, Serialize};
use windlass_media::LogRecord;
use windlass_sqlite::{DatabaseKey, LogPoint, Standing};

/// What a stand says besides its head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandAbout {
    /// The database.
    #[serde(flatten)]
    pub key: DatabaseKey,
    /// Where the state stands.
    pub standing: Standing,
    /// Why the timeline begins, if something before it may be lost.
    #[serde(default)]
    pub lost: Option<String>,
    /// The watch under which the file was since the record before. Between two stands of one watch,
    /// nobody but SQLite was seen to write to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
    /// When the system was started, as its clock had it then: nanoseconds since 1970. A power cut
    /// may have taken back the change time of the file, which was written to all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted_nanos: Option<i64>,
}

/// The commit at which a record stands.
pub(crate) fn point_of(record: &LogRecord) -> LogPoint {
    LogPoint {
        salts: record.salts,
        frame: record.frame,
        sums: record.sums,
    }
}

/// The number under which the log of a database is kept.
pub fn database_number(key: &DatabaseKey) -> u64 {
    let hash = blake3::hash(key.to_string().as_bytes());
    let first: [u8; 8] = std::array::from_fn(|at| hash.as_bytes()[at]);
    u64::from_le_bytes(first)
}
