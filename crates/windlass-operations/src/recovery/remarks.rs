//! What a user may not expect at the point of a recovery. Looks at the log, and changes nothing.

use jiff::Timestamp;
use windlass_postgres::{Lsn, RecoveryPoint, RecoveryTimeline, Sought, Stop, Timeline, seek_point};
use windlass_repository::{LogPath, LogReader, RepositoryError};

use super::PointRemark;
use super::way::Way;
use crate::error::OperationError;

/// What is to be said of the record at which a server stops.
pub(super) fn of(
    way: &Way<'_>,
    point: &RecoveryPoint,
    stop: Option<Stop>,
) -> Result<Vec<PointRemark>, OperationError> {
    if *point == RecoveryPoint::Latest {
        return lost_end(way);
    }
    let Some(stop) = stop else {
        return Ok(Vec::new());
    };
    let remark = match point {
        RecoveryPoint::Transaction(_) => stop.is_rollback.then_some(PointRemark::RolledBack),
        RecoveryPoint::Name(_) => stop
            .repeated
            .map(|(count, last)| PointRemark::Repeated { count, last }),
        RecoveryPoint::Time(time) => state_of_fork(way, *time, stop),
        _ => None,
    };
    Ok(remark.into_iter().collect())
}

/// What the latest state lacks, because the log has lost its end.
fn lost_end(way: &Way<'_>) -> Result<Vec<PointRemark>, OperationError> {
    match way.covered(None) {
        Err(RepositoryError::LostEnd { lost, .. }) => Ok(vec![PointRemark::LostEnd(lost)]),
        covered => Ok(covered.map(|_| Vec::new())?),
    }
}

/// If nothing has ended on the timeline of the stop before it: where that left the older one.
fn state_of_fork(way: &Way<'_>, time: Timestamp, stop: Stop) -> Option<PointRemark> {
    let mut left = way
        .path
        .steps
        .iter()
        .filter_map(|step| Some((step.timeline, step.to?)));
    let (from, at) = left.rfind(|(_, at)| *at <= stop.at)?;
    let last = stop.last.filter(|(last, _)| *last < at);
    (last.is_some() || stop.last.is_none()).then(|| PointRemark::StateOfFork {
        from,
        at,
        last: last.map(|(_, time)| time),
        lost: lost(way, (from, at), time),
    })
}

/// The last transaction that the older timeline has behind the fork, up to the moment. If its log
/// cannot be read there, there is none that a recovery could reach.
fn lost(way: &Way<'_>, (from, at): (Timeline, Lsn), time: Timestamp) -> Option<Timestamp> {
    let path = LogPath::find(way.log, (from, at), RecoveryTimeline::Number(from)).ok()?;
    let mut reader = LogReader::new(way.log, &path, way.segment_bytes);
    let point = (&RecoveryPoint::Time(time), true);
    match seek_point(&mut reader, way.segment_bytes, at, point).ok()? {
        Sought::Found(stop) => stop.last.map(|(_, time)| time),
        Sought::Missing { last, .. } => last,
        _ => None,
    }
}
