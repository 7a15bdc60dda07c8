//! What a process of the server does before it overwrites a page.

use core::ops::Range;

use super::ahead::sync_ahead;
use super::cell::Cell;
use super::limits::{enforce, forgotten};
use super::lock::{EXTENT_BLOCKS, Lock};
use super::memory::{Cause, Memory, Phase, SNAPSHOTS_MAX};
use super::process::{Process, Waiter};
use super::snapshot::{FileKey, FileRecord, Snapshot};
use crate::map::Slot;
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
    /// Makes durable what this process wrote into the store, and what others had written before.
    fn sync(&mut self) -> Result<(), Fault>;
    /// Makes sure that a power cut does not bring back the snapshot at this place of the table.
    fn forget(&mut self, index: u32);
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

/// What a page needs before it is overwritten.
pub(super) enum Need<'a> {
    Nothing,
    /// To be copied into this snapshot, and this is its cell.
    Copy(Snapshot<'a>, usize),
    /// To be made durable: this snapshot has it.
    Sync(Snapshot<'a>),
}

pub(super) fn need<'a>(memory: Memory<'a>, key: FileKey, block: u64) -> Need<'a> {
    for snapshot in linked(memory) {
        let state = snapshot.state();
        if state == Phase::Lost {
            // All older ones are lost, too.
            return Need::Nothing;
        }
        let Some(cell) = snapshot.cell_of(key, block) else {
            continue;
        };
        match Cell(memory.load(cell)) {
            found if found.is_unsynced() => return Need::Sync(snapshot),
            Cell(0) if state == Phase::Active => return Need::Copy(snapshot, cell),
            Cell(0) => {}
            _ => return Need::Nothing,
        }
    }
    Need::Nothing
}

/// The first of these blocks of a file for which [`preserve`] has something to do. The process must
/// be inside. Blocks that a snapshot has are not looked up in older ones.
pub fn first_needed(memory: Memory<'_>, key: FileKey, mut blocks: Range<u64>) -> Option<u64> {
    blocks.find(|block| !matches!(need(memory, key, *block), Need::Nothing))
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
    let snapshot = match need(memory, key, block) {
        Need::Nothing => return,
        Need::Sync(snapshot) => return sync_ahead(memory, &snapshot, (key, block), system),
        Need::Copy(snapshot, _) => snapshot,
    };
    let Some(lock) = Lock::take(memory, process, (key, block), system) else {
        let (cause, errno) = (Cause::Lock, 0);
        give_up(&snapshot, Fault { cause, errno }, system);
        return;
    };
    let is_preserved = keep(memory, (key, block), system);
    lock.release();
    if is_preserved {
        return enforce(memory, system);
    }
    // Somebody copied it ahead while this process waited.
    if let Need::Sync(snapshot) = need(memory, key, block) {
        sync_ahead(memory, &snapshot, (key, block), system);
    }
}

/// Copies the page, and for a durable snapshot those of its extent with it: one sync is enough for
/// all of them. A neighbour's cell is unset, and the lock is that of the extent, so nobody has
/// overwritten the neighbour, and nobody does before its cell is set.
fn keep(memory: Memory<'_>, (key, block): (FileKey, u64), system: &mut impl System) -> bool {
    let Need::Copy(snapshot, cell) = need(memory, key, block) else {
        return false;
    };
    let mut kept = Kept::default();
    let copied = copy(memory, &snapshot, (key, block), system).and_then(|slot| {
        kept.push(&snapshot, cell, slot);
        if !is_durable(memory) {
            return Ok(());
        }
        let blocks = EXTENT_BLOCKS as u64;
        let first = block - block % blocks;
        for neighbour in (first..first + blocks).filter(|it| *it != block) {
            let Need::Copy(snapshot, cell) = need(memory, key, neighbour) else {
                continue;
            };
            // Whoever writes to it tries again, and then it counts.
            let Ok(slot) = copy(memory, &snapshot, (key, neighbour), system) else {
                break;
            };
            kept.push(&snapshot, cell, slot);
        }
        system.sync()
    });
    match copied {
        Ok(()) => kept.count_all(memory),
        Err(fault) => give_up(&snapshot, fault, system),
    }
    copied.is_ok()
}

/// Pages that were copied and do not count yet.
#[derive(Default)]
struct Kept {
    pages: [(u32, usize, Slot); EXTENT_BLOCKS],
    count: usize,
}

impl Kept {
    fn push(&mut self, snapshot: &Snapshot<'_>, cell: usize, slot: Slot) {
        if let Some(page) = self.pages.get_mut(self.count) {
            *page = (snapshot.index(), cell, slot);
            self.count += 1;
        }
    }

    fn count_all(&self, memory: Memory<'_>) {
        for (index, cell, slot) in self.pages.iter().take(self.count) {
            memory.store(*cell, Cell::of(*slot).0);
            if let Some(snapshot) = Snapshot::at(memory, *index) {
                snapshot.note_preserved();
            }
        }
    }
}

/// Whether a snapshot is linked that is to outlive a power cut. Then every page is made durable:
/// the older snapshot reads through the newer ones.
pub fn is_durable(memory: Memory<'_>) -> bool {
    linked(memory).any(|it| it.is_durable() && it.state() == Phase::Active)
}

/// What an entry of the store says about the snapshots that were found again after a power cut.
/// The nearest snapshot that is not newer than the entry, and that has the block, gets the page if
/// it has none; the slots come in their order. `is_there` says whether the page can be read as it
/// was. False if the snapshot would show a wrong page.
pub fn restore(
    memory: Memory<'_>,
    slot: Slot,
    entry: &SlotEntry,
    is_there: impl FnOnce(&Snapshot<'_>, &FileRecord) -> Option<bool>,
) -> bool {
    let [a, b, c, d, rest @ ..] = entry.owner.to_le_bytes();
    let number = u32::from_le_bytes([a, b, c, d]);
    let key = FileKey {
        device: u32::from_le_bytes(rest),
        inode: entry.file,
    };
    for snapshot in linked(memory).filter(|it| it.number() <= number) {
        let Some(record) = snapshot.find(key) else {
            continue;
        };
        let Some(cell) = snapshot.cell_at(&record, entry.block) else {
            continue;
        };
        if memory.load(cell) != 0 {
            return true;
        }
        return match is_there(&snapshot, &record) {
            Some(true) => {
                memory.store(cell, Cell::of(slot).0);
                snapshot.note_preserved();
                true
            }
            // The source was not overwritten.
            Some(false) => true,
            None => false,
        };
    }
    true
}

pub(super) fn give_up(snapshot: &Snapshot<'_>, fault: Fault, system: &mut impl System) {
    if lose(snapshot, fault, &mut |index| system.forget(index)) {
        system.tell_lost(fault.cause);
    }
}

/// Copies the page into the store.
pub(super) fn copy(
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
pub(super) fn lose(snapshot: &Snapshot<'_>, fault: Fault, forget: &mut impl FnMut(u32)) -> bool {
    let mut is_first = false;
    let is_kept = |it: &Snapshot<'_>| matches!(it.state(), Phase::Active | Phase::Draining);
    for _ in 0..SNAPSHOTS_MAX {
        let each = core::iter::successors(Some(*snapshot), Snapshot::older);
        let Some(oldest) = each.take(SNAPSHOTS_MAX as usize).filter(is_kept).last() else {
            break;
        };
        is_first |= forgotten(&oldest, forget, || {
            oldest.set_cause(fault.cause, fault.errno);
            oldest.change_state(Phase::Active, Phase::Lost)
                || oldest.change_state(Phase::Draining, Phase::Lost)
        });
    }
    is_first
}

/// Marks every snapshot as lost. `forget` makes sure that a power cut does not bring one back.
pub fn lose_all(memory: Memory<'_>, fault: Fault, mut forget: impl FnMut(u32)) {
    if let Some(newest) = Snapshot::linked(memory, memory.newest()) {
        lose(&newest, fault, &mut forget);
    }
}

/// Marks the snapshot with this number as lost, and all that read through it.
pub fn lose_numbered(memory: Memory<'_>, number: u32, fault: Fault, mut forget: impl FnMut(u32)) {
    if let Some(snapshot) = linked(memory).find(|snapshot| snapshot.number() == number) {
        lose(&snapshot, fault, &mut forget);
    }
}
