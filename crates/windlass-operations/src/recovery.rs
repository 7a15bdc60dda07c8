//! How a restored database goes on from its set: which set, which log, and how far.
//!
//!   point --> newest set that ends before it --> way through the timelines --> gap? --> is the
//!   point in the log? --> plan, told before anything is written
//!
//! Invariants
//! - A point that the server could not reach is refused here, and not by the server after hours.
//! - A set goes on only with the log of the server that it is of. A restored server has the
//!   identity of its source, and maybe its timeline.
//! - If nobody chose a set, an older one is taken only if the point lies before the newer ones, or
//!   if those are on another branch than the one that is followed.
//! - If no set fits, the failure names the windows that can be restored.
//! - If nobody asked for a point, a set ends with itself only if it was chosen, or if its place has
//!   no log that goes on from it. A log with a gap is a failure, never an earlier end. If the log
//!   has lost its end, the latest state is what is there, and the plan says what is missing.

mod branch;
mod error;
mod file;
mod inside;
mod log_place;
mod own;
mod plan;
mod remarks;
mod request;

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use windlass_engine::OpenSet;
use windlass_engine::media::saturated;
use windlass_postgres::{DatabaseFacts, Lsn, Recovery, RecoveryPoint, Sought, Stop, seek_point};
use windlass_repository::{
    KnownLog, LogPath, LogPlace, LogReader, RepositoryError, database_number,
};
use windlass_sqlite::DatabaseKey;

use crate::caller::Caller;
use crate::commits::{DatabaseLog, DatabaseSet};
use crate::error::OperationError;
use crate::held::Held;
use crate::info::with_bases;
use crate::notice::Notice;
use crate::places::{self, LocatedSet, Named, SetRequest, Which};
use crate::reach::{ClusterSet, Restorable, needed_from, restorable};
use crate::stored::log_at;
pub use error::{RecoveryError, WindowShown};
pub use file::FilePlan;
pub(crate) use file::bytes_of;
pub(crate) use inside::check_inside;
use log_place::log_place;
pub use plan::{Plan, PointRemark, RecoveryPlan};
pub use request::RecoveryRequest;

/// The set to restore, and how it goes on.
pub(crate) fn choose(
    caller: &Caller,
    request: &SetRequest,
    recovery: Option<&RecoveryRequest>,
) -> Result<(LocatedSet, OpenSet, Option<Plan>), OperationError> {
    let chosen = match recovery {
        Some(recovery) if !own::is_the_end(&caller.quiet(), request, recovery)? => {
            choose_point(caller, request, recovery)?
        }
        _ => {
            let found = places::find(caller, request)?;
            let set = found.open()?;
            (found, set, None)
        }
    };
    chosen.0.watch(&chosen.1);
    let bases: Vec<_> = chosen.1.links().skip(1).map(|set| set.set_id()).collect();
    if !bases.is_empty() {
        caller.tell(&Notice::BuildsOn(&bases));
    }
    Ok(chosen)
}

/// The set that goes on to a point, and how.
pub(crate) fn choose_point(
    caller: &Caller,
    request: &SetRequest,
    recovery: &RecoveryRequest,
) -> Result<(LocatedSet, OpenSet, Option<Plan>), OperationError> {
    let quiet = caller.quiet();
    let mut sets = request.clone();
    let is_free = recovery.needs_log && Named::new(&quiet, &sets)?.is_free();
    let mut first = None;
    // Why a newer set is passed over, and whether the newest one has said which branch is followed.
    let (mut aside, mut is_decided) = (None, false);
    loop {
        let found = match (places::find(&quiet, &sets), first.take()) {
            // There is no older set.
            (Err(_), Some(error)) => {
                return Err(no_set(error, request, recovery.log.as_deref()));
            }
            (found, kept) => {
                first = kept;
                found.map_err(|error| aside.take().unwrap_or(error))?
            }
        };
        let set = found.open()?;
        match plan(&found, &set, recovery) {
            Ok(plan) => {
                let found = places::find(caller, &sets)?;
                tell(caller, plan.as_ref());
                return Ok((found, set, plan));
            }
            Err(error) if own::has_no_log(&error, recovery) => {
                let found = places::find(caller, &sets)?;
                caller.tell(&Notice::EndsWithSet(&error));
                return Ok((found, set, None));
            }
            Err(error) if is_free && branch::is_other(&error, recovery, is_decided) => {
                aside.get_or_insert(error);
            }
            Err(OperationError::Recovery(error))
                if is_free && error.is_of_this_set(&recovery.point) =>
            {
                is_decided |= first.is_none() && branch::leads_on(&set, recovery);
                first.get_or_insert((error, Subject::of(&set)));
            }
            Err(error) => {
                let first = first.map(|(error, _)| OperationError::Recovery(error));
                return Err(first.unwrap_or(error));
            }
        }
        sets.choice.which = Some(Which::By(before(&found, &set)));
    }
}

fn tell(caller: &Caller, plan: Option<&Plan>) {
    match plan {
        Some(Plan::Cluster(plan)) => caller.tell(&Notice::Recovers(plan)),
        Some(Plan::File(plan)) => caller.tell(&Notice::Replays(plan)),
        None => {}
    }
}

/// Whose sets and log they are.
enum Subject {
    Cluster(u64),
    Database(DatabaseKey),
}

impl Subject {
    fn of(set: &OpenSet) -> Option<Self> {
        let facts = &set.description().facts;
        match Held::of(set.description()).ok()? {
            Held::Postgres => {
                let facts = DatabaseFacts::of_set(&facts.database).ok()?;
                facts.system_identifier.parse().ok().map(Self::Cluster)
            }
            Held::Sqlite => {
                let facts = windlass_sqlite::DatabaseFacts::of_set(facts).ok()?;
                Some(Self::Database(facts.key()))
            }
        }
    }
}

/// The failure if no set gets to the point, with what the sets and their log do reach.
fn no_set(
    (error, subject): (RecoveryError, Option<Subject>),
    request: &SetRequest,
    log: Option<&Path>,
) -> OperationError {
    let windows = subject.and_then(|subject| windows(request, log, &subject).ok());
    match windows.filter(|windows| !windows.is_empty()) {
        None => error.into(),
        Some(windows) => RecoveryError::NoSet {
            error: Box::new(error),
            windows,
        }
        .into(),
    }
}

/// The windows of a cluster or a database in these places.
fn windows(
    request: &SetRequest,
    log: Option<&Path>,
    subject: &Subject,
) -> Result<Vec<WindowShown>, OperationError> {
    let sets = places::list(&request.words)?.sets;
    let sound = with_bases(&sets, &request.words).into_iter();
    let place = log.or(request.words.first().map(PathBuf::as_path));
    let place = place.unwrap_or(Path::new("."));
    let system = match subject {
        Subject::Cluster(system) => *system,
        Subject::Database(key) => {
            let sets: Vec<_> = sound.filter_map(DatabaseSet::of).collect();
            let log = LogPlace::of_database(&log_at(place), database_number(key));
            let log = DatabaseLog::of(&log, &sets)?;
            let shown = log.timelines.iter().flat_map(|one| {
                let runs = one.runs.iter();
                runs.filter_map(|run| WindowShown::of_database(one.timeline, run))
            });
            return Ok(shown.collect());
        }
    };
    let sets = sound.filter_map(ClusterSet::of);
    let sets: Vec<_> = sets.filter(|set| set.system == system).collect();
    let log = LogPlace::new(&log_at(place), system);
    let found = restorable(&log, &sets)?;
    let shown = |of: &Restorable| {
        let timeline = of.timeline;
        let windows = of.windows.iter();
        let windows = windows.map(move |window| WindowShown::new(timeline, window));
        windows.collect::<Vec<_>>()
    };
    Ok(found.iter().flat_map(shown).collect())
}

/// The moment before a set was begun, in nanoseconds since 1970. If its clock ran fast, it is no
/// moment that nobody may ask for.
fn before(found: &LocatedSet, set: &OpenSet) -> i64 {
    let stripe = set.stripes().first();
    let created = stripe.map(|stripe| stripe.header().created_nanos);
    let begun = found.begun_nanos.or(created).unwrap_or_default();
    let day = Timestamp::now().saturating_add(SignedDuration::from_hours(24));
    let day = day.map_or(i64::MAX, |day| saturated(day.as_nanosecond()));
    begun.saturating_sub(1).min(day)
}

/// How a set goes on to the point; nothing if it is there. Fails if it does not get there.
fn plan(
    found: &LocatedSet,
    set: &OpenSet,
    request: &RecoveryRequest,
) -> Result<Option<Plan>, OperationError> {
    match Held::of(set.description())? {
        Held::Postgres => Ok(Some(Plan::Cluster(cluster_plan(found, set, request)?))),
        Held::Sqlite => Ok(file::plan(set, request)?.map(Plan::File)),
    }
}

fn cluster_plan(
    found: &LocatedSet,
    set: &OpenSet,
    request: &RecoveryRequest,
) -> Result<RecoveryPlan, OperationError> {
    let description = set.description();
    let facts = DatabaseFacts::of_set(&description.facts.database)?;
    check_after(&facts, &request.point)?;
    let system = facts.system_identifier.parse().ok();
    let place = log_place(set, request)?;
    let log = LogPlace::open(&log_at(&place), system)?;
    let way = Way::new(&facts, &log, request)?;
    own::check(found.open()?, &facts, &mut way.reader())?;
    own::check_behind(found, &facts, &request.point)?;
    let (to, stop) = way.check(request)?;
    let lost = way.lost_from()?;
    let fetch = (request.fetch)(&place, (log.system(), log.is_encrypted()?), lost);
    Ok(RecoveryPlan {
        recovery: Recovery {
            point: request.point.clone(),
            inclusive: request.inclusive,
            timeline: request.timeline,
            action: request.action,
            fetch: Some(fetch),
        },
        place,
        from: facts.stop_lsn,
        to,
        stops: stop.map(|stop| stop.at),
        timeline: way.path.timeline(),
        remarks: remarks::of(&way, &request.point, stop)?,
    })
}

/// Whether the log lacks only its end: what is there is its latest state.
fn is_end(gap: &RepositoryError) -> bool {
    matches!(gap, RepositoryError::LostEnd { goes_on: false, .. })
}

fn check_after(facts: &DatabaseFacts, point: &RecoveryPoint) -> Result<(), RecoveryError> {
    let end = match point {
        RecoveryPoint::Lsn(lsn) if *lsn < facts.stop_lsn => facts.stop_lsn.to_string(),
        RecoveryPoint::Time(time) => match facts.stop_time.parse::<Timestamp>() {
            Ok(stop) if *time < stop => stop.to_string(),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(RecoveryError::BeforeSet {
        target: point.to_string(),
        end,
    })
}

/// The log from the end of a set on.
struct Way<'a> {
    log: &'a LogPlace,
    known: KnownLog<'a>,
    path: LogPath,
    segment_bytes: u64,
    /// Where a record begins that the set does not need.
    stop: Lsn,
    /// From here on, the log must come from the place.
    from: Lsn,
}

impl<'a> Way<'a> {
    fn new(
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
    fn check(&self, request: &RecoveryRequest) -> Result<(Lsn, Option<Stop>), OperationError> {
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
    fn covered(&self, up_to: Option<Lsn>) -> Result<Lsn, RepositoryError> {
        let bytes = self.segment_bytes;
        self.path.covered(&self.known, self.from, (bytes, up_to))
    }

    /// From where on log that was durable is lost, behind what the set has.
    fn lost_from(&self) -> Result<Option<Lsn>, RepositoryError> {
        let from = (self.from, self.segment_bytes);
        self.path.lost_from(&self.known, from)
    }

    fn reader(&self) -> LogReader<'_> {
        LogReader::new(self.log, &self.path, self.segment_bytes)
    }

    /// A reader of the log, and the first record in it that the set does not need.
    fn read(&self) -> Result<(LogReader<'_>, Lsn), RepositoryError> {
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
