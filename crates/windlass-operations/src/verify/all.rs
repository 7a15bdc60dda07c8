//! Verifies all sets of some places, one after another.

use std::path::PathBuf;

use windlass_engine::{SetEntry, SetState, UnknownStripe};

use super::outcome::{BadSets, NotRead, SetResult, VerifiedSets, VerifyStep};
use super::{Job, log, series_of};
use crate::denied::Denied;
use crate::ended::RunCounts;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::history::Proofs;
use crate::hooks::HookCommands;
use crate::info::{BaseFaults, base_faults};
use crate::places::{self, LocatedSet, Named, advice_about, short_id};
use crate::run::Run;

pub(super) fn verify(job: &Job<'_>, named: &Named) -> Result<VerifiedSets, OperationError> {
    if job.request.watching.events.is_some() {
        return Err(OperationError::EventsOfSeveral);
    }
    let mut list = places::list(&named.paths)?;
    let all = named.sets(&list.sets, list.unknown.is_empty())?;
    let (unfinished, sets): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|set| matches!(set.state, SetState::Unfinished));
    let logs_there = log::logs(named, &sets)?;
    if sets.is_empty() && list.unknown.is_empty() && logs_there.is_empty() {
        // `choose` fails and says why there is no set.
        places::choose(job.caller, &list, named)?;
    }
    let (earlier, sets) = known(job, sets);
    let is_sound_so_far = |set: &&SetEntry| set.state.fault().is_none();
    let well_so_far = list.unknown.is_empty() && sets.iter().all(is_sound_so_far);
    let mut results = Vec::new();
    for UnknownStripe { file, fault } in std::mem::take(&mut list.unknown) {
        results.push(SetResult::NotRead {
            name: file.location.display().to_string(),
            id: None,
            why: NotRead::of(fault),
        });
        tell_last(job, None, &results);
    }
    let mut each = Job {
        of: None,
        well_so_far,
        ..*job
    };
    for set in &sets {
        each.of = (sets.len() > 1).then_some(*set);
        let found = LocatedSet::of_list(set, &sets, &named.paths);
        let result = one(&each, (set, &found), !results.is_empty());
        let result = match result {
            Ok(result) if !has_failed(&result) => result,
            other => match is_there(set, named)? {
                true => other?,
                false => removed(set),
            },
        };
        let is_verified = result.verified().is_some();
        results.push(result);
        if !is_verified {
            tell_last(job, Some(set), &results);
        }
        each.well_so_far &= !results
            .iter()
            .any(|one| one.is_damaged() || one.is_unknown());
    }
    if sets.is_empty() && results.is_empty() {
        nothing_new(job, &earlier)?;
    }
    let mut logs = Vec::new();
    let faults = match logs_there.is_empty() {
        true => BaseFaults::new(),
        false => base_faults(&list.sets, &named.paths),
    };
    let sound = sets.iter().filter(|set| !faults.contains_key(&set.set_id));
    let sound: Vec<_> = sound.copied().collect();
    for log in &logs_there {
        let how = (job.request.quick, job.cancel);
        let log = log::verify(how, log, &sound)?;
        job.tell(VerifyStep::Log { log: &log });
        logs.push(log);
    }
    let unfinished = unfinished.iter().flat_map(|set| set.locations());
    Ok(VerifiedSets {
        logs,
        moment: None,
        sets: sets.len(),
        earlier: earlier.len(),
        instead: instead(&results, &sets, &named.paths),
        results,
        unfinished: unfinished.chain(list.unfinished.iter().cloned()).collect(),
    })
}

/// The sets that need not be read again, and the others.
fn known<'a>(job: &Job<'_>, sets: Vec<&'a SetEntry>) -> (Vec<&'a SetEntry>, Vec<&'a SetEntry>) {
    let Some(since) = job.request.new_since else {
        return (Vec::new(), sets);
    };
    let proofs = Proofs::of(job.caller);
    sets.into_iter().partition(|set| {
        let is_sealed = matches!(set.state, SetState::Sealed);
        is_sealed && proofs.verified(set).is_some_and(|at| at >= since)
    })
}

/// Keeps in history and metrics that all was well, although nothing had to be read.
fn nothing_new(job: &Job<'_>, earlier: &[&SetEntry]) -> Result<(), OperationError> {
    if earlier.is_empty() {
        return Ok(());
    }
    let series = series_of(&job.request.set);
    let watching = &job.request.watching;
    let about = (job.caller, watching, &HookCommands::default());
    let run = Run::new(about, "verify", (&series, &series), job.cancel);
    let counts = RunCounts {
        set_id: None,
        set_type: None,
        stripes: Vec::new(),
        bytes_read: 0,
        bytes_written: 0,
        seconds: 0.0,
        verdict: String::new(),
    };
    run.go_unwatched(|_| Ok(((), Ending::Done, counts)))?;
    Ok(())
}

fn has_failed(result: &SetResult) -> bool {
    matches!(result, SetResult::NotRead { .. })
}

/// Whether a set is still there, and nobody has begun to remove it.
fn is_there(set: &SetEntry, named: &Named) -> Result<bool, OperationError> {
    let list = places::list(&named.paths)?;
    Ok(list.sets.iter().any(|one| one.set_id == set.set_id))
}

fn removed(set: &SetEntry) -> SetResult {
    SetResult::NotRead {
        name: short_id(set),
        id: Some(set.set_id.to_string()),
        why: NotRead::Removed,
    }
}

/// Tells of what was not read.
fn tell_last(job: &Job<'_>, of: Option<&SetEntry>, results: &[SetResult]) {
    if let Some(result) = results.last() {
        job.tell(VerifyStep::NotRead { of, result });
    }
}

/// Verifies one set. It returns an error only if the error ends all of them.
fn one(
    job: &Job<'_>,
    (set, found): (&SetEntry, &LocatedSet),
    has_earlier: bool,
) -> Result<SetResult, OperationError> {
    let not_read = |why| SetResult::NotRead {
        name: short_id(set),
        id: Some(set.set_id.to_string()),
        why,
    };
    if let Some(denied) = set.state.fault().and_then(Denied::of) {
        return Ok(not_read(NotRead::Denied(denied)));
    }
    match job.verify(found) {
        Ok(verified) => Ok(SetResult::Verified {
            name: short_id(set),
            verified: Box::new(verified),
        }),
        // If there is only one set, its failure is reported in full.
        Err(error) if job.of.is_some() || has_earlier => match error.ending() {
            Ending::Damage => Ok(not_read(NotRead::Damaged(error))),
            Ending::Failed => Ok(not_read(NotRead::Failed(error))),
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// What to do about damaged sets. Only what was verified is named as sound.
fn instead(results: &[SetResult], sets: &[&SetEntry], places: &[PathBuf]) -> BadSets {
    let of = |set: &SetEntry| {
        let name = short_id(set);
        results.iter().find(|one| one.name() == name)
    };
    let is_bad = |set: &&&SetEntry| of(set).is_some_and(SetResult::is_damaged);
    let is_usable = |set: &&&SetEntry| {
        let result = of(set);
        !result.is_some_and(|one| one.is_damaged() || one.is_unknown())
    };
    let bad: Vec<_> = sets.iter().filter(is_bad).collect();
    let usable: Vec<_> = sets.iter().filter(is_usable).copied().collect();
    match bad.as_slice() {
        [] => BadSets::None,
        [bad] => BadSets::One(advice_about(&usable, bad, places)),
        _ => BadSets::Several(places.to_vec()),
    }
}
