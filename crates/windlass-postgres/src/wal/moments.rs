//! Looks in a log for the point up to which a server is to recover: whether it would ever get
//! there is known before anything is restored.

use jiff::{SignedDuration, Timestamp};

use super::pages::first_record;
use super::records::{Record, Records};
use super::source::{ImageSegments, LogSource};
use crate::cluster_files::ClusterFiles;
use crate::error::PostgresError;
use crate::facts::DatabaseFacts;
use crate::lsn::Lsn;
use crate::restore::RecoveryPoint;

/// Resource managers of the log itself and of transactions.
const MANAGER_LOG: u8 = 0;
const MANAGER_TRANSACTION: u8 = 1;
/// Records of these managers; the highest bit of a transaction's says that it has more fields.
const RESTORE_POINT: u8 = 0x70;
const PARAMETER_CHANGE: u8 = 0x60;
const TRANSACTION_MASK: u8 = 0x70;
const COMMIT: u8 = 0x00;
const ABORT: u8 = 0x20;
const COMMIT_PREPARED: u8 = 0x30;
const ABORT_PREPARED: u8 = 0x40;
/// Headers in front of a record's own data: the origin, the transaction above, the length of the
/// data in one byte and in four.
const ORIGIN: u8 = 253;
const TOP_TRANSACTION: u8 = 252;
const DATA_SHORT: u8 = 255;
const DATA_LONG: u8 = 254;
/// PostgreSQL's times begin with the year 2000.
const EPOCH_SECONDS: i64 = 946_684_800;
const NAME_BYTES: usize = 64;
/// Where a change of parameters says wal_level, and its value there for `minimal`.
const WAL_LEVEL_AT: usize = 20;
const MINIMAL: i32 = 0;

/// What a search for a point found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// A server stops at a record.
    Found(Stop),
    /// No record is the point, up to the end of the log.
    Missing {
        /// Where the log ends.
        end: Lsn,
        /// When the last transaction in it ended.
        last: Option<Timestamp>,
        /// Where the reading stopped: in the last segment, or where a record is damaged.
        stopped: Lsn,
    },
    /// The server ran with `wal_level = minimal` from here on. No recovery gets past it.
    Minimal(Lsn),
    /// Only a server can tell: the log has prepared transactions, whose records do not begin with
    /// their numbers.
    Unsure,
}

/// The record at which a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Where it begins.
    pub at: Lsn,
    /// The last transaction that ended before: where the record of its end begins, and when it was.
    pub last: Option<(Lsn, Timestamp)>,
    /// Whether it is the end of a transaction that was rolled back.
    pub is_rollback: bool,
    /// How many later restore points have the same name, and when the last of them was made.
    pub repeated: Option<(u32, Timestamp)>,
}

impl Stop {
    /// A position, of which nothing else is known.
    pub fn at(at: Lsn) -> Self {
        Self {
            at,
            last: None,
            is_rollback: false,
            repeated: None,
        }
    }
}

/// Looks for a point in a log, from a position on at which a record begins.
///
/// A server stops at the first restore point of a name. So the log behind it is read, too, to tell
/// whether there are more of that name.
pub fn seek_point(
    source: &mut dyn LogSource,
    segment_bytes: u64,
    from: Lsn,
    (point, inclusive): (&RecoveryPoint, bool),
) -> Result<Sought, PostgresError> {
    let wanted = [MANAGER_LOG, MANAGER_TRANSACTION];
    let mut records = Records::open(source, segment_bytes, from, &wanted)?.with_beginnings();
    let (mut end, mut last, mut prepared) = (from, None, false);
    let mut before = None;
    while let Some(record) = records.read_next()? {
        if is_minimal(&record) {
            return Ok(Sought::Minimal(record.start));
        }
        end = record.end;
        let time = end_of_transaction(&record);
        last = last.max(time);
        let is_point = match point {
            RecoveryPoint::Time(target) if inclusive => time.is_some_and(|time| time > *target),
            RecoveryPoint::Time(target) => time.is_some_and(|time| time >= *target),
            RecoveryPoint::Transaction(number) => {
                prepared |= time.is_some() && is_prepared(&record);
                time.is_some() && *number & 0xffff_ffff == u64::from(record.transaction)
            }
            RecoveryPoint::Name(name) => restore_point(&record) == Some(name.as_bytes()),
            // A server stops at a record that begins there, or at the next one.
            RecoveryPoint::Lsn(target) => record.start >= *target,
            _ => false,
        };
        if is_point {
            return Ok(Sought::Found(Stop {
                at: record.start,
                last: before,
                is_rollback: is_rollback(&record),
                repeated: repeated(&mut records, point)?,
            }));
        }
        before = time.map(|time| (record.start, time)).or(before);
    }
    Ok(match prepared {
        true => Sought::Unsure,
        false => {
            let stopped = records.end().map_or(end, |end| end.at);
            Sought::Missing { end, last, stopped }
        }
    })
}

/// Whether a point lies in the log of a set itself, before its end. A server stops there, too, and
/// fails: it is not consistent yet.
pub fn seek_within(
    files: &dyn ClusterFiles,
    facts: &DatabaseFacts,
    point: &RecoveryPoint,
) -> Result<Option<Stop>, PostgresError> {
    let bytes = u64::from(facts.wal_segment_bytes);
    let mut segments = ImageSegments::new(files, bytes);
    let sought = seek_point(&mut segments, bytes, facts.start_lsn, (point, true));
    match sought {
        Ok(Sought::Found(stop)) => Ok(Some(stop).filter(|stop| stop.at < facts.stop_lsn)),
        // A server cannot begin there either, and its own error says more about the reason.
        Ok(_) | Err(PostgresError::WalRecord { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How many restore points with this name the rest of a log has, and when the last was made.
fn repeated(
    records: &mut Records<'_>,
    point: &RecoveryPoint,
) -> Result<Option<(u32, Timestamp)>, PostgresError> {
    let RecoveryPoint::Name(name) = point else {
        return Ok(None);
    };
    let mut found: Option<(u32, Timestamp)> = None;
    while let Some(record) = records.read_next()? {
        if restore_point(&record) == Some(name.as_bytes())
            && let Some(time) = data(&record.body).and_then(moment)
        {
            let before = found.map_or(0, |(count, _)| count);
            found = Some((before.saturating_add(1), time));
        }
    }
    Ok(found)
}

/// When the last transaction ended in the log of some segments, the last segment first. `from` and
/// `to` are the first segment and the one behind the last.
pub fn last_transaction(
    source: &mut dyn LogSource,
    segment_bytes: u64,
    (from, to): (u64, u64),
) -> Result<Option<Timestamp>, PostgresError> {
    for segment in (from..to).rev() {
        let Some(start) = first_record(source, segment_bytes, segment)? else {
            continue;
        };
        let mut records =
            Records::open(source, segment_bytes, start, &[MANAGER_TRANSACTION])?.with_beginnings();
        let mut last = None;
        while let Some(record) = records.read_next()? {
            last = last.max(end_of_transaction(&record));
        }
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// Whether the server began to run with `wal_level = minimal`.
fn is_minimal(record: &Record) -> bool {
    if (record.manager, record.info) != (MANAGER_LOG, PARAMETER_CHANGE) {
        return false;
    }
    let level = data(&record.body).and_then(|data| data.get(WAL_LEVEL_AT..WAL_LEVEL_AT + 4));
    level == Some(&MINIMAL.to_le_bytes())
}

/// When the transaction ended that this record ends.
fn end_of_transaction(record: &Record) -> Option<Timestamp> {
    let ends = [COMMIT, ABORT, COMMIT_PREPARED, ABORT_PREPARED];
    let is_end = ends.contains(&(record.info & TRANSACTION_MASK));
    if record.manager != MANAGER_TRANSACTION || !is_end {
        return None;
    }
    moment(data(&record.body)?)
}

/// The time with which the data of a record begins.
fn moment(data: &[u8]) -> Option<Timestamp> {
    let micros = i64::from_le_bytes(data.get(..8)?.try_into().ok()?);
    let epoch = Timestamp::from_second(EPOCH_SECONDS).ok()?;
    epoch.checked_add(SignedDuration::from_micros(micros)).ok()
}

fn is_rollback(record: &Record) -> bool {
    let kind = record.info & TRANSACTION_MASK;
    record.manager == MANAGER_TRANSACTION && [ABORT, ABORT_PREPARED].contains(&kind)
}

fn is_prepared(record: &Record) -> bool {
    [COMMIT_PREPARED, ABORT_PREPARED].contains(&(record.info & TRANSACTION_MASK))
}

/// The name of the restore point that this record is.
fn restore_point(record: &Record) -> Option<&[u8]> {
    if (record.manager, record.info) != (MANAGER_LOG, RESTORE_POINT) {
        return None;
    }
    let name = data(&record.body)?.get(8..8 + NAME_BYTES)?;
    name.split(|byte| *byte == 0).next()
}

/// A record's own data. These records are about no block.
fn data(body: &[u8]) -> Option<&[u8]> {
    let mut rest = body;
    loop {
        let skipped = match *rest.first()? {
            ORIGIN => 3,
            TOP_TRANSACTION => 5,
            DATA_SHORT => return rest.get(2..),
            DATA_LONG => return rest.get(5..),
            _ => return None,
        };
        rest = rest.get(skipped..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(manager: u8, info: u8, body: &[u8]) -> Record {
        Record {
            start: Lsn(8),
            end: Lsn(16),
            bytes: 40,
            manager,
            info,
            transaction: 7,
            body: body.to_vec(),
        }
    }

    #[test]
    fn a_commit_says_when_whatever_stands_before_its_data() {
        let time = 1_000_000_i64.to_le_bytes();
        for before in [
            &[255, 8][..],
            &[253, 1, 2, 255, 8],
            &[252, 1, 2, 3, 4, 254, 8, 0, 0, 0],
        ] {
            let body = [before, &time].concat();
            let found = end_of_transaction(&record(1, 0x80, &body)).unwrap();
            assert_eq!(found.to_string(), "2000-01-01T00:00:01Z");
            for cut in 0..body.len() {
                assert_eq!(end_of_transaction(&record(1, 0, &body[..cut])), None);
            }
        }
        assert_eq!(end_of_transaction(&record(1, 0x10, &[255, 8])), None);
    }

    #[test]
    fn a_change_to_minimal_is_known_and_no_other_change() {
        let body = |level: u8| [&[255, 26][..], &[9; 20], &[level, 0, 0, 0, 1, 0]].concat();
        assert!(is_minimal(&record(0, PARAMETER_CHANGE, &body(0))));
        assert!(!is_minimal(&record(0, PARAMETER_CHANGE, &body(1))));
        assert!(!is_minimal(&record(0, 0x30, &body(0))));
        assert!(!is_minimal(&record(0, PARAMETER_CHANGE, &body(0)[..20])));
    }

    #[test]
    fn a_restore_point_has_the_name_before_the_first_zero() {
        let mut body = vec![255, 72, 0, 0, 0, 0, 0, 0, 0, 0];
        body.extend(b"before the change");
        body.resize(10 + NAME_BYTES, 0);
        let found = record(0, RESTORE_POINT, &body);
        assert_eq!(restore_point(&found), Some(&b"before the change"[..]));
        assert_eq!(restore_point(&record(0, 0x30, &body)), None);
        assert_eq!(restore_point(&record(0, RESTORE_POINT, &body[..40])), None);
    }
}
