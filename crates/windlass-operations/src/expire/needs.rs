//! What may not go because a set that stays needs it, although no rule of its database keeps it.
//!
//!   going --bases of all that stays--> going --sets that nobody can read--> going
//!
//! A set may build on one of another database: its file was moved, or the base was named. A set
//! that cannot be restored as it is stays until somebody looks, and its bases stay with it: what it
//! lacks may be found again, and needs the sets below it, which the set names, too. Of a set that
//! cannot be read, such as an encrypted one without its key, nobody knows what it needs.

use std::collections::{BTreeMap, BTreeSet};

use windlass_engine::media::SetId;
use windlass_engine::{EngineError, METADATA_LIMIT_DEFAULT, SetEntry, SetList, SetState, glance};
use windlass_repository::retention::{KeptSets, Rule};

use super::LogExpiry;
use super::steps::{base_of, by_id};
use crate::devices::STORAGE;

/// What would go, and stays because of sets that cannot be read or restored as they are, or that
/// lie elsewhere.
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
    /// Whether it lies in a place that was not named.
    pub is_away: bool,
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
            is_away: false,
        })
    }
}

/// The bases of everything in a list that does not go. They are taken out of `going`.
pub(super) fn bases_of_what_stays(list: &SetList, going: &mut BTreeSet<SetId>) -> BTreeSet<SetId> {
    let entries = by_id(&[list]);
    let staying = entries.keys().copied();
    let mut above: Vec<SetId> = staying.filter(|set| !going.contains(set)).collect();
    let mut needed = BTreeSet::new();
    while let Some(set) = above.pop() {
        for base in below(entries[&set], &entries) {
            if going.remove(&base) {
                needed.insert(base);
                above.push(base);
            }
        }
    }
    needed
}

/// What a set needs of a list: its base. A base that is not in the list may be elsewhere, and then
/// it needs what is below it, which the set itself names.
fn below(set: &SetEntry, entries: &BTreeMap<SetId, &SetEntry>) -> Vec<SetId> {
    match base_of(set) {
        None => Vec::new(),
        Some(base) if entries.contains_key(&base) => vec![base],
        Some(_) => parents(set).unwrap_or_else(|| {
            let others = entries.values();
            let others = others.filter(|other| other.begun_nanos <= set.begun_nanos);
            others.map(|other| other.set_id).collect()
        }),
    }
}

/// All sets below a set, as one of its stripes says; none if no stripe can be read.
fn parents(set: &SetEntry) -> Option<Vec<SetId>> {
    let stripes = glance(STORAGE, &set.locations(), METADATA_LIMIT_DEFAULT).ok()?;
    let said = stripes.into_iter().find_map(|stripe| stripe.description)?;
    let parents = said.facts.parents.iter().map(|id| SetId::parse(id));
    let parents: Option<Vec<_>> = parents.collect();
    parents.filter(|parents| !parents.is_empty())
}

/// Notes that these sets stay, and why.
pub(super) fn keep(kept: &mut KeptSets, sets: impl Iterator<Item = SetId>, rule: Rule) {
    for set in sets {
        kept.entry(set).or_default().insert(rule);
    }
}
