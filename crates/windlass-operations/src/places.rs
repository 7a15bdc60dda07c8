//! What the word SET means: a stripe, or a directory with sets and a choice among them.
//!
//!   words --> stripes named?  -- yes --> their set
//!                             -- no  --> list of the directories --> choice --> one set
//!
//! A configured database's name stands for the places that its backups go to.

mod advice;
pub mod below;
mod choose;
mod database;
mod error;
mod identity;
mod listed;
mod mending;
mod named;
mod order;
mod other;
mod request;
mod which;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windlass_engine::{
    EngineError, FoundSet, METADATA_LIMIT_DEFAULT, OpenSet, SetEntry, SetState, glance,
    set_of_stripe,
};

use crate::caller::Caller;
use crate::devices::{STORAGE, is_place};
use crate::error::OperationError;
use crate::notice::Notice;
pub use advice::{Advice, BadSet, Instead};
pub(crate) use choose::tell_of_order;
pub use choose::{Chosen, choose};
pub use database::Configured;
pub use error::{DatabaseSets, PlaceError, SetName};
pub use identity::Identity;
pub(crate) use identity::by_database;
pub(crate) use listed::check_used;
pub use listed::{list, names, short_id};
use mending::Mending;
pub use named::Named;
pub use order::TimeFault;
pub(crate) use order::{Made, in_order};
pub use other::{advice_about, advice_of_stripes};
pub use request::{SetChoice, SetRequest};
pub use which::{How, Which, WhichError};

/// The stripes of one set, located and not yet opened.
pub struct LocatedSet {
    /// The paths of its stripes.
    pub stripes: Vec<PathBuf>,
    /// When it was begun, if it was chosen among others, in nanoseconds since 1970 UTC.
    pub(crate) begun_nanos: Option<i64>,
    /// Directories in which sets on which it builds may be, besides those of its stripes.
    pub places: Vec<PathBuf>,
    /// What to do if the set is damaged. For stripes it is found out when it is needed.
    advice: Option<Advice>,
    /// What the list of its place says is wrong with one of its stripes, even if a copy of the
    /// stripe elsewhere is right.
    pub known: Option<String>,
    mending: Box<Mending>,
}

impl LocatedSet {
    /// One set of a list.
    pub fn of_list(set: &SetEntry, sets: &[&SetEntry], places: &[PathBuf]) -> Self {
        Self {
            stripes: set.locations(),
            begun_nanos: None,
            places: places.to_vec(),
            advice: Some(advice_about(sets, set, places)),
            known: known(set),
            mending: Box::default(),
        }
    }

    /// The set of these stripes, and where its bases may be.
    pub fn of_stripes(stripes: Vec<PathBuf>, places: &[PathBuf]) -> Self {
        Self {
            stripes,
            begun_nanos: None,
            places: places.to_vec(),
            advice: None,
            known: None,
            mending: Box::default(),
        }
    }

    /// The same, and an observer is told what parity makes up for.
    #[must_use]
    fn told(mut self, caller: &Caller) -> Self {
        self.mending = Box::new(Mending::of(&caller.observer));
        self
    }

    /// Tells what is lost of its set, which was opened, and what is rebuilt until this goes.
    pub(crate) fn watch(&self, set: &FoundSet) {
        self.mending.watch(set);
    }

    /// Opens it, and the sets on which it builds.
    pub fn open(&self) -> Result<OpenSet, OperationError> {
        let set = self.open_sets().map_err(|error| self.explained(error))?;
        self.watch(&set);
        Ok(set)
    }

    /// Does the same. A failure does not say which other set there is.
    pub fn open_plain(&self) -> Result<OpenSet, OperationError> {
        Ok(self.open_sets()?)
    }

    fn open_sets(&self) -> Result<OpenSet, EngineError> {
        let open = |stripes: &[PathBuf]| {
            OpenSet::open_among(STORAGE, stripes, &self.places, METADATA_LIMIT_DEFAULT)
        };
        let opened = open(&self.stripes);
        match renamed(&self.stripes).filter(|_| opened.is_err()) {
            Some(stripes) => open(&stripes),
            None => opened,
        }
    }

    /// What to do if the set is damaged or not whole. None if that cannot be known.
    pub fn advice(&self) -> Option<Advice> {
        let advice = self.advice.clone();
        advice.or_else(|| advice_of_stripes(&self.stripes))
    }

    /// The failure that an error of the set is.
    pub fn explained(&self, error: EngineError) -> OperationError {
        match error {
            // Nothing is lost: only the words that name the set must change.
            EngineError::SetsMixed { .. } | EngineError::StripeTwice { .. } => error.into(),
            error => self.advised(error.into()),
        }
    }

    /// If damage causes the failure, the failure names the set to use instead.
    pub fn advised(&self, failure: OperationError) -> OperationError {
        match self.advice().filter(|_| failure.is_damage()) {
            Some(advice) => OperationError::OfSet {
                error: Box::new(failure),
                advice: Box::new(advice),
            },
            None => failure,
        }
    }
}

/// Where these stripes are now, if some have got their names since they were found: a backup seals
/// them first.
fn renamed(stripes: &[PathBuf]) -> Option<Vec<PathBuf>> {
    let got_its_name =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "partial") && !path.exists();
    let named = |path: &PathBuf| match got_its_name(path) {
        true => path.with_extension(""),
        false => path.clone(),
    };
    let is_any = stripes.iter().any(got_its_name);
    is_any.then(|| stripes.iter().map(named).collect())
}

/// The set that is asked for. The observer is told which set was chosen.
pub fn find(caller: &Caller, request: &SetRequest) -> Result<LocatedSet, OperationError> {
    find_named(caller, &Named::new(caller, request)?)
}

/// The set that these words mean, if it is known already what each of them is.
pub fn find_named(caller: &Caller, named: &Named) -> Result<LocatedSet, OperationError> {
    let words = &named.paths;
    if let Some(stripe) = words.iter().find(|word| !is_place(word)) {
        return Ok(of_stripe(stripe, words, &named.choice)?.told(caller));
    }
    named.check_one()?;
    let list = list(words)?;
    let chosen = choose(caller, &list, named)?;
    caller.tell(&Notice::SetChosen {
        set: chosen.set,
        how: &chosen.how,
    });
    let found = LocatedSet {
        stripes: chosen.set.locations(),
        begun_nanos: Some(chosen.begun_nanos),
        places: words.clone(),
        advice: Some(chosen.advice),
        known: known(chosen.set),
        mending: Box::default(),
    };
    Ok(found.told(caller))
}

/// The damage of a stripe that a list shows.
fn known(set: &SetEntry) -> Option<String> {
    match &set.state {
        SetState::Damaged(fault) => Some(fault.to_string()),
        _ => None,
    }
}

/// Finds a set and opens it.
pub fn open(caller: &Caller, request: &SetRequest) -> Result<OpenSet, OperationError> {
    find(caller, request)?.open()
}

/// The set that these stripes belong to.
pub fn open_stripes(stripes: &[PathBuf]) -> Result<OpenSet, OperationError> {
    Ok(OpenSet::open_in(STORAGE, stripes, METADATA_LIMIT_DEFAULT)?)
}

/// Opens a set that is open, for another reader. Its devices may all be elsewhere than they were
/// written, and each of its bases in another place.
pub fn open_again(set: &OpenSet) -> Result<OpenSet, EngineError> {
    let all = set.links().flat_map(FoundSet::locations);
    let places = all.filter_map(|path| Some(path.parent()?.to_owned()));
    let places: BTreeSet<_> = places.collect();
    let places: Vec<_> = places.into_iter().collect();
    OpenSet::open_among(STORAGE, &set.locations(), &places, METADATA_LIMIT_DEFAULT)
}

/// A stripe means its own set. Directories named with it are places where its other stripes may be.
fn of_stripe(
    stripe: &Path,
    words: &[PathBuf],
    choice: &SetChoice,
) -> Result<LocatedSet, OperationError> {
    check_unchosen(stripe, choice)?;
    let directories = words.iter().filter(|word| is_place(word)).cloned();
    let places = directories.collect();
    let stripes = match set_of_stripe(STORAGE, stripe) {
        None => words.to_vec(),
        Some(set_id) => {
            let (directories, mut stripes): (Vec<_>, Vec<_>) =
                words.iter().cloned().partition(|word| is_place(word));
            let of_set = list(&directories)?.sets.into_iter();
            let of_set = of_set.filter(|set| set.set_id == set_id);
            stripes.extend(of_set.flat_map(|set| set.locations()));
            stripes
        }
    };
    Ok(LocatedSet {
        stripes,
        begun_nanos: None,
        places,
        advice: None,
        known: None,
        mending: Box::default(),
    })
}

/// Refuses to choose a set if a stripe was named, which is of one set.
pub fn check_unchosen(stripe: &Path, choice: &SetChoice) -> Result<(), OperationError> {
    if (choice.which.is_none() && choice.of.is_none()) || STORAGE.look(stripe).is_err() {
        return Ok(());
    }
    let glances = glance(STORAGE, &[stripe.to_owned()], METADATA_LIMIT_DEFAULT)?;
    let set = glances.first().map(|one| {
        let facts = one.description.as_ref().map(|about| &about.facts.database);
        let id = one.header.set_id.to_string()[..8].to_owned();
        (id, facts.map(|facts| Identity::of_facts(facts).into()))
    });
    let stripe = stripe.to_owned();
    Err(PlaceError::ChosenStripe { stripe, set }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_that_got_their_names_are_found_by_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for there in ["a.1of2.windlass", "a.2of2.windlass.partial"] {
            std::fs::File::create(path(there)).unwrap();
        }
        let found = [
            path("a.1of2.windlass.partial"),
            path("a.2of2.windlass.partial"),
        ];
        let now = [path("a.1of2.windlass"), path("a.2of2.windlass.partial")];
        assert_eq!(renamed(&found), Some(now.to_vec()));
        assert_eq!(renamed(&now), None);
    }
}
