//! What the word SET means: a stripe, or a directory with sets and a choice among them.
//!
//!   words --> stripes named?  -- yes --> their set
//!                             -- no  --> list of the directories --> choice --> one set
//!
//! A configured database's name stands for the places that its backups go to.

pub mod below;
mod choose;
mod configured;
mod identity;
mod listed;
mod named;
mod other;
mod which;

use std::path::{Path, PathBuf};

use windlass_engine::{
    EngineError, Files, METADATA_LIMIT_DEFAULT, OpenSet, SetEntry, SetState, glance, set_of_stripe,
};

use crate::cli::{Choice, Global};
use crate::exit::Failure;
use crate::output;
use choose::Chosen;
pub use choose::choose;
pub use configured::names_of;
pub use identity::Identity;
pub use listed::{list, short_id, typed};
pub use named::Named;
pub use other::Advice;
pub use which::{Which, local_time, timestamp, when};

/// The stripes of one set, found and not yet opened.
pub struct FoundSet {
    /// The paths of its stripes.
    pub stripes: Vec<PathBuf>,
    /// What to do if the set is damaged. For stripes it is found out when it is needed.
    advice: Option<Advice>,
    /// What the list of its place says is wrong with one of its stripes, even if a copy of the
    /// stripe elsewhere is right.
    pub known: Option<String>,
}

impl FoundSet {
    /// Opens it.
    pub fn open(&self) -> Result<OpenSet, Failure> {
        let opened = OpenSet::open(&self.stripes, METADATA_LIMIT_DEFAULT);
        opened.map_err(|error| self.explained(error))
    }

    /// What to do if the set is damaged or not whole. None if that cannot be known.
    pub fn advice(&self) -> Option<Advice> {
        let advice = self.advice.clone();
        advice.or_else(|| Advice::of_stripes(&self.stripes))
    }

    /// The failure that an error of the set is.
    pub fn explained(&self, error: EngineError) -> Failure {
        match error {
            // Nothing is lost: only the words on the command line must change.
            EngineError::SetsMixed { .. } | EngineError::StripeTwice { .. } => error.into(),
            error => self.advised(error.into()),
        }
    }

    /// If damage causes the failure, the failure names the set to use instead.
    pub fn advised(&self, failure: Failure) -> Failure {
        match self.advice().filter(|_| failure.is_damage()) {
            Some(advice) => {
                let hint = advice.hint(failure.hint());
                failure.hinting(&hint)
            }
            None => failure,
        }
    }
}

/// The set that these words mean. A line on standard error says which set was chosen.
pub fn find(global: &Global, words: &[PathBuf], choice: &Choice) -> Result<FoundSet, Failure> {
    find_named(global, &Named::new(global, words, choice)?)
}

/// The set that these words mean, if it is known already what each of them is.
pub fn find_named(global: &Global, named: &Named) -> Result<FoundSet, Failure> {
    let words = &named.paths;
    if let Some(stripe) = words.iter().find(|word| !word.is_dir()) {
        return of_stripe(stripe, words, &named.choice);
    }
    named.check_one()?;
    let list = list(words)?;
    let chosen = choose(&list, named)?;
    if !(global.json || global.quiet) {
        say(&chosen);
    }
    Ok(FoundSet {
        stripes: chosen.set.locations(),
        advice: Some(chosen.advice),
        known: known(chosen.set),
    })
}

impl FoundSet {
    /// One set of a list.
    pub fn of_list(set: &SetEntry, sets: &[&SetEntry], places: &[PathBuf]) -> Self {
        Self {
            stripes: set.locations(),
            advice: Some(Advice::new(sets, set, places)),
            known: known(set),
        }
    }

    /// Says what to do about damage that has been reported.
    pub fn say_advice(&self) {
        if let Some(advice) = self.advice() {
            output::note(&format!("hint: {}", advice.hint(None)));
        }
    }
}

/// The damage of a stripe that a list shows.
fn known(set: &SetEntry) -> Option<String> {
    match &set.state {
        SetState::Damaged(fault) => Some(fault.to_string()),
        _ => None,
    }
}

/// Finds a set and opens it.
pub fn open(global: &Global, words: &[PathBuf], choice: &Choice) -> Result<OpenSet, Failure> {
    find(global, words, choice)?.open()
}

/// The two parts of `PLACE@WHICH`, unless something with that whole name exists.
fn split<'a>(global: &Global, word: &'a Path) -> Option<(&'a Path, &'a str)> {
    if word.symlink_metadata().is_ok() {
        return None;
    }
    let (place, which) = word.to_str()?.rsplit_once('@')?;
    let is_configured = global.configured.iter().any(|one| one.name == place);
    let place = Path::new(place);
    (place.is_dir() || is_configured).then_some((place, which))
}

/// The set that these stripes belong to.
pub fn open_stripes(stripes: &[PathBuf]) -> Result<OpenSet, Failure> {
    Ok(OpenSet::open(stripes, METADATA_LIMIT_DEFAULT)?)
}

/// A stripe means its own set. Directories named with it are places where its other stripes may be.
fn of_stripe(stripe: &Path, words: &[PathBuf], choice: &Choice) -> Result<FoundSet, Failure> {
    check_unchosen(stripe, choice)?;
    let stripes = match set_of_stripe(&Files, stripe) {
        None => words.to_vec(),
        Some(set_id) => {
            let (directories, mut stripes): (Vec<_>, Vec<_>) =
                words.iter().cloned().partition(|word| word.is_dir());
            let of_set = list(&directories)?.sets.into_iter();
            let of_set = of_set.filter(|set| set.set_id == set_id);
            stripes.extend(of_set.flat_map(|set| set.locations()));
            stripes
        }
    };
    Ok(FoundSet {
        stripes,
        advice: None,
        known: None,
    })
}

/// Refuses to choose a set if a stripe was named, which is of one set.
pub fn check_unchosen(stripe: &Path, choice: &Choice) -> Result<(), Failure> {
    if (choice.which.is_none() && choice.of.is_none()) || !stripe.exists() {
        return Ok(());
    }
    let glances = glance(&Files, &[stripe.to_owned()], METADATA_LIMIT_DEFAULT)?;
    let of = glances.first().map_or(String::new(), |one| {
        let id = &one.header.set_id.to_string()[..8];
        let facts = one.description.as_ref().map(|about| &about.facts.database);
        let of = facts.map(|facts| format!(" of {}", Identity::of_facts(facts)));
        format!(": {id}{}", of.unwrap_or_default())
    });
    let message = format!(
        "{} is one stripe, which is of one set{of}",
        stripe.display()
    );
    let hint = "--set and --database choose among the sets of a directory: name the directory.";
    Err(Failure::usage(message, hint))
}

/// Prints which set was chosen.
fn say(chosen: &Chosen<'_>) {
    let set = chosen.set;
    let of = Identity::of(set).map_or(String::new(), |of| format!(" of {of}"));
    let (id, how) = (short_id(set), &chosen.how);
    let begun = when(set.begun_nanos);
    output::note(&format!("set {id}{of}, begun {begun}: {how}"));
}
