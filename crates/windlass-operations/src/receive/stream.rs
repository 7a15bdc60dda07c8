//! One session in which log is received: what comes is appended, made durable, and confirmed.

use std::path::Path;
use std::time::{Duration, Instant};

use windlass_engine::Kept;
use windlass_postgres::{
    Lsn, PostgresError, ReplicationSession, ReplicationSystem, Streamed, Timeline, parse_history,
};
use windlass_repository::{
    GrowingLog, GrowingStart, KnownEnd, LogPlace, LostEnd, Place, RepositoryError,
};

use crate::error::OperationError;
use crate::places::check_used;

/// How often the server hears from us at least, if it has no limit of its own.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a wait for log may last, so that a signal is noticed.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(200);
/// Log comes in small parts. One thread compresses it faster than it comes.
const THREADS: usize = 1;

/// A session, and the log that it appends to.
pub(super) struct LogStream {
    session: ReplicationSession,
    place: LogPlace,
    /// None only while a timeline ends.
    log: Option<GrowingLog>,
    /// What the place has of the last segment, until the server has sent the same.
    known: Option<KnownEnd>,
    /// What the place has lost of its log, and the server is asked for.
    lost: Option<LostEnd>,
    slot: Option<String>,
    segment_bytes: u32,
    interval: Duration,
    silence: Duration,
    synced: Instant,
    durable: Lsn,
    timeline: Timeline,
    bytes: u64,
    has_ended: bool,
}

/// Where a stream begins.
#[derive(Clone, Copy)]
struct Start {
    timeline: Timeline,
    at: Lsn,
}

impl LogStream {
    /// Opens a session and begins behind what the place has. `earlier` is the cluster of sessions
    /// before. `compares` says whether the server sends again what the place has of a segment that
    /// is complete there. `tell_lost` hears what the place has lost of its log.
    pub(super) fn open(
        conninfo: &str,
        (at, earlier, lock): (&Place, Option<u64>, &mut Option<Kept>),
        slot: (Option<&str>, bool),
        (interval, compares): (Duration, bool),
        tell_lost: &dyn Fn(&LostEnd),
    ) -> Result<Self, OperationError> {
        let to = at.path();
        check_used(to)?;
        let mut session = ReplicationSession::connect(conninfo)?;
        let server = session.identify()?;
        check_same(to, earlier, server.system)?;
        if lock.is_none() {
            *lock = super::lock::lock(at, server.system)?;
        }
        let segment_bytes = size(&session.setting("wal_segment_size")?)?;
        let limit = duration(&session.setting("wal_sender_timeout")?);
        let place = LogPlace::new(at, server.system);
        let slot = take_slot(&mut session, slot)?;
        let start = start(&mut session, &place, &server, u64::from(segment_bytes))?;
        let lost = asked_again(&place, start)?;
        lost.iter().for_each(tell_lost);
        let of = (start.timeline, segment_bytes);
        let log = GrowingLog::open(&place, of, start.at, THREADS)?;
        let known = known(&place, start, segment_bytes)?;
        let known = known.filter(|known| compares || !known.is_whole_segment());
        let from = known.as_ref().map_or(start.at, KnownEnd::start);
        session.start(slot.as_deref(), from, start.timeline)?;
        Ok(Self {
            session,
            place,
            log: Some(log),
            known,
            lost: lost.into_iter().next(),
            slot,
            segment_bytes,
            interval,
            silence: limit.map_or(SILENCE_MAX, |limit| (limit / 2).min(SILENCE_MAX)),
            synced: Instant::now(),
            durable: start.at,
            timeline: start.timeline,
            bytes: 0,
            has_ended: false,
        })
    }

    pub(super) fn system(&self) -> u64 {
        self.place.system()
    }

    pub(super) fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// Position of the next byte.
    pub(super) fn position(&self) -> Lsn {
        self.log.as_ref().map_or(self.durable, GrowingLog::position)
    }

    /// Everything before this position is durable.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// Bytes that came.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Makes durable what has come, and ends the session.
    pub(super) fn end(&mut self) -> Result<(), OperationError> {
        self.sync()?;
        // The server hears it, if it still listens.
        self.session.tell(self.confirmed()).unwrap_or_default();
        self.has_ended = true;
        Ok(())
    }

    /// Takes what comes next, if anything comes, and tells the server what is due.
    pub(super) fn step(&mut self) -> Result<(), OperationError> {
        let left = self.interval.saturating_sub(self.synced.elapsed());
        let mut is_asked = false;
        match self.session.next(left.min(WAIT_MAX))? {
            Streamed::Log { start, bytes } => self.take(start, &bytes)?,
            Streamed::Alive { wants_status, .. } => is_asked = wants_status,
            Streamed::Nothing => {}
            Streamed::TimelineEnd { next, at } => self.change_timeline(next, at)?,
            Streamed::Closed => {
                self.has_ended = true;
                return self.sync();
            }
        }
        let is_due = self.synced.elapsed() >= self.interval;
        if is_asked || (is_due && self.durable < self.position()) {
            self.sync()?;
        }
        let confirmed = self.confirmed();
        let is_news = confirmed > self.session.told();
        if is_asked || is_news || self.session.silent_for() >= self.silence {
            self.session.tell(confirmed)?;
        }
        Ok(())
    }

    /// Takes log: compares what the place has, and appends what comes behind it.
    fn take(&mut self, start: Lsn, bytes: &[u8]) -> Result<(), OperationError> {
        let mut there = 0;
        if let Some(known) = &mut self.known {
            there = known.compare(bytes)?;
            if known.compared() < known.end() {
                return Ok(());
            }
            self.known = None;
        }
        let new = &bytes[there..];
        self.bytes += new.len() as u64;
        if let Some(log) = &mut self.log {
            log.append(Lsn(start.0 + there as u64), new)?;
            self.durable = self.durable.max(log.durable());
        }
        Ok(())
    }

    /// Up to where the log of this server is durable. The place may have that of another one.
    fn confirmed(&self) -> Lsn {
        self.known.as_ref().map_or(self.durable, KnownEnd::compared)
    }

    /// Whether the server no longer has the complete segment with which its log was to be compared.
    pub(super) fn is_removed(&self, error: &OperationError) -> bool {
        let is_asked =
            |known: &KnownEnd| known.is_whole_segment() && known.compared() == known.start();
        matches!(error, OperationError::Postgres(error)
            if self.known.as_ref().is_some_and(is_asked) && is_not_there(error))
    }

    /// The same error. If the server no longer has what the place has lost, it says that: no other
    /// session would get it.
    pub(super) fn naming_lost(&self, error: OperationError) -> OperationError {
        match (error, &self.lost) {
            (OperationError::Postgres(error), Some(lost))
                if self.bytes == 0 && is_not_there(&error) =>
            {
                let (lost, source) = (Box::new(lost.clone()), Box::new(error));
                RepositoryError::NotAgain { lost, source }.into()
            }
            (error, _) => error,
        }
    }

    fn sync(&mut self) -> Result<(), OperationError> {
        if let Some(log) = &mut self.log {
            log.sync()?;
            self.durable = log.durable();
        }
        self.synced = Instant::now();
        Ok(())
    }

    /// Ends the log of this timeline, and begins with the next one.
    fn change_timeline(&mut self, next: Timeline, at: Lsn) -> Result<(), OperationError> {
        if let Some(log) = self.log.take() {
            self.durable = log.end()?;
        }
        let of = (next, at);
        let start = next_timeline(&mut self.session, &self.place, of, self.segment_bytes)?;
        let of = (start.timeline, self.segment_bytes);
        self.log = Some(GrowingLog::open(&self.place, of, start.at, THREADS)?);
        self.known = known(&self.place, start, self.segment_bytes)?;
        self.timeline = start.timeline;
        self.durable = start.at;
        let from = self.known.as_ref().map_or(start.at, KnownEnd::start);
        let slot = self.slot.as_deref();
        Ok(self.session.start(slot, from, start.timeline)?)
    }
}

/// What the place has lost of the timeline at its end: the server is asked for it again.
fn asked_again(place: &LogPlace, start: Start) -> Result<Vec<LostEnd>, RepositoryError> {
    let mut lost = place.lost_ends()?;
    lost.retain(|lost| lost.timeline == start.timeline && lost.is_behind(start.at));
    Ok(lost)
}

/// Whether a server no longer has the log that it was asked for.
fn is_not_there(error: &PostgresError) -> bool {
    const UNDEFINED_FILE: &str = "58P01";
    matches!(error, PostgresError::Refused { code, .. } if code == UNDEFINED_FILE)
}

/// What the place has of the last segment in front of a start.
fn known(
    place: &LogPlace,
    start: Start,
    segment_bytes: u32,
) -> Result<Option<KnownEnd>, RepositoryError> {
    let known = KnownEnd::of(place, start.timeline, segment_bytes)?;
    Ok(known.filter(|known| known.end() == start.at))
}

/// Refuses another cluster than that of the sessions before.
fn check_same(to: &Path, earlier: Option<u64>, found: u64) -> Result<(), RepositoryError> {
    match earlier {
        Some(expected) if expected != found => Err(RepositoryError::Foreign {
            path: to.to_owned(),
            found,
            expected,
        }),
        _ => Ok(()),
    }
}

/// The slot to use. A temporary one is a help, and not asked for: without it the server may remove
/// log before it was sent.
fn take_slot(
    session: &mut ReplicationSession,
    (name, create): (Option<&str>, bool),
) -> Result<Option<String>, PostgresError> {
    let Some(name) = name else {
        let name = format!("windlass_receive_{}", std::process::id());
        return Ok(session.create_slot(&name, true).is_ok().then_some(name));
    };
    if create {
        match session.create_slot(name, false) {
            // It is there already.
            Err(PostgresError::Refused { code, .. }) if code == "42710" => {}
            made => made?,
        }
    }
    Ok(Some(name.to_owned()))
}

/// Where to begin: behind what the place has, on its newest timeline that the server comes from.
fn start(
    session: &mut ReplicationSession,
    place: &LogPlace,
    server: &ReplicationSystem,
    segment_bytes: u64,
) -> Result<Start, OperationError> {
    let begin = |at: Lsn| Lsn(at.0 / segment_bytes * segment_bytes);
    let history = match server.timeline.0 {
        0 | 1 => Vec::new(),
        _ => {
            let content = session.history(server.timeline)?;
            GrowingLog::put_history(place, server.timeline, &content)?;
            let text = String::from_utf8_lossy(&content);
            parse_history(&server.timeline.history_name(), &text)?
        }
    };
    let mut timelines: Vec<_> = history.iter().map(|(timeline, _)| *timeline).collect();
    timelines.push(server.timeline);
    for (number, timeline) in timelines.iter().enumerate().rev() {
        let GrowingStart::Behind(at) = GrowingLog::start(place, *timeline)? else {
            continue;
        };
        return Ok(match history.get(number) {
            // All of this timeline is there. The next one begins with the segment of the switch.
            Some((_, left_at)) if at >= *left_at => Start {
                timeline: timelines[number + 1],
                at: begin(*left_at),
            },
            _ => Start {
                timeline: *timeline,
                at,
            },
        });
    }
    Ok(Start {
        timeline: server.timeline,
        at: begin(server.flushed),
    })
}

/// Where the next timeline begins: with its first segment, or behind what the place has of it.
fn next_timeline(
    session: &mut ReplicationSession,
    place: &LogPlace,
    (next, at): (Timeline, Lsn),
    segment_bytes: u32,
) -> Result<Start, OperationError> {
    let content = session.history(next)?;
    GrowingLog::put_history(place, next, &content)?;
    let segment_bytes = u64::from(segment_bytes);
    let begin = Lsn(at.0 / segment_bytes * segment_bytes);
    let at = match GrowingLog::start(place, next)? {
        GrowingStart::Behind(there) => there.max(begin),
        GrowingStart::Nothing => begin,
    };
    Ok(Start { timeline: next, at })
}

/// A size as the server shows it: `16MB`.
fn size(text: &str) -> Result<u32, OperationError> {
    let units = [
        ("GB", 1 << 30),
        ("MB", 1 << 20),
        ("kB", 1 << 10),
        ("B", 1_u32),
    ];
    let found = units.iter().find_map(|(unit, bytes)| {
        let number: u32 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*bytes)
    });
    found.ok_or_else(|| {
        PostgresError::Answer {
            doing: "ask for the size of a segment",
            answer: text.to_owned(),
        }
        .into()
    })
}

/// A duration as the server shows it: `1min`. `None` for no limit.
fn duration(text: &str) -> Option<Duration> {
    let units = [
        ("min", 60_000),
        ("ms", 1),
        ("s", 1000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ];
    let millis = units.iter().find_map(|(unit, millis)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*millis)
    });
    millis
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_the_server_shows_them() {
        for (text, bytes) in [("16MB", 16 << 20), ("1GB", 1 << 30), ("1024kB", 1 << 20)] {
            assert_eq!(size(text).unwrap(), bytes);
        }
        assert!(size("many").is_err());
        for (text, millis) in [
            ("1min", 60_000),
            ("2500ms", 2500),
            ("90s", 90_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)));
        }
        assert_eq!(duration("0"), None);
    }
}
