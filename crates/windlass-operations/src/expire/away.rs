//! Sets in places that were not named, and that need sets here. It is known of those that the
//! history has, and whose place can be listed: where one is still there, its base stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_engine::SetList;
use windlass_engine::media::SetId;
use windlass_object::is_in_bucket;

use super::needs::Unclear;
use crate::caller::Caller;
use crate::history::{Elsewhere, made_elsewhere};
use crate::places;
use crate::stored::{absolute, is_missing};

/// The sets that were made in other places.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// The places that were named.
    here: BTreeSet<PathBuf>,
    made: Vec<Elsewhere>,
    /// The sets of other places, each listed once.
    listed: BTreeMap<PathBuf, BTreeSet<SetId>>,
}

impl Away {
    /// Reads the history. Call it before the process becomes another user.
    pub(super) fn of(caller: &Caller, here: &[PathBuf]) -> Self {
        let here = here.iter().filter_map(|place| absolute(place).ok());
        let here = here.collect();
        Self {
            made: made_elsewhere(caller, &here),
            here,
            listed: BTreeMap::new(),
        }
    }

    /// Those of these sets on which a set elsewhere builds, each with that set.
    pub(super) fn needed(&mut self, going: &BTreeSet<SetId>) -> Vec<(SetId, Unclear)> {
        let may_need = self.made.iter().filter(|one| going.contains(&one.base));
        let may_need = may_need.filter(|one| self.is_made_here(&one.base_places));
        let may_need: Vec<_> = may_need.cloned().collect();
        let mut needed = Vec::new();
        for one in may_need {
            let mut places = one.places.into_iter();
            let is_there = places.find(|place| self.has(place, one.set));
            // It may have a copy of its base.
            let is_alone = |place: &PathBuf| !self.has(place, one.base);
            if let Some(place) = is_there.filter(is_alone) {
                let above = Unclear {
                    set: one.set,
                    fault: format!("it lies in {}, which was not named", place.display()),
                    is_locked: false,
                    is_away: true,
                };
                needed.push((one.base, above));
            }
        }
        needed
    }

    /// Whether one of these places is here, by whatever name. A set that was made elsewhere is only
    /// a copy here: a mirror has rules of its own.
    fn is_made_here(&self, places: &[PathBuf]) -> bool {
        let is_here = |place: PathBuf| self.here.iter().any(|here| resolved(here) == place);
        places.iter().any(|place| self.here.contains(place))
            || places.iter().map(|place| resolved(place)).any(is_here)
    }

    /// Whether a place has a set. Of one that cannot be listed nobody knows: its disk may be gone
    /// for ever.
    fn has(&mut self, place: &Path, set: SetId) -> bool {
        let listed = self.listed.entry(place.to_owned());
        let listed = listed.or_insert_with(|| match is_missing(place) {
            true => BTreeSet::new(),
            false => places::list(&[place.to_owned()]).map_or_else(|_| BTreeSet::new(), ids),
        });
        listed.contains(&set)
    }
}

/// A place without the links that lead to it.
fn resolved(place: &Path) -> PathBuf {
    let real = match is_in_bucket(place) {
        true => None,
        false => place.canonicalize().ok(),
    };
    real.unwrap_or_else(|| place.to_owned())
}

fn ids(list: SetList) -> BTreeSet<SetId> {
    let sets = list.sets.into_iter().chain(list.hidden);
    sets.map(|set| set.set_id).collect()
}
