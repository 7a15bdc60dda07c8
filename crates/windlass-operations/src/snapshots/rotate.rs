//! Rolling snapshots: makes a new one, and then drops the oldest of its kind.
//!
//! The kind is the beginning of the name. Windlass gives the rest: `hourly-20261123T160000Z`. So a
//! snapshot that somebody else named is not dropped, unless the name looks like that.
//!
//! Invariants
//! - What is lost does not count, and goes when it is older than what stays. What has ended by a
//!   limit goes at the latest when as many are newer as are to stay, in whatever state: else
//!   limits that are shorter than the rotation would leave ended ones for ever.
//! - What cannot be read, or whose disk is not there, stays until somebody drops it.
//! - The new snapshot stays, whatever time the others say. One that says a time that is still to
//!   come counts as the oldest, and each rotation tells of it.
//! - Nothing is dropped if the new snapshot may not have what the older ones have.

use windlass_engine::{Cancel, counted};
use windlass_snapshot::hook::is_limit;
use windlass_snapshot::{Place, Record, Snapshot, SnapshotError, SnapshotName, State, has_undo};

use super::create::{Around, CreateOutcome, CreateRequest, SnapshotWarning, create_among};
use super::kind::{MOMENT, OfKind, moment, of_kind};
use super::tell_removed;
use crate::caller::Caller;
use crate::ending::Ending;
use crate::error::OperationError;
use crate::warnings::{DATABASE_EMPTIED, METHOD_CHANGED, OTHER_CLUSTER};

/// How many snapshots of one kind may be made in a second.
const TRIES_MAX: u32 = 100;
/// The name of the warning about snapshots that cannot be read any more.
const LOST: &str = "snapshots-lost";
/// The name of the warning about snapshots whose moment is still to come.
const AHEAD: &str = "clock-ahead";
/// With one of these the new snapshot may not have what the older ones have.
const DOUBTS: [&str; 2] = [DATABASE_EMPTIED, OTHER_CLUSTER];

/// What a rotation did.
#[derive(Debug)]
pub struct RotateOutcome {
    /// The new snapshot.
    pub created: CreateOutcome,
    /// The snapshots of its kind that were dropped, the oldest first.
    pub dropped: Vec<String>,
    /// Those that should have been dropped, and are in use.
    pub in_use: Vec<String>,
    /// Those that should have been dropped, and have states that reverts overwrote.
    pub with_undo: Vec<WithUndo>,
    /// Those that should have been dropped, and may have what the new one has not.
    pub held_back: Vec<String>,
}

/// A snapshot that should have been dropped, and has states that reverts overwrote.
#[derive(Debug)]
pub struct WithUndo {
    /// Its name.
    pub name: String,
    /// Whether it has ended by a limit. Then nobody can bring these states back.
    pub has_ended: bool,
    /// Whether an earlier rotation has told of it. One that has ended is told of once.
    pub is_told: bool,
}

impl RotateOutcome {
    /// How the operation ends.
    pub fn ending(&self) -> Ending {
        let are_told = self.with_undo.iter().all(|one| one.is_told);
        match self.in_use.is_empty() && are_told {
            true => self.created.ending(),
            false => Ending::Warnings,
        }
    }
}

/// Makes a snapshot whose name begins like `request.name`, and drops all but the newest `keep` of
/// this kind. If the snapshot cannot be made, nothing is dropped.
pub fn rotate(
    caller: &Caller,
    request: &CreateRequest,
    keep: u32,
    cancel: &Cancel,
) -> Result<RotateOutcome, OperationError> {
    let kind = &request.name;
    SnapshotName::parse(&format!(
        "{kind}-{}",
        jiff::Timestamp::now().strftime(MOMENT)
    ))?;
    let (mut created, around) = create_named(caller, request, cancel)?;
    let place = super::place(caller, &request.of)?;
    let around = around.map_or_else(|| place.list(), Ok)?;
    let found = of_kind(around, kind, Some(created.record()));
    let changed = changed(&found.all, &created, &request.accept);
    created.warnings.extend(changed);
    created.warnings.extend(ahead(&found, &request.accept));
    let mut outcome = RotateOutcome {
        created,
        dropped: Vec::new(),
        in_use: Vec::new(),
        with_undo: Vec::new(),
        held_back: Vec::new(),
    };
    let mut surplus = surplus(&found.all, keep);
    // Another rotation may have made newer ones meanwhile.
    let new = outcome.created.record();
    surplus.retain(|one| one.snapshot.record().name != new.name);
    let mut open = outcome.created.warnings.iter().filter(|one| !one.accepted);
    if open.any(|one| DOUBTS.contains(&one.name.as_str())) {
        let names = surplus.iter().map(|one| one.snapshot.record().name.clone());
        outcome.held_back = names.collect();
        return Ok(outcome);
    }
    drop_all(caller, &place, surplus, &mut outcome)?;
    Ok(outcome)
}

/// Drops snapshots, the oldest first, and notes what became of each.
fn drop_all(
    caller: &Caller,
    place: &Place,
    surplus: Vec<Surplus<'_>>,
    outcome: &mut RotateOutcome,
) -> Result<(), OperationError> {
    let count = surplus.len();
    for (index, one) in surplus.into_iter().enumerate() {
        let name = SnapshotName::parse(&one.snapshot.record().name)?;
        // Nobody who makes snapshots by the hour expects that to take away what a revert kept.
        if has_undo(one.snapshot)? {
            outcome.with_undo.push(WithUndo {
                name: name.to_string(),
                has_ended: one.has_ended,
                // If a newer one is to go, this one was to go the last time.
                is_told: one.has_ended && index + 1 < count,
            });
            continue;
        }
        match place.remove(&name, &mut tell_removed(caller)) {
            Ok(()) => outcome.dropped.push(name.to_string()),
            Err(SnapshotError::InUse { .. }) => outcome.in_use.push(name.to_string()),
            // Another rotation was faster.
            Err(SnapshotError::Unknown { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What is other than with the last snapshot of this kind. Nobody looks at what a timer types, so
/// the rotation says it; a loss only once, because the next one finds a newer snapshot.
fn changed(all: &[Snapshot], created: &CreateOutcome, accept: &[String]) -> Vec<SnapshotWarning> {
    let new = created.record();
    let older = all.iter().rev().map(Snapshot::record);
    let mut older = older.filter(|record| record.id != new.id);
    let mut found = Vec::new();
    let mut warn = |name: &str, text: String| {
        found.push(SnapshotWarning::new(name.to_owned(), text, accept));
    };
    let other = older.clone().find(|record| {
        let (was, is) = (cluster_of(record), cluster_of(new));
        was.is_some() && is.is_some() && was != is
    });
    if let Some(other) = other {
        let path = new.source.path.display();
        let text = format!(
            "the cluster in {path} is another one than that of snapshot {}: it was made anew",
            other.name
        );
        warn(OTHER_CLUSTER, text);
    }
    let Some(last) = older.next() else {
        return found;
    };
    let is_told = created.warnings.iter().any(|one| one.name == LOST);
    // That it ends at a limit is what somebody asked for.
    if let State::Lost { why } = &last.state
        && !is_told
        && !is_limit(why)
    {
        let more = older.filter(|record| record.state != State::Kept).count();
        let more = match more {
            0 => String::new(),
            more => format!(", and {} of this kind", counted(more as u64, "older one")),
        };
        warn(LOST, format!("snapshot {} is lost{more}: {why}", last.name));
    }
    let mut passed_over = created.passed_over.iter();
    if let Some(over) = passed_over.find(|over| over.method == last.method) {
        let text = format!(
            "this snapshot is by method {}, and the last one of its kind was by {}: {}",
            new.method, last.method, over.obstacle
        );
        warn(METHOD_CHANGED, text);
    }
    found
}

/// The warning about snapshots that are as of a moment that is still to come.
fn ahead(found: &OfKind, accept: &[String]) -> Option<SnapshotWarning> {
    let last = found.all[..found.ahead].last()?.record();
    let (are, goes, it) = match found.ahead {
        1 => ("is", "it counts as the oldest, and goes", "it"),
        _ => ("are", "they count as the oldest, and go", "them"),
    };
    let text = format!(
        "{} of this kind {are} of a moment that is still to come ({}: {}): the clock was ahead \
         then, or is behind now; {goes} first, or when you drop {it}",
        counted(found.ahead as u64, "snapshot"),
        last.name,
        moment(last)
    );
    Some(SnapshotWarning::new(AHEAD.to_owned(), text, accept))
}

/// The identity of the cluster in a snapshot.
fn cluster_of(record: &Record) -> Option<&str> {
    record.facts.database["system_identifier"].as_str()
}

/// Makes a snapshot with the moment in its name, and a number if the name is taken.
fn create_named(
    caller: &Caller,
    request: &CreateRequest,
    cancel: &Cancel,
) -> Result<(CreateOutcome, Around), OperationError> {
    let moment = jiff::Timestamp::now().strftime(MOMENT).to_string();
    let mut tries = 1..TRIES_MAX;
    loop {
        let name = match tries.next() {
            None | Some(1) => format!("{}-{moment}", request.name),
            Some(number) => format!("{}-{moment}-{number}", request.name),
        };
        let request = CreateRequest {
            name,
            ..request.clone()
        };
        match create_among(caller, &request, cancel) {
            Err(OperationError::Snapshot(SnapshotError::Taken { .. })) if !tries.is_empty() => {}
            created => return created,
        }
    }
}

/// A snapshot that is to go.
struct Surplus<'a> {
    snapshot: &'a Snapshot,
    has_ended: bool,
}

/// Those that are to go, the oldest first.
fn surplus(all: &[Snapshot], keep: u32) -> Vec<Surplus<'_>> {
    let standings: Vec<_> = all.iter().map(Standing::of).collect();
    let positions = going(&standings, keep).into_iter();
    let found = positions.map(|position| Surplus {
        snapshot: &all[position],
        has_ended: standings[position] == Standing::Ended,
    });
    found.collect()
}

/// What a snapshot is to a rotation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Kept,
    /// It reached a limit that somebody gave it.
    Ended,
    Lost,
}

impl Standing {
    fn of(snapshot: &Snapshot) -> Self {
        match &snapshot.record().state {
            State::Kept => Self::Kept,
            State::Lost { why } if is_limit(why) => Self::Ended,
            State::Lost { .. } => Self::Lost,
        }
    }
}

/// The positions of those that go: what is older than the newest `keep` that are kept, and what
/// has ended and is older than the newest `keep` of any state.
fn going(standings: &[Standing], keep: u32) -> Vec<usize> {
    let kept = standings.iter().map(|one| *one == Standing::Kept);
    let stay = oldest_that_stays(kept, keep);
    let newest = standings.len().saturating_sub(keep as usize);
    let goes = |(position, one): (usize, &Standing)| {
        let is_over = position < newest && *one == Standing::Ended;
        (position < stay || is_over).then_some(position)
    };
    standings.iter().enumerate().filter_map(goes).collect()
}

/// The position of the oldest one that stays, of some of which these are kept. Where fewer than
/// `keep` are kept, nothing goes.
fn oldest_that_stays(
    kept: impl DoubleEndedIterator<Item = bool> + ExactSizeIterator,
    keep: u32,
) -> usize {
    let kept = kept.enumerate().rev().filter(|(_, is_kept)| *is_kept);
    let mut positions = kept.map(|(position, _)| position);
    let last = positions.nth((keep as usize).saturating_sub(1));
    last.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_does_not_count_and_goes_with_what_is_older_than_the_last_that_stays() {
        let cases: [(&[bool], u32, usize); 9] = [
            (&[true, true, true], 2, 1),
            (&[true, true, true], 3, 0),
            (&[true, true], 3, 0),
            // These two were lost, and nothing newer fills their places yet.
            (&[true, false, false, true], 2, 0),
            (&[false, false, true], 3, 0),
            (&[false, true, false, true, true], 2, 3),
            (&[false, true, false, true, true], 3, 1),
            (&[false, false], 1, 0),
            (&[], 1, 0),
        ];
        for (kept, keep, expected) in cases {
            let found = oldest_that_stays(kept.iter().copied(), keep);
            assert_eq!(found, expected, "{kept:?} {keep}");
        }
    }
    #[test]
    fn what_has_ended_goes_when_as_many_are_newer_as_are_to_stay_in_whatever_state() {
        use Standing::{Ended, Kept, Lost};
        let cases: [(&[Standing], u32, &[usize]); 7] = [
            (&[Ended, Ended, Ended], 2, &[0]),
            (&[Ended, Ended, Kept], 2, &[0]),
            (&[Ended, Ended], 2, &[]),
            // What is still kept, or was lost without a limit, waits until there are enough.
            (&[Kept, Ended, Ended, Kept], 2, &[1]),
            (&[Lost, Ended, Ended, Kept], 2, &[1]),
            (&[Ended, Lost, Kept, Kept], 2, &[0, 1]),
            (&[Kept, Kept, Ended, Kept], 2, &[0]),
        ];
        for (standings, keep, expected) in cases {
            assert_eq!(going(standings, keep), expected, "{standings:?} {keep}");
        }
    }
}
