//! The transactions of a SQLite database on their way into a place.
//!
//!   place: where does its log end? --> does the database go on from there? -- yes --> go on
//!                                                                          -- no --> new timeline
//!   look --> transactions --> records --> sync
//!
//! Invariants
//! - A timeline has every transaction from its beginning on. What may be lost begins a new one.
//! - What a look found is durable before the next look lets the database remove it.
//! - Writers of the database never wait for a bucket. What a look finds while they wait is stored
//!   when they go on. A kill in between may leave a gap, and a new timeline names it.

use std::path::{Path, PathBuf};

use windlass_engine::media::{LogRecord, RecordKind};
use windlass_engine::{Cancel, show_size};
use windlass_postgres::Timeline;
use windlass_repository::{CommitLog, LogPlace, NewCommit, Place, StandAbout, database_number};
use windlass_sqlite::{Commit, DatabaseKey, Held, LogCapture, LogPoint, Standing, Watch};

use crate::caller::Caller;
use crate::database::DatabaseName;
use crate::error::OperationError;
use crate::notice::Notice;
use crate::receiver::{self, Note};

/// Writers of the database go on if more bytes of pages would have to wait in memory for a bucket.
const REST_BYTES_MAX: u64 = 64 << 20;

/// What was captured of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedLog {
    /// The database.
    pub database: PathBuf,
    /// Which database it is, among those of other machines.
    pub key: DatabaseKey,
    /// The place.
    pub place: PathBuf,
    /// The timeline at the end.
    pub timeline: Timeline,
    /// How many transactions that timeline has.
    pub number: u64,
    /// How many transactions came.
    pub commits: u64,
    /// Bytes of their pages.
    pub bytes: u64,
    /// How many timelines were begun, because something before may be lost.
    pub breaks: u64,
    /// How often writers had to wait, and for how long.
    pub held: Held,
}

/// What earlier sessions of a receiver leave to the next one.
pub(crate) struct Earlier {
    captured: CapturedLog,
    note: Option<(u64, Note)>,
}

impl Earlier {
    /// What sessions leave whose note is gone.
    pub(crate) fn without_note(captured: CapturedLog) -> Self {
        Self {
            captured,
            note: None,
        }
    }
}

/// A database whose transactions go into a place.
pub(crate) struct Capturing {
    capture: LogCapture,
    log: CommitLog,
    /// Whether somebody else writes to the file.
    watch: Watch,
    captured: CapturedLog,
    /// How often writers had to wait for earlier sessions.
    held_before: Held,
    /// What comes next was not there at this moment.
    after_nanos: i64,
    /// The time of the last look.
    by_nanos: i64,
    /// A set that is made before this moment finds the log's end only if the log says at this
    /// moment that nobody wrote.
    stand_nanos: Option<i64>,
    /// Whether the log has lost its end, and the first look has not been kept yet.
    has_lost: bool,
    /// Bytes of the last transaction that the place does not take, until somebody asks.
    passed_over: Option<u64>,
    is_in_bucket: bool,
    /// Nobody else writes the log with this number meanwhile.
    note: Option<(u64, Note)>,
}

impl Capturing {
    /// Begins to capture, as the owner of the database. `before` is what earlier sessions did.
    pub(crate) fn open(
        caller: &Caller,
        (path, place): (&Path, &Place),
        before: Option<Earlier>,
        cancel: &Cancel,
    ) -> Result<Self, OperationError> {
        // Fails if the place is not there: its disk may not be mounted.
        place.find()?;
        // Every session reads where the log ends.
        place.check_key()?;
        DatabaseName::Sqlite(path.to_owned()).become_owner(caller.process)?;
        let begun_nanos = nanos_now();
        let mut capture = LogCapture::begin(path, cancel)?;
        capture.set_host(&caller.host);
        let database = capture.path().to_owned();
        let key = capture.key();
        let number = database_number(&key);
        let (before, note) = before.map_or((None, None), |one| (Some(one.captured), one.note));
        // A note that cannot be removed would be taken for that of another receiver.
        let note = match note.filter(|(of, _)| *of == number) {
            Some(note) => Some(note),
            None => receiver::lock(place, number)?.map(|note| (number, note)),
        };
        let held_by = note.as_ref().map(|(_, note)| note.clone());
        let place_of_log = LogPlace::of_database(place, number).held_by(held_by);
        let log = CommitLog::open(&place_of_log)?;
        let lost = place_of_log.lost_ends()?;
        for one in &lost {
            caller.tell(&Notice::LogLost(one));
        }
        let held_before = before.as_ref().map_or_else(Held::default, |one| one.held);
        let mut capturing = Self {
            captured: CapturedLog {
                place: place.path().to_owned(),
                timeline: log.timeline(),
                number: log.number(),
                commits: before.as_ref().map_or(0, |before| before.commits),
                bytes: before.as_ref().map_or(0, |before| before.bytes),
                breaks: before.as_ref().map_or(0, |before| before.breaks),
                held: held_before,
                database,
                key,
            },
            capture,
            log,
            watch: Watch::default(),
            held_before,
            after_nanos: begun_nanos,
            by_nanos: nanos_now(),
            stand_nanos: None,
            has_lost: !lost.is_empty(),
            passed_over: None,
            is_in_bucket: !place.is_directory(),
            note,
        };
        capturing.join(caller)?;
        Ok(capturing)
    }

    /// Goes on with the log of the place, or begins a timeline.
    fn join(&mut self, caller: &Caller) -> Result<(), OperationError> {
        if self.is_in_bucket {
            self.capture.set_rest_max(REST_BYTES_MAX);
        }
        let end = self.log.end_standing();
        let goes_on = match &end {
            Some(end) => self.capture.go_on_from(end)?,
            None => false,
        };
        let lost = (!goes_on && self.log.has_any())
            .then(|| "the database's log does not go on from there".to_owned());
        self.captured.breaks += u64::from(lost.is_some());
        // What was committed since the log's end comes with the first look. Until then the log
        // must not claim the time up to now.
        if let Some(end) = self.log.end_nanos().filter(|_| goes_on) {
            (self.after_nanos, self.by_nanos) = (end, end);
        }
        if let Some(end) = end.filter(|_| goes_on) {
            let number = self.log.end_watch();
            self.watch.go_on(&self.capture, &end, number)?;
        }
        let (stand, about) = self.here(lost)?;
        self.stand_nanos = unclear_until(&stand, &about);
        match goes_on {
            true => self.log.go_on(stand, about)?,
            false => self.log.begin(stand, about)?,
        }
        self.log.sync()?;
        self.captured.timeline = self.log.timeline();
        caller.tell(&Notice::Captures {
            database: &self.captured.database,
            timeline: self.captured.timeline,
            goes_on,
            is_first: !goes_on && self.captured.timeline == Timeline(1),
        });
        Ok(())
    }

    /// Where the database stands.
    fn here(&mut self, lost: Option<String>) -> Result<(LogRecord, StandAbout), OperationError> {
        let point = self.capture.point();
        let stands = match self.capture.is_behind() {
            // What came between two captures was not watched, unless the file proves more.
            true => (self.capture.standing()?, self.watch.number()),
            false => self.watch.standing_at(&self.capture, point)?,
        };
        Ok(stand_of(&self.capture, stands, self.by_nanos, lost))
    }

    /// Keeps the transactions since the last look, durably. Returns whether there were any.
    pub(crate) fn look(&mut self, cancel: &Cancel) -> Result<bool, OperationError> {
        // What somebody wrote since the last look must not hide behind what this one copies.
        self.watch.look_under_pin(&self.capture)?;
        let (log, captured, watch) = (&mut self.log, &mut self.captured, &mut self.watch);
        let before = captured.commits;
        let mut stand_nanos = self.stand_nanos;
        let (mut after_nanos, mut by_nanos) = (self.after_nanos, self.by_nanos);
        let (passed_over, is_in_bucket) = (&mut self.passed_over, self.is_in_bucket);
        self.capture.look(cancel, |capture, look| {
            log.defer(is_in_bucket && look.writers_wait);
            by_nanos = by_nanos.max(look.by_nanos);
            for commit in &look.commits {
                if let Some(point) = look.empty_before(commit) {
                    emptied(log, (capture, &mut *watch), (point, after_nanos))?;
                }
                stand_nanos = None;
                if !log.takes(commit) {
                    *passed_over = Some(pass_over(log, capture, (commit, by_nanos))?);
                    captured.breaks += 1;
                    continue;
                }
                let new = NewCommit {
                    commit: *commit,
                    after_nanos,
                    by_nanos,
                };
                log.commit(&new, |keep| capture.pages::<OperationError>(commit, keep))?;
                captured.commits += 1;
                captured.bytes += bytes_of(commit);
            }
            after_nanos = look.looked_nanos;
            let has_frames = log.end_point().is_some_and(|end| end.frame > 0);
            if look.point.frame == 0 && has_frames {
                stand_nanos = emptied(log, (capture, &mut *watch), (look.point, after_nanos))?;
            }
            Ok::<_, OperationError>(log.sync()?)
        })?;
        log.defer(false);
        log.sync()?;
        (self.after_nanos, self.by_nanos) = (after_nanos, by_nanos);
        if std::mem::take(&mut self.has_lost) {
            // What was lost has come again, or a new timeline says that it may be.
            log.admit_lost_ends()?;
        }
        (captured.timeline, captured.number) = (log.timeline(), log.number());
        captured.held = self.held_before.and(self.capture.held());
        let found_any = captured.commits > before;
        self.stand_nanos = stand_nanos;
        self.watch.look(&self.capture)?;
        let is_due = stand_nanos.is_some_and(|from| from <= after_nanos);
        if is_due || self.may_prove_more()? {
            self.stand()?;
            self.stand_nanos = stand_nanos.filter(|_| !is_due);
        }
        Ok(found_any)
    }

    /// Whether a stand that is made now proves more of the file than the last one: once after each
    /// checkpoint, when it is some seconds old, and when a watch has ended.
    fn may_prove_more(&self) -> Result<bool, OperationError> {
        match self.log.end_standing() {
            Some(_) if self.watch.number().is_none() => Ok(true),
            Some(end) => Ok(self.capture.proves_more_than(&end.file)?),
            None => Ok(false),
        }
    }

    /// Says in the log that nobody wrote up to the last look.
    pub(crate) fn stand(&mut self) -> Result<(), OperationError> {
        let (stand, about) = self.here(None)?;
        // What was committed while the last look ended is found by the next one.
        let by_nanos = self
            .log
            .end_nanos()
            .map_or(self.after_nanos, |end| end.max(self.after_nanos));
        self.log.stand(LogRecord { by_nanos, ..stand }, about)?;
        self.stand_nanos = None;
        Ok(self.log.sync()?)
    }

    /// Bytes of a transaction that the place does not take, if one came since somebody asked: a new
    /// timeline begins behind it.
    pub(crate) fn take_passed_over(&mut self) -> Option<u64> {
        self.passed_over.take()
    }

    /// What was captured so far.
    pub(crate) fn captured(&self) -> &CapturedLog {
        &self.captured
    }

    /// The database's own log, which has what the place lacks, and how long it is.
    pub(crate) fn own_log(&self) -> (PathBuf, u64) {
        let mut path = self.captured.database.clone().into_os_string();
        path.push("-wal");
        let path = PathBuf::from(path);
        let bytes = path.metadata().map_or(0, |metadata| metadata.len());
        (path, bytes)
    }

    /// Whether a process waits for us.
    pub(crate) fn is_waited_for(&self) -> Result<bool, OperationError> {
        Ok(self.capture.is_waited_for()?)
    }

    /// Ends, and says up to when nobody wrote.
    pub(crate) fn end(mut self) -> Result<CapturedLog, OperationError> {
        self.stand()?;
        self.log.end()?;
        self.capture.end()?;
        Ok(self.captured)
    }

    /// Ends after a break: seals what was captured. Another session may go on.
    pub(crate) fn abandon(self) -> Result<Earlier, OperationError> {
        self.log.end()?;
        Ok(Earlier {
            captured: self.captured,
            note: self.note,
        })
    }
}

/// Says that the log was empty, and in which file the state was then: a set that was made meanwhile
/// stands there. Returns up to when that is unclear.
fn emptied(
    log: &mut CommitLog,
    (capture, watch): (&LogCapture, &mut Watch),
    (point, by_nanos): (LogPoint, i64),
) -> Result<Option<i64>, OperationError> {
    let stands = watch.standing_at(capture, point)?;
    let by_nanos = log.end_nanos().map_or(by_nanos, |end| end.max(by_nanos));
    let (stand, about) = stand_of(capture, stands, by_nanos, None);
    let until = unclear_until(&stand, &about);
    log.emptied(stand, about)?;
    Ok(until)
}

fn bytes_of(commit: &Commit) -> u64 {
    u64::from(commit.count) * u64::from(commit.page_bytes)
}

/// Begins a timeline behind a transaction that the place does not take. Returns its bytes.
fn pass_over(
    log: &mut CommitLog,
    capture: &LogCapture,
    (commit, by_nanos): (&Commit, i64),
) -> Result<u64, OperationError> {
    let bytes = bytes_of(commit);
    let lost = format!(
        "a transaction has {}, which is too much for one object of a bucket",
        show_size(bytes)
    );
    let stands = (capture.standing_at(commit.point)?, None);
    let (stand, about) = stand_of(capture, stands, by_nanos, Some(lost));
    let stand = LogRecord {
        page_bytes: commit.page_bytes,
        page_count: commit.page_count,
        ..stand
    };
    log.begin(stand, about)?;
    Ok(bytes)
}

/// Up to when the change time of the file does not prove that it is still that of the stand.
fn unclear_until(stand: &LogRecord, about: &StandAbout) -> Option<i64> {
    let step = about.standing.step_nanos();
    (stand.frame == 0).then(|| stand.by_nanos.saturating_add(step))
}

fn stand_of(
    capture: &LogCapture,
    (standing, watch): (Standing, Option<u64>),
    by_nanos: i64,
    lost: Option<String>,
) -> (LogRecord, StandAbout) {
    let (page_bytes, page_count) = capture.shape();
    let stand = LogRecord {
        kind: RecordKind::Stand,
        page_bytes,
        page_count,
        count: 0,
        frame: standing.point.frame,
        salts: standing.point.salts,
        sums: standing.point.sums,
        number: 0,
        after_nanos: by_nanos,
        by_nanos,
    };
    let about = StandAbout {
        key: capture.key(),
        standing,
        lost,
        watch,
        booted_nanos: Some(windlass_sqlite::booted_nanos()),
    };
    (stand, about)
}

fn nanos_now() -> i64 {
    windlass_engine::media::fitted(jiff::Timestamp::now().as_nanosecond())
}
