//! Chooses one set of a list: the newest, one by its id, or the newest up to a moment.
//!
//! Invariant: if a set cannot be used, Windlass never takes an older one in its place without
//! saying so. A user who restores the newest backup and gets an older one would not notice.

use jiff::{SignedDuration, Timestamp};
use windlass_engine::{EngineError, SetEntry, SetList, SetState, UnknownStripe};

use super::advice::Advice;
use super::below;
use super::error::{DatabaseSets, PlaceError, SetName};
use super::identity::{Identity, databases};
use super::named::Named;
use super::order::{Made, future_after, in_order};
use super::other::advice_about;
use super::which::{How, Which, meant};
use crate::caller::Caller;
use crate::denied::{Denied, is_of_another as is_file_of_another};
use crate::error::OperationError;
use crate::moments::timestamp;
use crate::notice::Notice;

/// The chosen set of a list.
#[derive(Debug)]
pub struct Chosen<'a> {
    /// The set.
    pub set: &'a SetEntry,
    /// When it was begun, in nanoseconds since 1970 UTC. If other sets say that its own time is
    /// wrong, one that fits them.
    pub begun_nanos: i64,
    /// What to do if it is damaged.
    pub advice: Advice,
    /// How the set was chosen.
    pub how: How,
}

/// The set that the words mean among the sets of their places.
pub fn choose<'a>(
    caller: &Caller,
    list: &'a SetList,
    named: &Named,
) -> Result<Chosen<'a>, OperationError> {
    let place = &*named.places();
    let sets = named.sets(&list.sets, list.unknown.is_empty())?;
    let which = named.choice.which.as_ref().unwrap_or(&Which::Latest);
    if let Which::Id(start) = which {
        let set = by_id(&sets, start, place, || left_out(list, &sets, named));
        let other = || {
            let hidden = hidden(list, start, place);
            let other = hidden.or_else(|| of_another(list, start, named));
            other.or_else(|| named.not_meant(list, start))
        };
        let set = set.map_err(|error| other().unwrap_or(error))?;
        return Ok(Chosen {
            set,
            begun_nanos: set.begun_nanos,
            advice: advice_about(&sets, set, &named.paths),
            how: How::Id(start.clone()),
        });
    }
    let bound = match which {
        Which::By(moment) => {
            check_past(*moment)?;
            *moment
        }
        _ => i64::MAX,
    };
    let (candidates, said) = begun_by(&sets, bound);
    let entries: Vec<_> = candidates.iter().map(|one| one.set).collect();
    one_database(&entries, place)?;
    let Some(newest) = candidates.last() else {
        if let Some((set, (fault, other))) = said.last().and_then(|it| Some((it.set, it.fault?))) {
            caller.tell(&Notice::WrongTime { set, other, fault });
        }
        return Err(nothing(list, &sets, bound, named));
    };
    passed_over_unknown(caller, list, newest, bound)?;
    tell_of_order(caller, newest, &said);
    tell_of_future(caller, newest, &candidates);
    Ok(Chosen {
        set: newest.set,
        begun_nanos: newest.begun_nanos,
        advice: advice_about(&sets, newest.set, &named.paths),
        how: How::Newest {
            count: candidates.len(),
            by: (bound < i64::MAX).then_some(bound),
            place: place.to_owned(),
        },
    })
}

/// The sets that were begun by a moment, in the order in which they were made; and with them those
/// that only say so.
fn begun_by<'a>(sets: &[&'a SetEntry], bound: i64) -> (Vec<Made<'a>>, Vec<Made<'a>>) {
    let is_usable = |set: &&&SetEntry| !matches!(set.state, SetState::Unfinished);
    let usable: Vec<&SetEntry> = sets.iter().filter(is_usable).copied().collect();
    let mut said = in_order(&usable, Timestamp::now());
    said.retain(|one| one.begun_nanos.min(one.set.begun_nanos) <= bound);
    let begun = said.iter().filter(|one| one.begun_nanos <= bound);
    (begun.copied().collect(), said)
}

/// Tells if another one of these sets would have been taken by what they say about their times, and
/// which of these times is wrong.
pub(crate) fn tell_of_order(caller: &Caller, taken: &Made<'_>, among: &[Made<'_>]) {
    let latest = among.iter();
    let latest = latest.max_by_key(|one| (one.set.begun_nanos, one.set.set_id));
    let Some(latest) = latest.filter(|one| one.set.set_id != taken.set.set_id) else {
        return;
    };
    let mut faults = [latest, taken].into_iter();
    let fault = faults.find_map(|one| Some((one.set, one.fault?)));
    if let Some((set, (fault, other))) = fault {
        caller.tell(&Notice::WrongTime { set, other, fault });
    }
}

/// Tells if the newest set says that it was begun in the future. The clock that gave it this time
/// was wrong, so another set may be newer.
fn tell_of_future(caller: &Caller, newest: &Made<'_>, candidates: &[Made<'_>]) {
    let limit = future_after(Timestamp::now());
    if newest.begun_nanos <= limit {
        return;
    }
    let mut before = candidates.iter().rev();
    let before = before.find(|one| one.begun_nanos <= limit);
    caller.tell(&Notice::SetOfFuture {
        set: newest.set,
        before: before.map(|one| one.set),
    });
}

/// Refuses a moment that is still to come: the newest set would be taken for one of that day.
fn check_past(nanos: i64) -> Result<(), PlaceError> {
    // A day means its end, so the end of today is no mistake. A day has up to 25 hours.
    let limit = Timestamp::now() + SignedDuration::from_hours(25);
    match timestamp(nanos) > limit {
        false => Ok(()),
        true => Err(PlaceError::Future { nanos }),
    }
}

/// Fails if Windlass would have to guess which database is meant.
fn one_database(sets: &[&SetEntry], place: &str) -> Result<(), PlaceError> {
    let found = databases(sets);
    if found.len() < 2 {
        return Ok(());
    }
    let found = found.into_iter().map(|(of, newest)| DatabaseSets {
        count: count(sets, &of),
        newest: name(newest),
        of,
    });
    Err(PlaceError::SeveralDatabases {
        place: place.to_owned(),
        found: found.collect(),
    })
}

fn count(sets: &[&SetEntry], of: &Identity) -> usize {
    let same = |set: &&&SetEntry| Identity::of(set).is_some_and(|other| other.is_same(of));
    sets.iter().filter(same).count()
}

/// What messages say of a set.
fn name(set: &SetEntry) -> SetName {
    SetName {
        id: set.set_id.to_string(),
        begun_nanos: set.begun_nanos,
        of: Identity::of(set).map(Box::new),
    }
}

fn by_id<'a>(
    sets: &[&'a SetEntry],
    start: &str,
    place: &str,
    left_out: impl FnOnce() -> Vec<Identity>,
) -> Result<&'a SetEntry, PlaceError> {
    let begins = |set: &&&SetEntry| set.set_id.to_string().starts_with(start);
    let found: Vec<_> = sets.iter().filter(begins).copied().collect();
    match found.as_slice() {
        [set] => Ok(set),
        [] => Err(PlaceError::NoId {
            place: place.to_owned(),
            start: start.to_owned(),
            time: meant(start),
            left_out: left_out(),
        }),
        several => Err(PlaceError::SeveralIds {
            place: place.to_owned(),
            start: start.to_owned(),
            found: several.iter().map(|set| name(set)).collect(),
        }),
    }
}

/// The error if the id is that of a set that has expired and is hidden.
fn hidden(list: &SetList, start: &str, place: &str) -> Option<PlaceError> {
    let ids = list.hidden.iter().map(|set| set.set_id.to_string());
    let set = ids.into_iter().find(|id| id.starts_with(start))?;
    let place = place.to_owned();
    Some(PlaceError::Hidden { place, set })
}

/// The error if the id is that of a set of another database than the one that was asked for.
fn of_another(list: &SetList, start: &str, named: &Named) -> Option<PlaceError> {
    let asked = named.choice.of.clone()?;
    let begins = |set: &&SetEntry| set.set_id.to_string().starts_with(start);
    let set = list.sets.iter().find(begins)?;
    let of = Identity::of(set).map(Box::new)?;
    (!of.is_called(&asked)).then(|| PlaceError::OfAnother {
        place: named.places(),
        set: set.set_id.to_string(),
        of,
        asked,
    })
}

/// Fails if a file there may belong to a newer set.
fn passed_over_unknown(
    caller: &Caller,
    list: &SetList,
    newest: &Made<'_>,
    bound: i64,
) -> Result<(), PlaceError> {
    let newer = |nanos: i64| nanos > newest.begun_nanos && nanos <= bound;
    let unknown = list.unknown.iter();
    let unknown = unknown.filter(|one| newer(one.file.modified_nanos));
    // Sets of another user, which only that user may read, keep nobody from using his own.
    let (others, unknown): (Vec<_>, Vec<_>) = unknown.partition(|one| is_of_another(one));
    if let Some(first) = others.first() {
        caller.tell(&Notice::FilesOfOthers {
            count: others.len() as u64,
            first: &first.file.location,
        });
    }
    let Some(unknown) = unknown.first() else {
        return Ok(());
    };
    Err(PlaceError::MaybeNewer {
        path: unknown.file.location.clone(),
        written_nanos: unknown.file.modified_nanos,
        fault: unknown.fault.to_string(),
        is_damage: unknown.fault.is_damage(),
        newest: name(newest.set),
    })
}

/// The databases with sets in the same places that may be this one under the path that it had.
fn left_out(list: &SetList, sets: &[&SetEntry], named: &Named) -> Vec<Identity> {
    let others = named.left_out(list, sets).into_iter();
    others.map(|(of, _)| of).collect()
}

/// Whether it is a file of another user that this user may not read.
fn is_of_another(unknown: &UnknownStripe) -> bool {
    unknown.fault.is_denied() && is_file_of_another(&unknown.file.location)
}

fn nothing(list: &SetList, sets: &[&SetEntry], bound: i64, named: &Named) -> OperationError {
    let place = named.places();
    if let (Some(unknown), true) = (list.unknown.first(), sets.is_empty()) {
        if let Some(denied) = Denied::of(&unknown.fault) {
            return PlaceError::Denied(denied).into();
        }
        let error = PlaceError::Unreadable {
            path: unknown.file.location.clone(),
            fault: unknown.fault.to_string(),
            is_damage: unknown.fault.is_damage(),
        };
        return error.into();
    }
    let usable = |set: &&&SetEntry| !matches!(set.state, SetState::Unfinished);
    match sets.iter().find(usable) {
        Some(oldest) if bound < i64::MAX => PlaceError::NoneByThen {
            place,
            bound,
            oldest: name(oldest),
            left_out: left_out(list, sets, named),
        }
        .into(),
        _ if !sets.is_empty() || !list.unfinished.is_empty() => {
            PlaceError::Unfinished { place }.into()
        }
        _ => {
            let error = EngineError::NoSet { location: place };
            let found = below::places(&named.paths);
            match found.is_empty() {
                true => error.into(),
                false => PlaceError::Below { error, found }.into(),
            }
        }
    }
}
