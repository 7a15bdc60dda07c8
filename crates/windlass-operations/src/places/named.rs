//! Several words in the place of a set: paths and configured names, with the choice among their
//! sets.
//!
//! Invariant: each configured name counts. A command that takes all sets takes those of every named
//! database, and a command that takes one set refuses two databases.

use std::path::{Path, PathBuf};

use windlass_engine::{SetEntry, SetList};
use windlass_snapshot::{Content, Snapshot, SnapshotError};

use super::database::{Configured, find};
use super::error::PlaceError;
use super::identity::{Identity, databases};
use super::listed::names;
use super::request::{SetChoice, SetRequest};
use super::which::Which;
use crate::caller::Caller;
use crate::devices::is_place;
use crate::error::OperationError;
use crate::snapshots::find_named;
use crate::stored::is_missing;

/// What the words for sets mean.
pub struct Named {
    /// The paths, and the places of the configured databases.
    pub paths: Vec<PathBuf>,
    /// The choice that the words or the options make.
    pub choice: SetChoice,
    /// The directories that were named themselves.
    plain: Vec<PathBuf>,
    /// The configured databases that were named.
    meant: Vec<Configured>,
    /// All configured databases.
    configured: Vec<Configured>,
}

impl Named {
    /// Finds out what the words mean. They may be configured names, and may end in `@WHICH`.
    pub fn new(caller: &Caller, request: &SetRequest) -> Result<Self, OperationError> {
        let mut named = Self {
            paths: Vec::new(),
            choice: request.choice.clone(),
            plain: Vec::new(),
            meant: Vec::new(),
            configured: databases_among(&request.configured),
        };
        for word in &request.words {
            if let Some(snapshot) = find_named(caller, word, &request.configured)? {
                named.add_snapshot(&snapshot)?;
                continue;
            }
            let Some((place, which)) = request.split(word) else {
                named.add(request, word)?;
                continue;
            };
            named.choose(word, which)?;
            named.add(request, place)?;
        }
        named.check()?;
        Ok(named)
    }

    /// Adds the stripes of a snapshot that is a set.
    fn add_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), OperationError> {
        let Content::Set(stripes) = snapshot.content()? else {
            let record = snapshot.record();
            return Err(OperationError::Snapshot(SnapshotError::NotASet {
                name: record.name.clone(),
                method: record.method,
            }));
        };
        self.plain.extend(stripes.iter().cloned());
        self.paths.extend(stripes);
        Ok(())
    }

    fn add(&mut self, request: &SetRequest, word: &Path) -> Result<(), OperationError> {
        let Some(found) = find(request, word)? else {
            self.paths.push(word.to_owned());
            self.plain.push(word.to_owned());
            return Ok(());
        };
        if found.is_repository {
            for place in &found.places {
                if !self.paths.contains(place) {
                    self.paths.push(place.clone());
                    self.plain.push(place.clone());
                }
            }
            return Ok(());
        }
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

    fn choose(&mut self, word: &Path, which: &str) -> Result<(), PlaceError> {
        let which = Which::parse(which).map_err(|error| PlaceError::Which {
            word: word.to_owned(),
            which: which.to_owned(),
            error,
        })?;
        let earlier = self.choice.which.as_ref();
        if earlier.is_some_and(|other| *other != which) {
            let word = word.to_owned();
            return Err(PlaceError::ChosenTwice { word });
        }
        self.choice.which = Some(which);
        Ok(())
    }

    /// Fails if a place does not exist, or if a stripe and a configured name were given together.
    fn check(&self) -> Result<(), PlaceError> {
        for one in &self.meant {
            let missing = one.places.iter().find(|place| is_missing(place));
            if let Some(missing) = missing {
                return Err(not_mounted(one, missing));
            }
        }
        let is_several = self.paths.iter().any(|path| is_place(path));
        let mut plain = self.plain.iter();
        if let Some(missing) = plain.find(|path| is_several && is_missing(path)) {
            let path = missing.clone();
            return Err(PlaceError::Missing { path });
        }
        let stripe = self.plain.iter().find(|path| !is_place(path));
        match (stripe, self.meant.first()) {
            (Some(stripe), Some(one)) => Err(PlaceError::StripeAndName {
                stripe: stripe.clone(),
                name: one.name.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether nobody chose a set, so that any set of the places may be taken.
    pub fn is_free(&self) -> bool {
        self.choice.which.is_none() && self.are_directories()
    }

    /// Whether all words are directories.
    pub fn are_directories(&self) -> bool {
        self.paths.iter().all(|path| is_place(path))
    }

    /// The places, as part of a sentence.
    pub fn places(&self) -> String {
        names(&self.paths)
    }

    /// Fails if the command would have to guess which of several configured databases is meant.
    pub fn check_one(&self) -> Result<(), PlaceError> {
        let [first, second, ..] = self.meant.as_slice() else {
            return Ok(());
        };
        if matches!(self.choice.which, Some(Which::Id(_))) {
            return Ok(());
        }
        Err(PlaceError::SeveralNames {
            first: first.name.clone(),
            second: second.name.clone(),
        })
    }

    /// Whether the words leave out the sets of some databases.
    pub fn chooses_database(&self) -> bool {
        self.choice.of.is_some() || !self.meant.is_empty()
    }

    /// The sets that the words mean. Sets that do not say their database are among them.
    pub fn sets<'a>(
        &self,
        listed: &'a [SetEntry],
        are_stripes_known: bool,
    ) -> Result<Vec<&'a SetEntry>, PlaceError> {
        let all: Vec<_> = listed.iter().collect();
        if let Some(of) = &self.choice.of {
            let sets = of_database(all, of, &self.places())?;
            return self.not_of_others(sets, of);
        }
        if self.meant.is_empty() {
            return Ok(all);
        }
        let found: Vec<_> = databases(&all).into_iter().map(|(of, _)| of).collect();
        let all_known = are_stripes_known && all.iter().all(|set| Identity::of(set).is_some());
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

    /// Leaves out the sets of databases that other configured names mean: the word for a database
    /// chooses among the sets of the names that were given. Fails if none is left.
    fn not_of_others<'a>(
        &self,
        mut sets: Vec<&'a SetEntry>,
        asked: &str,
    ) -> Result<Vec<&'a SetEntry>, PlaceError> {
        let Some(first) = self.meant.first() else {
            return Ok(sets);
        };
        let of_other = |set: &&SetEntry| {
            let of = Identity::of(set).filter(|_| !self.is_plain(set))?;
            let may_mean = |one: &Configured| {
                one.may_be(&of) && (one.is_at(&of) || self.other(one, &of).is_none())
            };
            (!self.meant.iter().any(may_mean)).then_some(of)
        };
        let others: Vec<_> = sets.iter().filter_map(of_other).collect();
        sets.retain(|set| of_other(set).is_none());
        // A set that does not say its database is no answer to a question for one.
        let is_left = sets.iter().any(|set| Identity::of(set).is_some());
        match others.first().filter(|_| !is_left) {
            Some(of) => Err(PlaceError::OfOtherName {
                asked: asked.to_owned(),
                name: first.name.clone(),
                other: self.other(first, of).map(|other| other.name.clone()),
                of: Box::new(of.clone()),
            }),
            None => Ok(sets),
        }
    }

    /// Whether a set lies in a directory that was named itself.
    fn is_plain(&self, set: &SetEntry) -> bool {
        let mut stripes = set.stripes.iter();
        stripes.any(|stripe| {
            let directory = stripe.location.parent();
            directory.is_some_and(|directory| self.plain.iter().any(|plain| plain == directory))
        })
    }

    /// The databases of these that a configured name may mean: that with its path on its machine,
    /// else those with its path, else those with its name, else all of its kind that no other
    /// configured database means.
    fn databases_of<'a>(&self, one: &Configured, found: &'a [Identity]) -> Vec<&'a Identity> {
        let may_be = found.iter().filter(|of| one.may_be(of));
        let (exact, others): (Vec<_>, Vec<_>) = may_be.partition(|of| one.is_at(of));
        let here: Vec<_> = exact.iter().copied().filter(|of| one.is_here(of)).collect();
        if !here.is_empty() {
            return here;
        }
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
        self.other(one, of).is_some()
    }

    /// Another configured database that these sets may be of. One at their path comes first.
    fn other(&self, one: &Configured, of: &Identity) -> Option<&Configured> {
        let others = self.configured.iter();
        let others = others.filter(|other| other.name != one.name && other.may_be(of));
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|other| !other.is_at(of));
        let mut others = others.into_iter();
        others.find(|other| other.is_at(of) || of.is_called(&other.name))
    }

    fn none_of(&self, one: &Configured, found: &[Identity]) -> PlaceError {
        PlaceError::NotOfConfigured {
            place: names(&one.places),
            name: one.name.clone(),
            found: found.to_vec(),
        }
    }

    /// The error if the one set of these places with this id is of a database that the words do
    /// not mean: of another configured one, or of one that had another path once.
    pub fn not_meant(&self, list: &SetList, start: &str) -> Option<PlaceError> {
        let first = self.meant.first()?;
        let begins = |set: &&SetEntry| set.set_id.to_string().starts_with(start);
        let found: Vec<_> = list.sets.iter().filter(begins).collect();
        let [set] = found.as_slice() else {
            return None;
        };
        let of = Identity::of(set).map(Box::new)?;
        Some(PlaceError::NotOfName {
            place: self.places(),
            set: set.set_id.to_string(),
            name: first.name.clone(),
            other: self.other(first, &of).map(|other| other.name.clone()),
            of,
        })
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

fn databases_among(configured: &[Configured]) -> Vec<Configured> {
    let databases = configured.iter().filter(|one| !one.is_repository);
    databases.cloned().collect()
}

/// The sets of the named database, and the sets that do not say their database.
fn of_database<'a>(
    sets: Vec<&'a SetEntry>,
    word: &str,
    place: &str,
) -> Result<Vec<&'a SetEntry>, PlaceError> {
    let is_called = |set: &&SetEntry| Identity::of(set).is_some_and(|of| of.is_called(word));
    if !sets.iter().any(is_called) {
        let found = databases(&sets).into_iter().map(|(of, _)| of);
        return Err(PlaceError::NoDatabase {
            place: place.to_owned(),
            name: word.to_owned(),
            found: found.collect(),
        });
    }
    let may_be = |set: &&SetEntry| Identity::of(set).is_none_or(|of| of.is_called(word));
    Ok(sets.into_iter().filter(may_be).collect())
}

/// The failure when a place of a configured database is missing.
fn not_mounted(one: &Configured, missing: &Path) -> PlaceError {
    let there = one.places.iter().filter(|place| !is_missing(place));
    PlaceError::NotMounted {
        name: one.name.clone(),
        path: missing.to_owned(),
        there: there.cloned().collect(),
    }
}
