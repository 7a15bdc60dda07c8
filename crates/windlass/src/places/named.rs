//! Several words in the place of a set: paths and configured names, with the choice among their
//! sets.
//!
//! Invariant: each configured name counts. A command that takes all sets takes those of every named
//! database, and a command that takes one set refuses two databases.

use std::path::{Path, PathBuf};

use windlass_engine::{EngineError, SetEntry, SetList};

use super::choose::{databases, of_database};
use super::identity::Identity;
use super::listed::{names, typed};
use super::{configured, split};
use crate::cli::{Choice, Global};
use crate::configured::Configured;
use crate::exit::{Code, Failure};
use crate::places::Which;

/// What the words for sets mean.
pub struct Named {
    /// The paths, and the places of the configured databases.
    pub paths: Vec<PathBuf>,
    /// The choice that the words or the options make.
    pub choice: Choice,
    /// The directories that were named themselves.
    plain: Vec<PathBuf>,
    /// The configured databases that were named.
    meant: Vec<Configured>,
    /// All configured databases.
    configured: Vec<Configured>,
}

impl Named {
    /// Finds out what the words mean. They may be configured names, and may end in `@WHICH`.
    pub fn new(global: &Global, words: &[PathBuf], choice: &Choice) -> Result<Self, Failure> {
        let mut named = Self {
            paths: Vec::new(),
            choice: choice.clone(),
            plain: Vec::new(),
            meant: Vec::new(),
            configured: global.configured.clone(),
        };
        for word in words {
            let Some((place, which)) = split(global, word) else {
                named.add(global, word)?;
                continue;
            };
            named.choose(word, which)?;
            named.add(global, place)?;
        }
        named.check()?;
        Ok(named)
    }

    fn add(&mut self, global: &Global, word: &Path) -> Result<(), Failure> {
        let Some(found) = configured::find(global, word)? else {
            self.paths.push(word.to_owned());
            self.plain.push(word.to_owned());
            return Ok(());
        };
        if self.meant.iter().all(|other| other.name != found.name) {
            for place in &found.places {
                if !self.paths.contains(place) {
                    self.paths.push(place.clone());
                }
            }
            self.meant.push(found.clone());
        }
        Ok(())
    }

    fn choose(&mut self, word: &Path, which: &str) -> Result<(), Failure> {
        let which = Which::parse(which).map_err(|error| {
            let message = format!("{}: {which:?} names no set", word.display());
            Failure::usage(message, format!("After @, {error}."))
        })?;
        if self
            .choice
            .which
            .as_ref()
            .is_some_and(|other| *other != which)
        {
            let message = format!("{} names another set than --set", word.display());
            return Err(Failure::usage(message, "Choose the set once."));
        }
        self.choice.which = Some(which);
        Ok(())
    }

    /// Fails if a place does not exist, or if a stripe and a configured name were given together.
    fn check(&self) -> Result<(), Failure> {
        for one in &self.meant {
            let missing = one.places.iter().find(|place| is_missing(place));
            if let Some(missing) = missing {
                return Err(not_mounted(one, missing));
            }
        }
        let is_several = self.paths.iter().any(|path| path.is_dir());
        if let Some(missing) = self
            .plain
            .iter()
            .find(|path| is_several && is_missing(path))
        {
            let message = format!("there is no file or directory {}", missing.display());
            let hint = "Check the path, and whether its disk is mounted. To read the other places \
                        without it, leave it out.";
            return Err(Failure::new(Code::Failed, message, hint));
        }
        let stripe = self.plain.iter().find(|path| !path.is_dir());
        match (stripe, self.meant.first()) {
            (Some(stripe), Some(one)) => {
                let (stripe, name) = (stripe.display(), &one.name);
                let message =
                    format!("{stripe} is one stripe, and {name} names all sets of {name}");
                Err(Failure::usage(
                    message,
                    "Name either of them, or the stripe's directory.",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether all words are directories.
    pub fn are_directories(&self) -> bool {
        self.paths.iter().all(|path| path.is_dir())
    }

    /// The places, as part of a sentence.
    pub fn places(&self) -> String {
        names(&self.paths)
    }

    /// Fails if the command would have to guess which of several configured databases is meant.
    pub fn check_one(&self) -> Result<(), Failure> {
        let [first, second, ..] = self.meant.as_slice() else {
            return Ok(());
        };
        if matches!(self.choice.which, Some(Which::Id(_))) {
            return Ok(());
        }
        let message = format!(
            "{} and {} are two configured databases, and this command takes one set",
            first.name, second.name
        );
        Err(Failure::usage(message, "Name one of them."))
    }

    /// The sets that the words mean. Sets that do not say their database are among them.
    pub fn sets<'a>(&self, list: &'a SetList) -> Result<Vec<&'a SetEntry>, Failure> {
        let all: Vec<_> = list.sets.iter().collect();
        if let Some(of) = &self.choice.of {
            return of_database(all, of, &self.places());
        }
        if self.meant.is_empty() {
            return Ok(all);
        }
        let found: Vec<_> = databases(&all).into_iter().map(|(of, _)| of).collect();
        let all_known =
            list.unknown.is_empty() && all.iter().all(|set| Identity::of(set).is_some());
        let mut wanted = Vec::new();
        for one in &self.meant {
            let of = self.databases_of(one, &found);
            if of.is_empty() && all_known && !(found.is_empty() && self.meant.len() == 1) {
                return Err(self.none_of(one, &found));
            }
            wanted.extend(of);
        }
        let is_wanted = |set: &&SetEntry| {
            let of = Identity::of(set);
            let is_of = |of: Identity| wanted.iter().any(|one| one.is_same(&of));
            of.is_none_or(is_of) || self.is_plain(set)
        };
        Ok(all.into_iter().filter(is_wanted).collect())
    }

    /// Whether a set lies in a directory that was named itself.
    fn is_plain(&self, set: &SetEntry) -> bool {
        let mut stripes = set.stripes.iter();
        stripes.any(|stripe| {
            let directory = stripe.location.parent();
            directory.is_some_and(|directory| self.plain.iter().any(|plain| plain == directory))
        })
    }

    /// The databases of these that a configured name may mean: those with its path, else those with
    /// its name, else all of its kind that no other configured database means.
    fn databases_of<'a>(&self, one: &Configured, found: &'a [Identity]) -> Vec<&'a Identity> {
        let may_be = found.iter().filter(|of| one.may_be(of));
        let (exact, others): (Vec<_>, Vec<_>) = may_be.partition(|of| one.is_at(of));
        if !exact.is_empty() {
            return exact;
        }
        let is_free = |of: &&Identity| !self.is_of_another(one, of);
        let free: Vec<_> = others.into_iter().filter(is_free).collect();
        let called = free.iter().filter(|of| of.is_called(&one.name));
        let called: Vec<_> = called.copied().collect();
        if called.is_empty() { free } else { called }
    }

    fn is_of_another(&self, one: &Configured, of: &Identity) -> bool {
        let mut others = self
            .configured
            .iter()
            .filter(|other| other.name != one.name);
        others.any(|other| other.may_be(of) && (other.is_at(of) || of.is_called(&other.name)))
    }

    fn none_of(&self, one: &Configured, found: &[Identity]) -> Failure {
        let (name, places) = (&one.name, names(&one.places));
        let message = format!("no set in {places} is of the configured database {name}");
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let hint = match found.is_empty() {
            true => EngineError::NoSet { location: places }.hint(),
            false => Some(format!("These places hold sets of {}.", found.join(", "))),
        };
        Failure::hinted(Code::Failed, message, hint)
    }

    /// The databases of these places that the words do not mean, and that no other configured
    /// database means either: those of a database that had another path once.
    pub fn left_out<'a>(
        &self,
        list: &'a SetList,
        taken: &[&SetEntry],
    ) -> Vec<(Identity, &'a SetEntry)> {
        if self.meant.is_empty() || self.choice.of.is_some() {
            return Vec::new();
        }
        let taken: Vec<_> = taken.iter().filter_map(|set| Identity::of(set)).collect();
        let all: Vec<_> = list.sets.iter().collect();
        let mut found = databases(&all);
        found.retain(|(of, _)| {
            let is_taken = taken.iter().any(|other| other.is_same(of));
            let is_at = |one: &Configured| one.may_be(of) && one.is_at(of);
            let may_be = self
                .meant
                .iter()
                .any(|one| one.may_be(of) && !self.is_of_another(one, of));
            !is_taken && may_be && !self.configured.iter().any(is_at)
        });
        found
    }
}

/// The failure when a place of a configured database is missing.
fn not_mounted(one: &Configured, missing: &Path) -> Failure {
    let (name, path) = (&one.name, missing.display());
    let message = format!("there is no directory {path}, where sets of {name} are kept");
    let there = one.places.iter().filter(|place| place.exists());
    let there: Vec<_> = there.cloned().collect();
    let hint = match there.is_empty() {
        true => "Is its disk mounted? If no backup was made yet, make the first one.".to_owned(),
        false => {
            let info = format!("windlass info {}", typed(&there));
            format!("Is its disk mounted? `{info}` shows what can be restored without it.")
        }
    };
    Failure::new(Code::Failed, message, hint)
}

fn is_missing(path: &Path) -> bool {
    matches!(path.symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}
