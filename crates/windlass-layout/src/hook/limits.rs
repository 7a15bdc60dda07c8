//! The limits of snapshots: one that reaches a limit ends, and the server goes on.
//!
//! Such a snapshot takes no more pages, like one that is dropped, so the older ones still read
//! through it and lose nothing. Nobody can read it any more, and its cause says why.
//!
//! Whoever preserves a page looks at the limits. So a snapshot never grows far beyond its limit,
//! and no other process has to watch it.

use super::memory::{Cause, Memory, Phase};
use super::snapshot::Snapshot;
use super::writer::{System, linked};

/// The space on the disk is asked for with every so many slots.
const SLOTS_BETWEEN_LOOKS: u32 = 16;

impl Memory<'_> {
    /// How many pages were preserved into a snapshot and into all newer ones.
    pub fn preserved_since(&self, number: u32) -> u64 {
        let newer = linked(*self).take_while(|snapshot| snapshot.number() >= number);
        newer.map(|snapshot| u64::from(snapshot.preserved())).sum()
    }
}

/// Ends a snapshot for this cause. False if it had ended before. `forget` makes sure that a power
/// cut does not bring it back.
pub fn end(snapshot: &Snapshot<'_>, cause: Cause, mut forget: impl FnMut(u32)) -> bool {
    if snapshot.state() != Phase::Active {
        return false;
    }
    forgotten(snapshot, &mut forget, || {
        snapshot.set_cause(cause, 0);
        snapshot.change_state(Phase::Active, Phase::Draining)
    })
}

/// Changes the state of a snapshot that a power cut must not bring back. It is forgotten before
/// that, because others write at once when they see the new state; and after it, because the
/// controller may have made it durable in between.
pub(super) fn forgotten(
    snapshot: &Snapshot<'_>,
    forget: &mut impl FnMut(u32),
    change: impl FnOnce() -> bool,
) -> bool {
    if !snapshot.is_durable() {
        return change();
    }
    forget(snapshot.index());
    let is_changed = change();
    forget(snapshot.index());
    is_changed
}

/// Ends the snapshots that have reached a limit. Call it after a page was preserved.
pub(super) fn enforce(memory: Memory<'_>, system: &mut impl System) {
    let mut pages: u64 = 0;
    for snapshot in linked(memory) {
        if snapshot.state() == Phase::Lost {
            return;
        }
        pages = pages.saturating_add(u64::from(snapshot.preserved()));
        if let Some(cause) = reached(memory, &snapshot, pages, system)
            && end(&snapshot, cause, |index| system.forget(index))
        {
            system.tell_lost(cause);
        }
    }
}

fn reached(
    memory: Memory<'_>,
    snapshot: &Snapshot<'_>,
    pages: u64,
    system: &mut impl System,
) -> Option<Cause> {
    let limits = snapshot.limits();
    if limits.pages != 0 && pages > u64::from(limits.pages) {
        return Some(Cause::Size);
    }
    let mut has_passed = |until: u32| until != 0 && system.now().is_some_and(|now| now >= until);
    if has_passed(limits.until) {
        return Some(Cause::Age);
    }
    let is_time = memory.next_slot().is_multiple_of(SLOTS_BETWEEN_LOOKS);
    if limits.free_mib != 0 && is_time && system.free_mib()? < limits.free_mib {
        return Some(Cause::Free);
    }
    None
}
