//! What a run does with a set that goes. Where readers can lock what they read, it is removed.
//! Where they cannot (a bucket), it is hidden first, and removed by a run that comes when the grace
//! is over.
//!
//!   seen --hide--> hidden --grace--> removed
//!     ^               |
//!     +---- show -----+   the rules keep it, or another set builds on it
//!
//! Ages of marks are judged by the clock that dated them: that of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use windlass_engine::media::{SetId, saturated};
use windlass_engine::{SetEntry, SetList};

use crate::devices::STORAGE;

/// How long a set is hidden before it is removed, unless somebody says it.
pub const GRACE_DEFAULT: SignedDuration = SignedDuration::from_hours(24);

/// What happens to a set that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is removed.
    Remove,
    /// It is hidden, and removed later.
    Hide,
    /// It is not removed yet: it is hidden, or what builds on it is.
    Wait {
        /// Not before, in nanoseconds since 1970 UTC; none if that depends on what builds on it.
        until_nanos: Option<i64>,
    },
}

/// The places of a set in which readers cannot lock what they read.
pub(super) fn hiding_places(stripes: &[PathBuf]) -> BTreeSet<&Path> {
    let places = stripes.iter().filter_map(|stripe| stripe.parent());
    places.filter(|place| STORAGE.hides(place)).collect()
}

/// What to do now with a set that goes.
fn of_set(set: &SetEntry, grace: SignedDuration) -> Step {
    let stripes = set.locations();
    let places = hiding_places(&stripes);
    if places.is_empty() || grace.is_zero() {
        return Step::Remove;
    }
    let grace: i64 = saturated(grace.as_nanos());
    let mut until = None;
    for place in places {
        let mut marks = set.hidden.iter();
        let Some(mark) = marks.find(|mark| mark.location.parent() == Some(place)) else {
            return Step::Hide;
        };
        let end = mark.modified_nanos.saturating_add(grace);
        if end > STORAGE.now_nanos(place) {
            until = until.max(Some(end));
        }
    }
    match until {
        Some(_) => Step::Wait { until_nanos: until },
        None => Step::Remove,
    }
}

/// Whether a set that goes is still there after a run, so that somebody may read it.
pub(super) fn lingers(set: &SetEntry, grace: SignedDuration) -> bool {
    of_set(set, grace) != Step::Remove
}

/// Decides it for all sets that go. What builds on a set goes before the set.
pub(super) fn decide(
    list: &SetList,
    going: &BTreeSet<SetId>,
    grace: SignedDuration,
) -> BTreeMap<SetId, Step> {
    let entries = by_id(&[list]);
    let going = going.iter().filter_map(|id| Some((*id, entries.get(id)?)));
    let own: Vec<_> = going.map(|(id, set)| (id, of_set(set, grace))).collect();
    let mut steps: BTreeMap<_, _> = own.iter().copied().collect();
    for (set, step) in own {
        let until_nanos = match step {
            Step::Remove => continue,
            Step::Wait { until_nanos } => until_nanos,
            Step::Hide => None,
        };
        for base in bases(&entries, set) {
            match steps.get_mut(&base) {
                Some(step) if *step == Step::Remove => *step = Step::Wait { until_nanos },
                _ => {}
            }
        }
    }
    steps
}

/// The sets of some lists.
pub(super) fn by_id<'a>(lists: &[&'a SetList]) -> BTreeMap<SetId, &'a SetEntry> {
    let sets = lists.iter().flat_map(|list| &list.sets);
    sets.map(|set| (set.set_id, set)).collect()
}

/// The sets below this one, its base first. A chain without an end is none: it can have no more
/// sets than there are.
pub(super) fn bases<'a>(
    entries: &'a BTreeMap<SetId, &'a SetEntry>,
    set: SetId,
) -> impl Iterator<Item = SetId> + 'a {
    let base = |set: &SetId| entries.get(set).and_then(|entry| base_of(entry));
    let chain = std::iter::successors(base(&set), base);
    chain.take(entries.len())
}

/// The set that a set builds on.
pub(super) fn base_of(set: &SetEntry) -> Option<SetId> {
    set.about.as_ref()?.base
}
