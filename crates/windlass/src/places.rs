//! What the word SET means: a stripe, or a directory with sets and a choice among them.
//!
//!   words --> stripes named?  -- yes --> their set
//!                             -- no  --> list of the directories --> choice --> one set
//!
//! A configured database's name stands for the places that its backups go to.

mod choose;
mod configured;
mod identity;
mod named;
mod which;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use windlass_engine::{
    EngineError, Files, METADATA_LIMIT_DEFAULT, OpenSet, SetList, list_sets, set_of_stripe,
};

use crate::cli::{Choice, Global};
use crate::exit::Failure;
use crate::output;
use choose::Chosen;
pub use choose::{choose, short_id};
pub use configured::names_of;
pub use identity::Identity;
pub use named::{Named, typed};
pub use which::{Which, local_time, timestamp, when};

/// The stripes of one set, found and not yet opened.
pub struct FoundSet {
    /// The paths of its stripes.
    pub stripes: Vec<PathBuf>,
    /// What to do if the set is damaged.
    advice: Option<String>,
}

impl FoundSet {
    /// Opens it.
    pub fn open(&self) -> Result<OpenSet, Failure> {
        let opened = OpenSet::open(&self.stripes, METADATA_LIMIT_DEFAULT);
        opened.map_err(|error| {
            let can_be_mended = matches!(
                error,
                EngineError::StripeMissing { .. } | EngineError::StripeTwice { .. }
            );
            self.advised(error.into(), can_be_mended)
        })
    }

    /// If damage causes the failure, the failure names the set to use instead.
    pub fn advised(&self, failure: Failure, can_be_mended: bool) -> Failure {
        let Some(advice) = self.advice.as_ref().filter(|_| failure.is_damage()) else {
            return failure;
        };
        let own = failure.hint().filter(|_| can_be_mended);
        let hint = own.map_or(advice.clone(), |own| format!("{own} {advice}"));
        failure.hinting(&hint)
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
        advice: Some(advice(&chosen, &typed(words))),
    })
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

/// The sets of these directories.
pub fn list(directories: &[PathBuf]) -> Result<SetList, Failure> {
    let mut list = list_sets(&Files, directories, METADATA_LIMIT_DEFAULT)?;
    for set in &mut list.sets {
        // The description has the time of every message. The header has that of its own making,
        // which may be in the second before.
        let started = set.about.as_ref().map(|about| about.started.parse());
        if let Some(Ok(started)) = started {
            let started: Timestamp = started;
            let nanos = i64::try_from(started.as_nanosecond());
            set.begun_nanos = nanos.unwrap_or(set.begun_nanos);
        }
    }
    list.sets.sort_by_key(|set| (set.begun_nanos, set.set_id.0));
    Ok(list)
}

/// Places, as part of a sentence.
pub fn names(words: &[PathBuf]) -> String {
    let names: Vec<_> = words
        .iter()
        .map(|word| word.display().to_string())
        .collect();
    names.join(", ")
}

/// A stripe means its own set. Directories named with it are places where its other stripes may be.
fn of_stripe(stripe: &Path, words: &[PathBuf], choice: &Choice) -> Result<FoundSet, Failure> {
    if (choice.which.is_some() || choice.of.is_some()) && stripe.exists() {
        let message = format!("{} is one stripe, which is of one set", stripe.display());
        let hint = "--set and --database choose among the sets of a directory: name the directory.";
        return Err(Failure::usage(message, hint));
    }
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
    })
}

/// Prints which set was chosen.
fn say(chosen: &Chosen<'_>) {
    let set = chosen.set;
    let of = Identity::of(set).map_or(String::new(), |of| format!(" of {of}"));
    let (id, how) = (short_id(set), &chosen.how);
    let begun = when(set.begun_nanos);
    output::note(&format!("set {id}{of}, begun {begun}: {how}"));
}

/// What to do if the chosen set is damaged.
fn advice(chosen: &Chosen<'_>, place: &str) -> String {
    let bad = short_id(chosen.set);
    let verify = format!("`windlass verify {place} --set {bad}` lists what is lost");
    match chosen.older {
        None => format!(
            "No older sound set of it is there: `windlass info {place}` lists all. {verify}."
        ),
        Some(older) => {
            let (id, begun) = (short_id(older), when(older.begun_nanos));
            format!(
                "The next older sound set is {id}, begun {begun}: take it with --set {id}. \
                 {verify}."
            )
        }
    }
}
