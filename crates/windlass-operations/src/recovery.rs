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
mod way;

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use windlass_engine::media::saturated;
use windlass_engine::{OpenSet, SetEntry};
use windlass_postgres::{DatabaseFacts, Recovery, RecoveryPoint};
use windlass_repository::{LogPlace, database_number, log_databases, log_systems};
use windlass_sqlite::DatabaseKey;

use crate::caller::Caller;
use crate::commits::{DatabaseLog, DatabaseSet};
use crate::error::OperationError;
use crate::held::Held;
use crate::info::with_bases;
use crate::notice::Notice;
use crate::places::{self, LocatedSet, Named, SetRequest, Which};
use crate::reach::{ClusterSet, Restorable, restorable};
use crate::stored::log_at;
pub use error::{RecoveryError, WindowShown};
pub(crate) use file::bytes_of;
pub(crate) use inside::check_inside;
pub use plan::{FilePlan, Plan, PointRemark, RecoveryPlan};
pub use request::RecoveryRequest;
use way::Way;

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
                is_decided |= first.is_none() && branch::leads_on((&found, &set), recovery);
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
    let sound = with_bases(&sets, &request.words);
    let places = match log {
        Some(log) => vec![log.to_owned()],
        None => with_log(&request.words, subject),
    };
    let mut shown = Vec::new();
    for place in places {
        shown.append(&mut windows_in(&place, &sound, subject)?);
    }
    Ok(shown)
}

/// The places among these that have log of a cluster or a database; if none has, the first one.
fn with_log(places: &[PathBuf], of: &Subject) -> Vec<PathBuf> {
    let has = |place: &&PathBuf| {
        let (logs, own) = match of {
            Subject::Cluster(system) => (log_systems(&log_at(place)), *system),
            Subject::Database(key) => (log_databases(&log_at(place)), database_number(key)),
        };
        logs.is_ok_and(|logs| logs.contains(&own))
    };
    let found: Vec<_> = places.iter().filter(has).cloned().collect();
    match found.is_empty() {
        true => places.iter().take(1).cloned().collect(),
        false => found,
    }
}

/// The windows to which these sets lead with the log of a place.
fn windows_in(
    place: &Path,
    sound: &[&SetEntry],
    subject: &Subject,
) -> Result<Vec<WindowShown>, OperationError> {
    let sound = sound.iter().copied();
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
        Held::Sqlite => {
            Ok(file::plan((found, set), request)?.map(|plan| Plan::File(Box::new(plan))))
        }
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
    let place = log_place::of_cluster((found, set), &facts, request)?;
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
