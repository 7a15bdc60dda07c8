//! Words that mean no set, and bad sets, in the words of the command line.

use std::path::PathBuf;

use windlass_engine::{EngineError, counted};
use windlass_operations::places::{
    Advice, BadSet, DatabaseSets, Identity, Instead, PlaceError, names,
};

use crate::words::{quoted, typed, when};

/// How many directories below are named.
const BELOW_MAX: usize = 8;
/// What to do to get a hidden set back.
const HIDDEN: &str = "Run `windlass expire` with rules that keep it, such as more --keep-full, \
                      before its grace is over: then it is back.";
const LISTED: &str = "`windlass info` lists the sets of a directory.";

/// The message, and what to do about it.
pub fn words(error: &PlaceError) -> (String, Option<String>) {
    let message = match error {
        PlaceError::ChosenTwice { word } => {
            format!("{} names another set than --set", word.display())
        }
        PlaceError::Future { .. } => format!("--set: {error}"),
        PlaceError::Mistyped { error, .. } | PlaceError::Below { error, .. } => {
            super::engine_message(error)
        }
        other => other.to_string(),
    };
    (message, hint(error))
}

fn hint(error: &PlaceError) -> Option<String> {
    let text = match error {
        PlaceError::Missing { .. } => {
            "Check the path, and whether its disk is mounted. To read the other places without it, \
             leave it out."
        }
        PlaceError::NoPlaces { .. } => {
            "Name a stripe or a directory, or add to the database in the configuration: to = \
             [\"/path/of/its/sets\"]"
        }
        PlaceError::ChosenTwice { .. } => "Choose the set once.",
        PlaceError::ChosenSnapshot { .. } => {
            "--set and --database choose among the sets of a directory: leave them out."
        }
        PlaceError::ChosenStripe { .. } => {
            "--set and --database choose among the sets of a directory: name the directory."
        }
        PlaceError::StripeAndName { .. } => "Name either of them, or the stripe's directory.",
        PlaceError::SeveralNames { .. } => "Name one of them.",
        PlaceError::Future { .. } => "For the newest set write --set latest.",
        PlaceError::SeveralIds { .. } => "Write more of the id.",
        PlaceError::Unreadable { .. } => "It carries a stripe's name, and no other set is there.",
        PlaceError::Unfinished { .. } => {
            "Wait for the backup's end, or start it again: it removes what was cut off."
        }
        other => return composed(other),
    };
    Some(text.to_owned())
}

/// The hints that name something.
fn composed(error: &PlaceError) -> Option<String> {
    Some(match error {
        PlaceError::Mistyped { near, .. } => {
            format!("Did you mean {near}, which the configuration names?")
        }
        PlaceError::Which { error, .. } => format!("After @, {error}."),
        PlaceError::NotMounted { there, .. } if there.is_empty() => {
            "Is its disk mounted? If no backup was made yet, make the first one.".to_owned()
        }
        PlaceError::NotMounted { there, .. } => {
            let info = format!("windlass info {}", typed(there));
            format!("Is its disk mounted? `{info}` shows what can be restored without it.")
        }
        PlaceError::NoDatabase { found, .. } => match found.is_empty() {
            true => LISTED.to_owned(),
            false => format!("It holds sets of {}.", listed(found)),
        },
        PlaceError::NotOfConfigured { place, found, .. } => match found.is_empty() {
            true => {
                let location = place.clone();
                return EngineError::NoSet { location }.hint();
            }
            false => format!("These places hold sets of {}.", listed(found)),
        },
        PlaceError::SeveralDatabases { found, .. } => {
            let word = quoted(called(found));
            format!("Name one: --database {word}, or --set with the beginning of an id.")
        }
        PlaceError::NoId { time, left_out, .. } => match (left_out.is_empty(), time) {
            (false, None) => others(left_out).trim_start().to_owned(),
            (_, Some(time)) => {
                let typed = quoted(time);
                let others = others(left_out);
                format!("Did you mean the time {time}? Type --set {typed}.{others}")
            }
            (true, None) => LISTED.to_owned(),
        },
        PlaceError::Hidden { .. } => HIDDEN.to_owned(),
        PlaceError::OfAnother { .. } => "Leave out --database to take this set, or --set to take \
                                         the newest of that database."
            .to_owned(),
        PlaceError::OfOtherName { .. } | PlaceError::NotOfName { .. } => of_other(error)?,
        PlaceError::MaybeNewer { newest, .. } => {
            let (id, begun) = (newest.short_id(), when(newest.begun_nanos));
            format!(
                "Take the newest set that can be read with --set {id} (begun {begun}), or move \
                 that file away."
            )
        }
        PlaceError::Denied(denied) => super::denied::words(denied).1,
        PlaceError::NoneByThen {
            oldest, left_out, ..
        } => {
            let (id, begun) = (oldest.short_id(), when(oldest.begun_nanos));
            format!("The oldest is {id}, begun {begun}.{}", others(left_out))
        }
        PlaceError::Below { found, .. } => look_below(found)?,
        _ => return None,
    })
}

/// How to take sets of a database that the configured name does not mean.
fn of_other(error: &PlaceError) -> Option<String> {
    Some(match error {
        PlaceError::OfOtherName { name, other, .. } => {
            let other = other
                .as_ref()
                .map(|other| format!(", or name {other} instead"));
            format!(
                "Leave out --database to take the sets of {name}{}.",
                other.unwrap_or_default()
            )
        }
        PlaceError::NotOfName {
            other: Some(other), ..
        } => format!("Name {other} instead."),
        PlaceError::NotOfName { place, set, of, .. } => {
            let key = quoted(of.key());
            let place = quoted(&format!("{place}@{}", &set[..8]));
            format!(
                "If the database was moved, add --database {key} to take this set. To compare it \
                 with a newer one, name it by its directory: {place}."
            )
        }
        _ => return None,
    })
}

fn listed(found: &[Identity]) -> String {
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    found.join(", ")
}

/// A word that means the first of these databases and no other.
fn called(found: &[DatabaseSets]) -> &str {
    let Some(DatabaseSets { of: first, .. }) = found.first() else {
        return "";
    };
    let is_called = |one: &&DatabaseSets| one.of.is_called(first.name());
    match found.iter().filter(is_called).count() {
        1 => first.name(),
        _ => first.key(),
    }
}

/// How to take the sets of these databases.
fn others(left_out: &[Identity]) -> String {
    let others = left_out.iter().map(|of| {
        let typed = quoted(of.key());
        format!(" There are sets of {of} too: --database {typed} takes these.")
    });
    others.collect()
}

/// What to do if a directory has no sets, and those below it do.
fn look_below(found: &[(PathBuf, usize)]) -> Option<String> {
    let first = typed(&[found.first()?.0.clone()]);
    let named = found.iter().take(BELOW_MAX);
    let mut words: Vec<_> = named
        .map(|(path, count)| format!("{count} in {}", path.display()))
        .collect();
    if found.len() > BELOW_MAX {
        words.push("so on".to_owned());
    }
    let last = words.pop()?;
    let words = match words.is_empty() {
        true => last,
        false => format!("{} and {last}", words.join(", ")),
    };
    Some(format!(
        "Sets lie one level below: {words}. Name such a directory, as in `windlass info {first}`."
    ))
}

/// How many sets are where.
pub fn below((path, count): &(PathBuf, usize)) -> String {
    let sets = counted(*count as u64, "set");
    format!("{sets} in {}", path.display())
}

/// Which set to take instead of a bad one.
pub fn instead(advice: &Advice) -> String {
    let Some(Instead {
        id,
        begun_nanos,
        is_older,
    }) = &advice.instead
    else {
        let place = match names(&advice.places) {
            place if place == "." => "the current directory".to_owned(),
            place => place,
        };
        return format!("No other sound set of this database is in {place}.");
    };
    let which = match is_older {
        true => "The next older sound set",
        false => "No older sound set is there. The newest sound set",
    };
    let before = match advice.bad {
        BadSet::Stripes(_) => format!("{} ", typed(&advice.places)),
        BadSet::Chosen(_) => String::new(),
    };
    let begun = when(*begun_nanos);
    format!("{which} is {id}, begun {begun}: take it with {before}--set {id}.")
}

/// The hint of a failure that damage of the set causes. `own` is what else can be done.
pub fn advice(advice: &Advice, own: Option<&str>) -> String {
    let instead = instead(advice);
    let bad = match &advice.bad {
        BadSet::Stripes(stripes) => typed(stripes),
        BadSet::Chosen(id) => format!("{} --set {id}", typed(&advice.places)),
    };
    match own.filter(|own| *own != super::DAMAGED) {
        Some(own) => format!("{own} {instead}"),
        None => format!("{instead} `windlass verify {bad}` lists what is lost."),
    }
}
