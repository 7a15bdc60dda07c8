//! Carries out a plan: a number of sets at a time, then the log.

use std::collections::BTreeSet;
use std::path::Path;

use windlass_engine::media::SetId;
use windlass_engine::{Kept, Removal, SetList};

use super::plan::{ExpirePlan, Fate, PlannedSet, Planner};
use super::{ExpireError, ExpireOutcome, LogExpiry};
use crate::devices::STORAGE;
use crate::error::OperationError;
use crate::places;

/// How many sets are reserved at a time. Each stripe of them is an open file.
const RESERVED_MAX: usize = 64;

/// Removes what has expired.
pub(super) fn apply(planner: &mut Planner<'_>) -> Result<ExpireOutcome, OperationError> {
    let list = places::list(&planner.named.paths)?;
    let finished = finish(&list)?;
    let plan = planner.plan_of(&list)?;
    let mut removed = Vec::new();
    for wanted in in_order(&plan).chunks(RESERVED_MAX) {
        removed.extend(remove(planner, &list, wanted)?);
    }
    let left = planner.plan()?;
    Ok(ExpireOutcome {
        finished,
        removed,
        logs: logs(planner, &left)?,
        in_use: planner.in_use.iter().copied().collect(),
        ..ExpireOutcome::planned(plan)
    })
}

/// Ends what earlier runs began. Another run that works on a set right now ends it itself.
fn finish(list: &SetList) -> Result<Vec<SetId>, OperationError> {
    let mut finished = Vec::new();
    for removal in &list.removals {
        if let Some(_reserved) = reserve(&removal.stripes)? {
            removal.run(STORAGE)?;
            finished.push(removal.set_id);
        }
    }
    Ok(finished)
}

/// The sets to remove, what builds on others first.
fn in_order(plan: &ExpirePlan) -> Vec<SetId> {
    let mut sets: Vec<&PlannedSet> = plan.gone().collect();
    sets.sort_by_key(|set| (std::cmp::Reverse(set.depth), set.begun_nanos, set.id));
    sets.iter().map(|set| set.id).collect()
}

/// Removes these sets, as far as nobody reads or needs them when they are reserved.
fn remove(
    planner: &mut Planner<'_>,
    list: &SetList,
    wanted: &[SetId],
) -> Result<Vec<SetId>, OperationError> {
    let mut reserved: Vec<(SetId, Vec<Kept>)> = Vec::new();
    for id in wanted {
        let entry = list.sets.iter().find(|set| set.set_id == *id);
        let stripes = entry.map(windlass_engine::SetEntry::locations);
        match reserve(&stripes.unwrap_or_default())? {
            Some(kept) => reserved.push((*id, kept)),
            None => drop(planner.in_use.insert(*id)),
        }
    }
    let list = places::list(&planner.named.paths)?;
    let again = planner.plan_of(&list)?;
    let gone: BTreeSet<_> = again.gone().map(|set| set.id).collect();
    let mut removed = Vec::new();
    for (id, _kept) in reserved.iter().filter(|(id, _)| gone.contains(id)) {
        if let Some(entry) = list.sets.iter().find(|set| set.set_id == *id) {
            Removal::of(entry).run(STORAGE)?;
            removed.push(*id);
        }
    }
    Ok(removed)
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
    let list = places::list(&planner.named.paths)?;
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
        let entry = list.sets.iter().find(|one| one.set_id == set.id);
        match reserve(
            &entry
                .map(windlass_engine::SetEntry::locations)
                .unwrap_or_default(),
        )? {
            Some(kept) => reserved.push(kept),
            None => drop(planner.in_use.insert(set.id)),
        }
    }
    let plan = planner.plan_of(&list)?;
    let mut gone = Vec::new();
    for expiry in plan.databases.into_iter().flat_map(|one| one.logs) {
        let removed = expiry.log.expire(expiry.up_to)?;
        gone.push(LogExpiry {
            gone: removed,
            ..expiry
        });
    }
    Ok(gone)
}
