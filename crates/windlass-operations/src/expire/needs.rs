//! What may not go because a set that stays needs it, although no rule of its database keeps it.
//!
//!   going --bases of all that stays--> going --sets that nobody can read--> going
//!
//! A set may build on one of another database: its file was moved, or the base was named. A set
//! that cannot be restored as it is stays until somebody looks, and its bases stay with it: what it
//! lacks may be found again. Of a set that cannot be read, such as an encrypted one without its
//! key, nobody knows what it needs.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::media::SetId;
use windlass_engine::{EngineError, SetEntry, SetList, SetState};
use windlass_repository::retention::{KeptSets, Rule};

use super::LogExpiry;

/// What would go, and stays because of sets that cannot be read or restored as they are.
#[derive(Clone, Debug, Default)]
pub struct Withheld {
    /// Sets of this database that would go.
    pub sets: BTreeSet<SetId>,
    /// The log that would go.
    pub logs: Vec<LogExpiry>,
    /// The sets because of which it stays. The oldest comes first.
    pub because: Vec<Unclear>,
}

/// A set of which nobody knows what it needs, or that may need more than is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclear {
    /// The set.
    pub set: SetId,
    /// Why it cannot be read or restored.
    pub fault: String,
    /// Whether it only lacks a key.
    pub is_locked: bool,
}

impl Withheld {
    /// Whether everything that the rules do not keep may go.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.logs.is_empty()
    }

    pub(super) fn because_of(&mut self, sets: &[Unclear]) {
        for one in sets {
            if !self.because.contains(one) {
                self.because.push(one.clone());
            }
        }
    }
}

impl Unclear {
    /// The sets of a list that do not say what they need.
    pub(super) fn among(list: &SetList) -> Vec<(&SetEntry, Self)> {
        let sets = list.sets.iter().filter(|set| set.about.is_none());
        sets.filter_map(|set| Some((set, Self::of(set, None)?)))
            .collect()
    }

    /// What a set is that cannot be restored as it is, but may be whole again: a stripe or its base
    /// is elsewhere, or its key is. `fault` is what its bases lack.
    pub(super) fn of(set: &SetEntry, fault: Option<&String>) -> Option<Self> {
        let own = match &set.state {
            SetState::Unfinished => return None,
            SetState::Damaged(fault) if !matches!(fault, EngineError::StripeTwice { .. }) => {
                return None;
            }
            state => state.fault().map(ToString::to_string),
        };
        Some(Self {
            set: set.set_id,
            fault: own.or_else(|| fault.cloned())?,
            is_locked: matches!(set.state, SetState::Locked(_)),
        })
    }
}

/// The bases of everything in a list that does not go. They are taken out of `going`.
pub(super) fn bases_of_what_stays(list: &SetList, going: &mut BTreeSet<SetId>) -> BTreeSet<SetId> {
    let base_of = |set: &SetEntry| set.about.as_ref().and_then(|about| about.base);
    let bases: BTreeMap<_, _> = list
        .sets
        .iter()
        .filter_map(|set| Some((set.set_id, base_of(set)?)))
        .collect();
    let staying = list.sets.iter().map(|set| set.set_id);
    let mut above: Vec<_> = staying.filter(|set| !going.contains(set)).collect();
    let mut needed = BTreeSet::new();
    while let Some(base) = above.pop().map(|set| bases.get(&set)) {
        if let Some(base) = base.filter(|base| going.remove(base)) {
            needed.insert(*base);
            above.push(*base);
        }
    }
    needed
}

/// Notes that these sets stay, and why.
pub(super) fn keep(kept: &mut KeptSets, sets: impl Iterator<Item = SetId>, rule: Rule) {
    for set in sets {
        kept.entry(set).or_default().insert(rule);
    }
}
