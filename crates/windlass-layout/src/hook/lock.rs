//! Locks of single blocks. Two processes must not preserve one block at the same time.
//!
//! The lock belongs to (device, inode, block) and not to a snapshot, because which snapshot is the
//! newest may change between two writers. The blocks of an extent have one lock, because a durable
//! snapshot preserves them together, and extents share locks. A lock whose holder died is taken
//! over: nothing that it did counts before the cell is set.

use super::memory::{LOCKS_AT, Memory};
use super::process::{OUTSIDER, Process, Waiter, is_gone};
use super::snapshot::FileKey;
use crate::sync::LOCKS;

/// How often a waiter looks before it asks whether the holder is alive.
const TURNS_BEFORE_ASKING: u32 = 16;
/// So many blocks in a row are one extent.
pub(super) const EXTENT_BLOCKS: usize = 16;

/// A lock that is held.
pub(super) struct Lock<'a> {
    memory: Memory<'a>,
    at: usize,
    holder: u32,
}

impl<'a> Lock<'a> {
    /// Takes the lock of a block; `None` if it did not become free in time, or if this process
    /// already holds it.
    pub(super) fn take(
        memory: Memory<'a>,
        process: &Process,
        (key, block): (FileKey, u64),
        waiter: &mut impl Waiter,
    ) -> Option<Self> {
        let which = key.mixed(block / EXTENT_BLOCKS as u64) % LOCKS as u64;
        let at = LOCKS_AT + usize::try_from(which).ok()?;
        let holder = process.holder(memory);
        let mut turn = 0;
        loop {
            let found = memory.load(at);
            let is_free = found == 0
                || (turn % TURNS_BEFORE_ASKING == TURNS_BEFORE_ASKING - 1
                    && is_gone(memory, found, waiter));
            if is_free && memory.replace(at, found, holder) {
                return Some(Self { memory, at, holder });
            }
            let is_mine = found == holder && holder != OUTSIDER;
            if is_mine || !waiter.wait(turn) {
                return None;
            }
            turn = turn.saturating_add(1);
        }
    }

    pub(super) fn release(self) {
        self.memory.replace(self.at, self.holder, 0);
    }
}
