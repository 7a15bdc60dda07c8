//! Carries out a plan: a number of sets at a time, then the log.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_engine::media::SetId;
use windlass_engine::{Kept, Removal, SetEntry, SetList, hide, show};

use super::plan::{ExpirePlan, Fate, PlannedSet, Planner};
use super::readers::{Readers, is_needed, needed_after_all};
use super::steps::{Step, bases, by_id, hiding_places};
use super::{ExpireError, ExpireOutcome, LogExpiry};
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::stored::clean_up;

/// How many sets are reserved at a time. Each stripe of them is an open file.
const RESERVED_MAX: usize = 64;

/// What has been done.
#[derive(Default)]
struct Done {
    removed: Vec<SetId>,
    hidden: Vec<SetId>,
}

/// Removes what has expired.
pub(super) fn apply(planner: &mut Planner<'_>) -> Result<ExpireOutcome, OperationError> {
    for place in planner.named.paths.iter().filter(|one| STORAGE.hides(one)) {
        // A set that lacks only its name may need others.
        clean_up(place).unwrap_or_default();
    }
    let mut list = planner.list()?;
    let finished = finish(planner, &list)?;
    if !list.removals.is_empty() {
        list = planner.list()?;
    }
    let plan = planner.plan_of(&list)?;
    let shown = show_again(planner, &mut list, &plan);
    let mut done = Done::default();
    for wanted in in_order(&plan).chunks(RESERVED_MAX) {
        remove(planner, &list, wanted, &mut done)?;
    }
    let left = planner.plan()?;
    Ok(ExpireOutcome {
        finished,
        shown,
        removed: done.removed,
        hidden: done.hidden,
        logs: logs(planner, &left)?,
        in_use: planner.in_use.iter().copied().collect(),
        failed: std::mem::take(&mut planner.failed).into_iter().collect(),
        ..ExpireOutcome::planned(plan)
    })
}

/// Ends what earlier runs began. Another run that works on a set right now ends it itself.
fn finish(planner: &mut Planner<'_>, list: &SetList) -> Result<Vec<SetId>, OperationError> {
    let mut finished = Vec::new();
    for removal in &list.removals {
        let set = removal.set_id;
        let is_hiding = removal.places().iter().any(|place| STORAGE.hides(place));
        if is_hiding && is_needed(list, set) {
            // The run was cut off before it could see that.
            removal.give_up(STORAGE)?;
            continue;
        }
        let readers = Readers::of(removal.places())?;
        match reserve(&removal.stripes)? {
            Some(_reserved) if !readers.read(set) => match removal.run(STORAGE) {
                Ok(()) => finished.push(set),
                Err(error) => drop(planner.failed.insert(set, error)),
            },
            _ if is_hiding => drop(planner.in_use.insert(set)),
            _ => {}
        }
    }
    for mark in &list.stale {
        // It says nothing. If it stays, the next run tries again.
        STORAGE.remove(mark).unwrap_or_default();
    }
    Ok(finished)
}

/// Shows the hidden sets that the plan keeps.
fn show_again(planner: &mut Planner<'_>, list: &mut SetList, plan: &ExpirePlan) -> Vec<SetId> {
    let mut shown = Vec::new();
    for id in plan.shown_again().map(|set| set.id) {
        let entry = list.sets.iter_mut().find(|set| set.set_id == id);
        let Some(entry) = entry else { continue };
        match show(STORAGE, entry) {
            Ok(()) => shown.push(id),
            Err(error) => drop(planner.failed.insert(id, error)),
        }
        entry.hidden.clear();
    }
    shown
}

/// The sets to remove, what builds on others first.
fn in_order(plan: &ExpirePlan) -> Vec<SetId> {
    let is_now = |set: &&PlannedSet| !matches!(set.step, Some(Step::Wait { .. }));
    let mut sets: Vec<&PlannedSet> = plan.gone().filter(is_now).collect();
    sets.sort_by_key(|set| (std::cmp::Reverse(set.depth), set.begun_nanos, set.id));
    sets.iter().map(|set| set.id).collect()
}

/// Removes or hides these sets, as far as nobody reads or needs them when they are reserved.
fn remove(
    planner: &mut Planner<'_>,
    list: &SetList,
    wanted: &[SetId],
    done: &mut Done,
) -> Result<(), OperationError> {
    let entries = by_id(&[list]);
    let there = wanted.iter().filter_map(|id| entries.get(id));
    let stripes: Vec<_> = there.flat_map(|set| set.locations()).collect();
    let readers = Readers::of(hiding_places(&stripes))?;
    let mut reserved: Vec<(SetId, Vec<Kept>)> = Vec::new();
    for id in wanted {
        let stripes = entries.get(id).map(|set| set.locations());
        match reserve(&stripes.unwrap_or_default())? {
            Some(kept) if !readers.read(*id) => reserved.push((*id, kept)),
            _ => drop(planner.in_use.insert(*id)),
        }
    }
    let list = planner.list()?;
    let again = planner.plan_of(&list)?;
    let entries = by_id(&[&list]);
    let step = |id: &SetId| again.gone().find(|set| set.id == *id)?.step;
    let mut due = Vec::new();
    for (id, _kept) in &reserved {
        match (step(id), entries.get(id)) {
            (Some(Step::Remove), Some(set)) => due.push(*set),
            (Some(Step::Hide), Some(set)) => match hide(STORAGE, set) {
                Ok(()) => done.hidden.push(*id),
                Err(error) => drop(planner.failed.insert(*id, error)),
            },
            _ => {}
        }
    }
    remove_due(planner, &list, &due, done)
}

/// Marks these sets, looks once more whether somebody needs them, and removes them.
fn remove_due(
    planner: &mut Planner<'_>,
    list: &SetList,
    due: &[&SetEntry],
    done: &mut Done,
) -> Result<(), OperationError> {
    let entries = by_id(&[list]);
    let mut marked = Vec::new();
    for set in due {
        let is_hiding = !hiding_places(&set.locations()).is_empty();
        // Without a grace, too: if two runs disagree on the other mark, the set stays hidden.
        let hidden = match is_hiding {
            true => hide(STORAGE, set),
            false => Ok(()),
        };
        match hidden.and_then(|()| Removal::of(set).mark(STORAGE)) {
            Ok(one) => marked.push(one),
            Err(error) => drop(planner.failed.insert(set.set_id, error)),
        }
    }
    let ids: BTreeSet<_> = marked.iter().map(|one| one.set_id()).collect();
    let needed = needed_after_all((list, || planner.list()), due)?;
    planner.in_use.extend(needed.intersection(&ids));
    let is_changed = !needed.is_empty() || !planner.failed.is_empty();
    let mut going = match is_changed {
        true => planner.plan_of(list)?.gone().map(|set| set.id).collect(),
        false => ids,
    };
    for one in marked {
        let id = one.set_id();
        if !going.contains(&id) {
            one.take_back(STORAGE);
            continue;
        }
        match one.end(STORAGE) {
            Ok(()) => done.removed.push(id),
            Err(error) => {
                planner.failed.insert(id, error);
                going.retain(|other| bases(&entries, id).all(|base| base != *other));
            }
        }
    }
    Ok(())
}

/// Reserves all these stripes, or none. A stripe that is gone needs no reservation.
fn reserve(stripes: &[std::path::PathBuf]) -> Result<Option<Vec<Kept>>, OperationError> {
    let mut reserved = Vec::new();
    for stripe in stripes {
        match STORAGE.reserve(stripe) {
            Ok(Some(kept)) => reserved.push(kept),
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(no_locks(stripe, source).into()),
        }
    }
    Ok(Some(reserved))
}

fn no_locks(stripe: &Path, source: std::io::Error) -> ExpireError {
    ExpireError::NoLocks {
        path: stripe.to_owned(),
        source,
    }
}

/// Removes the log that no set needs any more. A set that stays without its log may be read right
/// now, together with that log: then the log behind it stays.
fn logs(planner: &mut Planner<'_>, plan: &ExpirePlan) -> Result<Vec<LogExpiry>, OperationError> {
    if plan.databases.iter().all(|one| one.logs.is_empty()) {
        return Ok(Vec::new());
    }
    let list = planner.list()?;
    let entries = by_id(&[&list]);
    let mut reserved = Vec::new();
    for set in plan
        .databases
        .iter()
        .filter(|one| !one.logs.is_empty())
        .flat_map(|one| &one.sets)
    {
        let Fate::Stays(rules) = &set.fate else {
            continue;
        };
        if rules.iter().any(|rule| rule.keeps_log()) {
            continue;
        }
        let stripes = entries.get(&set.id).map(|set| set.locations());
        let stripes = stripes.unwrap_or_default();
        let readers = Readers::of(hiding_places(&stripes))?;
        match reserve(&stripes)? {
            Some(kept) if !readers.read(set.id) => reserved.push(kept),
            _ => drop(planner.in_use.insert(set.id)),
        }
    }
    let plan = planner.plan_of(&list)?;
    let (mut gone, mut failed) = (Vec::new(), Ok(()));
    for expiry in plan.databases.into_iter().flat_map(|one| one.logs) {
        match expiry.log.expire(expiry.up_to) {
            Ok(removed) => gone.push(LogExpiry {
                gone: removed,
                ..expiry
            }),
            // Other logs have nothing to do with it.
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    Ok(failed.map(|()| gone)?)
}
