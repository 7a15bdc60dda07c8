//! How a restored SQLite database goes on from its set: which log, and up to which transaction.
//!
//!   set --> where does it stand in the log? --> which transaction is the last one? --> plan
//!   plan, restored file --> pages of each transaction --> the database at that moment

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::Timestamp;
use windlass_engine::media::LogRecord;
use windlass_engine::{Cancel, OpenSet};
use windlass_postgres::{RecoveryAction, RecoveryPoint, RecoveryTimeline, Timeline};
use windlass_repository::{
    CommitReader, Linked, LogPlace, LostEnd, Record, RepositoryError, database_number, link,
};
use windlass_sqlite::DatabaseFacts;

use super::error::RecoveryError;
use super::log_place;
use super::plan::FilePlan;
use super::request::RecoveryRequest;
use crate::error::OperationError;
use crate::places::LocatedSet;
use crate::stored::log_at;

/// How a set goes on to the point; nothing if the set itself is the point. Fails if it does not get
/// there.
pub(super) fn plan(
    (found, set): (&LocatedSet, &OpenSet),
    request: &RecoveryRequest,
) -> Result<Option<FilePlan>, OperationError> {
    let is_plain =
        request.timeline == RecoveryTimeline::Latest && request.action == RecoveryAction::Promote;
    match &request.point {
        _ if !is_plain => return Err(RecoveryError::NoServer.into()),
        RecoveryPoint::Immediate => return Ok(None),
        RecoveryPoint::Time(_) | RecoveryPoint::Latest => {}
        other => {
            let target = other.to_string();
            return Err(RecoveryError::NotOfDatabase { target }.into());
        }
    }
    let facts = DatabaseFacts::of_set(&set.description().facts)?;
    let Some(standing) = facts.standing else {
        return Err(RecoveryError::NoStanding.into());
    };
    let database = database_number(&facts.key());
    let place = log_place::of_database((found, set), (&standing, database), request)?;
    // Fails if the place is not there.
    let at = log_at(&place);
    windlass_repository::log_databases(&at)?;
    let log = LogPlace::of_database(&at, database);
    if log.timelines()?.is_empty() {
        let system = None;
        return Err(RepositoryError::NoLog { place, system }.into());
    }
    let Some(from) = link(&log, &standing)? else {
        let finished = set.description().facts.finished.parse().ok();
        let has_later = finished.map_or(Ok(true), |finished| has_later(&log, finished))?;
        return Err(RecoveryError::NotLinked { place, has_later }.into());
    };
    let (to, moment, lost) = last_commit(&log, from, request)?;
    Ok(Some(FilePlan {
        point: request.point.clone(),
        place,
        from,
        to,
        moment,
        lost,
        log,
    }))
}

/// Whether the newest timeline has a state, or a transaction, that is later than this moment.
fn has_later(log: &LogPlace, moment_of_set: Timestamp) -> Result<bool, OperationError> {
    let Some(newest) = log.timelines()?.last().copied() else {
        return Ok(false);
    };
    let mut reader = CommitReader::new(log, newest)?;
    let mut before = None;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                let head = record.head();
                let is_new = before.is_none_or(|number| number < head.number);
                if is_new && moment(head.by_nanos) > moment_of_set {
                    return Ok(true);
                }
                before = Some(head.number);
            }
            // What is behind a gap is later still.
            Err(error) if error.missing_from().is_some() => return Ok(true),
            other => return Ok(other?.is_some()),
        }
    }
}

/// A transaction, the moments between which it came, and what is lost behind it.
type LastCommit = (u64, (Timestamp, Timestamp), Option<LostEnd>);

/// The last transaction up to the point.
fn last_commit(
    log: &LogPlace,
    from: Linked,
    request: &RecoveryRequest,
) -> Result<LastCommit, OperationError> {
    let limit = request.limit();
    let is_within = |moment: Timestamp| match limit {
        Some(limit) if request.inclusive => moment <= limit,
        Some(limit) => moment < limit,
        None => true,
    };
    let mut reader = CommitReader::new(log, from.timeline)?;
    reader.seek_to(from.start)?;
    let (mut found, mut end, mut is_last, mut lost) = (None, None, true, None);
    loop {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(RepositoryError::Gap { .. }) => {
                is_last = false;
                break;
            }
            Err(RepositoryError::LostEnd {
                lost: gone,
                goes_on,
            }) => {
                (is_last, lost) = (!goes_on, Some(gone));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        let head = record.head();
        let by = moment(head.by_nanos);
        end = Some(by);
        if head.number < from.number {
            continue;
        }
        if is_within(by) {
            // A stand repeats the transaction before it, at a later moment.
            if found.is_none_or(|(number, _)| number < head.number) {
                found = Some((head.number, (moment(head.after_nanos), by)));
            }
        } else if found.is_none() {
            let target = request.point.to_string();
            let end = by.to_string();
            return Err(RecoveryError::BeforeSet { target, end }.into());
        } else {
            break;
        }
    }
    is_last &= log.timelines()?.last() == Some(&from.timeline);
    let end = end.unwrap_or_default();
    if limit.is_some_and(|limit| limit > end) || limit.is_none() && !is_last {
        let behind = (end, is_last, lost);
        return Err(not_captured(&request.point, from.timeline, behind).into());
    }
    let (number, moment) = found.unwrap_or((from.number, (end, end)));
    Ok((number, moment, lost))
}

/// The failure for a point behind the end of a log.
fn not_captured(
    point: &RecoveryPoint,
    timeline: Timeline,
    (end, is_last, lost): (Timestamp, bool, Option<LostEnd>),
) -> RecoveryError {
    RecoveryError::NotCaptured {
        target: point.to_string(),
        timeline,
        end,
        is_last,
        lost: lost.map(Box::new),
    }
}

fn moment(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanos.into()).unwrap_or_default()
}

impl FilePlan {
    /// The timeline.
    pub fn timeline(&self) -> Timeline {
        self.from.timeline
    }

    /// The log.
    pub(crate) fn log(&self) -> &LogPlace {
        &self.log
    }

    /// How many transactions come behind the set.
    pub fn commits(&self) -> u64 {
        self.to.saturating_sub(self.from.number)
    }

    /// Puts the pages of the transactions into a file that holds what the set has. It is durable
    /// then.
    pub(crate) fn replay(
        &self,
        (file, path): (&File, &Path),
        cancel: &Cancel,
    ) -> Result<(), OperationError> {
        let last = self.pages(cancel, |at, page| {
            let written = file.write_all_at(page, at);
            written.map_err(|source| failed("write", path, source))
        })?;
        if let Some(last) = last {
            let cut = file.set_len(bytes_of(&last));
            cut.map_err(|source| failed("cut", path, source))?;
            let synced = file.sync_all();
            synced.map_err(|source| failed("sync", path, source))?;
        }
        Ok(())
    }

    /// Gives each page of the transactions, oldest first, with where it is in the file. Returns the
    /// last transaction, if there is one: it says how long the file is.
    pub(crate) fn pages(
        &self,
        cancel: &Cancel,
        mut give: impl FnMut(u64, &[u8]) -> Result<(), OperationError>,
    ) -> Result<Option<LogRecord>, OperationError> {
        let mut reader = CommitReader::new(&self.log, self.from.timeline)?;
        reader.seek_to(self.from.start)?;
        let mut page = Vec::new();
        let mut last: Option<LogRecord> = None;
        let number = |last: Option<LogRecord>| last.map_or(self.from.number, |last| last.number);
        // What comes behind the last one may be missing.
        while number(last) < self.to {
            let Some(record) = reader.next_record()? else {
                break;
            };
            cancel.check()?;
            let Record::Commit(head) = record else {
                continue;
            };
            if head.number <= self.from.number {
                continue;
            }
            while let Some(number) = reader.page(&head, &mut page)? {
                give(u64::from(number - 1) * u64::from(head.page_bytes), &page)?;
            }
            last = Some(head);
        }
        match number(last) == self.to {
            true => Ok(last),
            false => Err(RecoveryError::LogShrank {
                place: self.place.clone(),
            }
            .into()),
        }
    }
}

/// How long the file is behind a transaction.
pub(crate) fn bytes_of(commit: &LogRecord) -> u64 {
    u64::from(commit.page_count) * u64::from(commit.page_bytes)
}

fn failed(action: &'static str, path: &Path, source: std::io::Error) -> OperationError {
    windlass_sqlite::SqliteError::Io {
        action,
        path: path.to_owned(),
        source,
    }
    .into()
}
