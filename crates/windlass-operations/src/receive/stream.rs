//! One session in which log is received: what comes is appended, made durable, and confirmed.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use windlass_postgres::{
    Lsn, PostgresError, ReplicationSession, ReplicationSystem, Streamed, Timeline,
};
use windlass_repository::{GrowingLog, KnownEnd, LogPlace, LostEnd, Place, RepositoryError};

use super::slot::Slot;
use super::start::{self, Beginning, Server, Start, next_timeline};
use crate::error::OperationError;
use crate::notice::Notice;
use crate::places::check_used;
use crate::receiver::{self, Note};

/// How often the server hears from us at least, if it has no limit of its own.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long the server may leave a question unanswered, if it has no limit of its own.
const PATIENCE: Duration = Duration::from_secs(60);
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
    slot: Slot,
    beginning: Beginning,
    segment_bytes: u32,
    interval: Duration,
    silence: Duration,
    patience: Duration,
    /// When the server said something last, and since when it leaves a question unanswered.
    heard: Instant,
    asked: Option<Instant>,
    synced: Instant,
    durable: Lsn,
    timeline: Timeline,
    bytes: u64,
    has_ended: bool,
}

impl LogStream {
    /// Opens a session and begins behind what the place has. `earlier` is the cluster of sessions
    /// before.
    pub(super) fn open(
        conninfo: &str,
        (at, earlier, lock): (&Place, Option<u64>, &mut Option<Note>),
        (slot, interval): ((Option<&str>, bool), Duration),
        beginning: Beginning,
        tell: &dyn Fn(&Notice<'_>),
    ) -> Result<Self, OperationError> {
        let to = at.path();
        check_used(to)?;
        let mut session = ReplicationSession::connect(conninfo)?;
        let system = session.identify()?;
        check_same(to, earlier, system.system)?;
        if lock.is_none() {
            *lock = receiver::lock(at, system.system)?;
        }
        let segment_bytes = size(&session.setting("wal_segment_size")?)?;
        let limit = duration(&session.setting("wal_sender_timeout")?);
        let place = LogPlace::new(at, system.system).held_by(lock.clone());
        let slot = Slot::take(&mut session, slot, tell)?;
        let server = Server::new(&system, slot.name(), segment_bytes);
        let (start, gap) = begin(&mut session, &place, server, beginning)?;
        let lost = asked_again(&place, start)?;
        lost.iter().for_each(|lost| tell(&Notice::LogLost(lost)));
        let of = (start.timeline, segment_bytes);
        let mut log = GrowingLog::open(&place, of, start.at, THREADS)?;
        bound_lost(&mut session, &mut log, (&system, start), &lost)?;
        let known = known(&place, start, segment_bytes)?;
        let is_there = beginning == Beginning::Compared;
        let known = known.filter(|known| is_there || !known.is_whole_segment());
        let from = known.as_ref().map_or(start.at, KnownEnd::start);
        slot.start(&mut session, (start.timeline, from), tell)?;
        if let Some(before) = gap {
            let from = (before.timeline, before.at);
            let to = (start.timeline, start.at);
            tell(&Notice::LogGap { from, to });
        }
        Ok(Self {
            session,
            place,
            log: Some(log),
            known,
            lost: lost.into_iter().next(),
            slot,
            beginning,
            segment_bytes,
            interval,
            silence: limit.map_or(SILENCE_MAX, |limit| (limit / 2).min(SILENCE_MAX)),
            patience: limit.unwrap_or(PATIENCE),
            heard: Instant::now(),
            asked: None,
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
        self.session
            .tell(self.confirmed(), false)
            .unwrap_or_default();
        self.has_ended = true;
        Ok(())
    }

    /// Takes what comes next, if anything comes, and tells the server what is due.
    pub(super) fn step(&mut self) -> Result<(), OperationError> {
        let left = self.interval.saturating_sub(self.synced.elapsed());
        let mut is_asked = false;
        let next = self.session.next(left.min(WAIT_MAX))?;
        self.note_silence(matches!(next, Streamed::Nothing))?;
        match next {
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
            let asks = self.heard.elapsed() >= self.silence;
            self.session.tell(confirmed, asks)?;
            self.asked = self.asked.or(asks.then(Instant::now));
        }
        Ok(())
    }

    /// Ends the session if the server leaves a question unanswered for too long: its machine may be
    /// gone, and another one may have taken its place.
    fn note_silence(&mut self, is_silent: bool) -> Result<(), PostgresError> {
        if !is_silent {
            (self.heard, self.asked) = (Instant::now(), None);
        }
        match self.asked {
            Some(asked) if asked.elapsed() >= self.patience => Err(PostgresError::Stream {
                doing: "receive log",
                source: ErrorKind::TimedOut.into(),
            }),
            _ => Ok(()),
        }
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

    /// How to begin again after this error, if the server has removed the log that it was asked
    /// for. `None` for other errors, and if the place has lost what is missing.
    pub(super) fn again(&self, error: &OperationError) -> Option<Beginning> {
        let is_removed = matches!(error, OperationError::Postgres(error) if is_not_there(error));
        let known = self.known.as_ref();
        let is_begun = known.is_some_and(|known| known.compared() > known.start());
        if !is_removed || self.bytes > 0 || is_begun || self.beginning == Beginning::BehindGap {
            return None;
        }
        match known.is_some_and(KnownEnd::is_whole_segment) {
            true => Some(Beginning::Behind),
            false => self.lost.is_none().then_some(Beginning::BehindGap),
        }
    }

    /// Completes what the place has, because nothing follows it any more.
    pub(super) fn leave(&mut self) -> Result<(), OperationError> {
        if let Some(log) = self.log.take() {
            self.durable = log.end()?;
        }
        Ok(())
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
        let bytes = u64::from(self.segment_bytes);
        let start = next_timeline(&mut self.session, &self.place, (next, at), bytes)?;
        let of = (start.timeline, self.segment_bytes);
        self.log = Some(GrowingLog::open(&self.place, of, start.at, THREADS)?);
        self.known = known(&self.place, start, self.segment_bytes)?;
        self.timeline = start.timeline;
        self.durable = start.at;
        let from = self.known.as_ref().map_or(start.at, KnownEnd::start);
        let name = self.slot.name();
        Ok(self.session.start(name, from, start.timeline)?)
    }
}

/// Where to begin, and behind which position the server has removed log, if it has.
fn begin(
    session: &mut ReplicationSession,
    place: &LogPlace,
    server: Server<'_>,
    beginning: Beginning,
) -> Result<(Start, Option<Start>), OperationError> {
    let start = start::find(session, place, server)?;
    if beginning != Beginning::BehindGap {
        return Ok((start, None));
    }
    let next = start::behind_gap(session, server, start)?;
    Ok(next.map_or((start, None), |next| (next, Some(start))))
}

/// What the place has lost came from this server, also if nobody knows how much that is: the server
/// has nothing behind what it has written. A standby may be behind the one that sent it.
fn bound_lost(
    session: &mut ReplicationSession,
    log: &mut GrowingLog,
    (system, start): (&ReplicationSystem, Start),
    lost: &[LostEnd],
) -> Result<(), PostgresError> {
    let is_unknown = lost.iter().any(|lost| lost.durable.is_none());
    let is_its_own = is_unknown && start.timeline == system.timeline;
    if is_its_own && session.setting("in_hot_standby")? == "off" {
        log.bound_lost(system.flushed);
    }
    Ok(())
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
