//! The chain of snapshots, newest first: how one joins it, and how one leaves it.
//!
//!   claim --> fill index --> publish      drain --> grace --> merge --> unlink --> grace --> free
//!
//! Only one controller runs at a time; it holds a lock on the memory's file. If it dies, the next
//! one sees from the states what was under way, and every step can be done again.

use super::cell::Cell;
use super::memory::{Memory, NEWEST_AT, Phase, SNAPSHOTS_MAX};
use super::snapshot::{FileRecord, Snapshot};
use super::writer::linked;
use crate::map::Slot;

/// An entry that nobody but its controller looks at.
#[derive(Debug)]
pub struct Unpublished<'a>(pub Snapshot<'a>);

/// What became of a page of a snapshot that is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// An older snapshot has it now.
    Kept,
    /// No snapshot needs it. Its slot can be freed.
    Unneeded(Slot),
}

/// Takes a free entry of the table.
pub fn claim(memory: Memory<'_>) -> Option<Unpublished<'_>> {
    let mut entries = (0..SNAPSHOTS_MAX).filter_map(|index| Snapshot::at(memory, index));
    let claimed = entries.find(|it| it.change_state(Phase::Free, Phase::Building));
    claimed.map(Unpublished)
}

/// Lets writers see a snapshot. It is the newest from now on. Whoever is inside a call may not have
/// seen it; a grace waits for these.
pub fn publish<'a>(memory: Memory<'a>, built: Unpublished<'a>) -> Snapshot<'a> {
    let snapshot = built.0;
    snapshot.set_older(memory.newest());
    snapshot.set_state(Phase::Active);
    memory.store(NEWEST_AT, snapshot.link());
    memory.note_change();
    snapshot
}

/// Keeps new pages out of a snapshot. A grace must follow; then its map is frozen.
pub fn drain(snapshot: &Snapshot<'_>) {
    snapshot.change_state(Phase::Active, Phase::Draining);
}

/// Gives the pages of a file to the nearest older snapshot that has the block and not the page. The
/// snapshot must be draining, and a grace must have passed.
pub fn merge(
    memory: Memory<'_>,
    snapshot: &Snapshot<'_>,
    record: &FileRecord,
    mut each: impl FnMut(Moved),
) {
    for block in 0..u64::from(record.blocks) {
        let Some(given) = snapshot.cell(record, block) else {
            continue;
        };
        let Some(slot) = given.slot() else { continue };
        let is_kept = cell_of_older(snapshot, record, block)
            .is_some_and(|(older, cell)| give(memory, &older, cell, given));
        each(match is_kept {
            true => Moved::Kept,
            false => Moved::Unneeded(slot),
        });
    }
}

/// Gives a page to an older snapshot, with its mark: whoever takes that away here may not see the
/// older cell yet, and a mark too many is only a sync too many. False if the older one has another.
fn give(memory: Memory<'_>, older: &Snapshot<'_>, cell: usize, given: Cell) -> bool {
    if memory.replace(cell, 0, given.0) {
        older.note_preserved();
        return true;
    }
    // A controller that died may have given it already.
    Cell(memory.load(cell)).slot() == given.slot()
}

fn cell_of_older<'a>(
    snapshot: &Snapshot<'a>,
    record: &FileRecord,
    block: u64,
) -> Option<(Snapshot<'a>, usize)> {
    let mut next = snapshot.older();
    let mut left = SNAPSHOTS_MAX;
    while let Some(older) = next.filter(|_| left > 0) {
        if older.state() == Phase::Lost {
            return None;
        }
        if let Some(cell) = older.cell_of(record.key, block) {
            return Some((older, cell));
        }
        left -= 1;
        next = older.older();
    }
    None
}

/// Takes a snapshot out of the chain. A grace of writers and one of readers must follow before
/// anything of it is freed.
pub fn unlink(memory: Memory<'_>, snapshot: &Snapshot<'_>) {
    let link = snapshot.link();
    let older = snapshot.older_link();
    if memory.newest() == link {
        memory.store(NEWEST_AT, older);
    } else if let Some(newer) = linked(memory).find(|it| it.older_link() == link) {
        newer.set_older(older);
    }
    memory.note_change();
}

/// Frees the entry of a snapshot that is not in the chain and that nobody can still see.
pub fn release(snapshot: &Snapshot<'_>) {
    snapshot.prepare(0, (0, 0), (0, 0));
    snapshot.set_state(Phase::Free);
}
