//! The way from the end of a set through an archived log: how far it goes, and where a server stops
//! on it.
//!
//!   end of the set --> timelines --> log without a gap --> the record of the point

use windlass_postgres::{DatabaseFacts, Lsn, RecoveryPoint, Sought, Stop, seek_point};
use windlass_repository::{KnownLog, LogPath, LogPlace, LogReader, RepositoryError};

use super::error::RecoveryError;
use super::request::RecoveryRequest;
use crate::error::OperationError;
use crate::reach::needed_from;

/// The log from the end of a set on.
pub(super) struct Way<'a> {
    pub(super) log: &'a LogPlace,
    known: KnownLog<'a>,
    pub(super) path: LogPath,
    pub(super) segment_bytes: u64,
    /// Where a record begins that the set does not need.
    stop: Lsn,
    /// From here on, the log must come from the place.
    from: Lsn,
}

impl<'a> Way<'a> {
    pub(super) fn new(
        facts: &DatabaseFacts,
        log: &'a LogPlace,
        request: &RecoveryRequest,
    ) -> Result<Self, OperationError> {
        let segment_bytes = u64::from(facts.wal_segment_bytes);
        let stop = facts.stop_lsn;
        let timeline = facts
            .wal
            .last()
            .map_or(facts.timeline, |range| range.timeline);
        let path = LogPath::find(log, (timeline, stop), request.timeline)?;
        let left = path.steps.first().and_then(|step| step.to);
        let from = needed_from((stop, facts.standby), left, segment_bytes);
        Ok(Self {
            log,
            known: KnownLog::of(log),
            path,
            segment_bytes,
            stop,
            from,
        })
    }

    /// How far the log goes, and the record at which the server stops, if that is known. Fails if
    /// the log does not get to the point.
    pub(super) fn check(
        &self,
        request: &RecoveryRequest,
    ) -> Result<(Lsn, Option<Stop>), OperationError> {
        let up_to = match &request.point {
            RecoveryPoint::Immediate => return Ok((self.stop, Some(Stop::at(self.stop)))),
            RecoveryPoint::Lsn(lsn) => Some(*lsn),
            _ => None,
        };
        let (end, gap) = match self.covered(up_to) {
            Ok(end) => (end, None),
            Err(gap) => match gap.missing_from() {
                Some(from) if request.point != RecoveryPoint::Latest || is_end(&gap) => {
                    (from, Some(Box::new(gap)))
                }
                _ => return Err(gap.into()),
            },
        };
        let missing = |end, last, gap| RecoveryError::NotInLog {
            target: request.point.to_string(),
            end,
            last,
            gap,
        };
        if up_to.is_some_and(|lsn| end < lsn) {
            return Err(missing(end, None, gap).into());
        }
        let (mut reader, start) = self.read()?;
        if start >= end {
            return match request.point {
                // There is no log behind the set.
                RecoveryPoint::Latest => Ok((end, None)),
                _ => Err(missing(end, None, gap).into()),
            };
        }
        let point = (&request.point, request.inclusive);
        match seek_point(&mut reader, self.segment_bytes, start, point)? {
            Sought::Found(stop) => Ok((end, Some(stop))),
            Sought::Unsure => Ok((end, None)),
            Sought::Minimal(at) => Err(RecoveryError::Minimal { at }.into()),
            Sought::Missing { stopped, .. } if self.is_before_last(stopped, end) => {
                Err(RecoveryError::Broken { at: stopped, end }.into())
            }
            Sought::Missing {
                end: read, last, ..
            } => match request.point {
                RecoveryPoint::Latest => Ok((end, None)),
                _ => Err(missing(read, last, gap).into()),
            },
        }
    }

    /// How far the log goes.
    pub(super) fn covered(&self, up_to: Option<Lsn>) -> Result<Lsn, RepositoryError> {
        let bytes = self.segment_bytes;
        self.path.covered(&self.known, self.from, (bytes, up_to))
    }

    /// From where on log that was durable is lost, behind what the set has.
    pub(super) fn lost_from(&self) -> Result<Option<Lsn>, RepositoryError> {
        let from = (self.from, self.segment_bytes);
        self.path.lost_from(&self.known, from)
    }

    pub(super) fn reader(&self) -> LogReader<'_> {
        LogReader::new(self.log, &self.path, self.segment_bytes)
    }

    /// A reader of the log, and the first record in it that the set does not need.
    pub(super) fn read(&self) -> Result<(LogReader<'_>, Lsn), RepositoryError> {
        let mut reader = self.reader();
        let mut byte = [0];
        let has_stop = reader.read_at(self.stop, &mut byte)? == 1;
        Ok((reader, if has_stop { self.stop } else { self.from }))
    }

    /// Whether a position lies before the last segment of the log.
    fn is_before_last(&self, at: Lsn, end: Lsn) -> bool {
        at.0 / self.segment_bytes < end.0.saturating_sub(1) / self.segment_bytes
    }
}

/// Whether the log lacks only its end: what is there is its latest state.
fn is_end(gap: &RepositoryError) -> bool {
    matches!(gap, RepositoryError::LostEnd { goes_on: false, .. })
}
