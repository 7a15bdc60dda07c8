//! The order in which sets were made, where their times cannot be right: a clock went back, or two
//! hosts have different ones.
//!
//! A base was there before what builds on it. A set of PostgreSQL that ends at an earlier position
//! of the log cannot have begun when one that ends behind it had ended already. Sets whose times
//! say otherwise were made later than they say.
//!
//! Invariant: a set is only ever made younger, so that rules keep more by it.

use std::collections::BTreeMap;

use windlass_media::SetId;
use windlass_postgres::Lsn;

use super::Member;

/// The sets of a line, in the order in which they were made and with times that fit it. None if
/// their own times do.
pub(super) fn in_order(line: &[&Member]) -> Option<Vec<Member>> {
    let mut begun: BTreeMap<SetId, i64> =
        line.iter().map(|set| (set.id, set.begun_nanos)).collect();
    let mut by_position = line.to_vec();
    by_position.retain(|set| set.origin.1 > Lsn(0));
    by_position.sort_by_key(|set| (set.origin.1, set.begun_nanos, set.id));
    let mut is_changed = false;
    // A chain of bases may stand in any order, and one without an end is none.
    for _ in 0..=line.len() {
        let by_position = lift_by_position(&by_position, &mut begun);
        let by_base = lift_by_base(line, &mut begun);
        if !by_position && !by_base {
            break;
        }
        is_changed = true;
    }
    let made = |set: &&Member| {
        let begun = begun[&set.id];
        let later = begun.saturating_sub(set.begun_nanos);
        Member {
            begun_nanos: begun,
            ended_nanos: set.ended_nanos.saturating_add(later),
            ..(*set).clone()
        }
    };
    let mut sets: Vec<_> = line.iter().map(made).collect();
    sets.sort_by_key(|set| (set.begun_nanos, set.id));
    is_changed.then_some(sets)
}

/// Puts sets behind those that end before them in the log, if they say that they had ended when
/// those began. Returns whether there were any.
fn lift_by_position(by_position: &[&Member], begun: &mut BTreeMap<SetId, i64>) -> bool {
    let mut is_changed = false;
    let mut latest = i64::MIN;
    for set in by_position {
        let own = begun[&set.id];
        let took = set.ended_nanos.saturating_sub(set.begun_nanos).max(0);
        let begins = match own.saturating_add(took) < latest {
            true => latest.saturating_add(1),
            false => own,
        };
        is_changed |= begins > own;
        begun.insert(set.id, begins);
        latest = latest.max(begins);
    }
    is_changed
}

/// Puts sets behind their bases. Returns whether there were any.
fn lift_by_base(line: &[&Member], begun: &mut BTreeMap<SetId, i64>) -> bool {
    let mut is_changed = false;
    for set in line {
        let base = set.base.and_then(|base| begun.get(&base).copied());
        let own = begun[&set.id];
        if let Some(base) = base.filter(|base| *base > own) {
            begun.insert(set.id, base.saturating_add(1));
            is_changed = true;
        }
    }
    is_changed
}
