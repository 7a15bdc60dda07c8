//! The fingerprint: proves that nobody wrote to a file between two moments, or leaves it in doubt.
//!
//! The change counter alone is not enough. A transaction may spill its cache into the file and then
//! roll back: the counter stays as it was. Connections in exclusive locking mode or without a
//! journal do not always count either. But every write sets the file's change time, in steps of the
//! filesystem's clock. So the change time is proof once it is older than any such step.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use windlass_media::saturated;

use crate::error::{IoContext, SqliteError};
use crate::header::DATABASE_HEADER_BYTES;
use crate::wal::ReadAt;

/// If the change time is older than this, a later write cannot fall into the same clock step,
/// whatever the filesystem's resolution (the coarsest is FAT, with two seconds).
pub(crate) const TICK_MAX: Duration = Duration::from_secs(3);

/// Properties of a file. Every write changes at least one of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    header: Vec<u8>,
    pub(crate) bytes: u64,
    changed: (i64, i64),
    modified: (i64, i64),
    /// The last change was long enough ago that a later one would show in the change time.
    at_rest: bool,
}

impl Fingerprint {
    pub(crate) fn take(file: &File, path: &Path) -> Result<Self, SqliteError> {
        let metadata = file.metadata().during("inspect", path)?;
        let mut header = vec![0; DATABASE_HEADER_BYTES];
        let found = file.read_full_at(&mut header, 0).during("read", path)?;
        header.truncate(found);
        let seconds = saturated(metadata.ctime());
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
        Ok(Self {
            header,
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            at_rest: age.is_some_and(|age| age > TICK_MAX),
        })
    }

    /// False when in doubt: the backup then reads the file again.
    pub(crate) fn proves_unchanged_since(&self, before: &Self) -> bool {
        before.at_rest && self == before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_rest() -> Fingerprint {
        Fingerprint {
            header: vec![1; DATABASE_HEADER_BYTES],
            bytes: 4096,
            changed: (1000, 5),
            modified: (1000, 5),
            at_rest: true,
        }
    }

    #[test]
    fn a_file_changed_a_moment_ago_proves_nothing() {
        let before = Fingerprint {
            at_rest: false,
            ..at_rest()
        };
        assert!(!at_rest().proves_unchanged_since(&before));
        assert!(at_rest().proves_unchanged_since(&at_rest()));
    }

    #[test]
    fn each_trace_of_a_write_is_noticed() {
        let header = vec![2; DATABASE_HEADER_BYTES];
        for after in [
            Fingerprint {
                header,
                ..at_rest()
            },
            Fingerprint {
                bytes: 8192,
                ..at_rest()
            },
            Fingerprint {
                changed: (1000, 6),
                ..at_rest()
            },
            Fingerprint {
                modified: (1001, 5),
                ..at_rest()
            },
        ] {
            assert!(!after.proves_unchanged_since(&at_rest()), "{after:?}");
        }
    }

    #[test]
    fn a_file_just_written_is_not_at_rest() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fingerprint = Fingerprint::take(file.as_file(), file.path()).unwrap();
        assert!(!fingerprint.at_rest);
    }
}
