//! What a process of the server does before it overwrites a page.

use super::limits::enforce;
use super::lock::Lock;
use super::memory::{Cause, Memory, Phase, SNAPSHOTS_MAX};
use super::process::{Process, Waiter};
use super::snapshot::{FileKey, Snapshot};
use crate::map::{MapCell, Slot};
use crate::store::SlotEntry;

/// Why a page could not be preserved, and the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The cause that the snapshot is lost for.
    pub cause: Cause,
    /// The system's error number, or 0.
    pub errno: i32,
}

/// What preserving needs of the system.
pub trait System: Waiter {
    /// Reads the page of a block as it is on disk, and returns its CRC-32C. Bytes behind the end of
    /// the file are zeros.
    fn read(&mut self, block: u64) -> Result<u32, Fault>;
    /// Writes the page that was read last, and its entry, into the store.
    fn write(&mut self, slot: Slot, entry: &SlotEntry) -> Result<(), Fault>;
    /// The time, in seconds since 1970; `None` if that is not known.
    fn now(&mut self) -> Option<u32>;
    /// How many MiB are free on the disk of the store; `None` if that is not known.
    fn free_mib(&mut self) -> Option<u32>;
    /// Snapshots were lost for this cause, now and by this process.
    fn tell_lost(&mut self, cause: Cause);
}

/// How many blocks of this file snapshots may need; 0 if none has the file.
pub fn blocks_of(memory: Memory<'_>, key: FileKey) -> u32 {
    let records = linked(memory).filter_map(|snapshot| snapshot.find(key));
    records.map(|record| record.blocks).max().unwrap_or(0)
}

/// Whether a snapshot has this file, even an empty one.
pub fn is_tracked(memory: Memory<'_>, key: FileKey) -> bool {
    linked(memory).any(|snapshot| snapshot.find(key).is_some())
}

/// The snapshots that writers can see, newest first.
pub(super) fn linked<'a>(memory: Memory<'a>) -> impl Iterator<Item = Snapshot<'a>> {
    let mut next = Snapshot::linked(memory, memory.newest());
    let each = core::iter::from_fn(move || {
        let snapshot = next?;
        next = snapshot.older();
        Some(snapshot)
    });
    // A list that is damaged may be a circle.
    each.take(SNAPSHOTS_MAX as usize)
}

/// The snapshot that the page must go to, and its cell. `None` if nothing needs it.
fn target<'a>(memory: Memory<'a>, key: FileKey, block: u64) -> Option<(Snapshot<'a>, usize)> {
    for snapshot in linked(memory) {
        let state = snapshot.state();
        if state == Phase::Lost {
            // All older ones are lost, too.
            return None;
        }
        let cell = snapshot
            .find(key)
            .and_then(|record| snapshot.cell_at(&record, block));
        let Some(cell) = cell else { continue };
        if memory.load(cell) != 0 {
            return None;
        }
        if state == Phase::Active {
            return Some((snapshot, cell));
        }
    }
    None
}

/// Preserves the page of a block, if a snapshot still needs it. The process must be inside. If this
/// fails, the snapshot and all older ones are lost. The caller's write goes on in any case.
pub fn preserve(
    memory: Memory<'_>,
    process: &Process,
    key: FileKey,
    block: u64,
    system: &mut impl System,
) {
    let Some((snapshot, _)) = target(memory, key, block) else {
        return;
    };
    let Some(lock) = Lock::take(memory, process, (key, block), system) else {
        let (cause, errno) = (Cause::Lock, 0);
        give_up(&snapshot, Fault { cause, errno }, system);
        return;
    };
    let mut is_preserved = false;
    if let Some((snapshot, cell)) = target(memory, key, block) {
        match copy(memory, &snapshot, (key, block), system) {
            Ok(slot) => {
                let filled = MapCell::of(slot).unwrap_or_default();
                memory.store(cell, filled.0);
                snapshot.note_preserved();
                is_preserved = true;
            }
            Err(fault) => give_up(&snapshot, fault, system),
        }
    }
    lock.release();
    if is_preserved {
        enforce(memory, system);
    }
}

fn give_up(snapshot: &Snapshot<'_>, fault: Fault, system: &mut impl System) {
    if lose(snapshot, fault) {
        system.tell_lost(fault.cause);
    }
}

/// Copies the page into the store.
fn copy(
    memory: Memory<'_>,
    snapshot: &Snapshot<'_>,
    (key, block): (FileKey, u64),
    system: &mut impl System,
) -> Result<Slot, Fault> {
    let page_crc = system.read(block)?;
    let slot = memory.take_slot().ok_or(Fault {
        cause: Cause::StoreFull,
        errno: 0,
    })?;
    let entry = SlotEntry {
        file: key.inode,
        block,
        owner: owner(key, snapshot.number()),
        page_crc,
    };
    system.write(slot, &entry)?;
    Ok(slot)
}

/// The owner in an entry: the file's device, and the number of the snapshot.
pub(super) fn owner(key: FileKey, number: u32) -> u64 {
    u64::from(key.device) << 32 | u64::from(number)
}

/// Marks a snapshot as lost, and all that read through it. The oldest comes first: a writer that
/// sees a lost snapshot preserves nothing for the older ones. False if all were lost before.
pub(super) fn lose(snapshot: &Snapshot<'_>, fault: Fault) -> bool {
    let mut is_first = false;
    let is_kept = |it: &Snapshot<'_>| matches!(it.state(), Phase::Active | Phase::Draining);
    for _ in 0..SNAPSHOTS_MAX {
        let each = core::iter::successors(Some(*snapshot), Snapshot::older);
        let Some(oldest) = each.take(SNAPSHOTS_MAX as usize).filter(is_kept).last() else {
            break;
        };
        oldest.set_cause(fault.cause, fault.errno);
        is_first |= oldest.change_state(Phase::Active, Phase::Lost)
            || oldest.change_state(Phase::Draining, Phase::Lost);
    }
    is_first
}

/// Marks every snapshot as lost.
pub fn lose_all(memory: Memory<'_>, fault: Fault) {
    if let Some(newest) = Snapshot::linked(memory, memory.newest()) {
        lose(&newest, fault);
    }
}

/// Marks the snapshot with this number as lost, and all that read through it.
pub fn lose_numbered(memory: Memory<'_>, number: u32, fault: Fault) {
    if let Some(snapshot) = linked(memory).find(|snapshot| snapshot.number() == number) {
        lose(&snapshot, fault);
    }
}
