//! Sets in other places that build on sets here. No list of these places shows them, and a base
//! cannot name what was built on it later. The history knows them, if it is of who made them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use windlass_engine::media::SetId;

use super::proofs::places_of;
use super::record::is_running;
use crate::caller::Caller;
use crate::stored::absolute;

/// A set that was made in other places than these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    pub(crate) set: SetId,
    /// The set on which it builds.
    pub(crate) base: SetId,
    /// Where its devices were written.
    pub(crate) places: Vec<PathBuf>,
}

/// The sets of the history that build on a set which was made in these places, and of which no
/// device was written to one of them. A history that cannot be read knows none. A base that was
/// made elsewhere is only a copy here: a mirror has rules of its own.
pub(crate) fn made_elsewhere(caller: &Caller, here: &[PathBuf]) -> Vec<Elsewhere> {
    let here = here.iter().filter_map(|place| absolute(place).ok());
    let here: BTreeSet<_> = here.collect();
    let runs = caller
        .history
        .with_existing(|catalog| catalog.runs(is_running));
    let runs = runs.and_then(Result::ok).unwrap_or_default().into_iter();
    let made = runs.filter(|run| run.command == "backup" && run.state.is_success());
    let (mut own, mut away) = (BTreeSet::new(), Vec::new());
    for run in made {
        let Some(set) = run.set_id.as_deref().and_then(SetId::parse) else {
            continue;
        };
        let places: Vec<_> = places_of(&run).into_iter().map(PathBuf::from).collect();
        if places.iter().any(|place| here.contains(place)) {
            own.insert(set);
        } else if let Some(base) = run.base.as_deref().and_then(SetId::parse) {
            away.push(Elsewhere { set, base, places });
        }
    }
    away.retain(|one| own.contains(&one.base));
    away
}
