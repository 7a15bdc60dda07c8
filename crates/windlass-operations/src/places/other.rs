//! What to do about a set that is damaged or not whole: which other set there is, if there is one.
//!
//! Every command that meets such a set says the same. Another set is named only if it is there and
//! sealed; if there is none, that is said too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use windlass_engine::media::SetId;
use windlass_engine::{METADATA_LIMIT_DEFAULT, OpenSet, SetEntry, SetState, set_of_stripe};

use super::advice::{Advice, BadSet, Instead};
use super::identity::Identity;
use super::listed::{list, short_id};
use crate::devices::{STORAGE, is_place};

/// The advice about one of these sets, which are in these places.
pub fn advice_about(sets: &[&SetEntry], bad: &SetEntry, places: &[PathBuf]) -> Advice {
    let moment = |set: &SetEntry| (set.begun_nanos, set.set_id.0);
    let (older, newer): (Vec<_>, Vec<_>) = sound(sets, bad)
        .into_iter()
        .partition(|set| moment(set) < moment(bad));
    let instead = |set: &SetEntry, is_older| Instead {
        id: short_id(set),
        begun_nanos: set.begun_nanos,
        is_older,
    };
    let newest_of = |found: &[&SetEntry], is_older| {
        let mut found = found.iter().rev();
        let found = found.find(|set| has_bases(set, sets, places));
        found.map(|set| instead(set, is_older))
    };
    Advice {
        bad: BadSet::Chosen(short_id(bad)),
        places: places.to_vec(),
        instead: newest_of(&older, true).or_else(|| newest_of(&newer, false)),
    }
}

/// Whether all sets are there that this one builds on. They may be elsewhere, too.
fn has_bases(set: &SetEntry, sets: &[&SetEntry], places: &[PathBuf]) -> bool {
    let mut of = set;
    for _ in 0..=sets.len() {
        let Some(base) = of.about.as_ref().and_then(|about| about.base) else {
            return true;
        };
        let is_base =
            |one: &&&SetEntry| one.set_id == base && matches!(one.state, SetState::Sealed);
        match sets.iter().find(is_base) {
            Some(base) => of = base,
            None => break,
        }
    }
    OpenSet::open_among(STORAGE, &set.locations(), places, METADATA_LIMIT_DEFAULT).is_ok()
}

/// The advice about the set of these stripes. The other sets are those of their directories.
pub fn advice_of_stripes(stripes: &[PathBuf]) -> Option<Advice> {
    let is_file = |path: &&PathBuf| !is_place(path);
    let set_id = |path: &PathBuf| set_of_stripe(STORAGE, path);
    let bad: SetId = stripes.iter().filter(is_file).find_map(set_id)?;
    let directories: BTreeSet<_> = stripes.iter().map(|path| directory(path)).collect();
    let places: Vec<_> = directories.into_iter().collect();
    let list = list(&places).ok()?;
    let sets: Vec<_> = list.sets.iter().collect();
    let bad = sets.iter().find(|set| set.set_id == bad)?;
    Some(Advice {
        bad: BadSet::Stripes(stripes.to_vec()),
        ..advice_about(&sets, bad, &places)
    })
}

/// The directory of a stripe, or the directory itself.
fn directory(path: &Path) -> PathBuf {
    if is_place(path) {
        return path.to_owned();
    }
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// The sealed sets but this one, and of the same database as far as that is known, oldest first.
fn sound<'a>(sets: &[&'a SetEntry], bad: &SetEntry) -> Vec<&'a SetEntry> {
    let of = Identity::of(bad);
    let is_sound = |set: &&&SetEntry| {
        let same = match (&of, Identity::of(set)) {
            (Some(of), Some(other)) => other.is_same(of),
            _ => true,
        };
        same && set.set_id != bad.set_id && matches!(set.state, SetState::Sealed)
    };
    sets.iter().filter(is_sound).copied().collect()
}
