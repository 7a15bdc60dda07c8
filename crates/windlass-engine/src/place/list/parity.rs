//! The parity of the sets of places: its files, and whether it makes up for what is lost.

use std::collections::BTreeSet;
use std::path::PathBuf;

use windlass_media::{SetId, saturated};

use super::{Gathered, Sets, about};
use crate::error::EngineError;
use crate::place::stripe::{Found, ParityFound, Stripe, look};
use crate::place::{SetAbout, SetState};
use crate::set::places::where_it_may_be;
use crate::set::{FoundSet, Said, hold_path};
use crate::storage::Storage;

/// Adds a file with parity to its set.
pub(super) fn gather_parity(storage: &dyn Storage, sets: &mut Sets, found: ParityFound) {
    let set = sets.entry(found.header.set_id).or_default();
    let mut known = set.parities.iter();
    if !known.any(|other| storage.is_same(&other.file.location, &found.file.location)) {
        set.parities.push(found);
    }
}

/// Where the files with parity of a set are, or should be.
pub(super) fn places_of_parity(places: &[PathBuf], set: Option<&Gathered>) -> Vec<PathBuf> {
    let inside: Vec<_> = places.iter().map(|place| place.join("any")).collect();
    let header = set.and_then(|set| set.header.as_ref());
    let named = header.into_iter().flat_map(|header| &header.parities);
    let of_parity = set.and_then(|set| set.parities.first());
    let of_parity = of_parity
        .into_iter()
        .flat_map(|found| &found.header.parities);
    let locations = named.chain(of_parity);
    locations
        .flat_map(|it| where_it_may_be(&inside, it))
        .collect()
}

/// Looks for files with parity of a set that are in none of the places, but where the set says.
pub(super) fn parities(
    (storage, places): (&dyn Storage, &[PathBuf]),
    sets: &mut Sets,
    set_id: SetId,
    limit: u64,
) {
    let may_be = places_of_parity(places, sets.get(&set_id));
    let known = sets.get(&set_id).into_iter().flat_map(|set| &set.parities);
    let known: Vec<_> = known.map(|found| found.file.location.clone()).collect();
    let new = may_be.into_iter().filter(|path| !known.contains(path));
    for file in new.filter_map(|path| storage.file_at(path)) {
        if let Found::Parity(found) = look(storage, file, limit)
            && found.header.set_id == set_id
        {
            gather_parity(storage, sets, *found);
        }
    }
}

/// What holds a set with parity beside devices that lie in none of the places.
pub(super) fn holds_elsewhere(
    (storage, places): (&dyn Storage, &[PathBuf]),
    set_id: SetId,
    set: &Gathered,
) -> Vec<PathBuf> {
    let header = set.header.as_ref();
    if set.parities.is_empty() && header.is_none_or(|header| header.parities.is_empty()) {
        return Vec::new();
    }
    let stripes = set.stripes.iter().map(|one| &one.file.location);
    let parities = set.parities.iter().map(|one| &one.file.location);
    let directories = stripes.chain(parities).filter_map(|path| path.parent());
    let directories: BTreeSet<_> = directories
        .filter(|directory| places.iter().all(|place| place != directory))
        .collect();
    let holds = directories.into_iter().map(|it| hold_path(it, set_id));
    holds.filter(|path| storage.look(path).is_ok()).collect()
}

impl Gathered {
    /// How many complete files with parity there are that belong to the set and to each other.
    fn parities_there(&self) -> u16 {
        let said = self.parities.iter();
        let said = said.filter_map(|found| Some((found.header.parity, found.said.as_ref()?)));
        let said: Vec<_> = said.collect();
        let seals = self.stripes.iter().filter_map(|stripe| {
            let seal = stripe.seal.as_ref()?;
            Some((stripe.index.0, (seal.set_root, seal.stripe_bytes)))
        });
        let seals: Vec<_> = seals.collect();
        let stripes = saturated(self.locations().len());
        saturated(Said::together(&said, stripes, &seals))
    }

    /// How many more there should be.
    pub(super) fn parities_lost(&self) -> u16 {
        let of_stripe = self.header.as_ref().map(|header| header.parities.len());
        let of_parity = self.parities.first().map(|one| one.header.parities.len());
        let all: u16 = saturated(of_stripe.or(of_parity).unwrap_or(0));
        all.saturating_sub(self.parities_there())
    }

    /// What the set says about itself, if parity makes up for the stripes that cannot be used.
    pub(super) fn made_up_for(
        &self,
        storage: &dyn Storage,
        (count, footer_fault): (u16, bool),
        limit: u64,
    ) -> Option<Option<SetAbout>> {
        let is_usable = |one: &&Stripe| one.fault.is_none() && one.seal.is_some();
        let usable = self.stripes.iter().filter(is_usable);
        let usable: BTreeSet<_> = usable.map(|it| it.index).collect();
        let lost = count.saturating_sub(saturated(usable.len())) + u16::from(footer_fault);
        let there = self.parities_there();
        if lost == 0 || there == 0 {
            return None;
        }
        let stripes = self.stripes.iter().map(|one| one.file.location.clone());
        let parities = self.parities.iter().map(|one| one.file.location.clone());
        let devices: Vec<_> = stripes.chain(parities).collect();
        match FoundSet::whole(storage, &devices, limit) {
            Ok(set) => Some(Some(about(set.description()))),
            Err(EngineError::Locked { .. }) if lost <= there => Some(None),
            Err(_) => None,
        }
    }
}

/// The state of a set, and what is wrong with a stripe if parity makes up for that.
pub(super) fn judged(
    state: SetState,
    footer_fault: Option<EngineError>,
    is_made_up_for: bool,
) -> (SetState, Option<EngineError>) {
    match (state, footer_fault) {
        (SetState::Incomplete(fault) | SetState::Damaged(fault), _)
            if is_made_up_for && !matches!(fault, EngineError::StripeTwice { .. }) =>
        {
            (SetState::Sealed, Some(fault))
        }
        (SetState::Sealed, Some(fault)) if is_made_up_for && fault.is_damage() => {
            (SetState::Sealed, Some(fault))
        }
        (SetState::Sealed, Some(fault)) => (SetState::of_fault(fault), None),
        (state, _) => (state, None),
    }
}
