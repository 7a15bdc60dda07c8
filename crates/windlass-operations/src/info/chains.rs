//! What hangs on what in a place: the sets of a database, each behind the set that it builds on.
//!
//!   list of sets --base missing?--> faults
//!                --bases--> trees, the base first --> links in the order of the drawing

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use windlass_engine::media::{BackupType, SetId};
use windlass_engine::{EngineError, METADATA_LIMIT_DEFAULT, OpenSet, SetEntry, SetState};

use crate::devices::STORAGE;
use crate::places::{Identity, by_database};

/// Why sets cannot be restored although all their stripes are there.
pub type BaseFaults = BTreeMap<SetId, EngineError>;

/// The sets of a database, as they build on each other.
#[derive(Clone, Debug)]
pub struct ChainInfo {
    /// The database.
    pub of: Identity,
    /// Its sets, each behind its base.
    pub links: Vec<LinkInfo>,
}

/// A set in a drawing of chains.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    /// The set.
    pub id: SetId,
    /// Its type.
    pub backup_type: BackupType,
    /// The set that it builds on.
    pub base: Option<SetId>,
    /// How many of the sets in front of it in the drawing a restore of it needs.
    pub depth: usize,
    /// How many sets are lost with it.
    pub needed_by: usize,
    /// When it was begun, in nanoseconds since 1970 UTC.
    pub begun_nanos: i64,
    /// What its backup read; none if the set does not say it.
    pub read_bytes: Option<u64>,
    /// Bytes of its stripes.
    pub stored_bytes: u64,
    /// Why it cannot be restored.
    pub fault: Option<String>,
}

/// Which of these sets lack a base. A base that is in none of the places is looked for where it
/// was.
pub(crate) fn base_faults(sets: &[SetEntry], places: &[PathBuf]) -> BaseFaults {
    let mut faults = BaseFaults::new();
    let mut sound = BTreeSet::new();
    for set in sets {
        if !matches!(set.state, SetState::Sealed) {
            continue;
        }
        let base = set.about.as_ref().and_then(|about| about.base);
        if base.is_none_or(|base| sound.contains(&base)) {
            sound.insert(set.set_id);
            continue;
        }
        match OpenSet::open_among(STORAGE, &set.locations(), places, METADATA_LIMIT_DEFAULT) {
            Ok(_) => drop(sound.insert(set.set_id)),
            Err(fault) => drop(faults.insert(set.set_id, fault)),
        }
    }
    faults
}

/// The sets that do not lack a base. Only these lead into a log.
pub(crate) fn with_bases<'a>(sets: &'a [SetEntry], places: &[PathBuf]) -> Vec<&'a SetEntry> {
    let faults = base_faults(sets, places);
    let sound = sets.iter().filter(|set| !faults.contains_key(&set.set_id));
    sound.collect()
}

/// The chains of these sets; none if no set builds on another one.
pub(super) fn chains_of(sets: &[SetEntry], faults: &BaseFaults) -> Vec<ChainInfo> {
    let chains = by_database(sets.iter())
        .into_iter()
        .filter_map(|(of, own)| {
            let is_chain = own.iter().any(|set| base_of(set).is_some());
            is_chain.then(|| ChainInfo {
                links: links(&own, faults),
                of,
            })
        });
    chains.collect()
}

fn base_of(set: &SetEntry) -> Option<SetId> {
    set.about.as_ref()?.base
}

/// The sets in the order of the drawing. Chains may be long, so this is a loop.
fn links(sets: &[&SetEntry], faults: &BaseFaults) -> Vec<LinkInfo> {
    let known: BTreeSet<_> = sets.iter().map(|set| set.set_id).collect();
    let mut above: BTreeMap<SetId, Vec<&SetEntry>> = BTreeMap::new();
    let mut waiting = Vec::new();
    for set in sets.iter().rev() {
        match base_of(set).filter(|base| known.contains(base) && *base != set.set_id) {
            Some(base) => above.entry(base).or_default().push(set),
            None => waiting.push((*set, 0)),
        }
    }
    let mut links: Vec<LinkInfo> = Vec::new();
    while let Some((set, depth)) = waiting.pop() {
        links.push(link(set, depth, faults));
        let next = above.remove(&set.set_id).unwrap_or_default();
        waiting.extend(next.into_iter().map(|set| (set, depth + 1)));
    }
    count_dependents(&mut links);
    links
}

fn link(set: &SetEntry, depth: usize, faults: &BaseFaults) -> LinkInfo {
    let about = set.about.as_ref();
    let own = set.state.fault().or_else(|| faults.get(&set.set_id));
    LinkInfo {
        id: set.set_id,
        backup_type: about.map_or(BackupType::Full, |about| about.backup_type),
        base: base_of(set),
        depth,
        needed_by: 0,
        begun_nanos: set.begun_nanos,
        read_bytes: about.and_then(|about| about.read_bytes),
        stored_bytes: set.bytes(),
        fault: own.map(ToString::to_string),
    }
}

/// Those that need a set follow it, each deeper than it.
fn count_dependents(links: &mut [LinkInfo]) {
    let mut open: Vec<usize> = Vec::new();
    for index in 0..links.len() {
        open.truncate(links[index].depth);
        for below in &open {
            links[*below].needed_by += 1;
        }
        open.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u8, base: Option<u8>) -> SetEntry {
        let id = |number: u8| SetId([number; 16]);
        SetEntry {
            set_id: id(number),
            begun_nanos: i64::from(number),
            is_dated: true,
            stripe_count: 1,
            stripes: Vec::new(),
            about: Some(windlass_engine::SetAbout {
                backup_type: match base {
                    Some(_) => BackupType::Incr,
                    None => BackupType::Full,
                },
                base: base.map(id),
                started: String::new(),
                finished: String::new(),
                file_bytes: 0,
                read_bytes: Some(u64::from(number)),
                database: serde_json::json!({"kind": "sqlite", "path": "/shop.db"}),
            }),
            may_have_base: false,
            state: SetState::Sealed,
            holds: Vec::new(),
            hidden: Vec::new(),
            parity: Default::default(),
        }
    }

    #[test]
    fn each_set_stands_behind_its_base_and_knows_what_hangs_on_it() {
        let shape = [
            (1, None),
            (2, Some(1)),
            (3, Some(2)),
            (4, Some(1)),
            (5, None),
            (6, Some(9)),
        ];
        let sets: Vec<_> = shape.map(|(number, base)| entry(number, base)).into();
        let [chain] = &chains_of(&sets, &BaseFaults::new())[..] else {
            panic!("one database")
        };
        let drawn = chain.links.iter();
        let drawn = drawn.map(|link| (link.id.0[0], link.depth, link.needed_by));
        let expected = [
            (1, 0, 3),
            (2, 1, 1),
            (3, 2, 0),
            (4, 1, 0),
            (5, 0, 0),
            (6, 0, 0),
        ];
        assert_eq!(drawn.collect::<Vec<_>>(), expected);
        let alone: Vec<_> = [1, 5].map(|number| entry(number, None)).into();
        assert!(chains_of(&alone, &BaseFaults::new()).is_empty());
    }
}
