//! The segments that say what became of transactions: pg_xact, and pg_multixact for rows that
//! several transactions locked.
//!
//! Invariants
//! - The newest segments are known before the files are listed, and the oldest after that. So what
//!   the server removed or made meanwhile is not missed.

use postgres::Row;
use windlass_media::{FileEntry, FileKind, FileTable};

use crate::control::Control;
use crate::error::{PostgresError, SqlContext};
use crate::listing::Listing;
use crate::session::Session;
use crate::warning::Warning;

/// A byte of pg_xact holds the status of four transactions.
const TRANSACTIONS_PER_BYTE: u64 = 4;
/// Transactions have numbers from this one on; the smaller numbers have a meaning of their own.
const TRANSACTION_FIRST: u64 = 3;
/// Four members of a multixact, with their flags, take 20 bytes of pg_multixact/members.
const MEMBERS_OF_GROUP: u64 = 4;
const GROUP_BYTES: u64 = 20;
/// All numbers of transactions and multixacts.
const NUMBERS: u64 = 1 << 32;
/// How many numbers the server has given out since the oldest that rows may still hold.
const AGES: &str = "SELECT max(age(datfrozenxid))::int8, max(mxid_age(datminmxid))::int8 \
     FROM pg_database";

/// A directory of segments.
struct Segments {
    directory: &'static str,
    /// How many numbers a segment is for.
    of_segment: u64,
    /// How many numbers there are; 0 if they never wrap.
    numbers: u64,
    digits: usize,
    /// The number that comes next.
    next: u64,
}

/// The segments that a copy must have.
pub(super) struct StatusSegments {
    all: [Segments; 3],
    standby: bool,
}

impl StatusSegments {
    /// Takes the newest segments from a control file that was read before the files are listed. On
    /// a primary it names a checkpoint that has just been made, and that checkpoint wrote the
    /// status of everything before its own. On a standby its checkpoint may be old, and replay may
    /// have removed the segments since. There, any segment will do.
    pub(super) fn of(control: &Control, standby: bool) -> Self {
        let page = u64::from(control.block_bytes);
        let pages = u64::from(control.slru_segment_pages);
        let (offset_bytes, digits) = if control.has_wide_members() {
            (8, 15)
        } else {
            (4, 4)
        };
        let transactions = Segments {
            directory: "pg_xact",
            of_segment: page * TRANSACTIONS_PER_BYTE * pages,
            numbers: NUMBERS,
            digits: 4,
            next: control.next_transaction,
        };
        let multixacts = Segments {
            directory: "pg_multixact/offsets",
            of_segment: page / offset_bytes * pages,
            numbers: NUMBERS,
            digits: 4,
            next: u64::from(control.next_multixact),
        };
        let members = Segments {
            directory: "pg_multixact/members",
            of_segment: page / GROUP_BYTES * MEMBERS_OF_GROUP * pages,
            numbers: if digits == 4 { NUMBERS } else { 0 },
            digits,
            next: control.next_member,
        };
        Self {
            all: [transactions, multixacts, members],
            standby,
        }
    }

    /// Refuses a copy that has no newest segment of some directory.
    pub(super) fn check(&self, files: &FileTable) -> Result<(), PostgresError> {
        for one in &self.all {
            let newest = if self.standby {
                None
            } else {
                Some(one.newest())
            };
            let is_one = |path: &[u8]| match &newest {
                Some(names) => names.iter().any(|name| name.as_bytes() == path),
                None => path.starts_with(one.directory.as_bytes()),
            };
            let is_filled = |entry: &&FileEntry| entry.kind == FileKind::File && entry.bytes > 0;
            if files
                .0
                .iter()
                .filter(is_filled)
                .any(|entry| is_one(&entry.path))
            {
                continue;
            }
            let what = match newest {
                Some([newest, _]) => format!("it holds no {newest}"),
                None => format!("it holds no file of {}", one.directory),
            };
            return Err(PostgresError::Incomplete { what });
        }
        Ok(())
    }

    /// Warns of segments that rows may still need and that are not there. If somebody set the
    /// number of the next transaction by hand (pg_resetwal), no row needs them.
    pub(super) fn gaps(
        &self,
        session: &mut Session,
        listing: &Listing,
    ) -> Result<Option<Warning>, PostgresError> {
        const DOING: &str = "ask for the oldest transactions";
        let row = session.rows(DOING, AGES)?;
        // Both are null if the catalog of databases has lost its rows.
        let age = |row: &Row, at| row.try_get::<_, Option<i64>>(at).doing(DOING);
        let ages = match row.first() {
            Some(row) => [age(row, 0)?, age(row, 1)?],
            None => [None; 2],
        };
        let listed = listing.by_path();
        let is_missing = |name: &String| listing.find(&listed, name.as_bytes()).is_none();
        let mut missing = Vec::new();
        for (one, age) in self.all.iter().zip(ages) {
            let age = age.unwrap_or(0).max(0).cast_unsigned();
            missing.extend(one.since(age).filter(is_missing));
        }
        let more = missing.len().saturating_sub(1) as u64;
        let path = missing.into_iter().next();
        Ok(path.map(|path| Warning::StatusMissing { path, more }))
    }
}

impl Segments {
    /// The segment of the last number, and that of the next one: `pg_resetwal` may have set a
    /// number whose predecessor was never in use.
    fn newest(&self) -> [String; 2] {
        match self.next {
            // It is the first of all, unless all numbers were used.
            0 => [self.name(0), self.name(self.last())],
            next => [self.name(self.last()), self.name(next)],
        }
    }

    fn last(&self) -> u64 {
        let (last, wraps) = match self.next.checked_sub(1) {
            Some(last) => (last, last >= self.numbers && self.numbers > 0),
            None => (self.numbers.saturating_sub(1), false),
        };
        if wraps && last % self.numbers < TRANSACTION_FIRST {
            return last - TRANSACTION_FIRST;
        }
        last
    }

    fn name(&self, number: u64) -> String {
        let number = match self.numbers {
            0 => number,
            numbers => number % numbers,
        };
        let (segment, digits) = (number / self.of_segment.max(1), self.digits);
        format!("{}/{segment:0digits$X}", self.directory)
    }

    /// The segments from the one of the number that is `age` before the next one to the last.
    fn since(&self, age: u64) -> impl Iterator<Item = String> {
        let last = self.last();
        let oldest = self.next.saturating_sub(age).min(last);
        let of_segment = self.of_segment.max(1);
        (oldest / of_segment..=last / of_segment)
            .map(move |segment| self.name(segment * of_segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transactions(next: u64) -> Segments {
        Segments {
            directory: "pg_xact",
            of_segment: 1 << 20,
            numbers: NUMBERS,
            digits: 4,
            next,
        }
    }

    #[test]
    fn the_segment_of_the_last_transaction_is_needed() {
        let names = |next: u64| transactions(next).newest();
        assert_eq!(names(3), ["pg_xact/0000", "pg_xact/0000"]);
        assert_eq!(names(1 << 20), ["pg_xact/0000", "pg_xact/0001"]);
        assert_eq!(names((1 << 20) + 1), ["pg_xact/0001", "pg_xact/0001"]);
        // The first number after all numbers were used: its predecessor is the last of all.
        assert_eq!(names((1 << 32) + 3), ["pg_xact/0FFF", "pg_xact/0000"]);
        assert_eq!(names(0), ["pg_xact/0000", "pg_xact/0FFF"]);
    }

    #[test]
    fn all_segments_from_the_oldest_transaction_on_are_needed() {
        let since = |next, age| transactions(next).since(age).collect::<Vec<_>>();
        assert_eq!(since(700, 20), ["pg_xact/0000"]);
        assert_eq!(since(2 << 20, 10), ["pg_xact/0001"]);
        assert_eq!(
            since((2 << 20) + 5, 1 << 20),
            ["pg_xact/0001", "pg_xact/0002"]
        );
        assert_eq!(since((1 << 32) + 9, 20), ["pg_xact/0FFF", "pg_xact/0000"]);
    }
}
