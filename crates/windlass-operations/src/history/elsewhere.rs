//! Sets in other places that build on sets here. No list of these places shows them, and a base
//! cannot name what was built on it later. The history knows them, if it is of who made them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use windlass_engine::media::SetId;

use super::proofs::places_of;
use super::record::is_running;
use crate::caller::Caller;

/// A set that was made in other places than these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) set: SetId,
    /// The set on which it builds.
    pub(crate) base: SetId,
    /// Where its devices were written.
    pub(crate) places: Vec<PathBuf>,
    /// Where those of the other set were written.
    pub(crate) base_places: Vec<PathBuf>,
}

/// The sets of the history that build on others, and of which no device was written to one of these
/// places. Of the others the history must know where they were made. A history that cannot be read
/// knows none.
pub(crate) fn made_elsewhere(caller: &Caller, here: &BTreeSet<PathBuf>) -> Vec<Elsewhere> {
    let runs = caller
        .history
        .with_existing(|catalog| catalog.runs(is_running));
    let runs = runs.and_then(Result::ok).unwrap_or_default().into_iter();
    let made = runs.filter(|run| run.command == "backup" && run.state.is_success());
    let (mut all, mut away) = (BTreeMap::<SetId, Vec<PathBuf>>::new(), Vec::new());
    for run in made {
        let Some(set) = run.set_id.as_deref().and_then(SetId::parse) else {
            continue;
        };
        let places: Vec<_> = places_of(&run).into_iter().map(PathBuf::from).collect();
        let base = run.base.as_deref().and_then(SetId::parse);
        if let (Some(base), false) = (base, places.iter().any(|place| here.contains(place))) {
            away.push((set, base));
        }
        all.insert(set, places);
    }
    let away = away.into_iter().filter_map(|(set, base)| {
        Some(Elsewhere {
            set,
            base,
            places: all.get(&set)?.clone(),
            base_places: all.get(&base)?.clone(),
        })
    });
    away.collect()
}
