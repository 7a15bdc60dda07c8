//! The page store: pages one after another in one file, found by their slots.
//!
//! It is not a sparse copy of the files, because pages written all over a table would give such a
//! copy tens of thousands of extents, and removing it would take a minute.
//!
//! Invariants
//! - A slot holds at most one page that the journal mentions.
//! - A freed slot is used again only after the record that freed it is durable. Otherwise, after a
//!   power cut, the old owner could come back and find the bytes of the new one.
//!
//! Locking: the list of slots is locked for moments. Whoever reads or writes a slot holds the lock
//! of its node.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::Slot;

/// Bytes of a page, and of a slot.
pub(crate) const PAGE_BYTES: usize = 8192;

/// The file of pages.
#[derive(Debug)]
pub(crate) struct PageStore {
    file: File,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Slots from here on have never been used.
    next: Slot,
    /// These slots may be used.
    free: Vec<Slot>,
    /// These slots were freed after the last sync of the journal.
    freed: Vec<Slot>,
}

impl PageStore {
    /// A store in which exactly the slots of `used` hold pages.
    pub(crate) fn new(file: File, used: impl Iterator<Item = Slot>) -> io::Result<Self> {
        let mut used: Vec<_> = used.collect();
        used.sort_unstable();
        if used.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let next = used.last().map_or(0, |last| last + 1);
        let mut free = Vec::new();
        let mut expected = 0;
        for slot in used {
            free.extend(expected..slot);
            expected = slot + 1;
        }
        free.reverse();
        // Cuts off pages that no record refers to. Whoever wrote them was killed before the record
        // was written.
        file.set_len(offset(next))?;
        let slots = Slots {
            next,
            free,
            freed: Vec::new(),
        };
        Ok(Self {
            file,
            slots: Mutex::new(slots),
        })
    }

    /// Takes `count` slots, as runs; `None` when all slot numbers are in use.
    pub(crate) fn take(&self, count: u32) -> Option<Vec<Range<Slot>>> {
        let mut slots = self.lock();
        let mut runs: Vec<Range<Slot>> = Vec::new();
        for _ in 0..count {
            let slot = match slots.free.pop() {
                Some(slot) => slot,
                None => {
                    let slot = slots.next;
                    slots.next = slot.checked_add(1).filter(|next| *next < Slot::MAX)?;
                    slot
                }
            };
            match runs.last_mut() {
                Some(run) if run.end == slot => run.end += 1,
                _ => runs.push(slot..slot + 1),
            }
        }
        Some(runs)
    }

    /// Gives back slots that no record refers to.
    pub(crate) fn give_back(&self, runs: &[Range<Slot>]) {
        let mut slots = self.lock();
        runs.iter().for_each(|run| slots.free.extend(run.clone()));
    }

    /// Frees slots. The record that frees them must have been written already.
    pub(crate) fn free(&self, freed: impl IntoIterator<Item = Slot>) {
        self.lock().freed.extend(freed);
    }

    /// Takes the slots freed so far. They go to `reuse` once the journal is durable.
    pub(crate) fn freed(&self) -> Vec<Slot> {
        std::mem::take(&mut self.lock().freed)
    }

    pub(crate) fn reuse(&self, freed: Vec<Slot>) {
        if freed.is_empty() {
            return;
        }
        let mut slots = self.lock();
        slots.free.extend(freed);
        // In descending order, because slots are taken from the end: so they are taken as runs.
        slots.free.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// Approximate number of slots that hold pages, and number of free slots.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let slots = self.lock();
        let idle = (slots.free.len() + slots.freed.len()) as u64;
        (u64::from(slots.next) - idle, idle)
    }

    /// Reads from `within` of a slot on, over as many slots as `into` covers.
    pub(crate) fn read(&self, slot: Slot, within: usize, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset(slot) + within as u64)
    }

    /// Writes from `within` of a slot on.
    pub(crate) fn write(&self, slot: Slot, within: usize, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset(slot) + within as u64)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn offset(slot: Slot) -> u64 {
    u64::from(slot) * PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_used_again_only_after_a_sync() {
        let store = PageStore::new(tempfile::tempfile().unwrap(), [0, 1, 4].into_iter()).unwrap();
        assert_eq!(store.counts(), (3, 2));
        assert_eq!(store.take(3), Some(vec![2..4, 5..6]));
        store.free([1]);
        let end = 6..8;
        assert_eq!(store.take(2), Some(vec![end]));
        let freed = store.freed();
        store.free([4]);
        store.reuse(freed);
        assert_eq!(store.take(2), Some(vec![1..2, 8..9]));
    }
}
