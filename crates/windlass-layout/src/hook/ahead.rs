//! Pages that are copied before anybody wants to overwrite them, many with one sync.
//!
//!   helper   copy, mark the cell --> the next page ... --> sync --> take the marks away
//!   writer   cell unset: copies it     marked: syncs     set: goes on
//!
//! A page that the helper chooses may be any: its copy is right, because its cell was unset and the
//! lock of its extent was held. So what the helper believes about the future can be wrong.
//!
//! Locking: the helper holds the lock of one page at a time, and none while it syncs. It need not
//! be inside of a call then: it finds the cells again, and a store uses a slot only once.

use super::cell::Cell;
use super::limits::enforce;
use super::lock::Lock;
use super::memory::Memory;
use super::process::Process;
use super::snapshot::{FileKey, Snapshot};
use super::writer::{Fault, Need, System, copy, give_up, is_durable, linked, lose_all, need};
use crate::map::Slot;

/// A page that was copied ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Its file.
    pub key: FileKey,
    /// Its block.
    pub block: u64,
    slot: Slot,
    store: u32,
}

/// Copies a page that a durable snapshot will need. `None` if none does, or if it cannot be copied:
/// its writer tries again, and then it counts. The process must be inside.
pub fn copy_ahead(
    memory: Memory<'_>,
    process: &Process,
    (key, block): (FileKey, u64),
    system: &mut impl System,
) -> Option<Ahead> {
    let is_needed = || is_durable(memory) && matches!(need(memory, key, block), Need::Copy(..));
    if !is_needed() {
        return None;
    }
    let lock = Lock::take(memory, process, (key, block), system)?;
    let copied = match need(memory, key, block) {
        Need::Copy(snapshot, cell) => {
            let copied = copy(memory, &snapshot, (key, block), system);
            copied.ok().inspect(|slot| {
                memory.store(cell, Cell::unsynced(*slot).0);
                snapshot.note_preserved();
            })
        }
        _ => None,
    };
    lock.release();
    let slot = copied?;
    enforce(memory, system);
    Some(Ahead {
        key,
        block,
        slot,
        store: memory.store_version(),
    })
}

/// Takes the mark of a page away. The store was synced after the page was copied. The process must
/// be inside.
pub fn settle_ahead(memory: Memory<'_>, page: &Ahead) {
    if page.store == memory.store_version() {
        settle(memory, (page.key, page.block), page.slot);
    }
}

/// The store could not be synced: what it has of these pages may be gone.
pub fn lose_ahead(memory: Memory<'_>, fault: Fault, system: &mut impl System) {
    if linked(memory).next().is_some() {
        lose_all(memory, fault, |index| system.forget(index));
        system.tell_lost(fault.cause);
    }
}

/// A writer wants to overwrite a page that was copied and not synced.
pub(super) fn sync_ahead(
    memory: Memory<'_>,
    snapshot: &Snapshot<'_>,
    (key, block): (FileKey, u64),
    system: &mut impl System,
) {
    if !is_durable(memory) {
        return;
    }
    let record = snapshot.find(key);
    // Before the sync: whoever copies the page later is not covered by it.
    let slot = record.and_then(|record| snapshot.slot(&record, block));
    match (system.sync(), slot) {
        (Err(fault), _) => give_up(snapshot, fault, system),
        (Ok(()), Some(slot)) => settle(memory, (key, block), slot),
        (Ok(()), None) => {}
    }
}

fn settle(memory: Memory<'_>, (key, block): (FileKey, u64), slot: Slot) {
    for snapshot in linked(memory) {
        if let Some(cell) = snapshot.cell_of(key, block) {
            memory.replace(cell, Cell::unsynced(slot).0, Cell::of(slot).0);
        }
    }
}
