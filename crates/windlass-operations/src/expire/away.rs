//! Sets in places that were not named, and that need sets here. It is known of those that the
//! history has, and whose place can be listed: where one is still there, its base stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_engine::SetList;
use windlass_engine::media::SetId;

use super::needs::Unclear;
use crate::caller::Caller;
use crate::history::{Elsewhere, made_elsewhere};
use crate::places;
use crate::stored::is_missing;

/// The sets that were made in other places.
#[derive(Debug, Default)]
pub(super) struct Away {
    made: Vec<Elsewhere>,
    /// The sets of other places, each listed once.
    listed: BTreeMap<PathBuf, BTreeSet<SetId>>,
}

impl Away {
    /// Reads the history. Call it before the process becomes another user.
    pub(super) fn of(caller: &Caller, here: &[PathBuf]) -> Self {
        Self {
            made: made_elsewhere(caller, here),
            listed: BTreeMap::new(),
        }
    }

    /// Those of these sets on which a set elsewhere builds, each with that set.
    pub(super) fn needed(&mut self, going: &BTreeSet<SetId>) -> Vec<(SetId, Unclear)> {
        let may_need = self.made.iter().filter(|one| going.contains(&one.base));
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

fn ids(list: SetList) -> BTreeSet<SetId> {
    let sets = list.sets.into_iter().chain(list.hidden);
    sets.map(|set| set.set_id).collect()
}
