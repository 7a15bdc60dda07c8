//! How a snapshot's pages are found: in its own map, in those of newer snapshots, in the source.
//!
//!   find --> slot: the store has the page
//!        \-> source: read it there --> find again: still the source? --> these are the bytes
//!
//! Locking: whoever reads holds a place in the table of readers. The controller waits for all
//! readers before it frees a map or a slot.

use super::memory::{Memory, Phase, READER_WORDS, READERS_AT};
use super::process::{Busy, Waiter};
use super::snapshot::{FileKey, Snapshot};
use super::writer::linked;
use crate::map::Slot;
use crate::sync::READERS;

/// Where a page of a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In this slot of the store.
    Slot(Slot),
    /// Still in the source.
    Source,
    /// Nowhere: the snapshot is lost or no longer there.
    Nowhere,
}

/// Finds the page of a block in the snapshot with this number. The oldest version that is at least
/// as new as the snapshot is the right one.
pub fn find(memory: Memory<'_>, number: u32, key: FileKey, block: u64) -> Found {
    let mut found = Found::Source;
    for snapshot in linked(memory) {
        let is_this = snapshot.number() == number;
        if is_this && snapshot.state() != Phase::Active {
            return Found::Nowhere;
        }
        let record = snapshot.find(key);
        if let Some(slot) = record.and_then(|record| snapshot.slot(&record, block)) {
            found = Found::Slot(slot);
        }
        if is_this {
            return found;
        }
    }
    Found::Nowhere
}

/// Whether the snapshot can no longer be read.
pub fn is_lost(memory: Memory<'_>, number: u32) -> bool {
    let found = Snapshot::numbered(memory, number);
    found.is_none_or(|snapshot| snapshot.state() != Phase::Active)
}

/// A place in the table of readers.
#[derive(Debug)]
pub struct Reading<'a> {
    memory: Memory<'a>,
    at: usize,
}

impl<'a> Reading<'a> {
    /// Takes a place; `None` if all are taken for too long. `start` spreads the readers.
    pub fn begin(
        memory: Memory<'a>,
        pid: u32,
        start: usize,
        waiter: &mut impl Waiter,
    ) -> Option<Self> {
        let mut turn = 0;
        loop {
            for step in 0..READERS {
                let at = READERS_AT + (start.wrapping_add(step) % READERS) * READER_WORDS;
                if memory.replace(at, 0, pid) {
                    memory.add(at + 1);
                    return Some(Self { memory, at });
                }
            }
            if !waiter.wait(turn) {
                return None;
            }
            turn = turn.saturating_add(1);
        }
    }

    /// Waits until everybody who reads now has ended. Frees the places of readers that died.
    pub fn grace(memory: Memory<'_>, waiter: &mut impl Waiter) -> Result<(), Busy> {
        for reader in 0..READERS {
            let at = READERS_AT + reader * READER_WORDS;
            let (pid, count) = (memory.load(at), memory.load(at + 1));
            let mut turn = 0;
            while pid != 0 && memory.load(at) == pid && memory.load(at + 1) == count {
                if !waiter.is_alive(pid) {
                    memory.replace(at, pid, 0);
                } else if !waiter.wait(turn) {
                    return Err(Busy { pid });
                }
                turn = turn.saturating_add(1);
            }
        }
        Ok(())
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.memory.store(self.at, 0);
    }
}
