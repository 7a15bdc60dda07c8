//! Chooses one set of a list: the newest, one by its id, or the newest up to a moment.
//!
//! Invariant: if a set cannot be used, Windlass never takes an older one in its place without
//! saying so. A user who restores the newest backup and gets an older one would not notice.

use jiff::{SignedDuration, Timestamp};
use windlass_engine::{EngineError, SetEntry, SetList, SetState, UnknownStripe};

use super::below;
use super::identity::Identity;
use super::listed::short_id;
use super::named::Named;
use super::other::Advice;
use super::which::{Which, local_time, meant, timestamp, when};
use crate::exit::{Code, Failure};
use crate::words::quoted;
use crate::{denied, output};

/// The most sets that a message lists.
const LISTED_MAX: usize = 12;

/// How far apart the clocks of two machines may be without a word about it.
const CLOCKS_DIFFER_MINUTES: i64 = 5;

/// The chosen set of a list.
pub struct Chosen<'a> {
    /// The set.
    pub set: &'a SetEntry,
    /// What to do if it is damaged.
    pub advice: Advice,
    /// How the set was chosen, as part of a sentence.
    pub how: String,
}

/// The set that the words mean among the sets of their places.
pub fn choose<'a>(list: &'a SetList, named: &Named) -> Result<Chosen<'a>, Failure> {
    let place = &*named.places();
    let sets = named.sets(list)?;
    let which = named.choice.which.as_ref().unwrap_or(&Which::Latest);
    if let Which::Id(start) = which {
        let found = by_id(&sets, start, place);
        let set = found.map_err(|failure| match left_out(list, &sets, named) {
            others if others.is_empty() => failure,
            others => failure.hinting(others.trim_start()),
        })?;
        return Ok(Chosen {
            set,
            advice: Advice::new(&sets, set, &named.paths),
            how: format!("as --set {start} says"),
        });
    }
    let bound = match which {
        Which::By(moment) => {
            check_past(*moment)?;
            *moment
        }
        _ => i64::MAX,
    };
    let is_candidate =
        |set: &&&SetEntry| !matches!(set.state, SetState::Unfinished) && set.begun_nanos <= bound;
    let candidates: Vec<&SetEntry> = sets.iter().filter(is_candidate).copied().collect();
    one_database(&candidates, place)?;
    let Some(set) = candidates.last().copied() else {
        return Err(nothing(list, &sets, bound, named));
    };
    passed_over_unknown(list, set, bound)?;
    warn_of_future(set, &candidates);
    let chosen = Chosen {
        set,
        advice: Advice::new(&sets, set, &named.paths),
        how: how(candidates.len(), bound, place),
    };
    Ok(chosen)
}

/// Warns if the newest set says that it was begun in the future. The clock that gave it this time
/// was wrong, so another set may be newer. The command then ends with the code of warnings.
fn warn_of_future(set: &SetEntry, candidates: &[&SetEntry]) {
    let limit = Timestamp::now() + SignedDuration::from_mins(CLOCKS_DIFFER_MINUTES);
    let is_future = |set: &SetEntry| timestamp(set.begun_nanos) > limit;
    if !is_future(set) {
        return;
    }
    let (id, begun) = (short_id(set), local_time(set.begun_nanos));
    output::degrade(&format!(
        "set {id} says that it was begun at {begun}, which is in the future: the clock of its \
         machine was wrong, so it need not be the newest"
    ));
    let mut before = candidates.iter().rev().filter(|set| !is_future(set));
    if let Some(other) = before.next() {
        let (id, begun) = (short_id(other), when(other.begun_nanos));
        output::note(&format!(
            "hint: The newest set that was not begun in the future is {id}, begun {begun}: take \
             it with --set {id}."
        ));
    }
}

/// How the newest of so many sets was chosen.
fn how(count: usize, bound: i64, place: &str) -> String {
    let by = match bound {
        i64::MAX => String::new(),
        bound => format!(" begun by {}", local_time(bound)),
    };
    match count {
        1 => format!("the only one{by} in {place}"),
        count => format!("the newest of {count}{by} in {place}"),
    }
}

/// Refuses a moment that is still to come: the newest set would be taken for one of that day.
fn check_past(moment: i64) -> Result<(), Failure> {
    // A day means its end, so the end of today is no mistake. A day has up to 25 hours.
    let limit = Timestamp::now() + SignedDuration::from_hours(25);
    match timestamp(moment) > limit {
        false => Ok(()),
        true => {
            let message = format!("--set: {} is in the future", local_time(moment));
            Err(Failure::usage(
                message,
                "For the newest set write --set latest.",
            ))
        }
    }
}

/// The sets of the named database, and the sets that do not say their database.
pub(super) fn of_database<'a>(
    sets: Vec<&'a SetEntry>,
    word: &str,
    place: &str,
) -> Result<Vec<&'a SetEntry>, Failure> {
    let is_called = |set: &&SetEntry| Identity::of(set).is_some_and(|of| of.is_called(word));
    if !sets.iter().any(is_called) {
        let message = format!("no set in {place} is of a database {word}");
        return Err(Failure::usage(message, databases_hint(&sets)));
    }
    let may_be = |set: &&SetEntry| Identity::of(set).is_none_or(|of| of.is_called(word));
    Ok(sets.into_iter().filter(may_be).collect())
}

fn databases_hint(sets: &[&SetEntry]) -> String {
    let found: Vec<_> = databases(sets)
        .iter()
        .map(|(of, _)| of.to_string())
        .collect();
    match found.is_empty() {
        true => "`windlass info` lists the sets of a directory.".to_owned(),
        false => format!("It holds sets of {}.", found.join(", ")),
    }
}

/// The databases of these sets, each with its newest set.
pub(super) fn databases<'a>(sets: &[&'a SetEntry]) -> Vec<(Identity, &'a SetEntry)> {
    let mut found: Vec<(Identity, &SetEntry)> = Vec::new();
    for set in sets.iter().rev() {
        let Some(of) = Identity::of(set) else {
            continue;
        };
        if !found.iter().any(|(other, _)| other.is_same(&of)) {
            found.push((of, *set));
        }
    }
    found
}

/// Fails if Windlass would have to guess which database is meant.
fn one_database(sets: &[&SetEntry], place: &str) -> Result<(), Failure> {
    let found = databases(sets);
    let [(first, _), _, ..] = found.as_slice() else {
        return Ok(());
    };
    let lines: Vec<_> = found
        .iter()
        .take(LISTED_MAX)
        .map(|(of, newest)| {
            format!(
                "  {}  {of}, the newest of {}",
                line(newest),
                count(sets, of)
            )
        })
        .collect();
    let count = found.len();
    let message = format!(
        "{place} holds sets of {count} databases:\n{}",
        lines.join("\n")
    );
    let is_called = |word: &str| found.iter().filter(|(of, _)| of.is_called(word)).count();
    let word = match is_called(first.name()) {
        1 => first.name(),
        _ => first.key(),
    };
    let word = quoted(word);
    let hint = format!("Name one: --database {word}, or --set with the beginning of an id.");
    Err(Failure::usage(message, hint))
}

fn count(sets: &[&SetEntry], of: &Identity) -> usize {
    let same = |set: &&&SetEntry| Identity::of(set).is_some_and(|other| other.is_same(of));
    sets.iter().filter(same).count()
}

/// Id, time and age.
fn line(set: &SetEntry) -> String {
    format!("{}  {}", short_id(set), when(set.begun_nanos))
}

fn by_id<'a>(sets: &[&'a SetEntry], start: &str, place: &str) -> Result<&'a SetEntry, Failure> {
    let begins = |set: &&&SetEntry| set.set_id.to_string().starts_with(start);
    let found: Vec<_> = sets.iter().filter(begins).copied().collect();
    match found.as_slice() {
        [set] => Ok(set),
        [] => {
            let message = format!("the id of no set in {place} begins with {start}");
            let hint = match meant(start) {
                Some(time) => format!(
                    "Did you mean the time {time}? Type --set {}.",
                    quoted(&time)
                ),
                None => "`windlass info` lists the sets of a directory.".to_owned(),
            };
            Err(Failure::usage(message, hint))
        }
        several => {
            let lines = several.iter().take(LISTED_MAX).map(|set| {
                let of = Identity::of(set).map_or(String::new(), |of| format!("  {of}"));
                format!("  {}  {}{of}", set.set_id, local_time(set.begun_nanos))
            });
            let lines: Vec<_> = lines.collect();
            let (count, lines) = (several.len(), lines.join("\n"));
            let message =
                format!("the ids of {count} sets in {place} begin with {start}:\n{lines}");
            Err(Failure::usage(message, "Write more of the id."))
        }
    }
}

/// Fails if a file there may belong to a newer set.
fn passed_over_unknown(list: &SetList, set: &SetEntry, bound: i64) -> Result<(), Failure> {
    let newer = |nanos: i64| nanos > set.begun_nanos && nanos <= bound;
    let unknown = list.unknown.iter();
    let unknown = unknown.filter(|one| newer(one.file.modified_nanos));
    // Sets of another user, which only that user may read, keep nobody from using his own.
    let (others, unknown): (Vec<_>, Vec<_>) = unknown.partition(|one| is_of_another(one));
    if let Some(first) = others.first() {
        let (count, path) = (others.len() as u64, first.file.location.display());
        let files = output::count(count, "newer file");
        let user = denied::user();
        output::note(&format!(
            "note: {files} of another user there cannot be read by {user}, the first is {path}"
        ));
    }
    let Some(unknown) = unknown.first() else {
        return Ok(());
    };
    let (id, begun) = (short_id(set), when(set.begun_nanos));
    let (path, written) = (
        unknown.file.location.display(),
        local_time(unknown.file.modified_nanos),
    );
    let message = format!(
        "{path} of {written} may be a newer set, and cannot be read: {}",
        unknown.fault
    );
    let hint = format!(
        "Take the newest set that can be read with --set {id} (begun {begun}), or move that file \
         away."
    );
    Err(Failure::from_fault(&unknown.fault, message, hint))
}

/// The databases with sets in the same places that may be this one under the path that it had.
fn left_out(list: &SetList, sets: &[&SetEntry], named: &Named) -> String {
    let others = named.left_out(list, sets).into_iter();
    let others = others.map(|(of, _)| {
        let typed = quoted(of.key());
        format!(" There are sets of {of} too: --database {typed} takes these.")
    });
    others.collect()
}

/// Whether it is a file of another user that this user may not read.
fn is_of_another(unknown: &UnknownStripe) -> bool {
    unknown.fault.is_denied() && denied::is_of_another(&unknown.file.location)
}

fn nothing(list: &SetList, sets: &[&SetEntry], bound: i64, named: &Named) -> Failure {
    let place = &*named.places();
    if let (Some(unknown), true) = (list.unknown.first(), sets.is_empty()) {
        if let Some((message, hint)) = denied::words(&unknown.fault) {
            return Failure::new(Code::Failed, message, hint);
        }
        let path = unknown.file.location.display();
        let message = format!("{path} is no stripe that can be read: {}", unknown.fault);
        let hint = "It carries a stripe's name, and no other set is there.".to_owned();
        return Failure::from_fault(&unknown.fault, message, hint);
    }
    let usable = |set: &&&SetEntry| !matches!(set.state, SetState::Unfinished);
    match sets.iter().find(usable) {
        Some(oldest) if bound < i64::MAX => {
            let (id, begun) = (short_id(oldest), when(oldest.begun_nanos));
            let message = format!("no set in {place} was begun by {}", local_time(bound));
            let oldest = format!("The oldest is {id}, begun {begun}.");
            Failure::usage(message, oldest + &left_out(list, sets, named))
        }
        _ if !sets.is_empty() || !list.unfinished.is_empty() => Failure::new(
            Code::Failed,
            format!("{place} holds no sealed set: a backup to it is under way, or was cut off"),
            "Wait for the backup's end, or start it again: it removes what was cut off.",
        ),
        _ => {
            let location = place.to_owned();
            let failure = Failure::from(EngineError::NoSet { location });
            match below::hint(&named.paths) {
                Some(hint) => failure.hinting(&hint),
                None => failure,
            }
        }
    }
}
