//! The record of a snapshot: what it is, as of when, how it was made, and what it survives.
//!
//!   windlass snapshot 1 crc32c 1f0c9a2e
//!   {"name": "before-upgrade", ...}
//!
//! The first line has the version of the format and the checksum of everything behind that line. A
//! reader takes no word of a record before the checksum was right, and ignores keys that it does
//! not know.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_engine::media::{Facts, crc32c};
use windlass_engine::{durable, open_regular, read_regular_at_most};

use crate::error::{Doing, SnapshotError};
use crate::method::Method;
use crate::name::SnapshotName;

/// The file of the record, in the directory of its snapshot.
pub(crate) const RECORD: &str = "record";
/// What the first line begins with.
const TITLE: &str = "windlass snapshot ";
/// What stands before the checksum.
const SUM: &str = " crc32c ";
/// The version of the format that is written.
const VERSION: u32 = 1;
/// A longer file is no record. The facts of a cluster name its tablespaces and bad files.
const BYTES_MAX: u64 = 64 << 20;

/// What is known about a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Distinguishes it from every other, also one of the same name.
    pub id: String,
    /// How it was made.
    pub method: Method,
    /// The database.
    pub source: Source,
    /// RFC 3339 time at which it was begun.
    pub created: String,
    /// RFC 3339 time as of which the data are.
    pub as_of: String,
    /// PostgreSQL: where in the log that is.
    #[serde(default)]
    pub lsn: Option<String>,
    /// How long it took to make.
    pub seconds: f64,
    /// How long nobody could commit.
    pub writers_stopped_seconds: f64,
    /// What it survives.
    pub survives: Survives,
    /// Whether it can be used.
    #[serde(default)]
    pub state: State,
    /// The steps of making it.
    pub steps: Vec<Step>,
    /// What is known about the database in it, as a set keeps it.
    pub facts: Facts,
    /// The checksum of the list of its files, or of what the hook's controller wrote; none if it is
    /// a set.
    #[serde(default)]
    pub files_crc32c: Option<u32>,
}

/// The database of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `sqlite` or `postgresql`, as in the facts of a set.
    pub kind: String,
    /// The database file or the data directory, without symbolic links.
    pub path: PathBuf,
}

/// What a snapshot survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Survives {
    /// A crash of the database or of Windlass.
    Crash,
    /// A power cut, too.
    PowerCut,
}

/// Whether a snapshot can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It can.
    #[default]
    Kept,
    /// It was given up.
    Lost {
        /// Why.
        why: String,
    },
}

/// A step of making a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// What was done.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
}

impl Step {
    /// The phases of a run as steps.
    pub fn of_phases(phases: Vec<(&'static str, Duration)>) -> Vec<Self> {
        let step = |(name, took): (&str, Duration)| Self {
            name: name.to_owned(),
            seconds: took.as_secs_f64(),
        };
        phases.into_iter().map(step).collect()
    }
}

impl Record {
    /// Reads the record in the directory of a snapshot. `None` if there is none.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>, SnapshotError> {
        Self::read_named(directory, RECORD)
    }

    /// The same, if the record has another name by now.
    pub(crate) fn read_named(directory: &Path, name: &str) -> Result<Option<Self>, SnapshotError> {
        let path = directory.join(name);
        match path.symlink_metadata() {
            Err(error) if durable::is_absent(&error) => return Ok(None),
            found => found.doing("inspect", &path)?,
        };
        let bytes = match read_regular_at_most(&path, BYTES_MAX) {
            Err(error) if is_no_record(&error) => {
                let what = "it is not a file that a record can be";
                return Err(SnapshotError::Damaged { path, what });
            }
            bytes => bytes.doing("read", &path)?,
        };
        Self::decode(&bytes, &path).map(Some)
    }

    /// Whether a directory has a record, damaged or not.
    pub(crate) fn is_in(directory: &Path) -> bool {
        let mut bytes = [0; TITLE.len()];
        let opened = open_regular(&directory.join(RECORD));
        let read = opened.and_then(|mut file| file.read_exact(&mut bytes));
        read.is_ok() && bytes == *TITLE.as_bytes()
    }

    /// Makes the record durable in its directory. From then on the snapshot exists.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), SnapshotError> {
        let path = directory.join(RECORD);
        let body = serde_json::to_string_pretty(self);
        let body = body.map_err(std::io::Error::from).doing("encode", &path)?;
        let sum = crc32c(body.as_bytes());
        let text = format!("{TITLE}{VERSION}{SUM}{sum:08x}\n{body}");
        durable::write(&path, text.as_bytes(), 0o600).doing("write", &path)
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Self, SnapshotError> {
        let damaged = |what| SnapshotError::Damaged {
            path: path.to_owned(),
            what,
        };
        let no_title = || damaged("it does not begin like the record of a snapshot");
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (first, body) = bytes.split_at(end.ok_or_else(no_title)?);
        let body = &body[1..];
        let first = std::str::from_utf8(first).map_err(|_| no_title())?;
        let rest = first.strip_prefix(TITLE).ok_or_else(no_title)?;
        let (version, sum) = rest.split_once(SUM).ok_or_else(no_title)?;
        let version: u32 = version.parse().map_err(|_| no_title())?;
        if version != VERSION {
            return Err(SnapshotError::Version {
                path: path.to_owned(),
                found: version,
                known: VERSION,
            });
        }
        if u32::from_str_radix(sum, 16) != Ok(crc32c(body)) {
            return Err(damaged("its checksum is wrong"));
        }
        let record: Self = serde_json::from_slice(body)
            .map_err(|_| damaged("it is not the JSON document it should be"))?;
        SnapshotName::parse(&record.name)?;
        Ok(record)
    }
}

/// Whether something else has the name of the record.
fn is_no_record(error: &std::io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::InvalidInput | ErrorKind::InvalidData)
}

#[cfg(test)]
pub(crate) mod tests {
    use windlass_engine::media::BackupType;

    use super::*;

    pub(crate) fn record(name: &str) -> Record {
        Record {
            name: name.to_owned(),
            id: "1f0c9a2e".to_owned(),
            method: Method::Clone,
            source: Source {
                kind: "sqlite".to_owned(),
                path: "/data/shop.db".into(),
            },
            created: "2026-11-23T08:00:00Z".to_owned(),
            as_of: "2026-11-23T08:00:01Z".to_owned(),
            lsn: None,
            seconds: 0.25,
            writers_stopped_seconds: 0.0,
            survives: Survives::PowerCut,
            state: State::Kept,
            steps: vec![],
            facts: Facts {
                tool: "a test 1.0".to_owned(),
                backup_type: BackupType::Full,
                started: String::new(),
                finished: String::new(),
                options: serde_json::Value::Null,
                database: serde_json::json!({"kind": "sqlite"}),
                parents: vec![],
            },
            files_crc32c: Some(7),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_no_changed_byte_is_taken() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(place.path()).unwrap(), None);
        let written = record("a");
        written.write(place.path()).unwrap();
        assert_eq!(Record::read(place.path()).unwrap(), Some(written));
        let path = place.path().join(RECORD);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            // The case of a hexadecimal digit means nothing.
            if Record::decode(&changed, &path).is_ok() {
                panic!("byte {at} was changed to {:?}", char::from(changed[at]));
            }
        }
        for bytes in [&bytes[..10], &bytes[..bytes.len() - 1], b""] {
            assert!(Record::decode(bytes, &path).is_err());
        }
    }
}
