//! Where a session begins: behind the log of the place, or behind what no server has any more.
//!
//!   place    |======|  ?  |      the server is asked to go on here
//!   server             ...|===>  and has removed that: it goes on there, and a gap stays
//!
//! Invariant: the place gets the history of each timeline that leads to the server's. Whoever looks
//! for the newest timeline takes one after the other.

use windlass_postgres::{
    Lsn, PostgresError, ReplicationSession, ReplicationSystem, SlotKeeps, Timeline, parse_history,
};
use windlass_repository::{GrowingLog, GrowingStart, LogPlace};

use crate::error::OperationError;

/// Where a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) timeline: Timeline,
    pub(super) at: Lsn,
}

/// How a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// The server sends again what the place has of the last segment.
    Compared,
    /// It has removed that segment, which is complete in the place.
    Behind,
    /// It has also removed what follows the log of the place.
    BehindGap,
}

/// The server that is asked: who it is, the slot that is used, and the size of its segments.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    system: &'a ReplicationSystem,
    slot: Option<&'a str>,
    segment_bytes: u64,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        system: &'a ReplicationSystem,
        slot: Option<&'a str>,
        segment_bytes: u32,
    ) -> Self {
        Self {
            system,
            slot,
            segment_bytes: u64::from(segment_bytes),
        }
    }

    /// Where the segment of a position begins.
    fn begin(&self, at: Lsn) -> Lsn {
        begin_of(at, self.segment_bytes)
    }

    /// The segment that is being written.
    fn current(&self) -> Start {
        Start {
            timeline: self.system.timeline,
            at: self.begin(self.system.flushed),
        }
    }

    /// The oldest segment that the slot keeps.
    fn kept(&self, session: &mut ReplicationSession) -> Result<Option<Start>, PostgresError> {
        let Some(slot) = self.slot else {
            return Ok(None);
        };
        Ok(match session.slot(slot)? {
            SlotKeeps::From { timeline, at } => Some(Start {
                timeline,
                at: self.begin(at),
            }),
            SlotKeeps::Nothing | SlotKeeps::Unknown => None,
        })
    }
}

/// Where the segment of a position begins.
fn begin_of(at: Lsn, segment_bytes: u64) -> Lsn {
    Lsn(at.0 / segment_bytes * segment_bytes)
}

/// Where to begin: behind what the place has, on its newest timeline that the server comes from. In
/// a place without log with the oldest segment that the slot keeps.
pub(super) fn find(
    session: &mut ReplicationSession,
    place: &LogPlace,
    server: Server<'_>,
) -> Result<Start, OperationError> {
    let newest = server.system.timeline;
    let history = histories(session, place, newest)?;
    let mut timelines: Vec<_> = history.iter().map(|(timeline, _)| *timeline).collect();
    timelines.push(newest);
    for (number, timeline) in timelines.iter().enumerate().rev() {
        let GrowingStart::Behind(at) = GrowingLog::start(place, *timeline)? else {
            continue;
        };
        return Ok(match history.get(number) {
            // All of this timeline is there. The next one begins with the segment of the switch.
            Some((_, left_at)) if at >= *left_at => Start {
                timeline: timelines[number + 1],
                at: server.begin(*left_at),
            },
            _ => Start {
                timeline: *timeline,
                at,
            },
        });
    }
    Ok(server.kept(session)?.unwrap_or_else(|| server.current()))
}

/// Where a server goes on that has removed the log behind `start`: with the oldest segment that the
/// slot keeps, or with the one that is being written. `None` if that is not behind it.
pub(super) fn behind_gap(
    session: &mut ReplicationSession,
    server: Server<'_>,
    start: Start,
) -> Result<Option<Start>, PostgresError> {
    let kept = server.kept(session)?.into_iter();
    let mut known = kept.chain([server.current()]);
    Ok(known.find(|next| next.at > start.at))
}

/// Stores the history of a timeline, and those of the timelines before it that the place lacks and
/// the server has. Returns that of the timeline.
fn histories(
    session: &mut ReplicationSession,
    place: &LogPlace,
    timeline: Timeline,
) -> Result<Vec<(Timeline, Lsn)>, OperationError> {
    if timeline.0 <= 1 {
        return Ok(Vec::new());
    }
    let content = session.history(timeline)?;
    GrowingLog::put_history(place, timeline, &content)?;
    let text = String::from_utf8_lossy(&content);
    let history = parse_history(&timeline.history_name(), &text)?;
    let earlier: Vec<_> = history.iter().filter(|(one, _)| one.0 > 1).collect();
    if earlier.is_empty() {
        return Ok(history);
    }
    let there = place.files()?;
    for (one, _) in earlier {
        if there.contains(&one.history_name()) {
            continue;
        }
        match session.history(*one) {
            // A server needs only its own.
            Err(PostgresError::Refused { .. }) => {}
            content => {
                GrowingLog::put_history(place, *one, &content?)?;
            }
        }
    }
    Ok(history)
}

/// Where the next timeline begins: with its first segment, or behind what the place has of it.
pub(super) fn next_timeline(
    session: &mut ReplicationSession,
    place: &LogPlace,
    (next, at): (Timeline, Lsn),
    segment_bytes: u64,
) -> Result<Start, OperationError> {
    let content = session.history(next)?;
    GrowingLog::put_history(place, next, &content)?;
    let begin = begin_of(at, segment_bytes);
    let at = match GrowingLog::start(place, next)? {
        GrowingStart::Behind(there) => there.max(begin),
        GrowingStart::Nothing => begin,
    };
    Ok(Start { timeline: next, at })
}
