//! The last look at a copy before it is sealed: could it be restored, and could a server start?
//!
//! Most files may vanish during a backup, because the server may drop what they belong to. So a
//! directory that somebody empties, or that the system shows as empty, looks like files that the
//! server removed. Some files the server never removes. Without them there is no backup.

use windlass_media::{Facts, FileKind, FileTable};

use crate::control::Control;
use crate::error::PostgresError;
use crate::restore::check_set;

/// The directory that says which transactions were committed.
const STATUS_DIRECTORY: &str = "pg_xact";
/// A byte holds the status of four transactions.
const TRANSACTIONS_PER_BYTE: u64 = 4;
/// Transactions have numbers from this one on; the smaller numbers have a meaning of their own.
const TRANSACTION_FIRST: u64 = 3;

/// The segments of pg_xact of which a copy must have at least one.
pub(super) struct StatusSegments(Vec<String>);

impl StatusSegments {
    /// Takes the newest segment, from a control file that was read before the files are listed. On
    /// a primary it names a checkpoint that has just been made, and that checkpoint wrote the
    /// status of every transaction before its own. On a standby its checkpoint may be old, and
    /// replay may have removed the segment since. There, any segment will do.
    pub(super) fn of(control: &Control, standby: bool) -> Self {
        if standby {
            return Self(Vec::new());
        }
        Self::newest(control.next_transaction, transactions_of_segment(control))
    }

    fn newest(next: u64, of_segment: u64) -> Self {
        let last = next.saturating_sub(1);
        let behind_wrap = last >> 32 > 0 && last & u64::from(u32::MAX) < TRANSACTION_FIRST;
        let last = if behind_wrap {
            last - TRANSACTION_FIRST
        } else {
            last
        };
        // `pg_resetwal` may have set a number whose predecessor was never in use.
        let name = |transaction: u64| {
            let number = (transaction & u64::from(u32::MAX)) / of_segment.max(1);
            format!("{STATUS_DIRECTORY}/{number:04X}")
        };
        Self([last, next].map(name).into())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0.is_empty() || self.0.iter().any(|one| one.as_bytes() == name)
    }
}

fn transactions_of_segment(control: &Control) -> u64 {
    let page = u64::from(control.block_bytes) * TRANSACTIONS_PER_BYTE;
    page * u64::from(control.slru_segment_pages)
}

/// Refuses a copy that no restore would take, or that has no status of transactions.
pub(super) fn check(
    facts: &Facts,
    files: &FileTable,
    status: &StatusSegments,
) -> Result<(), PostgresError> {
    check_set(facts, files).map_err(|error| match error {
        PostgresError::Set { what } => PostgresError::Incomplete { what },
        other => other,
    })?;
    let mut files = files.0.iter();
    let below = |path: &[u8]| path.starts_with(STATUS_DIRECTORY.as_bytes());
    let found = files.any(|entry| {
        let is_file = entry.kind == FileKind::File && entry.bytes > 0;
        is_file && below(&entry.path) && status.has(&entry.path)
    });
    if found {
        return Ok(());
    }
    let what = match status.0.first() {
        Some(segment) => format!("it holds no {segment}"),
        None => format!("it holds no file of {STATUS_DIRECTORY}"),
    };
    Err(PostgresError::Incomplete { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_of_the_last_transaction_is_needed() {
        let names = |next: u64| StatusSegments::newest(next, 1 << 20).0;
        assert_eq!(names(3), ["pg_xact/0000", "pg_xact/0000"]);
        assert_eq!(names(1 << 20), ["pg_xact/0000", "pg_xact/0001"]);
        assert_eq!(names((1 << 20) + 1), ["pg_xact/0001", "pg_xact/0001"]);
        // The first number after all numbers were used: its predecessor is the last of all.
        assert_eq!(names((1 << 32) + 3), ["pg_xact/0FFF", "pg_xact/0000"]);
    }
}
